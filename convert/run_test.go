package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

func TestTasks(t *testing.T) {
	const bom = "\ufeff"
	tests := []struct {
		task   string
		train  string
		test   string
		labels []string
		want   []string
		wantT  []string
	}{
		{
			task: "mrpc",
			// A byte order mark, bare quotation marks and, in the original files, CRLF.
			train:  bom + "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t10\t11\t\" a b\tb a\r\n0\t12\t13\tc \"\td\r\n",
			test:   "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta\tb\n",
			labels: []string{"not_equivalent", "equivalent"},
			want:   []string{`equivalent: " a b | b a`, `not_equivalent: c " | d`},
			wantT:  []string{"-: a | b"},
		},
		{
			task:   "sst2",
			train:  "sentence\tlabel\ngood film \t1\nbad film \t0\n",
			test:   "index\tsentence\n0\ta film\n",
			labels: []string{"negative", "positive"},
			want:   []string{"positive: good film", "negative: bad film"},
			wantT:  []string{"-: a film"},
		},
		{
			task:   "cola",
			train:  "gj04\t1\t\ta b c\nbc01\t0\t*\tc b\n",
			test:   "index\tsentence\n0\ta film\n",
			labels: []string{"unacceptable", "acceptable"},
			want:   []string{"acceptable: a b c", "unacceptable: c b"},
			wantT:  []string{"-: a film"},
		},
		{
			task:   "qqp",
			train:  "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n5\t1\t2\ta\tb\t0\n6\t3\t4\tc\td\t1\n",
			test:   "id\tquestion1\tquestion2\n0\ta\tb\n",
			labels: []string{"not_duplicate", "duplicate"},
			want:   []string{"not_duplicate: a | b", "duplicate: c | d"},
			wantT:  []string{"-: a | b"},
		},
		{
			task: "mnli",
			train: "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t" +
				"sentence1\tsentence2\tlabel1\tgold_label\n0\t1\t1n\tx\tp\tp\tp\tp\ta\tb\tneutral\tneutral\n" +
				"1\t1\t1e\tx\tp\tp\tp\tp\tc\td\tentailment\tentailment\n2\t1\t1c\tx\tp\tp\tp\tp\te\ta\tcontradiction\tcontradiction\n",
			test: "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t" +
				"sentence1\tsentence2\n0\t1\t1n\tx\tp\tp\tp\tp\ta\tb\n",
			labels: []string{"contradiction", "entailment", "neutral"},
			want:   []string{"neutral: a | b", "entailment: c | d", "contradiction: e | a"},
			wantT:  []string{"-: a | b"},
		},
		{
			task:   "qnli",
			train:  "index\tquestion\tsentence\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
			test:   "index\tquestion\tsentence\n0\ta\tb\n",
			labels: []string{"entailment", "not_entailment"},
			want:   []string{"entailment: a | b", "not_entailment: c | d"},
			wantT:  []string{"-: a | b"},
		},
		{
			task:   "rte",
			train:  "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
			test:   "index\tsentence1\tsentence2\n0\ta\tb\n",
			labels: []string{"entailment", "not_entailment"},
			want:   []string{"entailment: a | b", "not_entailment: c | d"},
			wantT:  []string{"-: a | b"},
		},
		{
			task:   "wnli",
			train:  "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n1\tc\td\t0\n",
			test:   "index\tsentence1\tsentence2\n0\ta\tb\n",
			labels: []string{"not_entailment", "entailment"},
			want:   []string{"entailment: a | b", "not_entailment: c | d"},
			wantT:  []string{"-: a | b"},
		},
	}
	// TestKinds, TestCausalDocuments, TestQuestionsOfSQuAD, TestSides and TestImageFolders have those that are no classification.
	covered := []string{TextTask, "stsb", string(MultiLabel), string(Regression), string(Tokens), string(MaskedLM), string(LanguageModel), string(QuestionAnswering), string(Seq2Seq), string(Embed), string(Choices), ImagesTask}
	for _, tt := range tests {
		covered = append(covered, tt.task)
		t.Run(tt.task, func(t *testing.T) {
			dir := write(t, map[string]string{"train.tsv": tt.train, "test.tsv": tt.test})
			cfg := in(dir, Config{Task: tt.task, Inputs: []Input{{Train, "train.tsv"}, {Test, "test.tsv"}}})
			m := mustRun(t, cfg)
			if !slices.Equal(m.Labels, tt.labels) {
				t.Errorf("labels %q, expected %q", m.Labels, tt.labels)
			}
			if got := shown(m.Labels, records(t, cfg, Train)); !slices.Equal(got, tt.want) {
				t.Errorf("train: got %q, expected %q", got, tt.want)
			}
			if got := shown(m.Labels, records(t, cfg, Test)); !slices.Equal(got, tt.wantT) {
				t.Errorf("test: got %q, expected %q", got, tt.wantT)
			}
		})
	}
	slices.Sort(covered)
	if all := slices.Sorted(slices.Values(Tasks())); !slices.Equal(covered, all) {
		t.Errorf("tasks %q, of which %q are tested", all, covered)
	}
}

