package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// lines returns the records of a split as "tokens | feature=values ...", for the features beside
// tokens, segments and the number.
func lines(t *testing.T, cfg Config, split string) []string {
	t.Helper()
	tokens := shown(nil, unlabelled(records(t, cfg, split)))
	var out []string
	eachRecord(t, cfg, split, func(data []byte) {
		all, err := tfrecord.ParseExample(data)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.TrimPrefix(tokens[len(out)], "-: ")
		for _, v := range all {
			switch v.Name {
			case LabelIDs, WordStarts:
				line += fmt.Sprintf(" %s=%v", v.Name, v.Int64s)
			case Label:
				line += fmt.Sprintf(" %s=%v", v.Name, v.Floats)
			}
		}
		out = append(out, line)
	})
	return out
}

func unlabelled(all []example) []example {
	for i := range all {
		all[i].label = -1
	}
	return all
}

func TestKinds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cfg    Config
		train  string // its first line is the file's name
		want   []string
		labels []string
		split  Split // Answered, LabelCounts and Values
	}{
		{
			name: "regression", cfg: Config{Task: "regression", TextColumn: "t", LabelColumn: "y"},
			train: "x.csv\nt,y\na b,1.5\nc,-2e-1\n\"a, b\", 7 \n",
			want:  []string{"a b label=[1.5]", "c label=[-0.2]", "a , b label=[7]"},
			split: Split{Answered: 3, Values: &Values{-0.20000000298023224, 7, 2.766666665673256}},
		},
		{
			name: "pairs with scores", cfg: Config{Task: "stsb"},
			train: "x.tsv\nindex\tsentence1\tsentence2\tscore\n0\ta\tb\t5.000\n",
			want:  []string{"a | b label=[5]"},
			split: Split{Answered: 1, Values: &Values{5, 5, 5}},
		},
		{
			name: "several labels", cfg: Config{Task: "multilabel", TextColumn: "t", LabelColumn: "l"},
			train:  "x.tsv\nt\tl\na\tsea, air\nb\t\nc\tair\nd\tsea,land ,sea\n",
			want:   []string{"a label_ids=[0 2]", "b label_ids=[]", "c label_ids=[0]", "d label_ids=[1 2]"},
			labels: []string{"air", "land", "sea"},
			split:  Split{Answered: 4, LabelCounts: []int64{2, 1, 2}},
		},
		{
			name: "several labels by a bar", cfg: Config{Task: "multilabel", TextColumn: "t", LabelColumn: "l", LabelSeparator: "|", Labels: []string{"x, y", "z"}},
			train:  "x.tsv\nt\tl\na\tz|x, y\n",
			want:   []string{"a label_ids=[0 1]"},
			labels: []string{"x, y", "z"},
			split:  Split{Answered: 1, LabelCounts: []int64{1, 1}},
		},
		{
			name: "several labels in JSON", cfg: Config{Task: "multilabel", TextColumn: "t", LabelColumn: "l"},
			train:  "x.jsonl\n{\"t\":\"a\",\"l\":[\"u, v\",7]}\n{\"t\":\"b\",\"l\":[]}\n{\"t\":\"c\",\"l\":\"7\"}\n",
			want:   []string{"a label_ids=[0 1]", "b label_ids=[]", "c label_ids=[0]"},
			labels: []string{"7", "u, v"},
			split:  Split{Answered: 3, LabelCounts: []int64{2, 1}},
		},
		{
			name: "CoNLL", cfg: Config{Task: "tokens"},
			train:  "x.conll\n-DOCSTART- -X- O\n\na NN O\nbe NN B-X\n\n\nc NN I-X\n",
			want:   []string{"a b ##e label_ids=[-1 2 0 -1 -1]", "c label_ids=[-1 1 -1]"},
			labels: []string{"B-X", "I-X", "O"},
			split:  Split{Answered: 2, LabelCounts: []int64{1, 1, 1}},
		},
		{
			name: "CoNLL with tabs and columns", cfg: Config{Task: "tokens", TextColumn: "2", LabelColumn: "3", AllPieces: true},
			train:  "x.tsv\n# text = a be\n1\ta\tX\tmore\n2\tbe\tY\t\n",
			want:   []string{"a b ##e label_ids=[-1 0 1 1 -1]"},
			labels: []string{"X", "Y"},
			split:  Split{Answered: 1, LabelCounts: []int64{1, 2}},
		},
		{
			name: "Brown", cfg: Config{Task: "tokens", Format: Brown},
			train:  "ca01\n\n \t\n\ta/at be/nn-tl ,/, a/b/cc\n\n\tc/np\n",
			want:   []string{"a b ##e , a [UNK] b label_ids=[-1 1 3 -1 0 2 -1 -1 -1]", "c label_ids=[-1 4 -1]"},
			labels: []string{",", "at", "cc", "nn-tl", "np"},
			split:  Split{Answered: 2, LabelCounts: []int64{1, 1, 1, 1, 1}},
		},
		{
			name: "words in JSON", cfg: Config{Task: "tokens", MaxLength: 5},
			train:  "x.jsonl\n{\"words\":[\"a\",\"\\u0001\",\"be\",\"be\"],\"tags\":[\"X\",\"Y\",\"X\",\"Y\"]}\n",
			want:   []string{"a b ##e label_ids=[-1 0 0 -1 -1]"}, // the second word has no token, and the last no room
			labels: []string{"X", "Y"},
			split:  Split{Answered: 1, LabelCounts: []int64{2, 0}, Truncated: 1},
		},
		{
			name: "blocks", cfg: Config{Task: "mlm", MaxLength: 5},
			train: "x.txt\na b be\n\nc\n \nd a b c\n",
			want:  []string{"a b b", "##e | c", "[SEP] d a", "b c"},
		},
		{
			name: "blocks with starts of words", cfg: Config{Task: "mlm", MaxLength: 6, WordStarts: true, TextColumn: "t"},
			train: "x.jsonl\n{\"t\":\"a be\"}\n{\"t\":\"be\"}\n",
			want:  []string{"a b ##e word_starts=[1 1 1 0 1]", "b ##e word_starts=[1 1 0 1]"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, content, _ := strings.Cut(tt.train, "\n")
			tokens = append(tokens, "##e")
			defer func() { tokens = tokens[:len(tokens)-1] }()
			dir := write(t, map[string]string{name: content})
			cfg := tt.cfg
			cfg.Inputs = []Input{{Train, name}}
			cfg = in(dir, cfg)
			m := mustRun(t, cfg)
			if got := lines(t, cfg, Train); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, expected %q", got, tt.want)
			}
			if !slices.Equal(m.Labels, tt.labels) && len(m.Labels)+len(tt.labels) > 0 {
				t.Errorf("labels %q, expected %q", m.Labels, tt.labels)
			}
			s := m.Splits[Train]
			if s.Answered != tt.split.Answered || !slices.Equal(s.LabelCounts, tt.split.LabelCounts) || s.Truncated != tt.split.Truncated {
				t.Errorf("%d answered, counts %v, %d truncated; expected %d, %v, %d", s.Answered, s.LabelCounts, s.Truncated, tt.split.Answered, tt.split.LabelCounts, tt.split.Truncated)
			}
			if (s.Values == nil) != (tt.split.Values == nil) || s.Values != nil && *s.Values != *tt.split.Values {
				t.Errorf("values %v, expected %v", s.Values, tt.split.Values)
			}
			kind := Kind(tt.cfg.Task)
			if tt.cfg.Task == "stsb" {
				kind = Regression
			}
			if m.Kind() != kind || m.WordStarts != tt.cfg.WordStarts {
				t.Errorf("the manifest's kind is %s, starts of words %v", m.Kind(), m.WordStarts)
			}
		})
	}
}

