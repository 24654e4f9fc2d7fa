package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// originals returns the texts of the records of a split by their ExampleIDs, "-" where they are not
// known, given the folders of the sources.
func originals(t *testing.T, cfg Config, m *Manifest, split string, folders ...string) (string, error) {
	t.Helper()
	tokenizer, err := m.Vocab.Tokenizer(cfg.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	o, err := m.Originals(t.Context(), split, OriginalsConfig{Data: cfg.Out, Sources: folders, Tokenizer: tokenizer})
	if err != nil {
		return "", err
	}
	out := map[string]string{}
	decoder, values := tfrecord.NewDecoder(ExampleID), tfrecord.Values{}
	eachRecord(t, cfg, split, func(record []byte) {
		if err := decoder.Decode(record, &values); err != nil {
			t.Fatal(err)
		}
		found := "-"
		if texts, ok := o.Text(record); ok {
			found = fmt.Sprint(texts)
		}
		out[fmt.Sprint(values.At(0).Int64s)] = found
	})
	return fmt.Sprint(out), nil
}

// TestOriginals wants the texts of the sources for the records, and none once a source has changed.
//
// Long: a table of tasks and formats.
func TestOriginals(t *testing.T) {
	const schema = "features: {label: {kind: number, role: label}, input_ids: {kind: text, column: %s}}\n"
	labels := Config{TextColumn: "text", LabelColumn: "label"}
	for name, test := range map[string]struct {
		cfg     Config
		source  string
		content string
		want    string
	}{
		"csv": {labels, "x.csv", "label,text\n1,\"A  Film,\nGood\"\n0,b\n", "map[[0]:{A  Film,\nGood } [1]:{b }]"},
		"pairs": {Config{TextColumn: "a", PairColumn: "b", LabelColumn: "label"}, "x.csv", "a,b,label\nA,B,1\nc,D,0\n",
			"map[[0]:{A B} [1]:{c D}]"},
		"no header": {Config{TextColumn: "2", LabelColumn: "1", NoHeader: true}, "x.csv", "1,Good\n0,Bad\n", "map[[0]:{Good } [1]:{Bad }]"},
		"a bad row": {Config{TextColumn: "text", LabelColumn: "label", SkipBadRows: true}, "x.csv", "label,text\n1,a,b,c\n0,B\n1,C\n",
			"map[[1]:{B } [2]:{C }]"},
		"numbers": {Config{Task: string(Regression), TextColumn: "text", LabelColumn: "label"}, "x.csv", "label,text\n1.5,Bad\n",
			"map[[0]:{Bad }]"},
		"words": {Config{Task: string(Tokens)}, "x.jsonl", `{"words":["A","Film"],"tags":["N","O"]}` + "\n" + `{"words":["\u0001","b"],"tags":["N","O"]}` + "\n",
			"map[[0]:{A Film } [1]:{\x01 b }]"},
		"words of lines": {Config{Task: string(Tokens), TextColumn: "2", LabelColumn: "1"}, "x.conll", "N A\nO Film\n\nN b\n", "map[[0]:{A Film } [1]:{b }]"},
		"words cut":      {Config{Task: string(Tokens), MaxLength: 3}, "x.txt", "A N\nFilm O\n", "map[[0]:{A Film }]"},
		"words with tags": {Config{Task: string(Tokens), Format: Brown}, "x.txt", "A/n Film/o\n\nB/n\n",
			"map[[0]:{A Film } [1]:{B }]"},
		"choices": {Config{Task: string(Choices), TextColumn: "text", PairColumn: "stem", ChoiceColumns: []string{"a", "b"}, LabelColumn: "label"}, "x.csv",
			"text,stem,a,b,label\nA,Film,Good,Bad,1\nB,Film,Bad,Good,0\n", `map[[0]:{A ["Film Good","Film Bad"]} [1]:{B ["Film Bad","Film Good"]}]`},
		"a list of choices": {Config{Task: string(Choices), TextColumn: "text", ChoiceColumns: []string{"all"}, LabelColumn: "label"}, "x.jsonl",
			`{"text":"A","all":["Good","Bad"],"label":"1"}` + "\n" + `{"text":"B","all":["Bad","Good"],"label":"0"}` + "\n", `map[[0]:{A ["Good","Bad"]} [1]:{B ["Bad","Good"]}]`},
		"schema":          {Config{Schema: fmt.Sprintf(schema, "a")}, "x.csv", "label,a\n1,Film A\n2,B\n", "map[[0]:{Film A } [1]:{B }]"},
		"schema of pairs": {Config{Schema: strings.Replace(fmt.Sprintf(schema, ""), "column: ", "columns: [a, b]", 1)}, "x.jsonl", `{"label":1,"a":"Film","b":"A B"}` + "\n", "map[[0]:{Film A B}]"},
		"schema of columns": {Config{Schema: strings.Replace(fmt.Sprintf(schema, `"2"`), "role: label", "role: label, column: \"1\"", 1), NoHeader: true},
			"x.csv", "1,Good\n", "map[[0]:{Good }]"},
	} {
		dir := write(t, map[string]string{"from/" + test.source: test.content, "schema.yaml": test.cfg.Schema})
		path := filepath.Join(dir, "from", test.source)
		test.cfg.Tokenizer = text.Config{Lowercase: true}
		cfg := in(dir, test.cfg)
		if cfg.Schema != "" {
			cfg = bySchema(dir, Config{Vocab: "vocab.txt", NoHeader: cfg.NoHeader, Tokenizer: test.cfg.Tokenizer})
		}
		cfg.Inputs = []Input{{Train, path}}
		m := mustRun(t, cfg)
		from := filepath.Join(dir, "from")
		if got, err := originals(t, cfg, m, Train, dir, from); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; expected %q", name, got, err, test.want)
		}
		if _, err := originals(t, cfg, m, Train, dir); err == nil || err.Error() != test.source+" was not found" {
			t.Errorf("%s: in another folder: %v", name, err)
		}
		for _, content := range []string{strings.ToUpper(test.content), test.content + "x"} {
			if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
			if _, err := originals(t, cfg, m, Train, from); err == nil {
				t.Errorf("%s: a file that has changed is taken", name)
			}
		}
	}
}