func TestFormats(t *testing.T) {
	want := []string{"no: a b | c", `yes: " d | e`, "maybe: é , a | b"}
	named := Config{TextColumn: "first", PairColumn: "second", LabelColumn: "answer", Labels: []string{"yes", "no", "maybe"}}
	tests := []struct {
		name, file, content string
		change              func(*Config)
	}{
		{"tsv", "x.tsv", "answer\tfirst\tid\tsecond\nno\ta b\t1\tc\nyes\t\" d\t2\te\nmaybe\té,a\t3\tb\n", nil},
		{"no line feed at the end", "x.tsv", "answer\tfirst\tsecond\nno\ta b\tc\nyes\t\" d\te\nmaybe\té,a\tb", nil},
		{"CRLF, empty lines, BOM", "x.txt", "\ufeffanswer\tfirst\tsecond\r\nno\ta b\tc\r\n\r\nyes\t\" d\te\n\nmaybe\té,a\tb\r\n\r\n", nil},
		{"space in the header and around labels", "x.tsv", " answer \tfirst\tsecond\n no \ta b\tc\nyes\t\" d\te\nmaybe \té,a\tb\n", nil},
		{"no header", "x.tsv", "no\ta b\tc\nyes\t\" d\te\nmaybe\té,a\tb\n", func(c *Config) {
			c.NoHeader, c.LabelColumn, c.TextColumn, c.PairColumn = true, "1", "2", "3"
		}},
		{"csv", "x.csv", "answer,first,second\nno,a b,c\nyes,\"\"\" d\",e\nmaybe,\"é,a\",\"b\n\"\n", nil},
		{"csv with BOM and CRLF", "x.CSV", "\ufeff\"answer\",first,second\r\nno,a b,c\r\n\r\nyes,\"\"\" d\",e\r\nmaybe,\"é,a\",\"\r\nb\"", nil},
		{"csv without header", "x.data", "no,a b,c\nyes,\"\"\" d\",e\nmaybe,\"é,a\",b\n", func(c *Config) {
			c.Format, c.NoHeader, c.LabelColumn, c.TextColumn, c.PairColumn = CSV, true, "1", "2", "3"
		}},
		{"jsonl", "x.jsonl", `{"first":"a b","second":"c","answer":"no"}` + "\n\n" +
			`{"answer":"yes","extra":{"x":[1]},"second":"e","first":"\" d"}` + "\r\n" + `{"first":"\u00e9,a","second":"b","answer":"maybe"}`, nil},
		{"latin-1", "x.tsv", "answer\tfirst\tsecond\nno\ta b\tc\nyes\t\" d\te\nmaybe\t\xe9,a\tb\n", func(c *Config) { c.Charset = Latin1 }},
		{"windows-1252", "x.csv", "answer,first,second\nno,a b,c\nyes,\"\"\" d\",e\nmaybe,\"\xe9,a\",b\n", func(c *Config) { c.Charset = Windows1252 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := named
			cfg.Inputs = []Input{{Train, tt.file}}
			if tt.change != nil {
				tt.change(&cfg)
			}
			cfg = in(write(t, map[string]string{tt.file: tt.content}), cfg)
			m := mustRun(t, cfg)
			all := records(t, cfg, Train)
			if got := shown(m.Labels, all); !slices.Equal(got, want) {
				t.Errorf("got %q, expected %q", got, want)
			}
			for i, e := range all {
				if e.id != int64(i) {
					t.Errorf("record %d has example id %d", i, e.id)
				}
			}
		})
	}
}

func TestWindows1252(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": "t\n\x93a\x94 \x80\n"}),
		Config{TextColumn: "t", Charset: Windows1252, Inputs: []Input{{Test, "x.tsv"}}})
	mustRun(t, cfg)
	// Curly quotes are punctuation; the euro sign is a word that the vocabulary lacks.
	if got := records(t, cfg, Test)[0].tokens; got != "[CLS] [UNK] a [UNK] [UNK] [SEP]" {
		t.Errorf("got %s", got)
	}
}

func TestSegments(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": "t\tp\na b\tc\n"}),
		Config{TextColumn: "t", PairColumn: "p", Inputs: []Input{{Train, "x.tsv"}}})
	m := mustRun(t, cfg)
	got := records(t, cfg, Train)
	want := []example{{"[CLS] a b [SEP] c [SEP]", []int64{0, 0, 0, 0, 1, 1}, -1, 0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, expected %+v", got, want)
	}
	if len(m.Labels) != 0 || m.Splits[Train].LabelCounts != nil {
		t.Errorf("there are no labels, but the manifest has %q and counts %v", m.Labels, m.Splits[Train].LabelCounts)
	}
}

func TestLabels(t *testing.T) {
	zero, half := 0.0, 0.5
	tests := []struct {
		name   string
		values []string
		cfg    Config
		labels []string
		ids    []int64
	}{
		{"integers in numeric order", []string{"10", "-1", "2"}, Config{}, []string{"-1", "2", "10"}, []int64{2, 0, 1}},
		{"not all integers", []string{"10", "b", "2"}, Config{}, []string{"10", "2", "b"}, []int64{0, 2, 1}},
		{"odd integers are names", []string{"01", "10", "2"}, Config{}, []string{"01", "10", "2"}, []int64{0, 1, 2}},
		{"sorted by bytes", []string{"b", "C", "a"}, Config{}, []string{"C", "a", "b"}, []int64{2, 0, 1}},
		{"listed", []string{"b", "a", "b"}, Config{Labels: []string{"b", "a", "c"}}, []string{"b", "a", "c"}, []int64{0, 1, 0}},
		{"scores", []string{"-0.1", "0", "1e3", "-0"}, Config{LabelThreshold: &zero}, []string{"negative", "positive"}, []int64{0, 1, 1, 1}},
		{"scores with names", []string{"0.49", "0.5", "-2"}, Config{LabelThreshold: &half, Labels: []string{"lo", "hi"}}, []string{"lo", "hi"}, []int64{0, 1, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var content strings.Builder
			content.WriteString("t\tl\n")
			for _, v := range tt.values {
				content.WriteString("a\t" + v + "\n")
			}
			cfg := tt.cfg
			cfg.TextColumn, cfg.LabelColumn, cfg.Inputs = "t", "l", []Input{{Train, "x.tsv"}}
			cfg = in(write(t, map[string]string{"x.tsv": content.String()}), cfg)
			m := mustRun(t, cfg)
			if !slices.Equal(m.Labels, tt.labels) {
				t.Errorf("labels %q, expected %q", m.Labels, tt.labels)
			}
			counts := make([]int64, len(tt.labels))
			for i, e := range records(t, cfg, Train) {
				if e.label != tt.ids[i] {
					t.Errorf("%q has id %d, expected %d", tt.values[i], e.label, tt.ids[i])
				}
				counts[tt.ids[i]]++
			}
			if got := m.Splits[Train].LabelCounts; !slices.Equal(got, counts) {
				t.Errorf("label counts %v, expected %v", got, counts)
			}
		})
	}
}