func TestKindErrors(t *testing.T) {
	for _, tt := range []struct {
		name, train string
		cfg         Config
		want        string
	}{
		{"no number", "x.tsv\nt\ty\na\tfew\n", Config{Task: "regression", TextColumn: "t", LabelColumn: "y"}, `x.tsv:2: number is "few"; expected a finite number`},
		{"not a number", "x.tsv\nt\ty\na\tNaN\n", Config{Task: "regression", TextColumn: "t", LabelColumn: "y"}, `x.tsv:2: number is "NaN"; expected a finite number`},
		{"empty", "x.tsv\nt\ty\na\t \n", Config{Task: "regression", TextColumn: "t", LabelColumn: "y"}, "x.tsv:2: the number is empty"},
		{"too large", "x.tsv\nt\ty\na\t1e99\n", Config{Task: "regression", TextColumn: "t", LabelColumn: "y"}, "expected a finite number"},
		{"not listed", "x.tsv\nt\tl\na\tx,z\n", Config{Task: "multilabel", TextColumn: "t", LabelColumn: "l", Labels: []string{"x"}}, `x.tsv:2: label is "z"; expected one of "x"`},
		{"no array", "x.jsonl\n{\"t\":\"a\",\"l\":[[1]]}\n", Config{Task: "multilabel", TextColumn: "t", LabelColumn: "l", Labels: []string{"x"}}, "x.jsonl:1: has the element [1]; expected a text"},
		{"no label", "x.conll\na B\nb\n", Config{Task: "tokens"}, `x.conll:1: line "b" has one column; expected a word and its label`},
		{"no column", "x.conll\na B\n", Config{Task: "tokens", LabelColumn: "4"}, `x.conll:1: line "a B" has 2 columns; expected column 4`},
		{"not tagged", "ca01\na/b c\n", Config{Task: "tokens", Format: Brown}, `ca01:1: word "c" has no label; expected word/label`},
		{"other numbers", "x.jsonl\n{\"words\":[\"a\"],\"tags\":[\"X\",\"X\"]}\n", Config{Task: "tokens"}, "x.jsonl:1: has 1 word and 2 labels; expected as many"},
		{"no words", "x.jsonl\n{\"words\":[],\"tags\":[]}\n", Config{Task: "tokens", Labels: []string{"X"}}, "x.jsonl:1: has no words"},
		{"text for words", "x.jsonl\n{\"words\":\"a b\",\"tags\":[\"X\"]}\n", Config{Task: "tokens", Labels: []string{"X"}}, `x.jsonl:1: words: is "a b"; expected a JSON array of texts`},
		{"long word", "x.conll\naaaaaa X\n", Config{Task: "tokens", MaxLength: 3}, ""},
		{"pairs", "x.conll\na X\n", Config{Task: "tokens", PairColumn: "p"}, "task tokens has no pairs"},
		{"labels", "x.txt\na\n", Config{Task: "mlm", LabelColumn: "p"}, "task mlm has texts without labels"},
		{"separator", "x.tsv\na\n", Config{TextColumn: "t", LabelSeparator: ";"}, "the label separator is given; it is only for task multilabel"},
		{"format", "x.tsv\na\n", Config{TextColumn: "t", Format: CoNLL}, "format conll is not for task text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, content, _ := strings.Cut(tt.train, "\n")
			cfg := tt.cfg
			cfg.Inputs = []Input{{Train, name}}
			_, err := Run(context.Background(), in(write(t, map[string]string{name: content}), cfg), quiet)
			if tt.want == "" {
				if err != nil {
					t.Error(err) // the word is one [UNK]
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, expected %s", err, tt.want)
			}
		})
	}
}

