package dataset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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

func TestBatchesHoldTheRecords(t *testing.T) {
	const n, epochs = 101, 3
	f := samples(t, n)
	for _, how := range packings {
		for _, shuffle := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
			for _, drop := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/drop=%v", how, shuffle, drop)
				t.Run(name, func(t *testing.T) {
					d := open(t, Config{BatchSize: 8, Epochs: epochs, Shuffle: shuffle, Buffer: 20, DropRemainder: drop, Layout: packed.Config{Packing: how, RowLength: 64}}, f)
					batches := rest(t, d, 1000)
					perEpoch := 13
					if drop {
						perEpoch = 12
					}
					if len(batches) != perEpoch*epochs || d.BatchesPerEpoch() != int64(perEpoch) || d.NumExamples() != n {
						t.Fatalf("%d batches, %d an epoch, %d examples; expected %d, %d, %d", len(batches), d.BatchesPerEpoch(), d.NumExamples(), perEpoch*epochs, perEpoch, n)
					}
					var orders [][]int
					for e := range epochs {
						var order []int
						for i, b := range batches[e*perEpoch:][:perEpoch] {
							if want := min(8, n-i*8); b.Examples != want || b.Epoch != int64(e) || b.Labeled != want {
								t.Fatalf("epoch %d, batch %d: %d examples, %d labels, epoch %d; expected %d", e, i, b.Examples, b.Labeled, b.Epoch, want)
							}
							for k, got := range rowtest.Unpack(t, b) {
								which := f.Number(b.Records[k])
								if want := rowtest.Sample(which); !reflect.DeepEqual(got, want) {
									t.Fatalf("epoch %d, batch %d, example %d is %v, expected sample %d: %v", e, i, k, got, which, want)
								}
								order = append(order, which)
							}
						}
						orders = append(orders, order)
						sorted := slices.Clone(order)
						slices.Sort(sorted)
						if len(slices.Compact(sorted)) != len(order) || !drop && len(order) != n {
							t.Fatalf("epoch %d draws %v", e, order)
						}
						if shuffle == ShuffleNone && !slices.IsSorted(order) {
							t.Fatalf("epoch %d draws %v, expected the order of the files", e, order)
						}
					}
					if same := slices.Equal(orders[0], orders[1]) || slices.Equal(orders[1], orders[2]); same != (shuffle == ShuffleNone) {
						t.Errorf("epochs are equal: %v", same)
					}
				})
			}
		}
	}
}

func TestReadersMakeNoDifference(t *testing.T) {
	f := samples(t, 203)
	for _, shuffle := range []Shuffle{ShuffleFull, ShuffleBuffer} {
		cfg := Config{BatchSize: 7, Epochs: 2, Shuffle: shuffle, Buffer: 30, Seed: 11}
		cfg.Readers, cfg.Prefetch = 1, 1
		want := rest(t, open(t, cfg, f), 1000)
		for _, c := range [][2]int{{2, 1}, {3, 7}, {16, 100}} {
			cfg.Readers, cfg.Prefetch = c[0], c[1]
			got := rest(t, open(t, cfg, f), 1000)
			if !slices.EqualFunc(got, want, equal) {
				t.Errorf("%s: %d readers and %d batches ahead give other batches than one", shuffle, c[0], c[1])
			}
		}
		cfg.Seed++
		if reflect.DeepEqual(rest(t, open(t, cfg, f), 1000)[0].Records, want[0].Records) {
			t.Errorf("%s: two seeds begin with the same batch", shuffle)
		}
	}
}

