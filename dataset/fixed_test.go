package dataset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// ofLengths returns records of the given lengths; one of length 0 only fills up a batch.
func ofLengths(t testing.TB, lengths []int32) Files {
	m := memory{name: "dir/s.tfrecord"}
	for i, l := range lengths {
		ids := make([]int64, max(l, 1))
		for k := range ids {
			ids[k] = int64(1000 + i + k)
		}
		m.records = append(m.records, rowtest.Record(t, tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("segment_ids", make([]int64, len(ids))...),
			tfrecord.Int64Feature("label_ids", int64(i%3)), tfrecord.Int64Feature("is_real_example", int64(min(l, 1)))))
	}
	var f Files
	f.Add(m.name, m)
	return f
}

// randomLengths returns lengths of 1 to most, of which some are 0.
func randomLengths(r *rand.Rand, n, most int) []int32 {
	lengths := make([]int32, n)
	for i := range lengths {
		if lengths[i] = int32(1 + r.IntN(most)); r.IntN(3) == 0 {
			lengths[i] = int32(r.IntN(min(most, 4) + 1))
		}
	}
	return lengths
}

// TestFixedRowsLaws wants each record of any set exactly once in an epoch, in batches of one shape
// and of one epoch, as many as were counted, and the same from every position on and for any
// readers.
func TestFixedRowsLaws(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	r := rand.New(rand.NewPCG(3, 4))
	shuffles := []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone}
	for round := range 40 {
		length := 1 + r.IntN(200)
		rows := 1 + r.IntN(9)
		layout := packed.Config{Rows: rows, RowLength: length, RowExamples: r.IntN(length + 1), Packing: packings[2*r.IntN(2)]}
		for length > 4 && r.IntN(2) == 0 {
			layout.Buckets = append(layout.Buckets, 1+r.IntN(length-1))
			slices.Sort(layout.Buckets)
			layout.Buckets = slices.Compact(layout.Buckets)
		}
		cfg := Config{BatchSize: rows + r.IntN(40), Epochs: 3, Seed: uint64(round), Shuffle: shuffles[r.IntN(3)], Buffer: 1 + r.IntN(100), Layout: layout, Readers: 1, Prefetch: 1}
		lengths := randomLengths(r, 1+r.IntN(400), length)
		if !slices.ContainsFunc(lengths, func(l int32) bool { return l > 0 }) {
			lengths[0] = 1
		}
		f := ofLengths(t, lengths)
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			whole := rest(t, open(t, cfg, f), 1<<20)
			checkEpochs(t, whole, cfg, f, lengths)
			d := open(t, cfg, f)
			cells := int64(0)
			for _, b := range whole {
				if b.Epoch == 0 {
					cells += int64(b.Rows * b.RowLength)
				}
			}
			if d.Cells() != cells {
				t.Fatalf("an epoch has %d cells, expected %d", d.Cells(), cells)
			}
			if n, err := d.Batches(t.Context(), 3); err != nil || int(n) != len(whole) {
				t.Fatalf("%d batches are counted (%v), %d are made", n, err, len(whole))
			}
			many := cfg
			many.Readers, many.Prefetch = 3, 7 // each Restore reads ahead so far
			from := r.IntN(len(whole))
			d = open(t, many, f)
			for i := 0; i <= from; i++ {
				same(t, next(t, d), whole[i])
			}
			for i := range whole {
				if i > 5 && r.IntN(20) > 0 {
					continue
				}
				d := open(t, many, f)
				if err := d.Restore(viaJSON(t, whole[i].State)); err != nil {
					t.Fatal(err)
				}
				for _, want := range whole[i+1 : min(i+6, len(whole))] {
					same(t, next(t, d), want)
				}
			}
		})
	}
}

