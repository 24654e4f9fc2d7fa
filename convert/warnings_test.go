package convert

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func TestWarnings(t *testing.T) {
	many := func(n int, row string) string { return strings.Repeat(row, n) }
	for _, tt := range []struct {
		name, train, dev, schema string
		labels                   []string
		want                     []string
	}{
		{name: "nothing", train: "a good,x\nb bad,y\n", dev: "c,x\nd,x\nc a,y\n"},
		{name: "one label", train: "a,x\nb,x\n", dev: "c,x\n",
			want: []string{`train: all 2 labels are "x", so there is nothing to learn from them`}},
		{name: "unbalanced", train: "a b,y\n" + many(10, "a,x\n"), dev: "c,x\nd,y\n",
			want: []string{`train: the labels are unbalanced: of 11 records, 10 have "x" and 1 have "y"; judge by F1 rather than by accuracy`}},
		{name: "nearly unbalanced", train: "a b,y\n" + many(9, "a,x\n"), dev: "c,x\n"},
		{name: "a label without records", train: "a,x\nb,y\n", dev: "c,z\nd,x\n", labels: []string{"x", "y", "z"},
			want: []string{`train: no record has label "z", so a model cannot learn it`}},
		{name: "in both", train: "a  GOOD,x\nb,y\na good,x\n", dev: "a good,y\nA good,x\nc,x\n",
			want: []string{`dev: 2 records are also in train, labels aside; a model is not judged by what it was trained with`}},
		{name: "one in both", train: "a,x\nb,y\n", dev: "b,y\nc,x\n",
			want: []string{`dev: 1 record is also in train, labels aside; a model is not judged by what it was trained with`}},
		{name: "by a schema", train: "1,0\n2,0\n3,0\n", dev: "2,0\n1.0,1\n5,1\n", schema: "features: {x: {kind: number, column: text}, y: {kind: number, column: label, role: label}}",
			want: []string{`train: feature "y", a label, is 0 in all 3 records, so there is nothing to learn from it`,
				`dev: 2 records are also in train, labels aside; a model is not judged by what it was trained with`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, map[string]string{"train.csv": "text,label\n" + tt.train, "dev.csv": "text,label\n" + tt.dev, "schema.yaml": tt.schema})
			cfg := Config{Inputs: []Input{{Train, "train.csv"}, {Dev, "dev.csv"}}, Labels: tt.labels}
			if tt.schema != "" {
				cfg = bySchema(dir, cfg)
			} else {
				cfg.TextColumn, cfg.LabelColumn, cfg.Tokenizer.Lowercase = "text", "label", true
				cfg = in(dir, cfg)
			}
			m := mustRun(t, cfg)
			if !reflect.DeepEqual(m.Warnings, tt.want) {
				t.Errorf("warnings\n%q\nexpected\n%q", m.Warnings, tt.want)
			}
		})
	}
}

// Where many records lose their ends, that is said.
func TestWarnsOfShortenedRecords(t *testing.T) {
	rows := func(long, all int) string {
		return "text,label\n" + strings.Repeat("a good bad film,x\n", long) + strings.Repeat("a,y\n", all-long)
	}
	dir := write(t, map[string]string{"train.csv": rows(2, 20), "test.csv": rows(1, 20)})
	m := mustRun(t, in(dir, Config{TextColumn: "text", LabelColumn: "label", MaxLength: 4, Inputs: []Input{{Train, "train.csv"}, {"test", "test.csv"}}}))
	const want = "train: 2 of 20 records are shortened to the maximum length, so a model sees only their beginnings"
	if all := strings.Join(m.Warnings, "\n"); strings.Count(all, "shortened") != 1 || !strings.Contains(all, want) {
		t.Errorf("warnings %q, expected %q", m.Warnings, want)
	}
}

// Documents of which the tokenizer leaves nothing are no examples.
func TestWarnsOfEmptyDocuments(t *testing.T) {
	dir := write(t, map[string]string{"train.csv": "text\na\n \n\"\"\nb\n"})
	m := mustRun(t, in(dir, Config{Task: string(MaskedLM), TextColumn: "text", Inputs: []Input{{Train, "train.csv"}}}))
	if want := []string{"train: left out 2 empty texts"}; !reflect.DeepEqual(m.Warnings, want) {
		t.Errorf("warnings %q, expected %q", m.Warnings, want)
	}
}

// hashOfNumber is a hash as that of a record.
func hashOfNumber(n int) uint64 {
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// Counts are exact up to the limit, and close to the truth beyond it, in whatever order records come.
func TestTwice(t *testing.T) {
	fill := func(most int, order func(i int) int) *twice {
		tw := newTwice(3, most)
		const n = 20000
		for i := range n { // split 0 has 0 to 19999; 1 has each of 15000 to 34999; 2 has 0 to 99 twice
			tw.add(0, hashOfNumber(order(i)))
			tw.add(1, hashOfNumber(15000+order(i)))
			tw.add(2, hashOfNumber(order(i)%100))
		}
		return tw
	}
	forward := func(i int) int { return i }
	backward := func(i int) int { return 19999 - i }
	exact := fill(1<<20, forward)
	for _, c := range []struct {
		first, second int
		want          int64
	}{{0, 1, 5000}, {1, 0, 5000}, {0, 2, 20000}, {1, 2, 0}} {
		if got := exact.count(c.first, c.second); got != c.want {
			t.Errorf("%d of split %d are in %d, expected %d", got, c.second, c.first, c.want)
		}
	}
	some := fill(4000, forward)
	if got := some.count(0, 1); got < 4400 || got > 5600 {
		t.Errorf("about %d records are in both, expected 5000", got)
	}
	if len(some.index) > 4000 || len(some.counts) != 3*len(some.index) || some.zero == 0 {
		t.Errorf("%d contents and %d counts are kept, of hashes that end in %b", len(some.index), len(some.counts), some.zero)
	}
	if got, want := fill(4000, backward).count(0, 1), some.count(0, 1); got != want {
		t.Errorf("in another order %d records are in both, expected %d", got, want)
	}
	var lines []string
	some.warn([]string{"a", "b", "c"}, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	if len(lines) != 2 || lines[0] != fmt.Sprintf("b: about %d records are also in a, labels aside; a model is not judged by what it was trained with", some.count(0, 1)) {
		t.Errorf("lines %q", lines)
	}
}
