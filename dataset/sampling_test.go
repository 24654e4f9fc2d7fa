package dataset_test

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// ofClasses returns records with the given classes in two files; -1 is a record that only fills up a
// batch, -2 a damaged one, and -3 one without a class.
func ofClasses(t testing.TB, classes ...int64) Files {
	var f Files
	for i, part := range [][]int64{classes[:len(classes)/3], classes[len(classes)/3:]} {
		m := memory{name: []string{"a.tfrecord", "b.tfrecord"}[i]}
		for _, class := range part {
			features := []tfrecord.Feature{tfrecord.Int64Feature("input_ids", 5, 6), tfrecord.Int64Feature("segment_ids", 0, 0)}
			switch class {
			case -3:
			case -1:
				features = append(features, tfrecord.Int64Feature("label_ids", 0), tfrecord.Int64Feature("is_real_example", 0))
			default:
				features = append(features, tfrecord.Int64Feature("label_ids", max(class, 0)))
			}
			record := rowtest.Record(t, features...)
			if class == -2 {
				record = []byte("no example")
			}
			m.records = append(m.records, record)
		}
		f.Add(m.name, m)
	}
	return f
}

var byLabel = []string{"label", "label_ids"}

// TestSamplingFollowsTheWeights wants classes to be drawn as often as their weights say, and the records
// of a class alike.
func TestSamplingFollowsTheWeights(t *testing.T) {
	// 60 records of class 0, 30 of class 1, none of class 2, 10 of class 3.
	var classes []int64
	for i := range 100 {
		classes = append(classes, []int64{0, 0, 0, 0, 0, 0, 1, 1, 1, 3}[i%10])
	}
	classes = append(classes, -1)
	for _, c := range []struct {
		name string
		of   []float64
		want [4]float64
	}{
		{"balanced", nil, [4]float64{1. / 3, 1. / 3, 0, 1. / 3}},
		{"weights", []float64{1, 4, 100}, [4]float64{60. / 190, 120. / 190, 0, 10. / 190}},
		{"as they are", []float64{1}, [4]float64{0.6, 0.3, 0, 0.1}},
	} {
		d := open(t, Config{BatchSize: 101, Epochs: 200, Seed: 9, Sampling: &Sampling{Label: byLabel, Of: c.of}}, ofClasses(t, classes...))
		var drawn [4]int
		records := map[int]int{}
		n := 0
		for _, b := range rest(t, d, 1000) {
			if len(b.Records) != 101 {
				t.Fatalf("%s: an epoch has %d examples, expected 101", c.name, len(b.Records))
			}
			for _, id := range b.Records {
				number := int(id.Record) + 33*id.File
				records[number]++
				drawn[classes[number]]++
				n++
			}
		}
		for class, got := range drawn {
			// Five standard deviations.
			want := c.want[class]
			if off := math.Abs(float64(got)/float64(n) - want); off > 5*math.Sqrt(want*(1-want)/float64(n)) {
				t.Errorf("%s: class %d is %.4f of the draws, expected %.4f", c.name, class, float64(got)/float64(n), want)
			}
		}
		if len(records) != 100 {
			t.Errorf("%s: %d of the 100 records were drawn", c.name, len(records))
		}
		for number, got := range records {
			of := map[int64]float64{0: 60, 1: 30, 3: 10}[classes[number]]
			if want := c.want[classes[number]] / of * float64(n); math.Abs(float64(got)-want) > 6*math.Sqrt(want) {
				t.Errorf("%s: record %d was drawn %d times, expected about %.0f", c.name, number, got, want)
			}
		}
	}
}

// TestSamplingLaws wants the same batches for any readers, from every position, in parts and, but for
// another seed or epoch, again.
func TestSamplingLaws(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	f := samples(t, 101)
	for name, layout := range map[string]Layout{"rows": packed.Config{RowLength: 64}, "fixed rows": packed.Config{RowLength: 64, Rows: 4}} {
		cfg := Config{BatchSize: 8, Epochs: 3, Seed: 3, Readers: 1, Prefetch: 1, Layout: layout, Sampling: &Sampling{Label: byLabel, Of: []float64{1, 2, 0.5}}}
		whole := rest(t, open(t, cfg, f), 1000)
		many := cfg
		many.Readers, many.Prefetch = 3, 7
		for i, b := range rest(t, open(t, many, f), 1000) {
			same(t, b, whole[i])
		}
		at := open(t, cfg, f).State()
		for i, b := range whole {
			d := open(t, many, f)
			if err := d.Restore(viaJSON(t, at)); err != nil {
				t.Fatal(err)
			}
			if got := d.Drawn(at); !slices.Equal(got, b.Records) {
				t.Fatalf("%s: batch %d: %v are named, %v are drawn", name, i, got, b.Records)
			}
			for _, want := range whole[i:min(i+3, len(whole))] {
				same(t, next(t, d), want)
			}
			at = b.State
		}
		firsts := [][]RecordID{whole[0].Records}
		for _, b := range whole {
			if b.Epoch == 1 {
				firsts = append(firsts, b.Records)
				break
			}
		}
		cfg.Seed++
		firsts = append(firsts, next(t, open(t, cfg, f)).Records)
		if slices.Equal(firsts[0], firsts[1]) || slices.Equal(firsts[0], firsts[2]) {
			t.Errorf("%s: two epochs or seeds begin with the same batch", name)
		}
	}
	cfg := Config{BatchSize: 20, Epochs: 2, Seed: 3, Layout: packed.Config{RowLength: 64}, Sampling: &Sampling{Label: byLabel}}
	whole := rest(t, open(t, cfg, f), 100)
	var parts [2][]*Batch
	for i := range parts {
		cfg.Part = Part{From: i, To: i + 1, Of: 2}
		parts[i] = rest(t, open(t, cfg, f), 100)
	}
	for k, b := range whole {
		if got := slices.Concat(parts[0][k].Records, parts[1][k].Records); !slices.Equal(got, b.Records) {
			t.Errorf("batch %d: the parts hold %v, expected %v", k, got, b.Records)
		}
	}
}

