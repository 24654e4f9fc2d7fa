package convert

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// bySchema completes a configuration with schema.yaml of the folder.
func bySchema(dir string, cfg Config) Config {
	vocab := cfg.Vocab
	cfg = in(dir, cfg)
	cfg.Schema, cfg.Vocab = filepath.Join(dir, "schema.yaml"), ""
	if vocab != "" {
		cfg.Vocab = filepath.Join(dir, vocab)
	}
	return cfg
}

// features returns the records of a split, shard after shard, each as "name=values ...".
func features(t testing.TB, cfg Config, split string) []string {
	t.Helper()
	verified(t, cfg)
	var out []string
	eachRecord(t, cfg, split, func(data []byte) {
		all, err := tfrecord.ParseExample(data)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, textOf(all))
	})
	return out
}

// textOf returns features as "name=values ...".
func textOf(all []tfrecord.Feature) string {
	var parts []string
	for _, f := range all {
		v := fmt.Sprint(f.Int64s)
		switch f.Kind {
		case tfrecord.KindFloat:
			v = "f" + fmt.Sprint(f.Floats)
		case tfrecord.KindBytes:
			v = fmt.Sprintf("%q", f.Bytes)
		}
		parts = append(parts, f.Name+"="+v)
	}
	return strings.Join(parts, " ")
}

