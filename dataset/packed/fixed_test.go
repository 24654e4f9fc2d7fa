package packed

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
)

// TestFixedRowsOfExamples packs examples that are not in files into fixed rows, as predictions do.
func TestFixedRowsOfExamples(t *testing.T) {
	var all []Example
	for n := range 12 {
		all = append(all, sample(n))
	}
	for _, how := range []Packing{PackBestFit, PackNone} {
		cfg := Config{Rows: 12, RowLength: 50, RowExamples: 3, Packing: how}
		for n := 1; n <= 12; n++ {
			b, err := FromExamples(cfg, all[:n])
			if err != nil {
				t.Fatal(err)
			}
			if s := cfg.Shape(1); b.Rows != s.Rows || b.RowLength != s.RowLength || s.Examples != 36 {
				t.Fatalf("%d rows of %d, expected %+v", b.Rows, b.RowLength, s)
			}
			for i, e := range rowtest.UnpackFixed(t, b, 36) {
				if !reflect.DeepEqual(Example(e), all[i]) {
					t.Fatalf("%s: example %d of %d is %v, expected %v", how, i, n, e, all[i])
				}
			}
		}
	}
	_, err := FromExamples(Config{Rows: 2, RowLength: 50, Packing: PackNone}, all[:3])
	if err == nil || !strings.Contains(err.Error(), "a batch of 3 examples needs 3 rows; expected at most 2 rows") {
		t.Errorf("error is %v", err)
	}
}

// fullest returns the most tokens that the first row can have, with any choice of what follows the
// first example.
func fullest(c Config, most int, lengths []int32) int {
	room, n := c.RowLength-int(lengths[0]), min(c.RowExamples, min(most, c.Rows*c.RowExamples)-(c.Rows-1))-1
	next := lengths[1:min(len(lengths), lookAhead+1)]
	best := 0
	var try func(i, sum, n int)
	try = func(i, sum, n int) {
		best = max(best, sum)
		for ; n > 0 && i < len(next); i++ {
			if sum+int(next[i]) <= room {
				try(i+1, sum+int(next[i]), n-1)
			}
		}
	}
	try(0, 0, n)
	return int(lengths[0]) + best
}

// TestFillLaws wants the first row of every choice to be as full as any choice can make it, and all
// rows to keep the limits.
func TestFillLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		c := Config{Rows: 1 + r.IntN(6), RowLength: 2 + r.IntN(tightRoom), RowExamples: 1 + r.IntN(4)}
		most := c.Rows + r.IntN(10)
		f := newFiller(c.withDefaults(), most)
		lengths := make([]int32, 1+r.IntN(min(f.Sees(), 25)))
		for i := range lengths {
			lengths[i] = int32(1 + r.IntN(c.RowLength))
		}
		rows := make([]int32, len(lengths))
		full := f.Fill(lengths, rows)
		used, count, taken := make([]int, c.Rows), make([]int, c.Rows), 0
		for i, row := range rows {
			if row >= 0 {
				used[row] += int(lengths[i])
				count[row]++
				taken++
			}
		}
		empty := 0
		for k := range used {
			if used[k] > c.RowLength || count[k] > c.RowExamples {
				t.Fatalf("%+v: row %d has %d tokens of %d examples", c, k, used[k], count[k])
			}
			if count[k] == 0 {
				empty++
			}
		}
		if rows[0] != 0 || taken > most || full != (empty == 0) || !full && taken < len(lengths) {
			t.Fatalf("%+v: %v are put into %v, full %v", c, lengths, rows, full)
		}
		if want := fullest(c, most, lengths); used[0] != want {
			t.Fatalf("%+v: the first row has %d tokens, expected %d of %v", c, used[0], want, lengths)
		}
		again := make([]int32, len(lengths))
		if f.Fill(lengths, again); !reflect.DeepEqual(rows, again) {
			t.Fatal("a used filler and a new one differ")
		}
	}
}

// TestFixedRowsDensityOfMRPC fills rows with MRPC itself.
func TestFixedRowsDensityOfMRPC(t *testing.T) {
	source := testkit.SharedData(t, "TestFixedRowsDensity of dataset, with MRPC's lengths", "mrpc", "train.tsv")
	vocab := filepath.Join(testkit.Root(), ".cache", "minilm", "vocab.txt")
	if _, err := os.Stat(vocab); err != nil {
		t.Skipf("no vocabulary at %s: make fetch gets it", vocab)
	}
	dir := t.TempDir()
	cfg := convert.Config{Task: "mrpc", Inputs: []convert.Input{{Split: convert.Train, Path: source}}, Vocab: vocab, Tokenizer: text.Uncased(), Out: dir}
	if _, err := convert.Run(t.Context(), cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{8, 16} {
		d := open(t, dataset.Config{Files: []string{dir}, BatchSize: 5 * rows, Epochs: 3, Seed: 42, Layout: Config{Rows: rows, RowExamples: 5}})
		tokens, cells := 0, 0
		for {
			b := next(t, d)
			if b == nil {
				break
			}
			tokens, cells = tokens+b.Tokens, cells+b.Rows*b.RowLength
		}
		share := float64(tokens) / float64(cells)
		t.Logf("%d rows: %.2f %% of the positions hold tokens", rows, 100*share)
		if share < 0.97 {
			t.Errorf("%d rows: %.4f of the positions hold tokens, expected 0.97", rows, share)
		}
	}
}