func TestJSONLabels(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.jsonl": `{"t":"a","l":true}` + "\n" + `{"t":"b","l":false}` + "\n" + `{"t":"c","l":7}` + "\n"}),
		Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.jsonl"}}})
	m := mustRun(t, cfg)
	if got, want := shown(m.Labels, records(t, cfg, Train)), []string{"true: a", "false: b", "7: c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}

func TestRowErrors(t *testing.T) {
	pair := Config{TextColumn: "t", PairColumn: "p", LabelColumn: "l", Labels: []string{"0", "1"}}
	score := 1.0
	scored := Config{TextColumn: "t", LabelColumn: "l", LabelThreshold: &score}
	tests := []struct {
		name, file, content string
		cfg                 Config
		line                int64
		reason              string
	}{
		{"too few columns", "x.tsv", "t\tp\tl\na\tb\t1\na\tb\n", pair, 3, "has 2 columns; expected 3"},
		{"too many columns", "x.tsv", "t\tp\tl\na\tb\t1\t\n", pair, 2, "has 4 columns; expected 3"},
		{"lines are counted, empty ones too", "x.tsv", "t\tp\tl\n\n\na\n", pair, 4, "has 1 column; expected 3"},
		{"unknown label", "x.tsv", "t\tp\tl\na\tb\t2\n", pair, 2, `label is "2"; expected one of "0", "1"`},
		{"no label", "x.tsv", "t\tp\tl\na\tb\t \n", pair, 2, "the label is empty"},
		{"no text", "x.tsv", "t\tp\tl\na\tb\t0\n  \tb\t1\n", pair, 3, `column "t" has no text`},
		{"no second text", "x.tsv", "t\tp\tl\na\t\t1\n", pair, 2, `column "p" has no text`},
		{"text of control characters", "x.tsv", "t\tp\tl\na\t\u200b\t1\n", pair, 2, `column "p" has no text`},
		{"not UTF-8", "x.tsv", "t\tp\tl\na\tb\xe9\t1\n", pair, 2, "byte 0xe9 at position 4 is not UTF-8; if the file has another encoding, name it, as with --encoding latin-1"},
		{"not UTF-8 in the header", "x.tsv", "t\tp\tl\xff\n", pair, 1, "byte 0xff at position 6 is not UTF-8; if the file has another encoding, name it, as with --encoding latin-1"},
		{"no such column of a task", "x.tsv", "sentence\tgrade\na\t1\n", Config{Task: "sst2"}, 1, `has no column "label"; expected one of "sentence", "grade"`},
		{"a column twice", "x.tsv", "t\tp\tl\tt\na\tb\t1\ta\n", pair, 1, `has two columns "t"; the columns are "t", "p", "l", "t"`},
		{"empty file", "x.tsv", "", pair, 1, "the file is empty"},
		{"file of empty lines", "x.tsv", "\ufeff\r\n\n", pair, 1, "the file is empty"},
		{"UTF-16", "x.tsv", "\xff\xfet\x00", pair, 1, "has the byte order mark of UTF-16; expected UTF-8; convert the file, as with iconv -f UTF-16 -t UTF-8"},
		{"UTF-16 without a mark", "x.tsv", "t\x00\t\x00p\x00\t\x00", pair, 1, "is UTF-16; expected UTF-8; convert the file, as with iconv -f UTF-16LE -t UTF-8"},
		{"carriage returns alone", "x.csv", "t,p,l\ra,b,1\rc,d,0\r", pair, 1, `lines end with carriage returns alone; expected line feeds; convert the file, as with tr '\r' '\n'`},
		{"semicolons", "x.tsv", "sentence;label\na;1\n", Config{Task: "sst2"}, 1, `has no column "sentence"; expected one of "sentence;label"; if columns have another character between them: --delimiter ';'`},
		{"separator in the first line", "x.tsv", "sep=\t\nsentence\tlabel\na\t1\n", Config{Task: "sst2"}, 1, `has no column "sentence"; expected one of "sep=", ""; the first line is no header, but says what separates columns: remove it`},
		{"no score", "x.tsv", "t\tl\na\t1\nb\tx1\n", scored, 3, `score is "x1"; expected a number`},
		{"NaN", "x.tsv", "t\tl\na\tNaN\n", scored, 2, `score is "NaN"; expected a number`},
		{"infinite", "x.tsv", "t\tl\na\t-inf\n", scored, 2, `score is "-inf"; expected a number`},
		{"too few columns in csv", "x.csv", "t,p,l\na,\"b\n\",1\na,b\n", pair, 4, "has 2 columns; expected 3"},
		{"bare quote in csv", "x.csv", "t,p,l\na,b\"c,1\n", pair, 2, `a field has a quotation mark, and does not begin with one; expected "..." around the field, and "" for each mark in it`},
		{"open quote in csv", "x.csv", "t,p,l\na,b,1\na,\"b,1\na,b,0\n", pair, 3, `a field that begins with a quotation mark does not end with one; expected "" for each mark in it, and one at its end`},
		{"not UTF-8 in csv", "x.csv", "t,p,l\na,\"b\n\xff\",1\n", pair, 2, "byte 0xff at position 3 is not UTF-8; if the file has another encoding, name it, as with --encoding latin-1"},
		{"json list", "x.jsonl", "[1]\n", pair, 1, "is [1]; expected a JSON object"},
		{"json broken off", "x.jsonl", `{"t":"a","p":"b","l":1}` + "\n" + `{"t":`, pair, 2, "is not a JSON object: unexpected end of JSON input"},
		{"json without text", "x.jsonl", `{"t":"a","l":1}`, pair, 1, `has no "p"; its members are "l", "t"`},
		{"json null", "x.jsonl", `{"t":"a","p":null,"l":1}`, pair, 1, `has no "p"`},
		{"json number as text", "x.jsonl", `{"t":"a","p":5,"l":1}`, pair, 1, `"p" is 5; expected text`},
		{"json object as label", "x.jsonl", `{"t":"a","p":"b","l":{}}`, pair, 1, `"l" is {}; expected text`},
		{"cola row of three", "x.tsv", "src\t1\t\ta\nsrc\t1\ta\n", Config{Task: "cola"}, 2, "has 3 columns; expected 4"},
		{"cola first row of three", "x.tsv", "src\t1\ta\n", Config{Task: "cola"}, 1, "has 3 columns; expected 4"},
		{"UTF-8 said to be latin-1", "x.tsv", "\ufefft\na\n", Config{TextColumn: "t", Charset: Latin1}, 1, "has the byte order mark of UTF-8; expected encoding latin-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := tt.cfg
			cfg.Inputs = []Input{{Train, tt.file}}
			cfg = in(write(t, map[string]string{tt.file: tt.content}), cfg)
			_, err := Run(context.Background(), cfg, quiet)
			var row *RowError
			if !errors.As(err, &row) {
				t.Fatalf("got %v, expected a RowError", err)
			}
			if want := (RowError{cfg.Inputs[0].Path, tt.line, tt.reason}); *row != want {
				t.Errorf("got  %v\nwant %v", row, &want)
			}
			if _, err := os.Stat(cfg.Out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the output folder is there: %v", err)
			}
		})
	}
}

// The first bad row of a file is the one told, whatever goroutine meets it first.
func TestFirstBadRow(t *testing.T) {
	var b strings.Builder
	b.WriteString("t\n")
	for i := range 5000 {
		if i > 1500 {
			b.WriteString(" \n")
		} else {
			b.WriteString("a b c\n")
		}
	}
	cfg := in(write(t, map[string]string{"x.tsv": b.String()}), Config{TextColumn: "t", Workers: 8, Inputs: []Input{{Train, "x.tsv"}}})
	for range 5 {
		_, err := Run(context.Background(), cfg, quiet)
		var row *RowError
		if !errors.As(err, &row) || row.Line != 1503 {
			t.Fatalf("got %v, expected line 1503", err)
		}
	}
}

func TestSkipBadRows(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": "t\tl\na\tx\nb\n\xff\tx\nc\ty\n\tx\nd\tx\n"}),
		Config{TextColumn: "t", LabelColumn: "l", SkipBadRows: true, Inputs: []Input{{Train, "x.tsv"}}})
	m := mustRun(t, cfg)
	all := records(t, cfg, Train)
	if got, want := shown(m.Labels, all), []string{"x: a", "y: c", "x: d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
	// The numbers are those of the rows in the file, so they can be found again.
	if ids := []int64{all[0].id, all[1].id, all[2].id}; !slices.Equal(ids, []int64{0, 3, 5}) {
		t.Errorf("example ids %v", ids)
	}
	if s := m.Sources[0]; s.Rows != 6 || s.Skipped != 3 {
		t.Errorf("%d rows, %d skipped", s.Rows, s.Skipped)
	}
}

func TestLabelsOfTrainOnly(t *testing.T) {
	cfg := in(write(t, map[string]string{"train.tsv": "t\tl\na\tx\n", "dev.tsv": "t\tl\na\tx\nb\ty\n"}),
		Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "train.tsv"}, {Dev, "dev.tsv"}}})
	_, err := Run(context.Background(), cfg, quiet)
	if want := cfg.Inputs[1].Path + `:3: label is "y"; expected one of "x"`; err == nil || err.Error() != want {
		t.Errorf("got %v, expected %s", err, want)
	}
}