// Whatever the number of cores, blocks are the same, and none of the tokens is lost.
func TestBlocksOfManyDocuments(t *testing.T) {
	var b strings.Builder
	want := ""
	for i := range 5000 {
		words := strings.Repeat("a b c d ", i%7)
		fmt.Fprintf(&b, "%s\n", words)
		if i%7 > 0 {
			want += words + "[SEP] "
		}
	}
	want = strings.TrimSuffix(want, " [SEP] ")
	dir := write(t, map[string]string{"x.txt": b.String()})
	var first []byte
	for _, workers := range []int{1, 3} {
		cfg := in(dir, Config{Task: "mlm", MaxLength: 18, Inputs: []Input{{Train, "x.txt"}}, Workers: workers, Overwrite: true})
		m := mustRun(t, cfg)
		data, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		}
		if string(first) != string(data) {
			t.Errorf("%d workers give another manifest", workers)
		}
		// A block that ends with a document shares its [SEP] with it.
		got := ""
		for _, e := range records(t, cfg, Train) {
			inner := strings.TrimSuffix(strings.TrimPrefix(e.tokens, "[CLS] "), "[SEP]")
			if n := len(strings.Fields(inner)); n < 16 {
				inner += "[SEP] "
			}
			got += inner
		}
		if got = strings.TrimSuffix(got, "[SEP] "); strings.TrimSpace(got) != want {
			t.Errorf("%d workers: %d bytes of tokens, expected %d", workers, len(got), len(want))
		}
	}
}

// Counts of labels are no shares of records where a record may have several labels or none.
func TestKindsWarnOfNoShares(t *testing.T) {
	dir := write(t, map[string]string{"x.tsv": "t\tl\na\tx\nb\t\n"})
	m := mustRun(t, in(dir, Config{Task: "multilabel", TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}}))
	if len(m.Warnings) != 0 {
		t.Errorf("warned of %q", m.Warnings)
	}
}