// TestSamplingIsAsBefore holds draws against those that runs were made with.
func TestSamplingIsAsBefore(t *testing.T) {
	d := open(t, Config{BatchSize: 12, Seed: 42, Sampling: &Sampling{Label: byLabel}}, ofClasses(t, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2))
	var got []int64
	for _, id := range next(t, d).Records {
		got = append(got, id.Record+3*int64(id.File))
	}
	if want := []int64{7, 9, 7, 5, 8, 7, 4, 9, 3, 9}; !slices.Equal(got, want) {
		t.Errorf("the records are %v, expected %v", got, want)
	}
}

// TestSamplingRefuses lists what cannot be sampled, and positions that are of another sampling.
func TestSamplingRefuses(t *testing.T) {
	balanced := &Sampling{Label: byLabel}
	for _, c := range []struct {
		cfg  Config
		f    Files
		want string
	}{
		{Config{Sampling: &Sampling{}}, ofClasses(t, 0, 1), "sampling has no name of a label"},
		{Config{Sampling: balanced, Shuffle: ShuffleNone}, ofClasses(t, 0, 1), `records are sampled and the shuffle is "none"; expected "full"`},
		{Config{Sampling: &Sampling{Label: byLabel, Of: []float64{1, -1}}}, ofClasses(t, 0, 1), "sampling weight of class 1 is -1"},
		{Config{Sampling: balanced}, ofClasses(t, -1, -1), "none of the 2 records in 2 file(s) can be drawn"},
		{Config{Sampling: balanced}, ofClasses(t, 0, 1, 0, 1, -3, 0), `b.tfrecord: record 2: feature "label" is not one int64 of 0 to 65532`},
		{Config{Sampling: balanced}, ofClasses(t, 0, 1, 0, 70000, 1, 0), `b.tfrecord: record 1: feature "label" is not one int64 of 0 to 65532`},
		{Config{Sampling: balanced}, ofClasses(t, 0, 1, 0, 1, -2, 0), "b.tfrecord: record 2: is "},
	} {
		c.cfg.BatchSize = 2
		if _, err := OpenFiles(withLayout(c.cfg), c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, expected %q", err, c.want)
		}
	}
	// Damaged records that may be skipped are never drawn.
	var log strings.Builder
	d := open(t, Config{BatchSize: 6, Epochs: 20, OnCorrupt: tfrecord.Skip, Sampling: balanced, Logger: slog.New(slog.NewTextHandler(&log, nil))}, ofClasses(t, 0, 1, 0, 1, -2, 0))
	for _, b := range rest(t, d, 100) {
		if b.Examples != 6 || b.State.Skipped != 0 {
			t.Errorf("%d examples, %v", b.Examples, b.State)
		}
	}
	if !strings.Contains(log.String(), `"damaged records are never drawn" records=1`) {
		t.Errorf("the log is %s", &log)
	}

	f := samples(t, 50)
	saved := next(t, open(t, Config{BatchSize: 8, Sampling: balanced}, f)).State
	for want, s := range map[string]*Sampling{
		"the sampling was balanced and is uniform":         nil,
		"the sampling was balanced and is by class, 1 0.5": {Label: byLabel, Of: []float64{1, 0.5}},
	} {
		var e *StateError
		if err := open(t, Config{BatchSize: 8, Sampling: s}, f).Restore(saved); !errors.As(err, &e) || !slices.Equal(e.Differences, []string{want}) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// TestLabelsAreKept reads the classes of a file once.
func TestLabelsAreKept(t *testing.T) {
	path := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "r"), 50, 1)[0]
	cfg := withLayout(Config{Files: []string{path}, BatchSize: 20, Epochs: 1, Sampling: &Sampling{Label: byLabel}})
	var all [][]*Batch
	for range 2 {
		d, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		all = append(all, rest(t, d, 100))
	}
	for i, b := range all[1] {
		same(t, b, all[0][i])
	}
	content, err := os.ReadFile(path + ".labels.index")
	if err != nil || len(content) != 40+2*50+4 {
		t.Fatalf("%d bytes are kept, %v", len(content), err)
	}
	content[60] ^= 1
	if err := os.WriteFile(path+".labels.index", content, 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	same(t, next(t, d), all[0][0])
}