// TestNoOriginals lists data whose records cannot be followed back to texts.
func TestNoOriginals(t *testing.T) {
	id := Feature{Name: ExampleID, Kind: KindNumber}
	words := Feature{Name: "words", Kind: KindText, Columns: []string{"a"}}
	own := id
	own.Columns = []string{"number"}
	for want, m := range map[string]*Manifest{
		"records of task mlm are not made of whole texts": {Task: string(MaskedLM)},
		"no feature of the records is a text":             {Task: SchemaTask, Features: []Feature{id}},
		"the records have ids of the schema in place of the numbers of their rows": {Task: SchemaTask, Features: []Feature{own, words},
			Sources: []Source{{Split: Train, Name: "x.csv", Rows: 9}}},
	} {
		if _, err := m.Originals(t.Context(), Train, OriginalsConfig{}); err == nil || err.Error() != want {
			t.Errorf("got %v; expected %q", err, want)
		}
		if file, _ := m.Origin(Train, 3); file != "" {
			t.Errorf("record 3 is of file %s, though it may be any row", file)
		}
	}
}

// TestOriginalQuestions wants each window with its question and its own part of the context.
func TestOriginalQuestions(t *testing.T) {
	context := "The  Rhine, long " + strings.Repeat("and long ", 8) + "to the lighthouse"
	content := `{"question":"Where\tis it?","context":"` + context + `","answers":[],"is_impossible":true}` + "\n" +
		`{"question":"Who?","context":"The Rhine","answers":[],"is_impossible":true}` + "\n"
	cfg, m, _ := squadRun(t, "x.jsonl", content, Config{MaxLength: 24, DocStride: 4})
	got, err := originals(t, cfg, m, Dev)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "-]") || strings.Contains(got, ":-") || !strings.Contains(got, "[0]:{Where\tis it? The  Rhine, long and") ||
		!strings.Contains(got, "to the lighthouse}") || !strings.Contains(got, "{Who? The Rhine}") || strings.Count(got, "Where") < 3 {
		t.Errorf("the records are of %q", got)
	}
	path := filepath.Join(cfg.Out, m.Splits[Dev].Questions.Name)
	if err := os.WriteFile(path, []byte(strings.ToUpper(content)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := originals(t, cfg, m, Dev); err == nil {
		t.Error("questions that have changed are taken")
	}
}
