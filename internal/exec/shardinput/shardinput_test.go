package shardinput

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// written is a folder with a file of records and the configuration of a worker with two
// replicas of five.
func written(t testing.TB) Config {
	t.Helper()
	dir := t.TempDir()
	records.Write(t, filepath.Join(dir, "train.tfrecord"), 3, 37)
	c := Config{
		Data:     Data{Dir: dir, Files: []dataset.FileInfo{{Path: "train.tfrecord"}}, Dataset: dataset.Config{BatchSize: 10, Seed: 3}, Layout: packed.Config{RowLength: 16}, Workers: []string{"a:1", "b:2"}},
		Worker:   1,
		Part:     dataset.Part{From: 1, To: 3, Of: 5},
		Replicas: 2,
		Features: []flat.Feature{{Name: "input_ids", DType: "int32", Axes: 2}, {Name: "labels", DType: "int32", Axes: 1}, {Name: "example_weights", DType: "float32", Axes: 1}},
		Rows:     []string{"input_ids"},
	}
	d := whole(t, c, dataset.Part{})
	c.Data.Settings, c.Data.Files = d.State().Settings, d.FileInfos()
	c.Data.Files[0].Path = "train.tfrecord"
	return c
}

// whole opens the data of a configuration.
func whole(t testing.TB, c Config, part dataset.Part) *dataset.Dataset {
	t.Helper()
	config := c.Data.Dataset
	config.Layout = c.Data.Layout
	config.Files, config.Part = []string{filepath.Join(c.Data.Dir, c.Data.Files[0].Path)}, part
	d, err := dataset.Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func text(t testing.TB, c Config) []byte {
	t.Helper()
	b, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// closed closes what a host has read from at the test's end.
func closed(t testing.TB) *host {
	h := new(host)
	t.Cleanup(func() {
		if h.current != nil {
			h.current.close()
		}
	})
	return h
}

// TestLongRows draws with rows that may be long: every micro-batch is one, without
// padding.
func TestLongRows(t *testing.T) {
	for _, test := range []struct{ replicas, rounds int64 }{{1, 1}, {2, 1}, {1, 3}} {
		rounds := test.rounds
		c := written(t)
		c.LongRows, c.Replicas = 1000, int(test.replicas)
		h := closed(t)
		at := whole(t, c, c.Part).State()
		numbers, _, err := h.draw(text(t, c), []int64{1, at.Epoch, at.Position, rounds})
		if err != nil {
			t.Fatal(err)
		}
		cells := int64(0)
		for round := range rounds {
			for replica := range int64(c.Replicas) {
				m, err := h.take([]int64{1, round, rounds}, []int64{replica, int64(c.Replicas)})
				if err != nil {
					t.Fatal(err)
				}
				if m.layout[3] != 1 {
					t.Errorf("%d rows, expected 1", m.layout[3])
				}
				cells += m.layout[4]
			}
		}
		if tokens := numbers[3]; cells != tokens {
			t.Errorf("%d rounds: %d tokens in %d cells", rounds, tokens, cells)
		}
	}
}

// drawn is what one ticket of 3 rounds and 2 replicas gives.
type drawn struct {
	numbers []int64
	rows    []int32
	made    []micro
}

// drawFor draws the batch at a place of the data and takes all of its micro-batches.
func drawFor(t *testing.T, h *host, config []byte, ticket int64, at dataset.State) drawn {
	t.Helper()
	numbers, rows, err := h.draw(config, []int64{ticket, at.Epoch, at.Position, 3})
	if err != nil {
		t.Fatal(err)
	}
	out := drawn{numbers: numbers, rows: rows}
	for round := range int64(3) {
		for replica := range int64(2) {
			m, err := h.take([]int64{ticket, round, 3}, []int64{replica, 2})
			if err != nil {
				t.Fatal(err)
			}
			out.made = append(out.made, m)
		}
	}
	return out
}

// words returns 32-bit values.
func words(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

// check checks what was drawn at a place against the batch there.
func (got drawn) check(t *testing.T, at dataset.State, b *dataset.Batch) {
	t.Helper()
	if want := []int64{int64(b.Examples), int64(b.Labeled), 0, int64(b.Tokens)}; !slices.Equal(got.numbers[:4], want) {
		t.Fatalf("%v: stats are %v, expected to begin with %v", at, got.numbers, want)
	}
	var ids, held []int32
	ids = append(ids, b.Feature(packed.InputIDs).Int32...)
	var weight float32
	for _, m := range got.made {
		sizes, shape := m.layout[:3], m.layout[3:]
		if sizes[0] != shape[0]*shape[1] || sizes[1] != shape[2] || sizes[2] != shape[3] || int64(len(m.values["int32"])) != 4*(sizes[0]+sizes[1]) || int64(len(m.values["float32"])) != 4*sizes[2] {
			t.Fatalf("%v: %d and %d bytes are laid out as %v", at, len(m.values["int32"]), len(m.values["float32"]), m.layout)
		}
		for _, v := range words(m.values["int32"])[:sizes[0]] {
			held = append(held, int32(v))
		}
		for _, v := range words(m.values["float32"]) {
			weight += math.Float32frombits(v)
		}
	}
	if weight != float32(b.Examples) {
		t.Errorf("%v: the weights are %v, expected %d", at, weight, b.Examples)
	}
	each, all := got.numbers[Stats+1:], int64(0)
	for _, n := range each {
		all += n
	}
	if len(each) != 6 || all != int64(b.Examples) {
		t.Errorf("%v: the micro-batches have %v examples, expected 6 of together %d", at, each, b.Examples)
	}
	slices.Sort(held)
	slices.Sort(ids)
	if want := slices.Compact(held); !slices.Equal(got.rows, want) || got.numbers[Stats] != int64(len(want)) {
		t.Errorf("%v: rows are %v, expected %v", at, got.rows, want)
	}
	for _, id := range slices.Compact(ids) {
		if !slices.Contains(got.rows, id) {
			t.Errorf("%v: %d is in the batch and not drawn", at, id)
		}
	}
}

// TestDraw holds draws, in order and not, against the parts that a Dataset makes.
func TestDraw(t *testing.T) {
	c := written(t)
	h, config := closed(t), text(t, c)
	d := whole(t, c, c.Part)
	at := d.State()
	seen := make(map[dataset.State]drawn)
	ticket := int64(0)
	draw := func(at dataset.State) drawn {
		t.Helper()
		ticket++
		return drawFor(t, h, config, ticket, at)
	}
	for range 9 { // more than two epochs
		b, err := d.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got := draw(at)
		seen[at] = got
		got.check(t, at, b)
		at = at.After()
	}
	for at, want := range seen {
		if got := draw(at); !reflect.DeepEqual(got, want) {
			t.Errorf("%v is another batch when it is drawn again", at)
		}
	}
	if n := len(h.current.tickets); n != kept {
		t.Errorf("%d tickets are kept, expected %d", n, kept)
	}
	if _, err := h.take([]int64{1, 0, 3}, []int64{0, 2}); err == nil {
		t.Error("the first ticket is still there")
	}
}

// TestOpening asks whether the data are there.
func TestOpening(t *testing.T) {
	h, config := closed(t), text(t, written(t))
	for {
		numbers, _, err := h.draw(config, []int64{0, 0, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		if numbers[0] == 1 {
			break
		}
	}
}

// TestAnotherConfiguration replaces what is read.
func TestAnotherConfiguration(t *testing.T) {
	h, c := closed(t), written(t)
	for _, of := range []int{5, 7} {
		c.Part.Of = of
		if _, _, err := h.draw(text(t, c), []int64{1, 0, 0, 1}); err != nil {
			t.Fatal(err)
		}
		if got := h.current.config.Part.Of; got != of {
			t.Errorf("a part of %d is read, expected %d", got, of)
		}
	}
}

func TestRefused(t *testing.T) {
	good := written(t)
	with := func(change func(*Config)) string {
		c := good
		change(&c)
		b, err := c.JSON()
		if err != nil {
			return err.Error()
		}
		_, _, err = closed(t).draw(b, []int64{1, 0, 0, 1})
		return fmt.Sprint(err)
	}
	for name, test := range map[string]struct{ got, want string }{
		"no files":     {with(func(c *Config) { c.Data.Files = nil }), "no files"},
		"no replicas":  {with(func(c *Config) { c.Replicas = 0 }), "number of replicas is 0; expected"},
		"no worker":    {with(func(c *Config) { c.Worker = 2 }), "worker is 2; expected 0 to 1"},
		"no part":      {with(func(c *Config) { c.Part = dataset.Part{} }), "the part is not set"},
		"a bad part":   {with(func(c *Config) { c.Part.To = 9 }), "worker b:2: part is 1 to 9 of 5"},
		"long rows":    {with(func(c *Config) { c.LongRows = 1 << 40 }), "long rows are 1099511627776; expected"},
		"order":        {with(func(c *Config) { c.Features = slices.Clone(c.Features); c.Features[0].DType = "bool" }), "feature labels has dtype \"int32\"; expected features in the order of the dtypes"},
		"readers":      {with(func(c *Config) { c.Data.Dataset.Readers = 1 << 40 }), "readers and prefetch are 1099511627776"},
		"batch size":   {with(func(c *Config) { c.Data.Dataset.BatchSize = 1 << 40 }), "worker b:2: batch size is 1099511627776"},
		"another seed": {with(func(c *Config) { c.Data.Dataset.Seed = 4 }), "has the settings {"},
		"no file":      {with(func(c *Config) { c.Data.Files = []dataset.FileInfo{{Path: "gone"}} }), "worker b:2: file "},
		"no feature":   {with(func(c *Config) { c.Features = []flat.Feature{{Name: "colour", DType: "int32", Axes: 1}} }), "worker b:2: the batch has no feature colour"},
		"axes":         {with(func(c *Config) { c.Features = []flat.Feature{{Name: "labels", DType: "int32", Axes: 2}} }), "expected 2 axes"},
		"dtype":        {with(func(c *Config) { c.Features = []flat.Feature{{Name: "labels", DType: "float32", Axes: 1}} }), "labels has dtype int32; expected float32"},
	} {
		if !strings.Contains(test.got, test.want) {
			t.Errorf("%s: %s, expected %q", name, test.got, test.want)
		}
	}
	h := closed(t)
	for _, b := range []string{"", "[]", "{", `{"worker": "one"}`, "null", strings.Repeat(" ", maxConfig+1)} {
		if _, _, err := h.draw([]byte(b), []int64{1, 0, 0, 1}); err == nil {
			t.Errorf("%.20q is accepted", b)
		}
	}
	if _, err := h.take([]int64{1, 0, 1}, []int64{0, 1}); err == nil {
		t.Error("something is taken before anything was drawn")
	}
}

// FuzzRequest wants every request answered or refused.
func FuzzRequest(f *testing.F) {
	c := written(f)
	config := text(f, c)
	h := closed(f)
	f.Add(int64(1), int64(0), int64(0), int64(1), int64(0), int64(1), int64(0), int64(2))
	f.Add(int64(-1), int64(1<<62), int64(-10), int64(1<<62), int64(-1), int64(1<<62), int64(-1), int64(1<<62))
	f.Add(int64(7), int64(1), int64(30), int64(2), int64(1), int64(2), int64(1), int64(2))
	f.Add(int64(7), int64(1), int64(5), int64(0), int64(1), int64(0), int64(1), int64(0))
	f.Fuzz(func(t *testing.T, ticket, epoch, position, rounds, round, of, replica, replicas int64) {
		rounds %= 64 // larger ones are slow
		numbers, rows, err := h.draw(config, []int64{ticket, epoch, position, rounds})
		if err == nil && ticket != 0 && (int64(len(rows)) != numbers[Stats] || numbers[0] > 10) {
			t.Errorf("stats are %v with %d rows", numbers, len(rows))
		}
		m, err := h.take([]int64{ticket, round, of}, []int64{replica, replicas})
		if err == nil && len(m.layout) != 7 {
			t.Errorf("the layout is %v", m.layout)
		}
	})
}

func TestFind(t *testing.T) {
	damaged := fmt.Errorf("worker a:1: %w", fault.Damagedf("record 3: %s", `"quoted" \ and`+"\nbroken"))
	for _, want := range []error{errors.New("worker a:1: there is no file"), damaged, fault.Usagef("ümlaut \xff"), context.Canceled} {
		status, class := mark(want), fault.Of(want)
		if class == fault.Stopped {
			class = fault.Failed
		}
		for _, err := range []error{
			errors.New(status),
			fmt.Errorf("step 3: %w", errors.New("2 root error(s) found.\n  (0) INVALID_ARGUMENT: From /job:worker/replica:0/task:1:\n"+status+"\n\t [[{{node draw/1}}]]\n  (1) INVALID_ARGUMENT: "+mark(errors.New("another")))),
		} {
			got := Find(err)
			if got == nil || got.Text != want.Error() || fault.Of(got) != class {
				t.Errorf("%q of class %s is found as %v, %v", want, class, got, fault.Of(got))
			}
		}
	}
	if got := Find(errors.New(mark(errors.New(strings.Repeat("x", 1<<20))))); got == nil || len(got.Text) != maxText {
		t.Error("a long text is not cut")
	}
	for _, other := range []string{"", "OOM when allocating", marker, marker + `"open`, marker + "plain", marker + `failed: "open`, marker + `strange: "text"`, marker + `failed`} {
		if got := Find(errors.New(other)); got != nil {
			t.Errorf("%q is taken for %v", other, got)
		}
	}
}

// TestOtherRecords has a worker whose file is not the chief's, with as many records of the
// same size, and ones that are damaged.
func TestOtherRecords(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy tfrecord.Policy
		change func(t *testing.T, path string)
		class  fault.Class
		want   []string
	}{
		{"other contents", tfrecord.Skip, func(t *testing.T, path string) { rewrite(t, path, func(i int, r []byte) { r[len(r)-1] ^= 1 }) }, fault.Failed,
			[]string{"train.tfrecord has other records than the chief's file (digest ", "; with --input local every worker", "gorbit worker --data"}},
		{"one bit of one record", tfrecord.Fail, func(t *testing.T, path string) {
			rewrite(t, path, func(i int, r []byte) {
				if i == 20 {
					r[len(r)-1] ^= 1
				}
			})
		}, fault.Failed, []string{"train.tfrecord has other records than the chief's file"}},
		{"damage that is skipped", tfrecord.Skip, damage, fault.Damaged,
			[]string{"train.tfrecord has 36 records; expected 37, as the chief's file; it is damaged, and ", " bytes in 1 places are skipped, the first at record ", "data checksum is ", "; with --input local every worker"}},
		{"damage that is not", tfrecord.Fail, damage, fault.Damaged, []string{"train.tfrecord: record ", "data checksum is "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := written(t)
			c.Data.Dataset.OnCorrupt = test.policy
			test.change(t, filepath.Join(c.Data.Dir, "train.tfrecord"))
			_, _, err := closed(t).draw(text(t, c), []int64{1, 0, 0, 1})
			if fault.Of(err) != test.class || err == nil {
				t.Fatalf("%v is of class %s, want %s", err, fault.Of(err), test.class)
			}
			for _, want := range append(test.want, "worker b:2: "+c.Data.Dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// rewrite rewrites a file with changed records.
func rewrite(t *testing.T, path string, change func(i int, record []byte)) {
	t.Helper()
	f, err := tfrecord.OpenIndexed(path)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for i := range f.Len() {
		r, err := f.Record(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		change(i, r)
		all = append(all, r)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	records.WriteFile(t, path, len(all), func(i int) []byte { return all[i] })
}

// damage flips a bit in the middle of a file that was indexed before.
func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2+40] ^= 1
	if err := errors.Join(os.WriteFile(path, b, 0o644), os.Chtimes(path, time.Time{}, time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
}