// Labels that first show after the rows that they are guessed from count all the same,
// also those of rows that are passed over.
func TestLateLabels(t *testing.T) {
	rows := strings.Repeat(`{"t":"a","l":"y"}`+"\n"+`{"t":"b","l":"x"}`+"\n", guessRows/2)
	for _, c := range []struct {
		late   string
		skip   bool
		labels []string
	}{
		{`{"t":"c","l":"w"}`, false, []string{"w", "x", "y"}},
		{`{"t":"c","l":"z"}`, false, []string{"x", "y", "z"}},
		{`{"t":"c","l":"x"}`, false, []string{"x", "y"}},
		{`{"t":" ","l":"w"}`, true, []string{"w", "x", "y"}},
		{`{"t":null,"l":"w"}`, true, []string{"w", "x", "y"}},
	} {
		cfg := in(write(t, map[string]string{"x.jsonl": rows + c.late}), Config{TextColumn: "t", LabelColumn: "l",
			SkipBadRows: c.skip, Shards: 2, Inputs: []Input{{Train, "x.jsonl"}}})
		listed := cfg
		listed.Out, listed.Labels = cfg.Out+"2", c.labels
		if got, want := mustRun(t, cfg), mustRun(t, listed); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, expected %+v", c.late, got, want)
		}
	}
}

func TestTooManyLabels(t *testing.T) {
	var b strings.Builder
	b.WriteString("t\tl\n")
	for i := range maxLabels + 1 {
		fmt.Fprintf(&b, "a\t%d\n", i)
	}
	cfg := in(write(t, map[string]string{"x.tsv": b.String()}), Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
	_, err := Run(context.Background(), cfg, quiet)
	var row *RowError
	if !errors.As(err, &row) || row.Line != maxLabels+2 {
		t.Errorf("got %v", err)
	}
}

func TestValuesThatAreNoLabels(t *testing.T) {
	for _, c := range []struct {
		name, want string
		rows       int
		label      func(i int) string
	}{
		{"a number of its own", "has 3000 different values in 3000 rows, most of them in only one row; expected at most", 3000, strconv.Itoa},
		{"a text of its own", "has 300 different values in 300 rows, most of them in only one row", 300, func(i int) string { return fmt.Sprint("x", i) }},
		{"scores", "has 101 different values in 1000 rows, which are fractional numbers", 1000, func(i int) string { return fmt.Sprint(float64(i%101) / 8) }},
		{"few scores", "", 1000, func(i int) string { return fmt.Sprint(float64(i%100) / 8) }},
		{"many classes", "", 1000, func(i int) string { return strconv.Itoa(i % 500) }},
		{"few rows", "", 100, strconv.Itoa},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("t\tl\n")
			for i := range c.rows {
				fmt.Fprintf(&b, "a\t%s\n", c.label(i))
			}
			cfg := in(write(t, map[string]string{"x.tsv": b.String()}), Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
			_, err := Run(context.Background(), cfg, quiet)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), `column "l" `+c.want)) {
				t.Errorf("got %v, expected %q", err, c.want)
			}
		})
	}
}