func viaJSON(t testing.TB, s State) (back State) {
	t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func same(t testing.TB, got, want *Batch) {
	t.Helper()
	if got == nil || !reflect.DeepEqual(got.Features, want.Features) || got.State != want.State || got.Epoch != want.Epoch || !slices.Equal(got.Records, want.Records) {
		t.Fatalf("batch is %+v, expected %+v", got, want)
	}
}

// checkEpochs checks the batches of all epochs.
func checkEpochs(t *testing.T, batches []*Batch, cfg Config, f Files, lengths []int32) {
	t.Helper()
	layout := cfg.Layout.(packed.Config)
	shape := layout.Shape(1)
	shapes := make(map[packed.Shape]int) // to buckets
	for b, s := range layout.Shapes(1) {
		shapes[s] = b
	}
	short, mixed := 0, 0 // batches of an epoch with an empty row, or with one of another bucket
	var seen []int
	epoch := int64(0)
	end := func() {
		if short+mixed > len(shapes) {
			t.Fatalf("epoch %d has %d batches with an empty row, and %d of rows longer than needed; expected no more than %d shapes", epoch, short, mixed, len(shapes))
		}
		short, mixed = 0, 0
		slices.Sort(seen)
		var want []int
		for i, l := range lengths {
			if l > 0 {
				want = append(want, i)
			}
		}
		if !slices.Equal(seen, want) {
			t.Fatalf("epoch %d holds %v, expected %v", epoch, seen, want)
		}
		seen = nil
	}
	for i, b := range batches {
		bucket, known := shapes[packed.Shape{Rows: b.Rows, RowLength: b.RowLength, Examples: shape.Examples}]
		if !known || b.Examples > cfg.BatchSize || b.Examples == 0 {
			t.Fatalf("batch %d has %d rows of %d and %d examples, expected %+v", i, b.Rows, b.RowLength, b.Examples, shape)
		}
		rowtest.UnpackFixed(t, b, shape.Examples)
		each, longest := make([]int, shape.Rows), make([]int32, shape.Rows)
		for k, at := range b.Feature(packed.ClsPositions).Int32[:b.Examples] {
			each[int(at)/b.RowLength]++
			longest[int(at)/b.RowLength] = max(longest[int(at)/b.RowLength], lengths[f.Number(b.Records[k])])
			if k > 0 && cfg.Shuffle == ShuffleNone && f.Number(b.Records[k]) <= f.Number(b.Records[k-1]) {
				t.Fatalf("batch %d: %v is not in drawing order", i, b.Records)
			}
		}
		if most := slices.Max(each); most > shape.Examples/shape.Rows || layout.Packing == packed.PackNone && most > 1 {
			t.Fatalf("batch %d has rows of %v examples", i, each)
		}
		if b.Epoch != epoch {
			end()
			if epoch++; b.Epoch != epoch {
				t.Fatalf("batch %d is of epoch %d, expected %d", i, b.Epoch, epoch)
			}
		}
		if slices.Contains(each, 0) {
			short++
		} else if bucket > 0 && int(slices.Min(longest)) <= layout.Buckets[bucket-1] {
			mixed++ // a row of examples that shorter rows would hold
		}
		for _, id := range b.Records {
			seen = append(seen, f.Number(id))
		}
	}
	if end(); epoch != cfg.Epochs-1 {
		t.Fatalf("%d epochs, expected %d", epoch+1, cfg.Epochs)
	}
}

// TestFixedRowsDivide wants micro-batches of one shape that hold the batch together.
func TestFixedRowsDivide(t *testing.T) {
	f := ofLengths(t, rowtest.MRPC(1)[:200])
	layout := packed.Config{Rows: 8, RowExamples: 6, Buckets: []int{40, 64}}
	cfg := Config{BatchSize: 40, Epochs: 1, Layout: layout}
	whole := rest(t, open(t, cfg, f), 100)
	for _, n := range []int{1, 2, 3, 8, 11} {
		d := open(t, cfg, f)
		d.Divide(n, 512)
		shape := layout.Shape(n)
		for i, want := range whole {
			b := next(t, d)
			same(t, b, want)
			if len(b.Parts) != n {
				t.Fatalf("%d parts, expected %d", len(b.Parts), n)
			}
			examples := map[RecordID]rowtest.Example{}
			for k, e := range rowtest.UnpackFixed(t, want, layout.Shape(1).Examples) {
				examples[want.Records[k]] = e
			}
			tokens := 0
			for _, p := range b.Parts {
				if p.Rows != shape.Rows || p.RowLength != b.RowLength || p.State != b.State {
					t.Fatalf("batch %d: part of %d rows of %d, expected %+v", i, p.Rows, p.RowLength, shape)
				}
				for k, e := range rowtest.UnpackFixed(t, p, shape.Examples) {
					if !reflect.DeepEqual(e, examples[p.Records[k]]) {
						t.Fatalf("batch %d: %v is %+v, expected %+v", i, p.Records[k], e, examples[p.Records[k]])
					}
					delete(examples, p.Records[k])
				}
				tokens += p.Tokens
			}
			if len(examples) > 0 || tokens != want.Tokens {
				t.Fatalf("batch %d: the parts lack %v, or have %d tokens instead of %d", i, examples, tokens, want.Tokens)
			}
		}
	}
}

// TestFixedRowsDensity wants at least 97 % of all positions to hold tokens, the padded end of the epoch
// included.
func TestFixedRowsDensity(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	for _, rows := range []int{4, 8, 16, 64, 256} {
		cfg := Config{BatchSize: 5 * rows, Epochs: 1, Layout: packed.Config{Rows: rows, RowExamples: 6}}
		d := open(t, cfg, ofLengths(t, rowtest.MRPC(2)))
		checkDensity(t, d, rows)
	}
}

func checkDensity(t *testing.T, d *Dataset, rows int) {
	t.Helper()
	tokens, cells, carried := 0, 0, 0
	batches := rest(t, d, 1<<20)
	for _, b := range batches {
		tokens, cells = tokens+b.Tokens, cells+b.Rows*b.RowLength
		carried = max(carried, len(strings.Split(b.State.Carried, ",")))
	}
	share := float64(tokens) / float64(cells)
	t.Logf("%d rows: %.2f %% of the positions of %d batches hold tokens; %.1f examples a batch, at most %d carried over", rows, 100*share, len(batches), float64(d.NumExamples())/float64(len(batches)), carried)
	// Batches come whole: of few large ones, the end of the epoch is a large share.
	if most := int(math.Ceil(float64(tokens) / (0.97 * float64(rows*packed.DefaultRowLength)))); len(batches) > most {
		t.Errorf("%d rows: %d batches, expected at most %d, of which 97 %% hold tokens", rows, len(batches), most)
	}
}

// TestBucketsSavePadding lays each example into a row of its own, in rows of one and of several lengths.
func TestBucketsSavePadding(t *testing.T) {
	lengths := rowtest.MRPC(2)
	f := ofLengths(t, lengths)
	tokens := int64(0)
	for _, l := range lengths {
		tokens += int64(l)
	}
	filled := func(packing packed.Packing, buckets ...int) float64 {
		d := open(t, Config{BatchSize: 96, Epochs: 1, Layout: packed.Config{Rows: 32, RowExamples: 6, Packing: packing, Buckets: buckets}}, f)
		return float64(tokens) / float64(d.Cells())
	}
	one, four := filled(packed.PackNone), filled(packed.PackNone, 32, 48, 64)
	mixed := filled(packed.PackBestFit, 64)
	t.Logf("%.1f %% of the positions hold tokens in rows of 128, %.1f %% in rows of 32, 48, 64 and 128, and %.1f %% where examples share rows of 64 and 128", 100*one, 100*four, 100*mixed)
	if one > 0.42 || four < 0.75 || mixed < 0.73 {
		t.Errorf("%.3f, %.3f and %.3f of the positions hold tokens", one, four, mixed)
	}
}

// TestFixedRowsDropRemainder wants no batch with an empty row, and no other one left out.
func TestFixedRowsDropRemainder(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	f := ofLengths(t, rowtest.MRPC(1)[:300])
	for k, shuffle := range []Shuffle{ShuffleFull, ShuffleNone, ShuffleFull} {
		for rows := 1; rows < 70; rows += 7 {
			layout := packed.Config{Rows: rows, RowExamples: 6}
			if k == 2 {
				layout.Buckets = []int{40, 60}
			}
			cfg := Config{BatchSize: 5 * rows, Epochs: 2, Shuffle: shuffle, Layout: layout}
			all := rest(t, open(t, cfg, f), 1<<20)
			cfg.DropRemainder = true
			d := open(t, cfg, f)
			var want []*Batch
			for _, b := range all {
				used := map[int]bool{}
				for _, at := range b.Feature(packed.ClsPositions).Int32[:b.Examples] {
					used[int(at)/b.RowLength] = true
				}
				if len(used) == rows {
					want = append(want, b)
				}
			}
			got := rest(t, d, 1<<20)
			if n, err := d.Batches(t.Context(), 2); err != nil || len(got) != len(want) || int(n) != len(got) {
				t.Fatalf("%s, %d rows: %d batches, %d counted (%v), expected %d of %d", shuffle, rows, len(got), n, err, len(want), len(all))
			}
			for i, b := range got {
				if !reflect.DeepEqual(b.Features, want[i].Features) {
					t.Fatalf("%s, %d rows: batch %d differs", shuffle, rows, i)
				}
			}
			if len(got) > 0 && (got[len(got)-1].State.Epoch != 2 || got[len(got)-1].State.Position != 0) {
				t.Errorf("%s, %d rows: the end is %v", shuffle, rows, got[len(got)-1].State)
			}
		}
	}
	_, err := OpenFiles(Config{BatchSize: 400, DropRemainder: true, Layout: packed.Config{Rows: 301}}, f)
	if err == nil || !strings.Contains(err.Error(), "do not fill a batch") {
		t.Errorf("rows that cannot be filled: %v", err)
	}
}

// TestFixedRowsBatches counts steps of parts of epochs.
func TestFixedRowsBatches(t *testing.T) {
	cfg := Config{BatchSize: 40, Layout: packed.Config{Rows: 8, RowExamples: 5}, Seed: 1}
	d := open(t, cfg, ofLengths(t, rowtest.MRPC(1)))
	var each []int64
	for _, b := range rest(t, d, 1000) {
		if int(b.Epoch) == len(each) {
			each = append(each, 0)
		}
		each[b.Epoch]++
	}
	if d.BatchesPerEpoch() != each[0] {
		t.Errorf("%d batches per epoch, expected %d", d.BatchesPerEpoch(), each[0])
	}
	for epochs, want := range map[float64]int64{0.001: 1, 0.5: (each[0] + 1) / 2, 1: each[0], 2: each[0] + each[1], 3: each[0] + each[1] + each[2],
		2.25: each[0] + each[1] + int64(math.Round(float64(each[2])/4))} {
		if n, err := d.Batches(t.Context(), epochs); err != nil || n != want {
			t.Errorf("%v epochs have %d batches (%v), expected %d", epochs, n, err, want)
		}
	}
	if _, err := d.Batches(t.Context(), 1e8); err == nil {
		t.Error("the batches of 1e8 epochs are counted")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := d.Batches(ended, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, expected that of the context", err)
	}
	plain := open(t, Config{BatchSize: 32, Layout: packed.Config{}}, ofLengths(t, rowtest.MRPC(1)))
	if n, err := plain.Batches(t.Context(), 2.5); err != nil || n != int64(math.Round(2.5*float64(plain.BatchesPerEpoch()))) {
		t.Errorf("%d batches (%v)", n, err)
	}
}

// TestFixedRowsDamage leaves out what is damaged, once, and nothing else.
func TestFixedRowsDamage(t *testing.T) {
	const n = 60
	bad := []int{3, 17, 18, 44, 59}
	cfg := Config{BatchSize: 20, Epochs: 2, Seed: 5, OnCorrupt: tfrecord.Skip, Layout: packed.Config{Rows: 3, RowLength: 64}}
	f := damage(t, n, bad...)
	d := open(t, cfg, f)
	var seen []int
	batches := rest(t, d, 1000)
	for i, b := range batches {
		for _, id := range b.Records {
			seen = append(seen, f.Number(id))
		}
		again := open(t, cfg, f)
		if err := again.Restore(viaJSON(t, b.State)); err != nil {
			t.Fatal(err)
		}
		if i+1 < len(batches) {
			same(t, next(t, again), batches[i+1])
		}
	}
	slices.Sort(seen)
	var want []int
	for k := range n {
		if !slices.Contains(bad, k) {
			want = append(want, k, k)
		}
	}
	if !slices.Equal(seen, want) || d.State().Skipped != int64(2*len(bad)) {
		t.Errorf("%v were seen and %d skipped, expected %v and %d", seen, d.State().Skipped, want, 2*len(bad))
	}
	cfg.OnCorrupt = tfrecord.Fail
	var damaged *tfrecord.CorruptError
	if err := failure(t, open(t, cfg, f)); !errors.As(err, &damaged) {
		t.Errorf("error is %v, expected a CorruptError", err)
	}
	all := damage(t, 3, 0, 1, 2)
	cfg.OnCorrupt = tfrecord.Skip
	if err := failure(t, open(t, cfg, all)); !strings.Contains(err.Error(), "no usable record") {
		t.Errorf("error is %v, expected no usable record", err)
	}
}

// TestFixedRowsTooLong refuses an example that is longer than a row, by its name, and cuts it if
// asked to.
func TestFixedRowsTooLong(t *testing.T) {
	f := ofLengths(t, []int32{3, 9, 17, 4})
	cfg := Config{BatchSize: 4, Epochs: 1, Shuffle: ShuffleNone, Layout: packed.Config{Rows: 2, RowLength: 16}}
	if e := asRecordError(t, failure(t, open(t, cfg, f))); e.Record != 2 || !strings.Contains(e.Reason, "has 17 tokens, more than the row length of 16") {
		t.Errorf("error is %v", e)
	}
	cfg.Layout = packed.Config{Rows: 2, RowLength: 16, Truncate: true, RowExamples: 4}
	d := open(t, cfg, f)
	cut := 0
	for _, b := range rest(t, d, 10) {
		cut += b.Truncated
	}
	if cut != 1 {
		t.Errorf("%d examples were cut, expected 1", cut)
	}
}

func TestFixedRowsValidate(t *testing.T) {
	for _, c := range []struct {
		layout packed.Config
		part   Part
		want   string
	}{
		{packed.Config{Rows: -1}, Part{}, "number of rows is -1; expected 0"},
		{packed.Config{Rows: 33}, Part{}, "a batch has 33 rows and at most 32 examples"},
		{packed.Config{Rows: 8, RowExamples: 129}, Part{}, "most examples of a row are 129; expected 0"},
		{packed.Config{RowExamples: 3}, Part{}, "the number of rows is not fixed"},
		{packed.Config{Rows: 8, Packing: packed.PackFirstFit}, Part{}, `packing is "first-fit"`},
		{packed.Config{Rows: 8, RowLength: 1 << 16}, Part{}, "expected at most 65535"},
		{packed.Config{Rows: 8}, Part{0, 1, 2}, "parts of batches with a fixed number of rows"},
		{packed.Config{Rows: 8}, Part{}, ""},
	} {
		err := Config{Files: []string{"f"}, BatchSize: 32, Layout: c.layout, Part: c.part}.Validate()
		if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, expected %q", c.layout, err, c.want)
		}
	}
}

// TestFixedRowsState refuses positions that cannot be, and those of other rows.
func TestFixedRowsState(t *testing.T) {
	f := ofLengths(t, rowtest.MRPC(1)[:200])
	cfg := Config{BatchSize: 20, Layout: packed.Config{Rows: 4, RowExamples: 5}}
	d := open(t, cfg, f)
	s := next(t, d).State
	if s.Carried == "" {
		t.Fatal("nothing was carried over")
	}
	if got, want := s.String(), fmt.Sprintf("epoch 0, record %d of 200, %d of them carried over", s.Position, strings.Count(s.Carried, ",")+1); got != want {
		t.Errorf("position in words is %q, expected %q", got, want)
	}
	for carried, want := range map[string]string{
		"3,3": "each less than the one before", "2,3": "each less", "0": "1 or more", "-1": "1 or more", "x": `"x"; expected a number`, "1,": `""; expected a number`,
		"01": `"01"; expected a number`, "999": "expected one of the epoch", strings.Repeat("1,", 1<<17): "at most 131072",
	} {
		other := s
		other.Carried = carried
		if err := d.Restore(other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("carried %.20q: error is %v, expected %q", carried, err, want)
		}
	}
	for name, c := range map[string]struct {
		layout packed.Config
		want   string
	}{
		"rows":     {packed.Config{Rows: 5, RowExamples: 5}, "the fixed number of rows was 4 and is 5"},
		"examples": {packed.Config{Rows: 4, RowExamples: 6}, "the most examples of a row was 5 and is 6"},
		"none":     {packed.Config{}, "rows was 4 and is not set"},
	} {
		cfg.Layout = c.layout
		if err := open(t, cfg, f).Restore(s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, expected %q", name, err, c.want)
		}
	}
	cfg.Layout = packed.Config{}
	plain := open(t, cfg, f)
	other := plain.State()
	other.Position, other.Carried = 20, "3"
	if err := plain.Restore(other); err == nil || !strings.Contains(err.Error(), "expected none") {
		t.Errorf("carried without fixed rows: error is %v", err)
	}
	text, err := json.Marshal(plain.State())
	if err != nil || strings.Contains(string(text), "carried") || strings.Contains(string(text), "rows") {
		t.Errorf("a position without fixed rows is %s (%v)", text, err)
	}
}

// TestLengthsAreKept measures records once, and again if the file changes.
func TestLengthsAreKept(t *testing.T) {
	path := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "r"), 50, 1)[0]
	kept := path + ".lengths.index"
	cfg := Config{Files: []string{path}, BatchSize: 20, Epochs: 1, Layout: packed.Config{Rows: 4, RowLength: 64}}
	batches := func() []*Batch {
		d, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return rest(t, d, 1000)
	}
	want := batches()
	content, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"as it was": func(b []byte) []byte { return b },
		"damaged":   func(b []byte) []byte { b[60] ^= 1; return b },
		"short":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":     func(b []byte) []byte { return nil },
	} {
		if err := os.WriteFile(kept, change(slices.Clone(content)), 0o644); err != nil {
			t.Fatal(err)
		}
		for i, b := range batches() {
			same(t, b, want[i])
		}
		if now, err := os.ReadFile(kept); err != nil || !slices.Equal(now, content) {
			t.Errorf("%s: the lengths were not written anew (%v)", name, err)
		}
	}
	// Other records in a file of the same name.
	other := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "r"), 40, 1)[0]
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if got := batches(); len(got) == len(want) {
		t.Errorf("%d batches of 40 records, as of 50", len(got))
	}
	if files, err := tfrecord.Glob(filepath.Join(filepath.Dir(path), "r*")); err != nil || len(files) != 1 {
		t.Errorf("a pattern finds %v (%v)", files, err)
	}
}

