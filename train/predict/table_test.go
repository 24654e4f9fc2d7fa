package predict

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
)

// answered writes the answers to a file with columns. The probability of a text is that of its
// length, see lengths.
func answered(t *testing.T, path string, c Columns, format Format) (string, error) {
	t.Helper()
	in, closeFile, err := Open(t.Context(), path, nil, c)
	if err != nil {
		return "", err
	}
	defer closeFile()
	var out bytes.Buffer
	write, end, err := Writer(&out, in, format, Classifier([]string{"long", "short"}))
	if err != nil {
		return "", err
	}
	_, err = newPredictor(t, lengths{}, Config{MaxLength: 6, Window: 3, CallTokens: 8, InFlight: 2, Renderer: Classifier([]string{"long", "short"})}).Each(t.Context(), in, write)
	err = cmp.Or(err, end())
	return out.String(), err
}

// file writes a file and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var packed bytes.Buffer
	var w io.WriteCloser
	switch filepath.Ext(name) {
	case ".gz":
		w = gzip.NewWriter(&packed)
	case ".zst":
		w, _ = zstd.NewWriter(&packed)
	}
	if w != nil {
		_, err := io.WriteString(w, content)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		content = packed.String()
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestColumns(t *testing.T) {
	const tsv = "id\ttext\tnote\n7\ta a\tx\n8\ta a a a a a\ty\n9\ta\t\n7\ta a\tx\n"
	const answers = "id\ttext\tnote\tlabel\tscore\tprobability_long\tprobability_short\ttruncated\n" +
		"7\ta a\tx\tshort\t0.800000\t0.200000\t0.800000\tfalse\n" +
		"8\ta a a a a a\ty\tshort\t0.857143\t0.142857\t0.857143\ttrue\n" +
		"9\ta\t\tshort\t0.750000\t0.250000\t0.750000\tfalse\n" +
		"7\ta a\tx\tshort\t0.800000\t0.200000\t0.800000\tfalse\n"
	for _, tt := range []struct {
		name, file, content string
		columns             Columns
		format              Format
		want                string
	}{
		{"tsv", "x.tsv", tsv, Columns{Text: "text"}, "", answers},
		{"gzip", "x.tsv.gz", tsv, Columns{Text: "text"}, "", answers},
		{"zstandard", "x.TSV.zst", tsv, Columns{Text: "text"}, "", answers},
		{"columns of the training data", "x.tsv", tsv, Columns{Trained: &TrainedColumns{Text: "text"}}, TSV, answers},
		{"one column kept", "x.tsv", tsv, Columns{Text: "text", ID: "id"}, JSON,
			`{"id":"7","label":"short","score":0.8,"probabilities":{"long":0.2,"short":0.8},"truncated":false}` + "\n" +
				`{"id":"8","label":"short","score":0.8571428571428572,"probabilities":{"long":0.14285714285714285,"short":0.8571428571428572},"truncated":true}` + "\n" +
				`{"id":"9","label":"short","score":0.75,"probabilities":{"long":0.25,"short":0.75},"truncated":false}` + "\n" +
				`{"id":"7","label":"short","score":0.8,"probabilities":{"long":0.2,"short":0.8},"truncated":false}` + "\n"},
		{"csv with a label", "x.csv", "text,label\n\"a, \"\"a\"\"\na\",good\n", Columns{Text: "text"}, "",
			"text,label,predicted_label,predicted_score,predicted_probability_long,predicted_probability_short,predicted_truncated\n" +
				"\"a, \"\"a\"\"\na\",good,short,0.857143,0.142857,0.857143,true\n"},
		{"no header", "x.csv", "1,a\n", Columns{Text: "2", NoHeader: true}, TSV,
			"1\t2\tlabel\tscore\tprobability_long\tprobability_short\ttruncated\n1\ta\tshort\t0.750000\t0.250000\t0.750000\tfalse\n"},
		{"pairs", "x", "p,q\na,a\n", Columns{Text: "p", Pair: "q", Format: "csv"}, "",
			"p,q,label,score,probability_long,probability_short,truncated\na,a,short,0.833333,0.166667,0.833333,false\n"},
		{"latin-1", "x.csv", "t\n\xe9\n", Columns{Text: "t", Charset: "latin-1"}, "",
			"t,label,score,probability_long,probability_short,truncated\né,short,0.750000,0.250000,0.750000,false\n"},
		{"objects", "x.jsonl", `{ "n": [1, 2], "body":"a"}` + "\n", Columns{Text: "body"}, "",
			`{"n": [1, 2], "body":"a","label":"short","score":0.75,"probabilities":{"long":0.25,"short":0.75},"truncated":false}` + "\n"},
		{"objects with a score", "x.jsonl", `{"score":1,"body":"a"}` + "\n" + `{"body":"a"}` + "\n", Columns{Text: "body"}, "",
			`{"score":1,"body":"a","predicted_label":"short","predicted_score":0.75,"predicted_probabilities":{"long":0.25,"short":0.75},"predicted_truncated":false}` + "\n" +
				`{"body":"a","predicted_label":"short","predicted_score":0.75,"predicted_probabilities":{"long":0.25,"short":0.75},"predicted_truncated":false}` + "\n"},
		{"array", "x.json.gz", "[\n{\"n\":\n1, \"body\":\"a\"}]", Columns{Text: "body"}, "",
			`{"n":1,"body":"a","label":"short","score":0.75,"probabilities":{"long":0.25,"short":0.75},"truncated":false}` + "\n"},
		{"semicolons", "x.csv", "t;n\na;\"1;2\"\n", Columns{Text: "t", Delimiter: ";"}, "",
			"t;n;label;score;probability_long;probability_short;truncated\na;\"1;2\";short;0.750000;0.250000;0.750000;false\n"},
		{"semicolons to commas", "x.csv", "t;n\na;1\n", Columns{Text: "t", Delimiter: ";"}, CSV,
			"t,n,label,score,probability_long,probability_short,truncated\na,1,short,0.750000,0.250000,0.750000,false\n"},
		{"bars", "x", "t|n\na|1\n", Columns{Text: "t", Format: "tsv", Delimiter: "|"}, "",
			"t|n|label|score|probability_long|probability_short|truncated\na|1|short|0.750000|0.250000|0.750000|false\n"},
		{"formulas", "x.csv", "t,=n\n@a,\"=1+1\"\n-a,-1.5e3\n+a,\"\tb\"\n", Columns{Text: "t", EscapeFormulas: true}, "",
			"t,'=n,label,score,probability_long,probability_short,truncated\n'@a,'=1+1,short,0.800000,0.200000,0.800000,false\n" +
				"'-a,-1.5e3,short,0.800000,0.200000,0.800000,false\n'+a,'\tb,short,0.800000,0.200000,0.800000,false\n"},
		{"no rows", "x.csv", "label,text\n", Columns{Text: "text"}, "",
			"label,text,predicted_label,predicted_score,predicted_probability_long,predicted_probability_short,predicted_truncated\n"},
		{"no objects", "x.jsonl", "", Columns{Text: "text"}, "", ""},
		{"lines", "x.tsv", "a\ta\n", Columns{Format: FormatLines}, TSV, "short\t0.833333\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := answered(t, file(t, tt.file, tt.content), tt.columns, tt.format)
			if err != nil || got != tt.want {
				t.Errorf("error %v, got\n%s\nexpected\n%s", err, got, tt.want)
			}
		})
	}
}