func TestSchemaRecords(t *testing.T) {
	const schema = `
features:
  size: {kind: number, columns: [width, "h{1..2}"]}
  count: {kind: number, dtype: int64, minimum: 0, missing: -0}
  pixels: {kind: number, dtype: uint8, column: px, shape: [2, 2]}
  sold: {kind: number, dtype: bool, missing_values: ["?"], missing: false}
  tags: {kind: category, shape: [null], separator: "|", unknown: other}
  colour: {kind: category, unknown: other, missing: other}
  grade: {kind: category, role: label, categories: [good, bad]}
  weight: {role: weight}
  words: {kind: text, columns: [a, b], segments: parts, max_length: 8}
  bare: {kind: text, column: a, special_tokens: false}
  name: {role: id}
`
	const header = "width,h1,h2,count,px,sold,tags,colour,grade,weight,a,b,name\n"
	rows := map[string]string{
		"schema.yaml": schema,
		"train.csv": header +
			"1,2.5,-3e1,7,1 2 3 255,1,x|y,red,good,1,good film,bad,r1\n" +
			"0.1,0,0,3.0,\"[255, 216, 255, 0]\",?,y,blue,bad,0.5,film,film,\"r, 2\"\n" +
			"0,0,0,,\"[[1,2],[3,4]]\",FALSE,x | y,,good,0,a,b,r3\n",
		"test.csv": "name,width,h1,h2,count,px,sold,tags,colour,a,b\nt1,1,2,3,4,0 0 0 0,true,z|x,green,a,a\n",
		"test.jsonl": `{"name":"t2","width":1,"h1":2,"h2":3,"px":[0,0,0,1],"sold":null,"tags":["x","q"],"a":"a","b":"b","grade":null,"count":9007199254740993}` + "\n" +
			`{"name":"t3","width":1,"h1":2,"h2":3,"px":[[0,0],[0,2]],"tags":"y","colour":"red","a":"a","b":"b","grade":"bad","weight":2}` + "\n",
	}
	for _, workers := range []int{1, 5} {
		dir := write(t, rows)
		cfg := bySchema(dir, Config{Vocab: "vocab.txt", Workers: workers, Inputs: []Input{{Train, "train.csv"}, {Test, "test.csv"}, {Test, "test.jsonl"}}})
		m := mustRun(t, cfg)
		want := map[string][]string{
			Train: {
				`bare=[5 7] colour=[1] count=[7] example_id=[0] grade=[0] name=["r1"] parts=[0 0 0 0 1 1] pixels=["\x01\x02\x03\xff"] size=f[1 2.5 -30] sold=[1] tags=[0 1] weight=f[1] words=[2 5 7 3 6 3]`,
				`bare=[7] colour=[0] count=[3] example_id=[1] grade=[1] name=["r, 2"] parts=[0 0 0 1 1] pixels=[255 216 255 0] size=f[0.1 0 0] sold=[0] tags=[1] weight=f[0.5] words=[2 7 3 7 3]`,
				`bare=[8] colour=[2] count=[0] example_id=[2] grade=[0] name=["r3"] parts=[0 0 0 1 1] pixels=["\x01\x02\x03\x04"] size=f[0 0 0] sold=[0] tags=[0 1] weight=f[0] words=[2 8 3 9 3]`,
			},
			Test: {
				`bare=[8] colour=[2] count=[4] example_id=[0] name=["t1"] parts=[0 0 0 1 1] pixels=["\x00\x00\x00\x00"] size=f[1 2 3] sold=[1] tags=[2 0] words=[2 8 3 8 3]`,
				`bare=[8] colour=[2] count=[9007199254740993] example_id=[1] name=["t2"] parts=[0 0 0 1 1] pixels=["\x00\x00\x00\x01"] size=f[1 2 3] sold=[0] tags=[0 2] words=[2 8 3 9 3]`,
				`bare=[8] colour=[1] count=[0] example_id=[2] grade=[1] name=["t3"] parts=[0 0 0 1 1] pixels=["\x00\x00\x00\x02"] size=f[1 2 3] sold=[0] tags=[1] weight=f[2] words=[2 8 3 9 3]`,
			},
		}
		for split, want := range want {
			if got := features(t, cfg, split); !reflect.DeepEqual(got, want) {
				t.Errorf("%s has\n%s\nexpected\n%s", split, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		if f := m.Feature("tags"); f == nil || !reflect.DeepEqual(f.Categories, []string{"x", "y", "other"}) || !f.Unknown || f.Shape.String() != "[null]" {
			t.Errorf("tags are %+v", f)
		}
		if !reflect.DeepEqual(m.Labels, []string{"good", "bad"}) || !reflect.DeepEqual(m.Splits[Train].LabelCounts, []int64{2, 1}) {
			t.Errorf("labels %q, counts %d", m.Labels, m.Splits[Train].LabelCounts)
		}
		golden(t, "schema-manifest.json", m)
		if workers == 1 {
			sameRows(t, m, dir, "train.csv", want[Train])
		}
	}
}

// sameRows checks that the rows of a table make the inputs of the records that a conversion made.
func sameRows(t *testing.T, m *Manifest, dir, name string, want []string) {
	t.Helper()
	tokenizer, err := m.Vocab.Tokenizer(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var inputs []Feature
	for _, f := range m.Features {
		if f.Role == RoleInput {
			inputs = append(inputs, f)
		}
	}
	if _, err := NewRowRecords(inputs, dir, nil); err == nil || !strings.Contains(err.Error(), `feature "words" has texts, and there is no vocabulary`) {
		t.Errorf("without a vocabulary: %v", err)
	}
	records, err := NewRowRecords(inputs, dir, tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines[1:] {
		var cells []Cell
		for _, c := range records.Columns() {
			cells = append(cells, Cell{Text: line[slices.Index(lines[0], c.Name)], OK: true})
		}
		record, err := records.Record(cells)
		if err != nil {
			t.Fatal(err)
		}
		made, err := tfrecord.ParseExample(record)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made {
			if one := textOf([]tfrecord.Feature{f}); !strings.Contains(" "+want[i]+" ", " "+one+" ") {
				t.Errorf("row %d has %s, not as in %s", i, one, want[i])
			}
		}
		if len(made) != len(inputs) {
			t.Errorf("row %d has %d features; expected %d", i, len(made), len(inputs))
		}
	}
	if records.Cut() != 0 {
		t.Errorf("%d texts were cut", records.Cut())
	}
	long := make([]Cell, len(records.Columns()))
	for i, c := range records.Columns() {
		long[i] = Cell{Text: lines[1][slices.Index(lines[0], c.Name)], OK: true}
		if c.Feature == "words" {
			long[i].Text = strings.Repeat("good film ", 20)
		}
	}
	if _, err := records.Record(long); err != nil || records.Cut() != 1 {
		t.Errorf("a long text: %d were cut, %v", records.Cut(), err)
	}
}

// golden compares a manifest with a file, or writes it with -update.
func golden(t *testing.T, name string, m *Manifest) {
	t.Helper()
	got, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the manifest differs from %s:\n%s", path, got)
	}
	if again, reason := parseManifest(got); reason != "" {
		t.Errorf("%s: %s", path, reason)
	} else if b, err := again.encode(); err != nil || !bytes.Equal(b, got) {
		t.Errorf("the manifest is read as %s, %v", b, err)
	}
}

func TestSchemaRowErrors(t *testing.T) {
	number := "features: {x: {kind: number, minimum: 0, maximum: 5}}"
	list := "features: {x: {kind: number, shape: [2, 2], dtype: int32}}"
	label := "features: {v: {kind: number}, x: {kind: category, role: label}}"
	text := "features: {x: {kind: text, columns: [x, y]}}"
	for _, tt := range []struct {
		name, schema, file, data string
		line                     int64
		want                     string
	}{
		{"text for a number", number, "x.csv", "x\n1\nx\n", 3, `column "x" is "x"; expected a finite number`},
		{"comma", number, "x.csv", "x\n\"1,5\"\n", 2, `column "x" is "1,5"; expected a finite number`},
		{"NaN", number, "x.csv", "x\nNaN\n", 2, `column "x" is "NaN"; expected a finite number`},
		{"infinite", number, "x.csv", "x\n-inf\n", 2, `column "x" is "-inf"; expected a finite number`},
		{"too large", "features: {x: {kind: number}}", "x.csv", "x\n1e39\n", 2, `expected a finite number`},
		{"hexadecimal", number, "x.csv", "x\n0x1p0\n", 2, `expected a finite number`},
		{"below", number, "x.csv", "x\n-0.1\n", 2, `column "x" is "-0.1"; expected 0 to 5`},
		{"above", number, "x.csv", "x\n5.5\n", 2, `column "x" is "5.5"; expected 0 to 5`},
		{"empty", number, "x.csv", "x,y\n ,1\n", 2, `column "x" is " ", which is not a value; expected a number; to take such rows, say what it means, as "missing:" of feature "x" in schema.yaml:1`},
		{"null", number, "x.jsonl", `{"x":null}`, 1, `has no "x"`},
		{"no member", number, "x.jsonl", `{"y":1}`, 1, `has no "x"; its members are "y"`},
		{"fraction", "features: {x: {kind: number, dtype: int64}}", "x.csv", "x\n1.5\n", 2, `column "x" is "1.5"; expected a whole number`},
		{"large fraction", "features: {x: {kind: number, dtype: int64}}", "x.csv", "x\n1e300\n", 2, `expected a whole number`},
		{"byte", "features: {x: {kind: number, dtype: uint8}}", "x.csv", "x\n256\n", 2, `column "x" is "256"; expected 0 to 255, the numbers of dtype uint8`},
		{"int32", "features: {x: {kind: number, dtype: int32}}", "x.csv", "x\n2147483648\n", 2, `expected -2147483648 to 2147483647, the numbers of dtype int32`},
		{"bool", "features: {x: {kind: number, dtype: bool}}", "x.csv", "x\nyes\n", 2, `column "x" is "yes"; expected 0, 1, true or false`},
		{"list too short", list, "x.csv", "x\n1 2 3\n", 2, `column "x" is "1 2 3"; has 3 values; expected 4, for shape [2, 2]`},
		{"value of a list", list, "x.csv", "x\n1 2 b 3\n", 2, `value 3 is "b"; expected a whole number`},
		{"ragged array", list, "x.jsonl", `{"x":[[1,2],[3]]}`, 1, `has an array of 1 value; expected 2, for shape [2, 2]`},
		{"mixed array", list, "x.jsonl", `{"x":[[1,2],3,4]}`, 1, `has an array of 3 values; expected 2, for shape [2, 2]`},
		{"deep array", list, "x.jsonl", `{"x":[[[1],[2]],[3,4]]}`, 1, `expected arrays within arrays as shape [2, 2] has sizes`},
		{"null in an array", list, "x.jsonl", `{"x":[1,null,2,3]}`, 1, `has a null or an object in an array`},
		{"broken array", list, "x.csv", "x\n\"[1, 2\"\n", 2, `expected a JSON array, such as [1, 2], or values with spaces between them`},
		{"text behind an array", list, "x.csv", "x\n\"[1,2,3,4] 5\"\n", 2, `expected a JSON array`},
		{"multiple", "features: {x: {kind: number, shape: [null, 3]}}", "x.csv", "x\n1 2 3 4\n", 2, `has 4 values; expected a multiple of 3, for shape [null, 3]`},
		{"empty list", "features: {x: {kind: number, shape: [null]}}", "x.jsonl", `{"x":[]}`, 1, `has no values; expected one or more`},
		{"no label", label, "x.csv", "v,x\n1,a\n1,\n", 3, `column "x" is "", which is not a value; expected a category`},
		{"unknown label", "features: {v: {kind: number}, x: {kind: category, role: label, categories: [yes, no]}}", "x.csv", "v,x\n1,nO\n", 2, `column "x" is "nO"; expected one of "yes", "no"; did you mean "no"?`},
		{"no text", text, "x.csv", "x,y\na,\n", 2, `column "y" has no text`},
		{"no first text", text, "x.csv", "x,y\n \u200b,a\n", 2, `column "x" has no text`},
		{"negative weight", "features: {x: {kind: number}, w: {role: weight}}", "x.csv", "x,w\n1,-1\n", 2, `column "w" is "-1"; expected 0 or more`},
		{"no id", "features: {x: {kind: number}, i: {role: id}}", "x.csv", "x,i\n1,\n", 2, `column "i" is empty; expected text`},
		{"no image", "features: {x: {kind: image, shape: [2, 2, 1]}}", "x.csv", "x\nnowhere.png\n", 2, `nowhere.png: no such file`},
		{"no image name", "features: {x: {kind: image, shape: [2, 2, 1]}}", "x.csv", "x,y\n,1\n", 2, `column "x" is empty; expected the path of an image`},
		{"another file", "features: {x: {kind: image, shape: [2, 2, 1]}}", "x.csv", "x\nx.csv\n", 2, `x.csv is not a PNG or JPEG file`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, map[string]string{"schema.yaml": tt.schema, tt.file: tt.data})
			vocab := ""
			if strings.Contains(tt.schema, "text") {
				vocab = "vocab.txt"
			}
			cfg := bySchema(dir, Config{Vocab: vocab, Inputs: []Input{{Train, tt.file}}})
			_, err := Run(t.Context(), cfg, quiet)
			var row *RowError
			if !errors.As(err, &row) || row.Line != tt.line || !strings.HasSuffix(row.Path, tt.file) || !strings.Contains(strings.ReplaceAll(row.Reason, dir+"/", ""), tt.want) {
				t.Errorf("got\n%v\nexpected line %d and\n%s", err, tt.line, tt.want)
			}
			if _, err := os.Stat(cfg.Out); err == nil {
				t.Error("the folder was left behind")
			}
		})
	}
}

// TestSchemaUsage converts with schemas that do not fit the files or the other settings.
func TestSchemaUsage(t *testing.T) {
	const one = "features:\n  x:\n    kind: number\n    column: petal_lenght\n"
	for _, tt := range []struct {
		name, schema, data string
		cfg                Config
		want               string
	}{
		{"no such column", one, "petal_length,b\n1,2\n", Config{}, `x.csv has no column "petal_lenght"; expected one of "petal_length", "b"; did you mean "petal_length"?; choose one with "columns:" of feature "x" in schema.yaml:4`},
		{"no vocabulary", "features: {x: {kind: text}}", "x\na\n", Config{}, `feature "x" has kind text and there is no vocabulary; name one with --vocab`},
		{"vocabulary without text", "features: {x: {kind: number}}", "x\n1\n", Config{Vocab: "vocab.txt"}, `a vocabulary is given, and no feature of schema.yaml has kind text; leave out --vocab`},
		{"labels that are ids", "features: {x: {kind: number}, l: {kind: category, role: label}}", "x,l\n" + numbered(101, "1,%d\n"), Config{}, `feature "l" has 101 different values in 101 rows, most of them in only one row; expected labels`},
		{"labels in two cases", "features: {x: {kind: number}, l: {kind: category, role: label}}", "x,l\n1,a\n1,A\n", Config{}, `column "l" has the labels "A", "a", which differ only in case; write them in the same way, or list all labels with "categories:" in schema.yaml:1 to keep both`},
		{"missing of no row", "features: {x: {kind: category, missing: none}}", "x\na\n", Config{}, `missing is "none", which is not a category of the train split; expected one of "a"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, map[string]string{"schema.yaml": tt.schema, "x.csv": tt.data})
			tt.cfg.Inputs = []Input{{Train, "x.csv"}}
			_, err := Run(t.Context(), bySchema(dir, tt.cfg), quiet)
			if !errors.Is(err, fault.Usage) || !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), tt.want) {
				t.Errorf("got\n%v\nexpected a usage error with\n%s", err, tt.want)
			}
		})
	}
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Categories are those of the train split; others are told apart by file and line.
func TestSchemaUnknownCategory(t *testing.T) {
	dir := write(t, map[string]string{
		"schema.yaml": "features: {x: {kind: category}, y: {kind: number}}",
		"train.csv":   "x,y\nb,1\na,2\n", "dev.csv": "x,y\na,1\nc,2\n",
	})
	cfg := bySchema(dir, Config{Inputs: []Input{{Train, "train.csv"}, {Dev, "dev.csv"}}})
	_, err := Run(t.Context(), cfg, quiet)
	want := `dev.csv:3: column "x" is "c"; expected one of "a", "b", those of the train split; to take others as one category, name it with "unknown:" of feature "x" in ` + cfg.Schema + ":1"
	if !errors.Is(err, fault.Damaged) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got\n%v\nexpected\n%s", err, want)
	}
	// A label has no category for others.
	labels := write(t, map[string]string{
		"schema.yaml": "features: {x: {kind: category, role: label}, y: {kind: number}}",
		"train.csv":   "x,y\nb,1\na,2\n", "dev.csv": "x,y\na,1\nc,2\n",
	})
	_, err = Run(t.Context(), bySchema(labels, Config{Inputs: []Input{{Train, "train.csv"}, {Dev, "dev.csv"}}}), quiet)
	if want := `those of the train split; to have classes that it lacks, list all with "categories:" of feature "x" in `; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got\n%v\nexpected\n%s", err, want)
	}
	cfg.SkipBadRows = true
	if m := mustRun(t, cfg); m.Splits[Dev].Records != 1 || m.Sources[1].Skipped != 1 {
		t.Errorf("dev is %+v of %+v", m.Splits[Dev], m.Sources[1])
	}
}

// picture returns the file of an image whose pixels are 10 apart.
func picture(t testing.TB, img interface {
	image.Image
	Set(x, y int, c color.Color)
}, format string) string {
	t.Helper()
	r := img.Bounds()
	for y := range r.Dy() {
		for x := range r.Dx() {
			v := uint8(10 * (y*r.Dx() + x))
			img.Set(x, y, color.NRGBA{v, v + 1, v + 2, 255})
		}
	}
	var b bytes.Buffer
	var err error
	if format == "png" {
		err = png.Encode(&b, img)
	} else {
		err = jpeg.Encode(&b, img, &jpeg.Options{Quality: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSchemaImages(t *testing.T) {
	size := image.Rect(0, 0, 3, 2)
	gray := picture(t, image.NewGray(size), "png")
	rgb := picture(t, image.NewRGBA(size), "png")
	photo := picture(t, image.NewGray(size), "jpeg")
	files := map[string]string{
		"gray.png": gray, "rgb.png": rgb, "photo.jpg": photo,
		"wide.png":  picture(t, image.NewGray(image.Rect(0, 0, 4, 2)), "png"),
		"deep.png":  picture(t, image.NewGray16(size), "png"),
		"clear.png": picture(t, translucent(size), "png"),
		"cut.png":   gray[:len(gray)-20],
	}
	convert := func(name, schema string) ([]string, error) {
		files["train.csv"], files["schema.yaml"] = "file\n"+name+"\n", schema
		dir := write(t, files)
		cfg := bySchema(dir, Config{Inputs: []Input{{Train, "train.csv"}}})
		if _, err := Run(t.Context(), cfg, quiet); err != nil {
			return nil, errors.New(strings.ReplaceAll(err.Error(), dir+"/", ""))
		}
		return features(t, cfg, Train), nil
	}
	const one, three = "features: {x: {kind: image, column: file, shape: [2, 3, 1]}}", "features: {x: {kind: image, column: file, shape: [2, 3, 3], encoding: raw}}"
	colors := strings.Replace(three, "encoding: raw", "convert_colors: true", 1)
	const scaled = "features: {x: {kind: image, column: file, shape: [1, 2, 1], resize: bilinear}}"
	for _, tt := range []struct{ file, schema, want, reason string }{
		{"gray.png", one, fmt.Sprintf("example_id=[0] x=[%q]", gray), ""},
		{"gray.png", strings.Replace(one, "]}", "], encoding: raw}", 1), `example_id=[0] x=["\x00\n\x14\x1e(3"]`, ""},
		{"photo.jpg", one, fmt.Sprintf("example_id=[0] x=[%q]", photo), ""},
		{"rgb.png", three, `example_id=[0] x=["\x00\x01\x02\n\v\f\x14\x15\x16\x1e\x1f ()*234"]`, ""},
		{"wide.png", one, "", `train.csv:2: column "file": wide.png is 4 x 2 gray, of shape [2, 4, 1]; expected shape [2, 3, 1], by HEIGHT, WIDTH, CHANNELS`},
		{"rgb.png", one, "", `rgb.png is 3 x 2 RGB, of shape [2, 3, 3]; expected shape [2, 3, 1]`},
		{"gray.png", three, "", `gray.png is 3 x 2 gray, of shape [2, 3, 1]; expected shape [2, 3, 3]`},
		{"gray.png", three, "", `by HEIGHT, WIDTH, CHANNELS; to convert colours, set "convert_colors: true" of feature "x" in schema.yaml:1`},
		{"wide.png", one, "", `by HEIGHT, WIDTH, CHANNELS; to scale images, set "resize: bilinear" of feature "x" in schema.yaml:1`},
		{"clear.png", three, "", `clear.png is 3 x 2 RGB with transparency, of shape [2, 3, 4]; expected shape [2, 3, 3]`},
		{"deep.png", one, "", `deep.png has 16 bits per channel; expected 8`},
		{"cut.png", one, "", `cut.png is a PNG image that cannot be decoded: `},
		{"gray.png", colors, `example_id=[0] x=["\x00\x00\x00\n\n\n\x14\x14\x14\x1e\x1e\x1e(((333"]`, ""},
		{"clear.png", colors, `example_id=[0] x=["\x00\x01\x02\n\v\f\x14\x15\x16\x1e\x1f ()*234"]`, ""},
		{"rgb.png", strings.Replace(colors, "3]", "1]", 1), `example_id=[0] x=["\x01\v\x15\x1f)3"]`, ""},
		{"deep.png", colors, "", `deep.png has 16 bits per channel; expected 8`},
		// The means of 0, 10, 20 and 30, 40, 51 are 15, 25 and 35.5; those of the new image lie between them.
		{"gray.png", scaled, `example_id=[0] x=["\x11!"]`, ""},
		{"gray.png", strings.Replace(scaled, "bilinear", "nearest, crop_to_aspect_ratio: true", 1), `example_id=[0] x=["\x00\x14"]`, ""},
		{"cut.png", scaled, "", `cut.png is a PNG image that cannot be decoded: `},
	} {
		t.Run(tt.file+strings.TrimPrefix(tt.schema, one[:20]), func(t *testing.T) {
			got, err := convert(tt.file, tt.schema)
			switch {
			case tt.reason != "" && (err == nil || !strings.Contains(err.Error(), tt.reason)):
				t.Errorf("got %v, expected\n%s", err, tt.reason)
			case tt.reason == "" && (err != nil || len(got) != 1 || got[0] != tt.want):
				t.Errorf("got %s, %v; expected\n%s", got, err, tt.want)
			}
		})
	}
}

func translucent(r image.Rectangle) *opaque { return &opaque{image.NewNRGBA(r)} }

// opaque is an image that says that it is not.
type opaque struct{ *image.NRGBA }

func (*opaque) Opaque() bool { return false }

// TestSchemaSame converts with any number of goroutines and shards to the same records.
func TestSchemaSame(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,y,l\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "%v,%d,%s\n", float64(i)/7, i%11, []string{"a", "b", "c"}[i%3])
	}
	dir := write(t, map[string]string{
		"schema.yaml": "features: {x: {kind: number, columns: [x, y]}, y: {kind: category}, l: {kind: category, role: label}}",
		"x.csv":       b.String(),
	})
	var first []byte
	for _, workers := range []int{1, 2, 7} {
		cfg := bySchema(dir, Config{Inputs: []Input{{Train, "x.csv"}}, SplitByHash: "x", Shards: 3, Shuffle: true, Seed: 5, Workers: workers, Overwrite: true})
		m := mustRun(t, cfg)
		data, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		}
		if !bytes.Equal(data, first) {
			t.Errorf("with %d goroutines the manifest is\n%s\nexpected\n%s", workers, data, first)
		}
		if n := m.Splits[Dev].Records; n < 400 || n > 600 || m.Splits[Train].Records != 5000-n {
			t.Errorf("the dev split has %d of 5000 records", n)
		}
	}
}