func TestRestoreAtEveryPosition(t *testing.T) {
	f := samples(t, 50)
	for _, cfg := range []Config{
		{BatchSize: 8, Epochs: 3, Seed: 3},
		{BatchSize: 8, Epochs: 3, Seed: 3, DropRemainder: true},
		{BatchSize: 10, Epochs: 2, Shuffle: ShuffleBuffer, Buffer: 17, Layout: packed.Config{Packing: packed.PackFirstFit}},
		{BatchSize: 64, Epochs: 3, Shuffle: ShuffleNone, Layout: packed.Config{Packing: packed.PackNone}},
	} {
		all := open(t, cfg, f)
		states := []State{all.State()}
		batches := rest(t, all, 1000)
		for _, b := range batches {
			states = append(states, b.State)
		}
		if all.State() != states[len(states)-1] {
			t.Errorf("state at the end is %v, expected that of the last batch, %v", all.State(), states[len(states)-1])
		}
		used := open(t, cfg, f)
		for i, s := range states {
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var back State
			if err := json.Unmarshal(text, &back); err != nil || back != s {
				t.Fatalf("state %s comes back from JSON as %+v, %v", text, back, err)
			}
			for _, d := range []*Dataset{open(t, cfg, f), used} {
				if err := d.Restore(back); err != nil {
					t.Fatal(err)
				}
				if d.State() != s {
					t.Fatalf("restored state is %v, expected %v", d.State(), s)
				}
				if got := rest(t, d, 1000); !slices.EqualFunc(got, batches[i:], equal) {
					t.Fatalf("after %d of %d batches, restoring gives %d others", i, len(batches), len(got))
				}
			}
		}
	}
}

// counting counts the records that are read.
type counting struct {
	memory
	reads chan int
}

func (c counting) Record(i int, buf []byte) ([]byte, error) {
	c.reads <- i
	return c.memory.Record(i, buf)
}