// TestColumnsRefused reads files whose columns can be understood in two ways, or not at all.
func TestColumnsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, file, content string
		columns             Columns
		format              Format
		class               error
		want                string
	}{
		{"none chosen", "x.tsv", "index\tsentence\n0\ta\n", Columns{}, "", fault.Usage, `has the columns "index", "sentence", and none is chosen; name that of the text with --text-column`},
		{"others than in training", "x.csv", "id,body\n", Columns{Trained: &TrainedColumns{Text: "text"}}, "", fault.Usage, `has the columns "id", "body", and none is chosen`},
		{"second text missing", "x.csv", "p,z\n", Columns{Trained: &TrainedColumns{Text: "p", Pair: "q"}}, "", fault.Usage, `none is chosen`},
		{"one column", "x.tsv", "a\nb\n", Columns{}, "", fault.Usage, `with --no-header if the first line is data`},
		{"no header", "x.tsv", "a\tb\n", Columns{NoHeader: true}, "", fault.Usage, `has 2 columns, and none is chosen; name that of the text by its number`},
		{"no such column", "x.tsv", "a\tb\n", Columns{Text: "c"}, "", fault.Usage, `has no column "c"; expected one of "a", "b"; choose one with --text-column`},
		{"no such id", "x.tsv", "a\tb\n", Columns{Text: "a", ID: "i"}, "", fault.Usage, `choose one with --id-column`},
		{"format", "x.data", "", Columns{Text: "a"}, "", fault.Usage, `does not show its format; choose one with --input-format`},
		{"header of objects", "x.jsonl", "", Columns{Text: "a", NoHeader: true}, "", fault.Usage, `leave out --no-header`},
		{"compressed objects without a field", "x.jsonl.gz", "", Columns{}, "", fault.Usage, `no field is chosen; name it with --text-column`},
		{"pair alone", "x.csv", "a,b\n", Columns{Pair: "a"}, "", fault.Usage, `expected both`},
		{"lines with columns", "x.csv", "a,b\n", Columns{Text: "a", Format: FormatLines}, "", fault.Usage, `input format lines has no columns`},
		{"quoted or not", "x.txt", "a;b\n", Columns{Text: "a", Delimiter: ";"}, "", fault.Usage, `add --input-format csv if they may be`},
		{"delimiter of objects", "x.json", "[]", Columns{Text: "a", Delimiter: ";"}, "", fault.Usage, `x.json is json, which has no delimiter; leave out --delimiter`},
		{"two delimiters", "x.csv", "", Columns{Text: "a", Delimiter: ";;"}, "", fault.Usage, `expected one ASCII character`},
		{"no array", "x.json", "[{\"a\":\"b\"}", Columns{Text: "a"}, "", fault.Damaged, `x.json:1: the array does not end; expected ]`},
		{"empty", "x.tsv", "", Columns{Text: "a"}, "", fault.Damaged, `x.tsv:1: the file is empty`},
		{"width", "x.tsv", "a\tb\n1\t2\n1\n", Columns{Text: "a"}, "", fault.Damaged, `x.tsv:3: has 1 column; expected 2`},
		{"not compressed", "x.csv.gz", "", Columns{Text: "a"}, "", fault.Damaged, `x.csv.gz:1: the file is empty`},
		{"a number", "x.jsonl", `{"a":3}`, Columns{Text: "a"}, "", fault.Damaged, `x.jsonl:1: "a" is 3; expected text`},
		{"tab", "x.csv", "a,b\nc,\"x\ty\"\n", Columns{Text: "a"}, TSV, fault.Usage, `x.csv:2: "x\ty" has a tab or a line break, which tsv cannot hold`},
		{"objects as rows", "x.jsonl", `{"a":"b"}`, Columns{Text: "a"}, CSV, fault.Usage, `differ from row to row`},
		{"text", "x.csv", "a\n", Columns{Text: "a"}, Text, fault.Usage, `format is "text"; expected tsv, csv or json`},
		{"names taken", "x.csv", "a,label,predicted_score\n", Columns{Text: "a"}, "", fault.Usage, `keep one column with --id-column`},
		{"formulas in lines", "x.txt", "a\n", Columns{EscapeFormulas: true}, TSV, fault.Usage, `x.txt has no columns, in whose cells formulas could be escaped`},
		{"formulas in objects", "x.csv", "a\n", Columns{Text: "a", EscapeFormulas: true}, JSON, fault.Usage, `are json, whose texts no spreadsheet computes`},
		{"csv of lines", "x.txt", "a\n", Columns{}, CSV, fault.Usage, `format is csv, which is for files with columns`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := answered(t, file(t, tt.file, tt.content), tt.columns, tt.format)
			if !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("answers %q, error %v; expected one of class %v with %q", got, err, tt.class, tt.want)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "answers")
	write := func(overwrite bool, content string, last error) error {
		out, err := NewOutput(nil, path, overwrite)
		if err != nil {
			return err
		}
		defer out.Discard()
		out.WriteString(content)
		return out.End(t.Context(), last)
	}
	check := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("the file has %q, error %v; expected %q", got, err, want)
		}
		if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) > 1 {
			t.Errorf("the folder has %v, error %v; expected the file alone", names, err)
		}
	}
	if err := write(false, "lost", io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	check("")
	if err := write(false, "one", nil); err != nil {
		t.Error(err)
	}
	check("one")
	if err := write(false, "two", nil); !errors.Is(err, fault.Usage) {
		t.Errorf("error %v, expected one of usage", err)
	}
	check("one")
	if err := write(true, "two", nil); err != nil {
		t.Error(err)
	}
	check("two")
	for _, path = range []string{path + ".csv.gz", path + ".zst"} {
		if err := write(false, "packed", nil); err != nil {
			t.Error(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		in, err := stream.Decompress(file, path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got, err := io.ReadAll(in); string(got) != "packed" || err != nil {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
	if _, err := NewOutput(nil, t.TempDir(), true); !errors.Is(err, fault.Usage) {
		t.Errorf("a folder: error %v, expected one of usage", err)
	}
}

// TestFormatOfName has answers in the format that the name of their file says.
func TestFormatOfName(t *testing.T) {
	for _, tt := range []struct {
		in, out string
		want    Format
	}{
		{"x.csv", "a.csv", ""}, {"x.csv", "a.jsonl.gz", JSON}, {"x.csv", "gs://b/A.TSV", TSV}, {"x.csv", "a", ""}, {"x.csv", "", ""}, {"x.jsonl", "a.json", ""},
		{"", "a.tsv", TSV}, {"", "a.jsonl", JSON}, {"", "a.txt", ""},
	} {
		var in Source = &List{}
		if tt.in != "" {
			opened, closeFile, err := Open(t.Context(), file(t, tt.in, map[string]string{"x.csv": "t\na\n", "x.jsonl": `{"t":"a"}`}[tt.in]), nil, Columns{Text: "t"})
			if err != nil {
				t.Fatal(err)
			}
			defer closeFile()
			in = opened
		}
		if got, err := formatOf(tt.out, in); err != nil || got != tt.want {
			t.Errorf("%s to %s is %q, error %v; expected %q", tt.in, tt.out, got, err, tt.want)
		}
	}
	if _, err := formatOf("a.csv", &List{}); !errors.Is(err, fault.Usage) {
		t.Errorf("csv without columns: error %v; expected one of usage", err)
	}
}

// TestColumnsWithoutRows wants the columns that an answer has from what is known before it.
func TestColumnsWithoutRows(t *testing.T) {
	two := []string{"a", "b"}
	for _, tt := range []struct {
		task    string
		outputs []OutputSpec
		want    string
	}{
		{"classification", []OutputSpec{{Name: "p", Kind: Probabilities, Classes: two}}, "x,label,score,probability_a,probability_b,truncated\n"},
		{"classification", []OutputSpec{{Name: "p", Kind: Probabilities}}, "x,label,score,truncated\n"},
		{"multilabel", []OutputSpec{{Name: "p", Kind: Probabilities, Classes: two}}, "x,labels,probability_a,probability_b,truncated\n"},
		{"regression", []OutputSpec{{Name: "value", Kind: OneValue}}, "x,value\n"},
		{"", []OutputSpec{{Name: "p", Kind: Probabilities, Classes: two}, {Name: "v", Kind: ManyValues, Classes: two}, {Name: "w", Kind: ManyValues}},
			"x,p_label,p_score,p_a,p_b,v_a,v_b,w\n"},
		{"tokens", []OutputSpec{{Name: "p", Kind: Probabilities}}, "x,tags,truncated\n"},
		{"mlm", []OutputSpec{{Name: "p", Kind: Probabilities}}, "x,masks,truncated\n"},
		{"qa", []OutputSpec{{Name: "s", Kind: Spans}, {Name: "e", Kind: Spans}}, "x,answer,start,end,score,null_score,no_answer,truncated\n"},
	} {
		r, err := NewRenderer(tt.task, tt.outputs)
		if err != nil {
			t.Fatal(err)
		}
		in, err := OpenTable(t.Context(), file(t, "x.csv", "x\n"), Columns{Text: "x"})
		if err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		out, _, err := Answers(&stdout, "", false, in, "", r)
		if err := cmp.Or(err, out.End(t.Context(), nil), in.Close()); err != nil || stdout.String() != tt.want {
			t.Errorf("task %q: %v, %q; expected %q", tt.task, err, stdout.String(), tt.want)
		}
	}
}

// Choices in columns of their own, and what stands before each, become a second text.
func TestChoiceColumns(t *testing.T) {
	columns := TrainedColumns{Text: "q", Choices: []string{"a", "b"}, Stem: "s"}
	list := TrainedColumns{Text: "q", Pair: "all", Stem: "s"}
	for _, tt := range []struct {
		format, content string
		trained         TrainedColumns
		want            []string
	}{
		{"csv", "q,s,a,b\nhe,in,x,\nhe,,x,\"y \"\"z\"\"\"\n", columns, []string{`["in x",""]`, `[" x"," y \"z\""]`}},
		{"jsonl", `{"q":"he","s":"in","b":"y","a":"x"}`, columns, []string{`["in x","in y"]`}},
		{"jsonl", `{"q":"he","s":"in","all":["x","","y"]}`, list, []string{`["in x","","in y"]`}},
		{"jsonl", `{"q":"he","s":"in","all":"x"}`, list, []string{"x"}},
	} {
		in, err := NewTable(strings.NewReader(tt.content), "x", Columns{Format: tt.format, Choices: true, Trained: &tt.trained})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if got, err := in.Next(); err != nil || got.A != "he" || got.B != want {
				t.Errorf("%s: got %q, %v; expected the choices %s", tt.content, got, err, want)
			}
		}
	}
}