func TestSplitByHash(t *testing.T) {
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, "%d\ta b\n", i/2)
	}
	cfg := in(write(t, map[string]string{"x.tsv": b.String()}), Config{
		NoHeader: true, TextColumn: "2", SplitByHash: "1", DevFraction: 0.25, Inputs: []Input{{Train, "x.tsv"}},
	})
	mustRun(t, cfg)
	var dev []int64
	for _, e := range records(t, cfg, Dev) {
		dev = append(dev, e.id/2)
	}
	if n := len(records(t, cfg, Train)); n+len(dev) != 400 {
		t.Errorf("%d rows in train and %d in dev", n, len(dev))
	}
	for i := 0; i+1 < len(dev); i += 2 {
		if dev[i] != dev[i+1] {
			t.Fatalf("rows of one id are in two splits: %v", dev)
		}
	}
	// From Python: [i for i in range(200) if int.from_bytes(hashlib.sha256(b"%d" % i)
	// .digest()[:8], "big") < 0.25 * 2**64][:12]
	want := []int64{8, 9, 13, 29, 39, 41, 46, 47, 49, 50, 51, 53}
	if got := slices.Compact(dev)[:12]; !slices.Equal(got, want) {
		t.Errorf("dev holds the ids %v, expected %v", got, want)
	}
}

func TestDevIDs(t *testing.T) {
	files := map[string]string{
		"train.txt": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t1\t2\ta\tb\r\n0\t3\t4\tc\td\r\n1\t2\t1\te\ta\r\n",
		"ids.tsv":   "3\t4\n9\t9\n",
		"one.tsv":   "3\n4\n",
		"three.tsv": "3\t4\t5\n",
		"none.tsv":  "8\t8\n",
		"all.tsv":   "1\t2\n3\t4\n2\t1\n",
	}
	dir := write(t, files)
	base := Config{Task: "mrpc", DevIDs: "ids.tsv", Inputs: []Input{{Train, "train.txt"}}}
	cfg := in(dir, base)
	m := mustRun(t, cfg)
	if got, want := shown(m.Labels, records(t, cfg, Train)), []string{"equivalent: a | b", "equivalent: e | a"}; !slices.Equal(got, want) {
		t.Errorf("train: got %q, expected %q", got, want)
	}
	dev := records(t, cfg, Dev)
	if got, want := shown(m.Labels, dev), []string{"not_equivalent: c | d"}; !slices.Equal(got, want) || dev[0].id != 1 {
		t.Errorf("dev: got %q, expected %q", got, want)
	}
	for file, want := range map[string]string{
		"one.tsv":   `one.tsv:1: has no column "2"; expected one of "1"`,
		"three.tsv": "three.tsv:1: has 3 columns; expected 2, the ids of a row",
		"none.tsv":  "convert: 0 rows of the training file go to the dev split and 3 stay; expected 1 or more of each",
		"all.tsv":   "convert: 3 rows of the training file go to the dev split and 0 stay; expected 1 or more of each",
		"zz.tsv":    "zz.tsv: no such file or directory",
	} {
		bad := base
		bad.DevIDs = file
		bad = in(dir, bad)
		bad.Out += "2"
		if _, err := Run(context.Background(), bad, quiet); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, expected %s", file, err, want)
		}
	}
}

// On the real files, the split by ids gives GLUE's own train.tsv and dev.tsv.
func TestMRPC(t *testing.T) {
	folder := filepath.Dir(testkit.SharedData(t, "TestDevIDs, with rows of the same forms", "mrpc", "train.tsv"))
	vocab := ""
	for _, p := range []string{"demo/model/vocab.txt", ".cache/minilm/vocab.txt"} {
		if p = filepath.Join(testkit.Root(), p); vocab == "" {
			if _, err := os.Stat(p); err == nil {
				vocab = p
			}
		}
	}
	if vocab == "" {
		t.Skip("no BERT vocabulary in demo/model or .cache/minilm: the demo's set-up fetches it")
	}
	glue := Config{Task: "mrpc", Vocab: vocab, Tokenizer: text.Uncased(), Out: t.TempDir(), Inputs: []Input{
		{Train, filepath.Join(folder, "train.tsv")}, {Dev, filepath.Join(folder, "dev.tsv")}, {Test, filepath.Join(folder, "test.tsv")},
	}}
	byIDs := glue
	byIDs.Out, byIDs.DevIDs = t.TempDir(), filepath.Join(folder, "dev_ids.tsv")
	byIDs.Inputs = []Input{{Train, filepath.Join(folder, "msr_paraphrase_train.txt")}, {Test, filepath.Join(folder, "msr_paraphrase_test.txt")}}
	original := byIDs
	original.Out = t.TempDir()
	original.Inputs = []Input{
		{Train, filepath.Join(folder, "untokenized", "msr_paraphrase_train.txt")}, {Test, filepath.Join(folder, "untokenized", "msr_paraphrase_test.txt")},
	}
	want := map[string][]int64{Train: {1194, 2474}, Dev: {129, 279}, Test: {578, 1147}}
	for _, cfg := range []Config{glue, byIDs, original} {
		m := mustRun(t, cfg)
		for split, counts := range want {
			got := m.Splits[split]
			if split == Test && cfg.DevIDs == "" {
				counts = []int64{0, 0} // GLUE's test.tsv has no labels
			}
			if !slices.Equal(got.LabelCounts, counts) || got.Truncated != 0 {
				t.Errorf("%s: %s: label counts %v, %d truncated, expected %v", cfg.Inputs[0].Path, split, got.LabelCounts, got.Truncated, counts)
			}
		}
	}
	for _, split := range []string{Train, Dev, Test} {
		sorted := func(cfg Config) []string {
			s := shown([]string{"0", "1"}, records(t, cfg, split))
			for i := range s {
				if split == Test {
					s[i] = s[i][1:]
				}
			}
			slices.Sort(s)
			return s
		}
		if !slices.Equal(sorted(glue), sorted(byIDs)) {
			t.Errorf("%s: the split by ids differs from GLUE's", split)
		}
	}
}

