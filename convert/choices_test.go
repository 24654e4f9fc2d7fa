package convert

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

const choicesVocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhe\nleft\nsang\nwhy\n?\nin\nrome\n"

// chosen returns the configuration that converts a file of choices.
func chosen(t *testing.T, name, content string, change func(*Config)) Config {
	t.Helper()
	dir := write(t, map[string]string{name: content, "vocab.txt": choicesVocab})
	cfg := in(dir, Config{Task: string(Choices), Inputs: []Input{{Train, name}}, Tokenizer: text.Uncased(), MaxLength: 9, TextColumn: "text", LabelColumn: "label"})
	change(&cfg)
	return cfg
}

// TestChoices holds records of columns and of lists against the pairs that they are made of.
func TestChoices(t *testing.T) {
	const table = "text,a,b,label\nwhy ?,he left,he sang,1\nin rome,he sang,he left,0\n"
	two := []string{
		"[CLS] why ? [SEP] he left [SEP] [CLS] why ? [SEP] he sang [SEP]",
		"[CLS] in rome [SEP] he sang [SEP] [CLS] in rome [SEP] he left [SEP]",
	}
	for name, c := range map[string]struct {
		file, content string
		change        func(*Config)
		labels        []string
		want          []string
		right         []int64
		columns       Columns
	}{
		"columns": {"a.csv", table, func(c *Config) { c.ChoiceColumns = []string{"a", "b"} }, []string{"0", "1"}, two, []int64{1, 0},
			Columns{Text: "text", Label: "label", Choices: []string{"a", "b"}}},
		"from 1, with a stem": {"a.tsv", "text\tstem\ta\tb\tlabel\nwhy ?\the\tleft\tsang\t2\nin rome\the\tsang\tleft\t1\n",
			func(c *Config) { c.ChoiceColumns, c.PairColumn = []string{"a", "b"}, "stem" }, []string{"1", "2"}, two, []int64{1, 0},
			Columns{Text: "text", Label: "label", Stem: "stem", Choices: []string{"a", "b"}}},
		"a list, shortened": {"a.jsonl", `{"text": "why why why why why why", "all": ["he left", "he sang", "rome"], "label": "C"}` + "\n" + `{"text": "in rome", "all": ["he", "sang"], "label": "A"}` + "\n",
			func(c *Config) { c.ChoiceColumns, c.Labels = []string{"all"}, []string{"A", "B", "C"} }, []string{"A", "B", "C"},
			[]string{"[CLS] why why why why [SEP] he left [SEP] [CLS] why why why why [SEP] he sang [SEP] [CLS] why why why why why [SEP] rome [SEP]",
				"[CLS] in rome [SEP] he [SEP] [CLS] in rome [SEP] sang [SEP]"}, []int64{2, 0},
			Columns{Text: "text", Pair: "all", Label: "label"}},
		"without labels": {"a.csv", table, func(c *Config) { c.ChoiceColumns, c.LabelColumn = []string{"a", "b"}, "" }, []string{"0", "1"}, two, []int64{-1, -1},
			Columns{Text: "text", Choices: []string{"a", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := chosen(t, c.file, c.content, c.change)
			m := mustRun(t, cfg)
			if !slices.Equal(m.Labels, c.labels) || !reflect.DeepEqual(m.Columns, c.columns) || m.MaxLength != 9 || !m.Pairs() {
				t.Errorf("labels %v, columns %+v, maximum length %d, pairs %v", m.Labels, m.Columns, m.MaxLength, m.Pairs())
			}
			for i, got := range records(t, cfg, Train) {
				if got.tokens != c.want[i] || got.label != c.right[i] || got.id != int64(i) {
					t.Errorf("record %d is %+v; want %s, label %d", i, got, c.want[i], c.right[i])
				}
				second := int64(0) // of the segments, which begin again with each choice
				for k, token := range strings.Fields(got.tokens) {
					if token == "[CLS]" {
						second = 0
					}
					if got.segments[k] != second {
						t.Errorf("record %d: token %d is in segment %d", i, k, got.segments[k])
					}
					if token == "[SEP]" {
						second = 1
					}
				}
			}
		})
	}
}

// TestChoicesRecord holds a record against what package tfrecord writes.
func TestChoicesRecord(t *testing.T) {
	q := question{ids: []int32{2, 300, 3, 2, 1 << 22, 70000, 3}, types: []int32{0, 0, 1, 0, 0, 1, 1}, starts: []int32{0, 3}}
	wide := func(values []int32) (out []int64) {
		for _, v := range values {
			out = append(out, int64(v))
		}
		return out
	}
	want, err := tfrecord.AppendExample(nil, tfrecord.Int64Feature(ChoiceStarts, wide(q.starts)...), tfrecord.Int64Feature(ExampleID, 7), tfrecord.Int64Feature(InputIDs, wide(q.ids)...),
		tfrecord.Int64Feature(LabelIDs, 1), tfrecord.Int64Feature(SegmentIDs, wide(q.types)...))
	if err != nil {
		t.Fatal(err)
	}
	if got := new(recorder).choices(7, q, answer{form: labelled, labels: []int32{1}}); !bytes.Equal(got, want) {
		t.Errorf("the record is %q; want %q", got, want)
	}
}

func TestWrongChoices(t *testing.T) {
	list := func(c *Config) { c.ChoiceColumns = []string{"all"} }
	two := func(c *Config) { c.ChoiceColumns = []string{"a", "b"} }
	for name, c := range map[string]struct {
		file, content string
		change        func(*Config)
		want          string
		class         error
	}{
		"no columns":       {"a.csv", "text,label\nhe,0\n", func(*Config) {}, "expected their columns (--choice-columns)", nil},
		"a column twice":   {"a.csv", "text,a,label\nhe,he,0\n", func(c *Config) { c.ChoiceColumns = []string{"a", "a"} }, `column "a" is both the column of choice 1 and the column of choice 2; expected different columns`, nil},
		"fewer labels":     {"a.csv", "text,a,b,c,label\nhe,he,left,sang,0\nhe,he,left,sang,1\n", func(c *Config) { c.ChoiceColumns = []string{"a", "b", "c"} }, `has the labels "0", "1", and there are 3 columns of choices`, fault.Usage},
		"other labels":     {"a.csv", "text,a,b,label\nhe,he,left,0\n", func(c *Config) { c.ChoiceColumns, c.Labels = []string{"a", "b"}, []string{"0", "1", "2"} }, "3 labels and 2 columns of choices are given", nil},
		"no label":         {"a.csv", "text,a,b,label\nhe,he,left,\n", func(c *Config) { two(c); c.Labels = []string{"0", "1"} }, "the label is empty", fault.Damaged},
		"an empty choice":  {"a.csv", "text,a,b,label\nhe,he,,0\nhe,he,left,1\n", two, "choice 2 of 2 has no text", fault.Damaged},
		"an empty text":    {"a.csv", "text,a,b,label\n,he,left,0\nhe,he,left,1\n", two, `column "text" has no text`, fault.Damaged},
		"no list":          {"a.jsonl", `{"text": "he", "all": "he", "label": 0}` + "\n" + `{"text": "he", "all": ["he", "left"], "label": 1}`, list, "expected a JSON array of texts", fault.Damaged},
		"one choice":       {"a.jsonl", `{"text": "he", "all": ["he"], "label": 0}` + "\n" + `{"text": "he", "all": ["he", "left"], "label": 1}`, list, "has 1 choice; expected 2 to 2", fault.Damaged},
		"more than labels": {"a.jsonl", `{"text": "he", "all": ["he", "left", "sang"], "label": 0}` + "\n" + `{"text": "he", "all": ["he", "left"], "label": 1}`, list, `has 3 choices; expected 2 to 2, as there are labels ("0", "1")`, fault.Damaged},
		"not that many":    {"a.jsonl", `{"text": "he", "all": ["he", "left"], "label": 2}` + "\n" + `{"text": "he", "all": ["he", "left"], "label": 1}`, func(c *Config) { list(c); c.Labels = []string{"0", "1", "2"} }, "choice 2 from 0; expected one of the row's 2 choices", fault.Damaged},
		"a list unlabeled": {"a.jsonl", `{"text": "he", "all": ["he", "left"]}`, func(c *Config) { list(c); c.LabelColumn = "" }, "no label column is given", fault.Usage},
	} {
		if _, err := Run(t.Context(), chosen(t, c.file, c.content, c.change), quiet); err == nil || !strings.Contains(err.Error(), c.want) || c.class != nil && fault.Of(err) != c.class {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// FuzzParseChoices checks that what is taken for choices is two texts or more.
func FuzzParseChoices(f *testing.F) {
	f.Add(`["a", "b"]`)
	f.Add(`["a", null]`)
	f.Add(`[1, 2]`)
	f.Fuzz(func(t *testing.T, s string) {
		if all, err := ParseChoices(s); err == nil && (len(all) < 2 || len(all) > mostChoices) {
			t.Fatalf("%q gives %q", s, all)
		}
	})
}