func FuzzLengths(f *testing.F) {
	sizes := []uint16{3, 0, 65535}
	f.Add(EncodeSizes(7, "key", sizes))
	f.Add([]byte("GORBITSZ"))
	f.Fuzz(func(t *testing.T, content []byte) {
		got := make([]uint16, len(sizes))
		if err := DecodeSizes(content, 7, "key", got); err != nil {
			return
		}
		if back := EncodeSizes(7, "key", got); !slices.Equal(back, content) {
			t.Fatalf("%x is read as %v, which is written as %x", content, got, back)
		}
	})
}

// FuzzFixedState restores positions with carried records.
func FuzzFixedState(f *testing.F) {
	lengths := rowtest.MRPC(1)[:100]
	d := open(f, Config{BatchSize: 20, Readers: 1, Prefetch: 1, Layout: packed.Config{Rows: 4, RowExamples: 5}}, ofLengths(f, lengths))
	for range 11 {
		s := next(f, d).State
		f.Add(s.Epoch, s.Position, s.Carried)
	}
	f.Add(int64(0), int64(100), "100,99,1")
	f.Fuzz(func(t *testing.T, epoch, position int64, carried string) {
		s := d.State()
		s.Epoch, s.Position, s.Carried = epoch, position, carried
		if err := d.Restore(s); err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		at := d.State()
		// What is left of the epoch comes once.
		left := 100 - int(at.Position)
		if at.Carried != "" {
			left += strings.Count(at.Carried, ",") + 1
		}
		seen := map[RecordID]bool{}
		for len(seen) < left {
			b := next(t, d)
			for _, id := range b.Records {
				seen[id] = true
			}
			if b.Epoch != at.Epoch || b.Examples == 0 || len(seen) == left && (b.State.Epoch != at.Epoch+1 || b.State.Position != 0) {
				t.Fatalf("%v leads to %v after %d of %d records", at, b.State, len(seen), left)
			}
		}
		if len(seen) != left {
			t.Fatalf("%v leads to %d records, expected %d", at, len(seen), left)
		}
	})
}