func TestTruncation(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": "t\tp\na b c d\te\na\tb\na b c d\ta b c d\n"}),
		Config{TextColumn: "t", PairColumn: "p", MaxLength: 7, Inputs: []Input{{Train, "x.tsv"}}})
	m := mustRun(t, cfg)
	if got, want := shown(nil, records(t, cfg, Train)), []string{"-: a b c | e", "-: a | b", "-: a b | a b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
	s := m.Splits[Train]
	if s.Truncated != 2 || s.Tokens != 19 || s.Records != 3 {
		t.Errorf("%d truncated, %d tokens, %d records", s.Truncated, s.Tokens, s.Records)
	}
	if want := (Lengths{5, 7, 19.0 / 3, 16, []int64{3}}); !reflect.DeepEqual(s.Lengths, want) {
		t.Errorf("lengths %+v, expected %+v", s.Lengths, want)
	}
	cfg.MaxLength, cfg.Overwrite = 3, true
	if _, err := Run(t.Context(), cfg, quiet); err == nil || !strings.Contains(err.Error(), "puts 3 special tokens around a text; expected at least 4") {
		t.Errorf("with room for no token: got %v", err)
	}
}

func TestSpecialsInText(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": "t\na[SEP]b\n[SEP]\n"}), Config{TextColumn: "t", Inputs: []Input{{Train, "x.tsv"}}})
	mustRun(t, cfg)
	if got, want := records(t, cfg, Train)[0].tokens, "[CLS] a [SEP] b [SEP]"; got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	cfg.Tokenizer.LiteralSpecials, cfg.Overwrite = true, true
	m := mustRun(t, cfg)
	if got, want := records(t, cfg, Train)[0].tokens, "[CLS] a [UNK] [UNK] [UNK] b [SEP]"; got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	if !m.TokenizerConfig().LiteralSpecials {
		t.Error("the manifest does not say that special tokens were taken literally")
	}
}

func TestTokenizerConfig(t *testing.T) {
	for _, set := range []text.Config{
		{}, text.Uncased(), {Lowercase: true, Accents: text.KeepAccents}, {Accents: text.StripAccents},
		{Unclean: true, JoinIdeographs: true, LiteralSpecials: true, MaxWordChars: 7},
	} {
		cfg := in(write(t, map[string]string{"x.tsv": "t\nA É e\u0301 [MASK] 中中 x\u200bx xxxxxxxxx\n"}), Config{TextColumn: "t", Tokenizer: set, Inputs: []Input{{Train, "x.tsv"}}})
		m := mustRun(t, cfg)
		v, err := text.LoadVocab(cfg.Vocab)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := text.NewTokenizer(v, m.TokenizerConfig())
		if err != nil {
			t.Fatal(err)
		}
		again := v.Tokens(tok.Encode("A É e\u0301 [MASK] 中中 x\u200bx xxxxxxxxx", "", 0).IDs)
		if got := records(t, cfg, Train)[0].tokens; got != again {
			t.Errorf("%+v: the records hold %s, the manifest's settings give %s", set, got, again)
		}
	}
}

func manyRows(n int) string {
	var b strings.Builder
	b.WriteString("t\tl\n")
	for i := range n {
		fmt.Fprintf(&b, "%s\t%d\n", strings.Repeat(tokens[i%8]+" ", 1+i%40), i%3)
	}
	return b.String()
}

// dataset reads all files of a dataset.
func dataset(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(data)
	}
	return all
}

func TestSameBytes(t *testing.T) {
	base := Config{TextColumn: "t", LabelColumn: "l", Shards: 3, SplitByHash: "t", Inputs: []Input{{Train, "x.tsv"}}}
	content := map[string]string{"x.tsv": manyRows(3000)}
	build := func(change func(*Config)) map[string]string {
		cfg := base
		change(&cfg)
		cfg = in(write(t, content), cfg)
		mustRun(t, cfg)
		return dataset(t, cfg.Out)
	}
	tests := []struct {
		name string
		a, b func(*Config)
		same bool
	}{
		{"any number of workers", func(c *Config) { c.Workers = 1 }, func(c *Config) { c.Workers = 7 }, true},
		{"a seed without shuffling", func(c *Config) {}, func(c *Config) { c.Seed = 5 }, true},
		{"one seed", func(c *Config) { c.Shuffle, c.Seed = true, 5 }, func(c *Config) { c.Shuffle, c.Seed, c.Workers = true, 5, 3 }, true},
		{"two seeds", func(c *Config) { c.Shuffle, c.Seed = true, 5 }, func(c *Config) { c.Shuffle, c.Seed = true, 6 }, false},
		{"gzip", func(c *Config) { c.Compression = tfrecord.Gzip }, func(c *Config) { c.Compression, c.Workers = tfrecord.Gzip, 1 }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := build(tt.a), build(tt.b)
			if !slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))) {
				t.Fatalf("the files differ: %v, %v", slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
			}
			if len(a) != 2*3+2 {
				t.Errorf("%d files", len(a))
			}
			if maps.Equal(a, b) != tt.same {
				t.Errorf("the bytes are equal: %v, expected %v", !tt.same, tt.same)
			}
		})
	}
}

func TestShuffle(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": manyRows(1000)}),
		Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
	mustRun(t, cfg)
	plain := records(t, cfg, Train)
	cfg.Shuffle, cfg.Seed, cfg.Overwrite, cfg.Compression = true, 1, true, tfrecord.Zlib
	mustRun(t, cfg)
	shuffled := records(t, cfg, Train)
	moved := 0
	for i, e := range shuffled {
		if e.id != int64(i) {
			moved++
		}
	}
	if moved < 900 {
		t.Errorf("%d of 1000 records have moved", moved)
	}
	slices.SortFunc(shuffled, func(a, b example) int { return int(a.id - b.id) })
	if !reflect.DeepEqual(plain, shuffled) {
		t.Error("the shuffled records are others")
	}
}

func TestPermutation(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		p := permutation(n, 3, 4)
		q := slices.Sorted(slices.Values(p))
		for i, v := range q {
			if v != int64(i) {
				t.Fatalf("of %d: %v", n, p)
			}
		}
	}
	// What these are does not matter, but they stay: datasets depend on them.
	if got, want := permutation(8, 1, 2), []int64{1, 2, 5, 0, 3, 7, 4, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
}