func TestRestoreSeeks(t *testing.T) {
	const n = 1000
	m := counting{memory{name: "m"}, make(chan int, 10*n)}
	for k := range n {
		m.records = append(m.records, rowtest.SampleRecord(t, k))
	}
	var f Files
	f.Add("m", m)
	for _, shuffle := range []Shuffle{ShuffleFull, ShuffleBuffer, ShuffleNone} {
		d := open(t, Config{BatchSize: 4, Shuffle: shuffle, Buffer: 100, Readers: 1, Prefetch: 1}, f)
		s := d.State()
		s.Epoch, s.Position = 1_000_000, 800
		if err := d.Restore(s); err != nil {
			t.Fatal(err)
		}
		b := next(t, d)
		if b.Epoch != 1_000_000 || b.State.Position != 804 {
			t.Errorf("%s: batch of epoch %d, state %v", shuffle, b.Epoch, b.State)
		}
		d.Close()
		// One batch returned, one in the queue, one being queued, one being made.
		if got := len(m.reads); got > 4*4 {
			t.Errorf("%s: %d records were read for one batch of 4", shuffle, got)
		}
		for len(m.reads) > 0 {
			<-m.reads
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	f := samples(t, 50)
	base := Config{BatchSize: 8, Seed: 1, Shuffle: ShuffleBuffer, Buffer: 16}
	saved := next(t, open(t, base, f)).State
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Seed = 2 }, "the seed was 1 and is 2"},
		{func(c *Config) { c.BatchSize = 16 }, "the batch size was 8 and is 16"},
		{func(c *Config) { c.Shuffle = ShuffleFull }, `the shuffle was "buffer" and is "full"`},
		{func(c *Config) { c.Buffer = 17 }, "the shuffle buffer was 16 and is 17"},
		{func(c *Config) { c.Layout = packed.Config{Packing: packed.PackNone} }, `the packing was "best-fit" and is "none"`},
		{func(c *Config) { c.Layout = packed.Config{RowLength: 64} }, "the row length was 128 and is 64"},
		{func(c *Config) { c.Layout = packed.Config{FixedRowLength: true} }, "the fixed row length was false and is true"},
		{func(c *Config) { c.Layout = packed.Config{Truncate: true} }, "truncation was false and is true"},
		{func(c *Config) { c.DropRemainder = true }, "dropping the remainder of an epoch was false and is true"},
	} {
		cfg := base
		c.change(&cfg)
		d := open(t, cfg, f)
		before := d.State()
		err := d.Restore(saved)
		var e *StateError
		if !errors.As(err, &e) || !slices.Equal(e.Differences, []string{c.want}) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, expected it to say that %s", err, c.want)
		}
		if d.State() != before {
			t.Error("a refused state changed the position")
		}
	}

	// What does not change the batches may differ.
	cfg := base
	cfg.Readers, cfg.Prefetch, cfg.Epochs, cfg.Layout = 3, 5, 9, packed.Config{VocabSize: 5000, NumLabels: 3}
	if err := open(t, cfg, f).Restore(saved); err != nil {
		t.Error(err)
	}

	d := open(t, base, f)
	for _, c := range []struct {
		change func(*State)
		want   string
	}{
		{func(s *State) { s.Settings.Records = 49 }, "the number of records was 49 and is 50"},
		{func(s *State) { s.Settings.Files = "other" }, "the files have different names, sizes or numbers of records"},
		{func(s *State) { s.Settings.Layout = `{"packing":"best-fit","row_length":128,"truncate":false}` }, "the fixed row length was not set and is false"},
		{func(s *State) { s.Settings.Layout = s.Settings.Layout[:len(s.Settings.Layout)-1] + `,"width":3}` }, "width was 3 and is not set"},
		{func(s *State) { s.Settings.Layout = "" }, "the packing was not set and is \"best-fit\""},
		{func(s *State) { s.Version = 2 }, "its version is 2; expected 1"},
		{func(s *State) { *s = State{} }, "its version is 0; expected 1"},
		{func(s *State) { s.Position = 9 }, "its position is 9; expected the end of a batch of 8"},
		{func(s *State) { s.Position = -8 }, "its position is -8; expected 0 to 50"},
		{func(s *State) { s.Position = 56 }, "its position is 56; expected 0 to 50"},
		{func(s *State) { s.Epoch = -1 }, "its epoch is -1"},
		{func(s *State) { s.Epoch = 1 << 60 }, "its epoch is 1152921504606846976"},
		{func(s *State) { s.Skipped = -1 }, "it has skipped -1 records"},
	} {
		s := saved
		c.change(&s)
		err := d.Restore(s)
		var e *StateError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, expected it to say that %s", err, c.want)
		}
		if invalid := strings.HasPrefix(c.want, "its ") || strings.HasPrefix(c.want, "it "); e != nil && e.Invalid != invalid {
			t.Errorf("the state is invalid: %v; expected %v for %q", e.Invalid, invalid, c.want)
		}
	}
	// The end of an epoch may be written in two ways.
	s := saved
	s.Position = 50
	if err := d.Restore(s); err != nil || d.State().Epoch != 1 || d.State().Position != 0 {
		t.Errorf("state at the end of an epoch becomes %v, %v", d.State(), err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "train")
	rowtest.WriteShards(t, base, 60, 3)
	cfg := Config{Files: []string{base}, BatchSize: 16, Epochs: 1}
	d, err := Open(context.Background(), withLayout(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	batches := rest(t, d, 100)
	if len(batches) != 4 || len(d.Files()) != 3 {
		t.Fatalf("%d batches of %v", len(batches), d.Files())
	}
	for _, b := range batches {
		for i, e := range rowtest.Unpack(t, b) {
			id := b.Records[i]
			if want := rowtest.Sample(id.File*20 + int(id.Record)); !reflect.DeepEqual(e, want) {
				t.Fatalf("record %v is %v, expected %v", id, e, want)
			}
			want := fmt.Sprintf("train-%05d-of-00003.tfrecord:%d", id.File, id.Record)
			if b.Describe(i) != want || d.Describe(id) != want {
				t.Fatalf("record is described as %s and %s, expected %s", b.Describe(i), d.Describe(id), want)
			}
		}
	}

	// The same data in another folder is the same; other data is not.
	state := batches[1].State
	elsewhere := filepath.Join(t.TempDir(), "train")
	rowtest.WriteShards(t, elsewhere, 60, 3)
	cfg.Files = []string{elsewhere + "-*-of-00003.tfrecord"}
	d2, err := Open(context.Background(), withLayout(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer d2.Close()
	if err := d2.Restore(state); err != nil {
		t.Fatal(err)
	}
	if b := next(t, d2); !reflect.DeepEqual(b.Features, batches[2].Features) {
		t.Error("a copy of the data gives other batches")
	}
	rowtest.WriteShards(t, filepath.Join(dir, "other"), 60, 2)
	cfg.Files = []string{filepath.Join(dir, "other")}
	d3, err := Open(context.Background(), withLayout(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer d3.Close()
	var se *StateError
	if err := d3.Restore(state); !errors.As(err, &se) || !strings.Contains(err.Error(), "different names") {
		t.Errorf("error is %v, expected one about the files", err)
	}
}

func TestCompressedFiles(t *testing.T) {
	for _, c := range []tfrecord.Compression{tfrecord.Gzip, tfrecord.Zlib} {
		paths := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "z"), 40, 2, tfrecord.Compress(c))
		d, err := Open(context.Background(), withLayout(Config{Files: paths, BatchSize: 40, Epochs: 1}))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		b := next(t, d)
		for i, e := range rowtest.Unpack(t, b) {
			if id := b.Records[i]; !reflect.DeepEqual(e, rowtest.Sample(id.File*20+int(id.Record))) {
				t.Fatalf("%v: record %v is %v", c, id, e)
			}
		}
	}
}

func TestModelGardenRecords(t *testing.T) {
	data, err := os.ReadFile("testdata/model_garden.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		IDs, Types []int32
		Label      int32
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	d, err := Open(context.Background(), Config{Files: []string{copyFile(t, "model_garden.tfrecord")}, BatchSize: 100, Epochs: 1, Shuffle: ShuffleNone, Layout: packed.Config{NumLabels: 2, VocabSize: 30522, NumTypes: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b := next(t, d)
	got := rowtest.Unpack(t, b)
	if len(got) != len(want) || len(got) != 8 || d.NumExamples() != 9 {
		t.Fatalf("%d examples of %d records, expected %d of 9: one only fills up", len(got), d.NumExamples(), len(want))
	}
	for i, e := range got {
		if w := want[i]; !slices.Equal(e.IDs, w.IDs) || !slices.Equal(e.TypeIDs, w.Types) || e.Label != w.Label {
			t.Errorf("example %d is %v, expected %v", i, e, w)
		}
	}
}

// damage returns the samples with some records damaged.
func damage(t *testing.T, n int, bad ...int) Files {
	m := memory{name: "dir/damaged.tfrecord"}
	for k := range n {
		m.records = append(m.records, rowtest.SampleRecord(t, k))
	}
	for i, k := range bad {
		m.records[k] = nil
		if i%2 == 1 {
			m.records[k] = []byte{0x0a, 0xff, 0x01} // a length that leads outside
		}
	}
	var f Files
	f.Add(m.name, m)
	return f
}

func TestDamagedRecordsFail(t *testing.T) {
	d := open(t, Config{BatchSize: 5, Shuffle: ShuffleNone}, damage(t, 30, 12))
	next(t, d)
	before := next(t, d).State
	for range 2 {
		var corrupt *tfrecord.CorruptError
		if _, err := d.Next(context.Background()); !errors.As(err, &corrupt) || corrupt.Record != 12 {
			t.Fatalf("error is %v, expected a CorruptError of record 12", err)
		}
	}
	if d.State() != before {
		t.Errorf("state after an error is %v, expected %v", d.State(), before)
	}
	after := before
	after.Position += 5
	if err := d.Restore(after); err != nil {
		t.Fatal(err)
	}
	if b := next(t, d); b.Records[0].Record != 15 {
		t.Errorf("behind the damaged batch comes record %d, expected 15", b.Records[0].Record)
	}

	d = open(t, Config{BatchSize: 5, Shuffle: ShuffleNone}, damage(t, 30, 29, 2))
	err := failure(t, d)
	var example *tfrecord.ExampleError
	if e := asRecordError(t, err); e.Record != 2 || e.File != "dir/damaged.tfrecord" || !errors.As(err, &example) {
		t.Errorf("error is %v, expected record 2 to be no Example", err)
	}
}

// TestUnexpectedRecordsFail holds that a record whose features are not as expected is an error that
// names it, also where damaged records are skipped.
func TestUnexpectedRecordsFail(t *testing.T) {
	for _, policy := range []tfrecord.Policy{tfrecord.Fail, tfrecord.Skip} {
		f := damage(t, 8)
		d := open(t, Config{BatchSize: 3, Shuffle: ShuffleNone, OnCorrupt: policy, Layout: packed.Config{NumLabels: 2}}, f)
		err := failure(t, d)
		e := asRecordError(t, err)
		if e.File != "dir/damaged.tfrecord" || e.Record != 2 || !strings.HasPrefix(err.Error(), `dir/damaged.tfrecord: record 2: feature "label_ids" is 2`) {
			t.Errorf("error is %v, expected it to name record 2", err)
		}
	}
}

// TestSettingsJSON holds the form in which saved runs have them.
func TestSettingsJSON(t *testing.T) {
	const want = `{"files":"hash","records":50,"seed":7,"batch_size":8,"drop_remainder":false,"shuffle":"full","buffer":0,"packing":"best-fit","row_length":64,"fixed_row_length":true,"truncate":false}`
	d := open(t, Config{BatchSize: 8, Seed: 7, Layout: packed.Config{RowLength: 64, FixedRowLength: true}}, samples(t, 50))
	text, err := json.Marshal(d.State().Settings)
	if err != nil || string(text) != want {
		t.Errorf("settings are %s, %v, expected %s", text, err, want)
	}
	// Another order of the settings is the same.
	other := strings.Replace(want, `"packing":"best-fit",`, "", 1)
	other = other[:len(other)-1] + `, "packing": "best-fit"}`
	s := State{Version: 1}
	if err := json.Unmarshal([]byte(other), &s.Settings); err != nil {
		t.Fatal(err)
	}
	if err := d.Restore(s); err != nil || d.State().Settings.Layout != `{"packing":"best-fit","row_length":64,"fixed_row_length":true,"truncate":false}` {
		t.Errorf("%v, settings are now %+v", err, d.State().Settings)
	}
}

func TestDamagedRecordsAreSkipped(t *testing.T) {
	const n = 60
	bad := []int{3, 17, 18, 44, 59}
	cfg := Config{BatchSize: 8, Epochs: 2, Seed: 5, OnCorrupt: tfrecord.Skip}
	whole := rest(t, open(t, cfg, damage(t, n)), 1000)
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	damaged := rest(t, open(t, cfg, damage(t, n, bad...)), 1000)
	if len(damaged) != len(whole) {
		t.Fatalf("%d batches, expected %d", len(damaged), len(whole))
	}
	skipped := int64(0)
	for i, b := range damaged {
		var left []RecordID
		for _, id := range whole[i].Records {
			if slices.Contains(bad, int(id.Record)) {
				skipped++
			} else {
				left = append(left, id)
			}
		}
		if !slices.Equal(b.Records, left) || b.State.Skipped != skipped || b.Examples != len(left) {
			t.Fatalf("batch %d holds %v and has skipped %d, expected %v and %d", i, b.Records, b.State.Skipped, left, skipped)
		}
		rowtest.Unpack(t, b)
		// Continuing from here counts on.
		d := open(t, cfg, damage(t, n, bad...))
		if err := d.Restore(b.State); err != nil {
			t.Fatal(err)
		}
		if got := rest(t, d, 1000); !slices.EqualFunc(got, damaged[i+1:], equal) {
			t.Fatalf("restored behind batch %d, other batches follow", i)
		}
	}
	if skipped != int64(2*len(bad)) {
		t.Errorf("%d records were skipped, expected %d", skipped, 2*len(bad))
	}
	if !strings.Contains(log.String(), "skipped damaged records") || !strings.Contains(log.String(), "dir/damaged.tfrecord: record") {
		t.Errorf("log is %q", log.String())
	}
}

func TestBatchOfDamagedRecordsIsPassedOver(t *testing.T) {
	cfg := Config{BatchSize: 3, Epochs: 1, Shuffle: ShuffleNone, OnCorrupt: tfrecord.Skip}
	batches := rest(t, open(t, cfg, damage(t, 9, 3, 4, 5)), 10)
	if len(batches) != 2 || batches[1].Records[0].Record != 6 || batches[1].State.Skipped != 3 {
		t.Fatalf("batches are %v", batches)
	}

	divided := open(t, cfg, damage(t, 9, 3, 4, 5))
	divided.Divide(2, 0)
	if batches := rest(t, divided, 10); len(batches) != 2 || len(batches[1].Parts) != 2 || !strings.HasPrefix(batches[1].Parts[0].Describe(0), "damaged.tfrecord:") {
		t.Fatalf("divided, batches are %v", batches)
	}

	// Nothing usable at all is an error, also in an endless run.
	for _, epochs := range []int64{0, 1} {
		cfg.Epochs = epochs
		var corrupt *tfrecord.CorruptError
		if err := failure(t, open(t, cfg, damage(t, 3, 0, 1, 2))); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "no usable record") {
			t.Errorf("error is %v, expected it to say that nothing is usable", err)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	path := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "d"), 20, 1)[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x10
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Files: []string{path}, BatchSize: 20, Epochs: 1, Shuffle: ShuffleNone}
	var corrupt *tfrecord.CorruptError
	if _, err := Open(context.Background(), withLayout(cfg)); !errors.As(err, &corrupt) {
		t.Errorf("error is %v, expected a CorruptError", err)
	}
	cfg.OnCorrupt = tfrecord.Skip
	d, err := Open(context.Background(), withLayout(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Damaged().Records != 1 || d.NumExamples() != 19 || next(t, d).Examples != 19 {
		t.Errorf("%d records are left, %d damaged; expected 19 and 1", d.NumExamples(), d.Damaged().Records)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	one := rowtest.WriteShards(t, filepath.Join(dir, "one"), 3, 1)[0]
	empty := rowtest.WriteShards(t, filepath.Join(dir, "empty"), 0, 1)[0]
	rowtest.WriteShards(t, filepath.Join(dir, "gap"), 9, 3)
	os.Remove(tfrecord.ShardName(filepath.Join(dir, "gap"), 1, 3))
	text := filepath.Join(dir, "text.tfrecord")
	if err := os.WriteFile(text, []byte("these are not records, but a line of text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Files: []string{filepath.Join(dir, "nowhere.tfrecord")}, BatchSize: 1}, "nowhere.tfrecord"},
		{Config{Files: []string{empty}, BatchSize: 1}, "no records"},
		{Config{Files: []string{one, one}, BatchSize: 1}, "given twice"},
		{Config{Files: []string{one}, BatchSize: 4, DropRemainder: true}, "3 records in 1 file(s); expected at least a batch of 4"},
		{Config{Files: []string{filepath.Join(dir, "gap")}, BatchSize: 1}, "gap"},
		{Config{Files: []string{text}, BatchSize: 1}, "text.tfrecord: record 0"},
		{Config{Files: []string{one}}, "batch size is 0"},
	} {
		d, err := Open(context.Background(), withLayout(c.cfg))
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error is %v, expected it to name %q", c.cfg.Files, err, c.want)
		}
	}
	if _, err := Open(context.Background(), withLayout(Config{Files: []string{filepath.Join(dir, "nowhere.tfrecord")}, BatchSize: 1})); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v, expected it to be fs.ErrNotExist", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, withLayout(Config{Files: []string{one}, BatchSize: 1})); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, expected the context's", err)
	}
}

func TestValidate(t *testing.T) {
	good := Config{Files: []string{"f"}, BatchSize: 32, Layout: packed.Config{}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Files = nil }, "no record files"},
		{func(c *Config) { c.BatchSize = -1 }, "batch size is -1"},
		{func(c *Config) { c.BatchSize = 1 << 25 }, "batch size"},
		{func(c *Config) { c.BatchSize, c.Layout = 1<<20, packed.Config{RowLength: 1 << 12} }, "too large"},
		{func(c *Config) { c.Layout = nil }, "layout is not set"},
		{func(c *Config) { c.Layout = packed.Config{Packing: "tight"} }, `packing is "tight"`},
		{func(c *Config) { c.Epochs = -1 }, "epochs is -1"},
		{func(c *Config) { c.Shuffle = "wild" }, `shuffle is "wild"`},
		{func(c *Config) { c.Buffer = -5 }, "shuffle buffer"},
		{func(c *Config) { c.OnCorrupt = 7 }, "policy"},
		{func(c *Config) { c.Readers = -1 }, "readers is -1"},
		{func(c *Config) { c.Prefetch = -1 }, "prefetched batches is -1"},
	} {
		cfg := good
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, expected it to say %q", err, c.want)
		}
	}
}

// gate is a file whose records are given out when the gate is open.
type gate struct {
	memory
	open chan struct{}
}

func (g gate) Record(i int, buf []byte) ([]byte, error) {
	<-g.open
	return g.memory.Record(i, buf)
}

func TestWaitingEndsWithTheContextAndWithClose(t *testing.T) {
	m := memory{name: "m"}
	for k := range 10 {
		m.records = append(m.records, rowtest.SampleRecord(t, k))
	}
	g := gate{m, make(chan struct{})}
	var f Files
	f.Add("m", g)
	d := open(t, Config{BatchSize: 2, Epochs: 1, Shuffle: ShuffleNone}, f)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := d.Next(ctx)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v, expected the context's", err)
	}
	go func() {
		_, err := d.Next(context.Background())
		done <- err
	}()
	go d.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Fatalf("error is %v, expected ErrClosed", err)
	}
	close(g.open)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Next after Close gives %v", err)
	}
	if err := d.Restore(d.State()); !errors.Is(err, ErrClosed) {
		t.Errorf("Restore after Close gives %v", err)
	}

	// A wait that was given up loses no batch.
	g = gate{m, make(chan struct{})}
	f = Files{}
	f.Add("m", g)
	d = open(t, Config{BatchSize: 2, Epochs: 1, Shuffle: ShuffleNone}, f)
	if _, err := d.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v, expected the context's", err)
	}
	close(g.open)
	if b := next(t, d); b.Records[0].Record != 0 {
		t.Errorf("first batch begins with record %d", b.Records[0].Record)
	}
	if left := rest(t, d, 100); len(left) != 4 {
		t.Errorf("%d batches are left, expected 4", len(left))
	}
	if _, err := d.Next(context.Background()); err != io.EOF {
		t.Errorf("error at the end is %v, expected io.EOF", err)
	}
}

// equal compares what a batch holds, but not the pool that lends it its memory,
// which readers use meanwhile, nor its parts.
func equal(a, b *Batch) bool {
	x, y := *a, *b
	x.Lease, y.Lease = nil, nil
	x.Parts, y.Parts = nil, nil
	return reflect.DeepEqual(x, y)
}

func TestBatchesShareNoMemory(t *testing.T) {
	f := samples(t, 40)
	cfg := Config{BatchSize: 8, Epochs: 1, Readers: 1}
	want := rest(t, open(t, cfg, f), 100)
	d := open(t, cfg, f)
	for i := 0; ; i++ {
		b := next(t, d)
		if b == nil {
			break
		}
		if !equal(b, want[i]) {
			t.Fatalf("batch %d changed because an earlier one was overwritten", i)
		}
		for _, f := range b.Features {
			for k := range f.Int32[:cap(f.Int32)] {
				f.Int32[:cap(f.Int32)][k] = -7
			}
		}
		for k := range b.Records {
			b.Records[k] = RecordID{-7, -7}
		}
	}
}

func TestStateString(t *testing.T) {
	s := State{Epoch: 2, Position: 96, Settings: Settings{Records: 3668}}
	if got := s.String(); got != "epoch 2, record 96 of 3668" {
		t.Error(got)
	}
	s.Skipped = 3
	if got := s.String(); got != "epoch 2, record 96 of 3668, 3 damaged records skipped" {
		t.Error(got)
	}
}

func FuzzState(f *testing.F) {
	var fs Files
	m := memory{name: "m"}
	for k := range 21 {
		m.records = append(m.records, rowtest.SampleRecord(f, k))
	}
	fs.Add("m", m)
	d := open(f, Config{BatchSize: 4, Readers: 1, Prefetch: 1}, fs)
	text, err := json.Marshal(next(f, d).State)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.Replace(text, []byte(`"position":4`), []byte(`"position":21`), 1))
	f.Add(bytes.Replace(text, []byte(`"epoch":0`), []byte(`"epoch":9007199254740992`), 1))
	f.Add([]byte(`{"version":1,"epoch":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s State
		if json.Unmarshal(text, &s) != nil {
			return
		}
		if err := d.Restore(s); err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		b := next(t, d)
		if b.Epoch != d.State().Epoch && b.Epoch+1 != d.State().Epoch || b.Examples != 4 && b.Examples != 1 {
			t.Fatalf("state %s leads to a batch of %d examples in epoch %d", text, b.Examples, b.Epoch)
		}
	})
}
func TestFindRecord(t *testing.T) {
	var f Files
	sizes := []int{0, 3, 0, 0, 1, 5, 0}
	for i, n := range sizes {
		f.Add(fmt.Sprint(i), memory{records: make([][]byte, n)})
	}
	n := int64(0)
	for i, size := range sizes {
		for r := range int64(size) {
			if got := f.Find(n); got != (RecordID{i, r}) {
				t.Errorf("record %d of all is %v, expected record %d of file %d", n, got, r, i)
			}
			n++
		}
	}
	if f.Len() != n {
		t.Errorf("%d records in all, expected %d", f.Len(), n)
	}
}

// TestDatasetDivides holds the parts that a dataset makes to those of Batch.Divide.
func TestDatasetDivides(t *testing.T) {
	f := samples(t, 50)
	for _, c := range []struct {
		config          Config
		n, longRows     int
		then, thenParts int // after so many batches, it divides into another number
	}{
		{Config{}, 2, 4096, 3, 4},
		{Config{}, 1, 4096, 1, 2},
		{Config{}, 1, 0, 2, 3},
		{Config{Layout: packed.Config{Packing: packed.PackNone}}, 3, 4096, 0, 1},
		{Config{Layout: packed.Config{FixedRowLength: true}}, 2, 4096, 100, 0},
	} {
		cfg := c.config
		cfg.BatchSize, cfg.Epochs = 8, 2
		plain, divided := open(t, cfg, f), open(t, cfg, f)
		next(t, plain)
		if b := next(t, divided); b.Parts != nil {
			t.Fatalf("%+v: divided unasked", c)
		}
		divided.Divide(c.n, c.longRows)
		n := c.n
		for i, batch := range rest(t, plain, 100) {
			if i == c.then {
				n = c.thenParts
				divided.Divide(n, c.longRows)
			}
			want, err := withLayout(cfg).Layout.Divide(batch, n, c.longRows)
			if err != nil {
				t.Fatal(err)
			}
			got := next(t, divided)
			if !equal(got, batch) || !slices.EqualFunc(got.Parts, want, equal) {
				t.Fatalf("%+v: batch %v differs in %d parts", c, got.State, n)
			}
		}
		if b, err := divided.Next(t.Context()); err != io.EOF {
			t.Errorf("%+v: batch %v, error %v after the last", c, b, err)
		}
	}
}