func TestShards(t *testing.T) {
	for _, tt := range []struct{ rows, shards, files int }{{5, 3, 3}, {2, 5, 2}, {1, 1, 1}, {4, 0, 1}} {
		cfg := in(write(t, map[string]string{"x.tsv": manyRows(tt.rows)}),
			Config{TextColumn: "t", LabelColumn: "l", Shards: tt.shards, Inputs: []Input{{Train, "x.tsv"}}})
		m := mustRun(t, cfg)
		files := m.Splits[Train].Files
		if len(files) != tt.files {
			t.Errorf("%d rows in %d shards: %d files", tt.rows, tt.shards, len(files))
		}
		for i, f := range files {
			if f.Name != tfrecord.ShardName(Train, i, tt.files) || f.Records < int64(tt.rows/tt.files) {
				t.Errorf("%d rows in %d shards: file %d is %+v", tt.rows, tt.shards, i, f)
			}
		}
		// All of them make a whole set to those who look at the folder alone.
		found, err := tfrecord.Glob(filepath.Join(cfg.Out, Train))
		if err != nil || len(found) != tt.files {
			t.Errorf("Glob finds %v, %v", found, err)
		}
		records(t, cfg, Train)
	}
}

func TestSeveralFilesOfOneSplit(t *testing.T) {
	var steps []Progress
	cfg := in(write(t, map[string]string{"1.tsv": "t\na\nb\n", "2.csv": "x,t\n1,c\n"}), Config{
		TextColumn: "t", Inputs: []Input{{Train, "1.tsv"}, {Train, "2.csv"}, {"other", "2.csv"}},
		Progress: func(p Progress) { steps = append(steps, p) },
	})
	m := mustRun(t, cfg)
	all := records(t, cfg, Train)
	if got, want := shown(nil, all), []string{"-: a", "-: b", "-: c"}; !slices.Equal(got, want) || all[2].id != 2 {
		t.Errorf("got %q, expected %q", got, want)
	}
	if other := records(t, cfg, "other"); len(other) != 1 || other[0].id != 0 {
		t.Errorf("got %v", other)
	}
	if len(m.Sources) != 3 || m.Sources[1].Name != "2.csv" || m.Sources[1].Bytes != 8 {
		t.Errorf("sources %+v", m.Sources)
	}
	last := steps[len(steps)-1]
	if want := (Progress{cfg.Inputs[2].Path, 4, 22, 22}); last != want {
		t.Errorf("last progress %+v, expected %+v", last, want)
	}
}

func TestOverwrite(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": manyRows(10), "bad.tsv": "t\tl\n \t1\n"})
	cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Shards: 2, Inputs: []Input{{Train, "x.tsv"}, {Test, "x.tsv"}}})
	mustRun(t, cfg)
	put(t, filepath.Join(cfg.Out, "notes.md"), "mine")
	put(t, filepath.Join(cfg.Out, "train-00000-of-00002.tfrecord.index"), "made when reading")
	before := dataset(t, cfg.Out)

	var exists *ExistsError
	if _, err := Run(context.Background(), cfg, quiet); !errors.As(err, &exists) || exists.Path != filepath.Join(cfg.Out, ManifestName) {
		t.Errorf("got %v", err)
	}
	bad := cfg
	bad.Overwrite, bad.Inputs = true, []Input{{Train, filepath.Join(dir, "bad.tsv")}}
	if _, err := Run(context.Background(), bad, quiet); err == nil {
		t.Error("a bad row is accepted")
	}
	if after := dataset(t, cfg.Out); !maps.Equal(before, after) {
		t.Errorf("the dataset is not as it was: %v", slices.Sorted(maps.Keys(after)))
	}

	cfg.Overwrite, cfg.Shards = true, 1
	cfg.Inputs = cfg.Inputs[:1]
	mustRun(t, cfg)
	want := []string{ManifestName, "notes.md", "train-00000-of-00001.tfrecord", "vocab.txt"}
	if got := slices.Sorted(maps.Keys(dataset(t, cfg.Out))); !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}

// TestRefusedBeforeTheWork has something in the way of the dataset and inputs that cannot
// be read: what is in the way is told.
func TestRefusedBeforeTheWork(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": manyRows(10)})
	for name, lay := range map[string]func(out string) error{
		" already exists; choose another folder, or overwrite it": func(out string) error {
			return os.WriteFile(filepath.Join(out, ManifestName), nil, 0o666)
		},
		"train-00000-of-00001.tfrecord already exists; choose another folder, or overwrite it": func(out string) error {
			return os.WriteFile(filepath.Join(out, "train-00000-of-00001.tfrecord"), nil, 0o666)
		},
		"vocab.txt is a folder; expected a file, because a file of the dataset has that name; choose another folder": func(out string) error {
			return os.Mkdir(filepath.Join(out, tokenizers.Vocab), 0o777)
		},
		"is a file; expected a folder or the name of a new one": func(out string) error {
			return errors.Join(os.Remove(out), os.WriteFile(out, nil, 0o666))
		},
	} {
		cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "gone.tsv"}}})
		cfg.Vocab = filepath.Join(dir, "gone.txt")
		cfg.Out = filepath.Join(t.TempDir(), "out")
		if err := errors.Join(os.Mkdir(cfg.Out, 0o777), lay(cfg.Out)); err != nil {
			t.Fatal(err)
		}
		_, err := Run(context.Background(), cfg, quiet)
		if err == nil || !strings.HasSuffix(err.Error(), name) || fault.Of(err) != fault.Usage {
			t.Errorf("got %v (%s), expected a usage error ... %s", err, fault.Of(err), name)
		}
	}
}

// TestAppearsMeanwhile has another program write a dataset while this one works.
func TestAppearsMeanwhile(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": manyRows(10)})
	for _, name := range []string{ManifestName, "train-00001-of-00002.tfrecord", tokenizers.Vocab} {
		cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
		cfg.Out = filepath.Join(t.TempDir(), "out")
		cfg.Progress = func(Progress) { put(t, filepath.Join(cfg.Out, name), "another") }
		_, err := Run(context.Background(), cfg, quiet)
		var exists *ExistsError
		if !errors.As(err, &exists) || filepath.Base(exists.Path) != name || fault.Of(err) != fault.Usage {
			t.Errorf("%s: got %v", name, err)
		}
		if got := slices.Sorted(maps.Keys(dataset(t, cfg.Out))); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: %q is left, expected what was written meanwhile", name, got)
		}
	}
}

// TestLabelsThatDifferInCase are one label written in two ways, unless they are listed.
func TestLabelsThatDifferInCase(t *testing.T) {
	late := manyRows(guessRows) + "a\tYes\nb\tyes\n"
	for name, rows := range map[string]string{"first rows": "t\tl\na\tYes\nb\tNo\na\tyes\n", "late": late} {
		dir := write(t, map[string]string{"x.tsv": rows})
		cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
		_, err := Run(context.Background(), cfg, quiet)
		want := `convert: column "l" has the labels "Yes", "yes", which differ only in case; write them in the same way, or list all labels with --labels to keep both`
		if err == nil || err.Error() != want || fault.Of(err) != fault.Usage {
			t.Errorf("%s: got %v\nexpected %s", name, err, want)
		}
		cfg.Labels = []string{"0", "1", "2", "Yes", "yes", "No"}
		mustRun(t, cfg)
	}
}

// Labels that are one number are one label, too, however they are written.
func TestLabelsThatAreOneNumber(t *testing.T) {
	for _, c := range []struct {
		labels []string
		ok     bool
	}{
		{[]string{"0", "0.0"}, false}, {[]string{"01", "1"}, false}, {[]string{"-0", "0"}, false}, {[]string{"1e2", "100"}, false}, {[]string{"+.50", "0.5"}, false},
		{[]string{"9007199254740993", "9007199254740992"}, true}, {[]string{"0", "1", "-1", "0.1", "10"}, true}, {[]string{"0x1", "1", "inf", "infinity", "e", "."}, true},
	} {
		err := refuseAlike("l", c.labels, "with --labels")
		if (err == nil) != c.ok || err != nil && (fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), fmt.Sprintf("%q, %q, which are the same number", c.labels[0], c.labels[1]))) {
			t.Errorf("%q: %v", c.labels, err)
		}
	}
}

func TestLeftovers(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": manyRows(10)})
	cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
	// Of a conversion that was killed before it moved its files ...
	if err := os.MkdirAll(filepath.Join(cfg.Out, asideName), 0o777); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(cfg.Out, asideName, "train.0"), "half")
	put(t, filepath.Join(cfg.Out, lockName), "")
	mustRun(t, cfg)
	if got, want := slices.Sorted(maps.Keys(dataset(t, cfg.Out))), []string{ManifestName, "train-00000-of-00001.tfrecord", "vocab.txt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
	// ... and of one that was killed while it did.
	if err := os.Remove(filepath.Join(cfg.Out, ManifestName)); err != nil {
		t.Fatal(err)
	}
	var exists *ExistsError
	if _, err := Run(context.Background(), cfg, quiet); !errors.As(err, &exists) {
		t.Errorf("got %v", err)
	}
	cfg.Overwrite = true
	mustRun(t, cfg)
	records(t, cfg, Train)
}

func TestForeignVocabIsKept(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": manyRows(3)})
	cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
	cfg.Out = dir // where the same vocabulary lies
	mustRun(t, cfg)
	other := t.TempDir()
	put(t, filepath.Join(other, "vocab.txt"), "another")
	cfg.Out = other
	var exists *ExistsError
	if _, err := Run(context.Background(), cfg, quiet); !errors.As(err, &exists) || exists.Path != filepath.Join(other, "vocab.txt") {
		t.Errorf("got %v", err)
	}
}

func TestOneAtATime(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": manyRows(3)}), Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
	if err := os.Mkdir(cfg.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	unlock, _, err := vfs.Lock(filepath.Join(cfg.Out, lockName))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("convert: %s is in use by process %d on ", cfg.Out, os.Getpid())
	if _, err := Run(context.Background(), cfg, quiet); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	unlock()
	mustRun(t, cfg)
}

func TestCancel(t *testing.T) {
	for _, stopAt := range []int64{1, 3000} {
		ctx, cancel := context.WithCancel(context.Background())
		cfg := in(write(t, map[string]string{"x.tsv": manyRows(5000)}), Config{
			TextColumn: "t", LabelColumn: "l", Labels: []string{"0", "1", "2"}, Inputs: []Input{{Train, "x.tsv"}},
			Progress: func(p Progress) {
				if p.Rows >= stopAt {
					cancel()
				}
			},
		})
		if _, err := Run(ctx, cfg, quiet); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(cfg.Out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the output folder is there: %v", err)
		}
		cancel()
	}
}

func TestMissingFiles(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": manyRows(3), "header.tsv": "t\tl\n", "novocab.txt": "a\n"})
	base := Config{TextColumn: "t", LabelColumn: "l", Labels: []string{"0", "1", "2"}, Inputs: []Input{{Train, "x.tsv"}}}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"input", func(c *Config) { c.Inputs[0].Path += "x.tsv" }, "x.tsvx.tsv: no such file or directory"},
		{"vocabulary", func(c *Config) { c.Vocab += "x" }, "vocab.txtx: no such file or directory"},
		{"vocabulary of nothing", func(c *Config) { c.Vocab = filepath.Join(dir, "novocab.txt") }, "has no [UNK]; expected a BERT vocab.txt with one token per line"},
		{"folder as input", func(c *Config) { c.Inputs[0].Path, c.Format = dir, TSV }, "; expected shards, such as train-00000-of-00002.parquet; name its files one by one"},
		{"no labels", func(c *Config) { c.Inputs[0].Path, c.Labels = filepath.Join(dir, "header.tsv"), nil }, "header.tsv has no rows; expected rows with labels"},
		{"no rows", func(c *Config) { c.Inputs[0].Path = filepath.Join(dir, "header.tsv") }, "header.tsv has no rows"},
		{"endless vocabulary", func(c *Config) { c.Vocab = "/dev/zero" }, "vocabulary: /dev/zero is a device; expected a regular file"},
	}
	for _, tt := range tests {
		cfg := in(dir, base)
		tt.change(&cfg)
		class := map[string]fault.Class{"vocabulary of nothing": fault.Usage, "no rows": fault.Damaged, "no labels": fault.Damaged}[tt.name]
		_, err := Run(context.Background(), cfg, quiet)
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) || class != "" && fault.Of(err) != class {
			t.Errorf("%s: got %v (%s), expected ... %s (%s)", tt.name, err, fault.Of(err), tt.want, class)
		}
	}
}
