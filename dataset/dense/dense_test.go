package dense_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	. "github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

func number(x int64) *int64 { return &x }

// stacked are features of fixed shapes and of every dtype.
var stacked = []dataset.Spec{
	{Name: "image", DType: dataset.Uint8, Shape: []int{2, 3}},
	{Name: "id", DType: dataset.Int64, Role: dataset.ID},
	{Name: "scores", DType: dataset.Float32, Shape: []int{2}},
	{Name: "flag", DType: dataset.Bool},
	{Name: "digit", DType: dataset.Int32, Role: dataset.Label, Below: number(10)},
	{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight},
}

// padded are features with an open axis.
var padded = []dataset.Spec{
	{Name: "ids", DType: dataset.Int32, Shape: []int{-1}, Below: number(1000)},
	{Name: "points", DType: dataset.Float32, Shape: []int{-1, 2}},
	{Name: "tags", DType: dataset.Int32, Shape: []int{-1}, Role: dataset.Label, Minimum: number(-1), Below: number(5), Pad: -1},
	{Name: "id", DType: dataset.Int64, Role: dataset.ID},
	{Name: "mask", DType: dataset.Float32, Shape: []int{-1}, Make: MakeMask},
	{Name: "lengths", DType: dataset.Int32, Make: MakeLength},
	{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight},
}

// example returns the features of example n of a made-up set. All of them follow from n.
func example(n int) []tfrecord.Feature {
	length := 1 + rand.New(rand.NewPCG(uint64(n), 1)).IntN(20)
	var ids, tags []int64
	var points []float32
	for i := range length {
		ids, tags = append(ids, int64((n+i)%1000)), append(tags, int64((n+i)%6-1))
		points = append(points, float32(n), float32(i))
	}
	image := make([]byte, 6)
	for i := range image {
		image[i] = byte(n * i)
	}
	return []tfrecord.Feature{
		tfrecord.BytesFeature("image", image), tfrecord.Int64Feature("id", int64(n)), tfrecord.FloatFeature("scores", float32(n), float32(-n)),
		tfrecord.Int64Feature("flag", int64(n%2)), tfrecord.Int64Feature("digit", int64(n%10)),
		tfrecord.Int64Feature("ids", ids...), tfrecord.Int64Feature("tags", tags...), tfrecord.FloatFeature("points", points...),
	}
}

// write writes examples 0 to n-1 in two files. Some are SequenceExamples.
func write(t testing.TB, n int) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for s := range 2 {
		path := tfrecord.ShardName(filepath.Join(dir, "train"), s, 2)
		from, to := s*n/2, (s+1)*n/2
		records.WriteFile(t, path, to-from, func(i int) []byte { return record(t, example(from+i), (from+i)%3 == 0) })
		paths = append(paths, path)
	}
	return paths
}

// record writes an example, if asked for as a SequenceExample whose ids are steps.
func record(t testing.TB, features []tfrecord.Feature, sequence bool) []byte {
	t.Helper()
	var b []byte
	var err error
	if sequence {
		list := tfrecord.FeatureList{Name: "ids"}
		for _, f := range features {
			if f.Name == "ids" {
				for _, id := range f.Int64s {
					list.Steps = append(list.Steps, tfrecord.Int64Feature("", id).Value)
				}
			}
		}
		features = slices.DeleteFunc(slices.Clone(features), func(f tfrecord.Feature) bool { return f.Name == "ids" })
		b, err = tfrecord.AppendSequenceExample(nil, features, list)
	} else {
		b, err = tfrecord.AppendExample(nil, features...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB, c dataset.Config) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// all returns the batches of an epoch.
func all(t testing.TB, c dataset.Config) (batches []*dataset.Batch) {
	t.Helper()
	c.Epochs = 1
	d := open(t, c)
	for {
		b, err := d.Next(context.Background())
		if err == io.EOF {
			return batches
		}
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
}

// check checks everything in a batch, and returns the numbers of its examples. weights are those that
// the examples have. There may be more places than examples.
//
// Long: one check after the other of one batch.
func check(t testing.TB, c Config, b *dataset.Batch) (ids []int) {
	t.Helper()
	places := b.Rows
	length := b.RowLength
	values := 0
	for _, f := range b.Features {
		if f.Len() != f.Size() || f.Shape[0] != places {
			t.Fatalf("feature %s has %d values of shape %v, in %d places", f.Name, f.Len(), f.Shape, places)
		}
	}
	of := func(name string) *dataset.Feature { return b.Feature(name) }
	for i := range places {
		empty := i >= b.Examples
		n := int(of("id").Int64[i])
		if w := of("example_weights").Float32[i]; empty != (w == 0) {
			t.Fatalf("place %d of %d examples weighs %v", i, b.Examples, w)
		}
		if !empty {
			ids = append(ids, n)
		}
		want := map[string]tfrecord.Feature{}
		for _, f := range example(n) {
			want[f.Name] = f
		}
		if f := of("image"); f != nil {
			if got := f.Uint8[6*i : 6*i+6]; empty && slices.Max(got) > 0 || !empty && string(got) != string(want["image"].Bytes[0]) {
				t.Fatalf("image of %d is %v", n, got)
			}
			if got := of("scores").Float32[2*i : 2*i+2]; !empty && !slices.Equal(got, want["scores"].Floats) {
				t.Fatalf("scores of %d are %v", n, got)
			}
			if got := of("flag").Bool[i]; !empty && got != (n%2 == 1) || empty && got {
				t.Fatalf("flag of %d is %v", n, got)
			}
			if got := of("digit"); got != nil && !empty && got.Int32[i] != int32(n%10) {
				t.Fatalf("digit of %d is %v", n, got.Int32[i])
			}
			values++
			continue
		}
		own := len(want["ids"].Int64s)
		if c.MaxLength > 0 {
			own = min(own, c.MaxLength)
		}
		if empty {
			own = 1
		} else {
			values += own
		}
		if got := of("lengths").Int32[i]; int(got) != own {
			t.Fatalf("length of %d is %d, want %d", n, got, own)
		}
		for k := range length {
			at := i*length + k
			id, tag, mask := int32(0), int32(-1), float32(0)
			point := []float32{0, 0}
			if k < own {
				mask = 1
			}
			if k < own && !empty {
				id, tag, point = int32(want["ids"].Int64s[k]), int32(want["tags"].Int64s[k]), want["points"].Floats[2*k:2*k+2]
			}
			if of("ids").Int32[at] != id || of("mask").Float32[at] != mask || !slices.Equal(of("points").Float32[2*at:2*at+2], point) {
				t.Fatalf("example %d, place %d: id %d, mask %v, point %v", n, k, of("ids").Int32[at], of("mask").Float32[at], of("points").Float32[2*at:2*at+2])
			}
			if f := of("tags"); f != nil && f.Int32[at] != tag {
				t.Fatalf("example %d, place %d: tag %d, want %d", n, k, f.Int32[at], tag)
			}
		}
	}
	if length == 0 {
		values = 0 // stacked examples have no axis whose values count
	}
	if places == b.Examples && values != b.Tokens {
		t.Fatalf("batch counts %d values, and has %d", b.Tokens, values)
	}
	if len(b.Records) != b.Examples {
		t.Fatalf("%d examples, %d records", b.Examples, len(b.Records))
	}
	return ids
}

// layouts are configurations of every kind.
func layouts() map[string]Config {
	return map[string]Config{
		"stacked":          {Features: stacked},
		"stacked, fixed":   {Features: stacked, Examples: 8},
		"padded":           {Features: padded},
		"padded, even":     {Features: padded, EvenParts: true},
		"padded, short":    {Features: padded, MaxLength: 7, Truncate: true},
		"padded, fixed":    {Features: padded, MaxLength: 20, FixedLength: true, Examples: 8},
		"padded, buckets":  {Features: padded, MaxLength: 20, FixedLength: true, Buckets: []int{5, 12}, Examples: 8},
		"buckets, as long": {Features: padded, MaxLength: 20, Buckets: []int{9}},
		"without labels":   {Features: stacked, Labels: dataset.LabelsNone},
		"no labels, pads":  {Features: padded, Labels: dataset.LabelsNone},
		"optional, padded": {Features: padded, Labels: dataset.LabelsOptional},
	}
}

// TestEpochs draws whole epochs: every example comes once in each, with its own values, in the order that
// the readers do not change, and also where later batches use the memory of released ones.
func TestEpochs(t *testing.T) {
	paths := write(t, 50)
	for name, layout := range layouts() {
		t.Run(name, func(t *testing.T) {
			var first []*dataset.Batch
			for _, readers := range []int{1, 3} {
				d := open(t, dataset.Config{Files: paths, BatchSize: 8, Seed: 3, Layout: layout, Epochs: 3, Readers: readers})
				var ids [3][]int
				for i := 0; ; i++ {
					b, err := d.Next(context.Background())
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					ids[b.Epoch] = append(ids[b.Epoch], check(t, layout, b)...)
					if layout.Labels != dataset.LabelsNone && b.Labeled != b.Examples {
						t.Fatalf("%d of %d examples are labeled", b.Labeled, b.Examples)
					}
					if readers == 1 {
						first = append(first, b)
						continue
					}
					if !reflect.DeepEqual(b.Features, first[i].Features) {
						t.Fatalf("batch %d depends on the number of readers, or on batches that were released", i)
					}
					b.Release()
					b.Release()
					if _, err := layout.Divide(b, 2, 0); err == nil || err.Error() != "the batch has been released" {
						t.Fatalf("a released batch was divided: %v", err)
					}
				}
				for epoch, ids := range ids {
					if slices.IsSorted(ids) {
						t.Error("the examples were not shuffled")
					}
					slices.Sort(ids)
					if len(ids) != 50 || ids[0] != 0 || ids[49] != 49 || len(slices.Compact(ids)) != 50 {
						t.Fatalf("epoch %d has examples %v, want each of 0 to 49 once", epoch, ids)
					}
				}
			}
		})
	}
}

// TestDivide divides batches in any number of parts, and the parts have each example once, unchanged.
func TestDivide(t *testing.T) {
	paths := write(t, 30)
	for name, layout := range layouts() {
		t.Run(name, func(t *testing.T) {
			for _, b := range all(t, dataset.Config{Files: paths, BatchSize: 8, Layout: layout}) {
				whole := check(t, layout, b)
				for _, n := range []int{1, 2, 3, 5, 8, 11} {
					parts, err := layout.Divide(b, n, 0)
					if err != nil {
						t.Fatal(err)
					}
					var ids []int
					for _, p := range parts {
						own := check(t, layout, p)
						if len(own) != p.Examples || p.Epoch != b.Epoch || !reflect.DeepEqual(p.State, b.State) {
							t.Fatalf("a part has %d examples, epoch %d", p.Examples, p.Epoch)
						}
						if len(own) == 0 && b.Examples >= n && layout.Examples == 0 {
							t.Fatalf("one of %d parts of %d examples is empty", n, b.Examples)
						}
						if layout.Examples > 0 && p.Rows != layout.PartExamples(n) {
							t.Fatalf("a part has %d places, want %d", p.Rows, layout.PartExamples(n))
						}
						for i, id := range own {
							if want := p.Records[i]; !slices.Contains(b.Records, want) || b.Records[slices.Index(whole, id)] != want {
								t.Fatalf("example %d is named record %v", id, want)
							}
						}
						ids = append(ids, own...)
					}
					slices.Sort(ids)
					want := slices.Sorted(slices.Values(whole))
					if !slices.Equal(ids, want) {
						t.Fatalf("%d parts have examples %v, want %v", n, ids, want)
					}
				}
			}
		})
	}
}

// TestDivideByCost compares the division with all others of a few lengths.
func TestDivideByCost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		lengths := make([]int, 1+r.IntN(7))
		for i := range lengths {
			lengths[i] = 1 + r.IntN(30)
		}
		n := 1 + r.IntN(4)
		groups := ByCost(lengths, n)
		cost := func(groups [][]int) (most int) {
			for _, g := range groups {
				longest := 0
				for _, e := range g {
					longest = max(longest, lengths[e])
				}
				most = max(most, longest*len(g))
			}
			return most
		}
		best := 1 << 30
		assigned := make([][]int, n)
		var try func(e int)
		try = func(e int) {
			if e == len(lengths) {
				best = min(best, cost(assigned))
				return
			}
			for p := range assigned {
				assigned[p] = append(assigned[p], e)
				try(e + 1)
				assigned[p] = assigned[p][:len(assigned[p])-1]
			}
		}
		try(0)
		if got := cost(groups); got != best {
			t.Fatalf("lengths %v in %d parts: cost %d, the least is %d: %v", lengths, n, got, best, groups)
		}
	}
}

// TestResume continues from every position.
func TestResume(t *testing.T) {
	for name, layout := range layouts() {
		t.Run(name, func(t *testing.T) {
			c := dataset.Config{Files: write(t, 20), BatchSize: 8, Layout: layout, Epochs: 2}
			d := open(t, c)
			var want []*dataset.Batch
			for {
				b, err := d.Next(context.Background())
				if err == io.EOF {
					break
				}
				want = append(want, b)
			}
			for i := range want[:len(want)-1] {
				again := open(t, c)
				if err := again.Restore(want[i].State); err != nil {
					t.Fatal(err)
				}
				b, err := again.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(b.Features, want[i+1].Features) || b.State != want[i+1].State {
					t.Fatalf("batch %d after a resume differs", i+1)
				}
			}
			other := layout
			other.Features = append(slices.Clone(layout.Features), dataset.Spec{Name: "more", Record: []string{"id"}, DType: dataset.Int64})
			if err := open(t, dataset.Config{Files: c.Files, BatchSize: 8, Layout: other, Epochs: 2}).Restore(want[0].State); err == nil || !strings.Contains(err.Error(), "the list of features was") {
				t.Errorf("a position of another layout is accepted: %v", err)
			}
		})
	}
}

// TestWrongRecords names the record, the feature and what is wrong.
func TestWrongRecords(t *testing.T) {
	without := func(name string, more ...tfrecord.Feature) []tfrecord.Feature {
		return append(slices.DeleteFunc(example(5), func(f tfrecord.Feature) bool { return f.Name == name }), more...)
	}
	for _, c := range []struct {
		layout   Config
		features []tfrecord.Feature
		feature  string
		reason   string
	}{
		{Config{Features: stacked}, without("image"), "image", `is missing; the record has "digit", "flag", "id", "ids", "points", "scores", "tags"`},
		{Config{Features: stacked}, without("digit", tfrecord.Int64Feature("digit", 10)), "digit", "has 10 at position 0; expected 0 to 9"},
		{Config{Features: stacked}, without("digit"), "digit", "is missing; "},
		{Config{Features: stacked}, without("flag", tfrecord.FloatFeature("flag", 1)), "flag", "has float values; expected int64 or bytes, because its dtype is bool"},
		{Config{Features: stacked}, without("image", tfrecord.BytesFeature("image", []byte("abc"))), "image", "has 3 bytes; expected 6"},
		{Config{Features: stacked}, append(example(5), tfrecord.FloatFeature("example_weights", -1)), "example_weights", "has weight -1; expected a finite number of 0 or more"},
		{Config{Features: padded}, without("tags", tfrecord.Int64Feature("tags", 1)), "tags", `has length 1; expected 16, as feature "ids" has`},
		{Config{Features: padded}, without("ids", tfrecord.Int64Feature("ids")), "ids", "has no values; expected at least one"},
		{Config{Features: padded, MaxLength: 6}, example(5), "ids", "has length 16, more than the limit of 6"},
	} {
		path := filepath.Join(t.TempDir(), "x.tfrecord")
		records.WriteFile(t, path, 3, func(i int) []byte {
			if i == 1 {
				return record(t, c.features, false)
			}
			good := example(0)
			for j, f := range good {
				switch f.Name {
				case "ids", "tags":
					good[j].Int64s = f.Int64s[:1]
				case "points":
					good[j].Floats = f.Floats[:2]
				}
			}
			return record(t, good, false)
		})
		config := dataset.Config{Files: []string{path}, BatchSize: 3, Shuffle: dataset.ShuffleNone, Layout: c.layout, OnCorrupt: tfrecord.Skip}
		d := open(t, config)
		if err := d.CheckFirst(); err != nil {
			t.Errorf("the first record is fine: %v", err)
		}
		_, err := d.Next(context.Background())
		var bad *dataset.RecordError
		if !errors.As(err, &bad) || bad.Feature != c.feature || bad.Record != 1 || bad.File != path || !strings.HasPrefix(bad.Reason, c.reason) {
			t.Errorf("feature %s: %v, want %s", c.feature, err, c.reason)
		}
	}
}

// TestCheckFirst finds the wrong first record of a later file.
func TestCheckFirst(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "a.tfrecord"), filepath.Join(dir, "b.tfrecord")
	records.WriteFile(t, good, 3, func(i int) []byte { return record(t, example(i), false) })
	records.WriteFile(t, bad, 3, func(i int) []byte { return record(t, example(i)[1:], false) })
	d := open(t, dataset.Config{Files: []string{good, bad}, BatchSize: 1, Layout: Config{Features: stacked}})
	var e *dataset.RecordError
	if err := d.CheckFirst(); !errors.As(err, &e) || e.File != bad || e.Record != 0 || e.Feature != "image" {
		t.Errorf("got %v", err)
	}
}

// TestDamage leaves damaged records out, and their batch one example short.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tfrecord")
	records.WriteFile(t, path, 9, func(i int) []byte {
		if i == 4 {
			return []byte("This is no Example")
		}
		return record(t, example(i), false)
	})
	for name, layout := range layouts() {
		batches := all(t, dataset.Config{Files: []string{path}, BatchSize: 3, Shuffle: dataset.ShuffleNone, Layout: layout, OnCorrupt: tfrecord.Skip})
		var ids [][]int
		for _, b := range batches {
			ids = append(ids, check(t, layout, b))
		}
		want := [][]int{{0, 1, 2}, {3, 5}, {6, 7, 8}}
		if len(layout.Buckets) > 0 { // in the order of their lengths
			want, ids = [][]int{slices.Concat(want...)}, [][]int{slices.Sorted(slices.Values(slices.Concat(ids...)))}
		}
		if !reflect.DeepEqual(ids, want) {
			t.Errorf("%s: batches %v, want %v", name, ids, want)
		}
	}
}

// TestWeights reads weights, and an example without labels where they are optional.
func TestWeights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tfrecord")
	records.WriteFile(t, path, 2, func(i int) []byte {
		if i == 0 {
			return record(t, append(example(0), tfrecord.FloatFeature("example_weights", 0.25)), false)
		}
		return record(t, slices.DeleteFunc(example(1), func(f tfrecord.Feature) bool { return f.Name == "digit" || f.Name == "tags" }), false)
	})
	for _, features := range [][]dataset.Spec{stacked, padded} {
		b := all(t, dataset.Config{Files: []string{path}, BatchSize: 2, Shuffle: dataset.ShuffleNone, Layout: Config{Features: features, Labels: dataset.LabelsOptional}})[0]
		if w := b.Feature("example_weights").Float32; !slices.Equal(w, []float32{0.25, 1}) || b.Labeled != 1 {
			t.Errorf("weights %v, %d labeled", w, b.Labeled)
		}
		if f := b.Feature("tags"); f != nil && !slices.Equal(f.Int32[b.RowLength:], slices.Repeat([]int32{-1}, b.RowLength)) {
			t.Errorf("tags %v; expected only padding for the second example", f.Int32)
		}
	}
}

// TestPart reads the parts of two workers, one of which gets nothing of the last batch.
func TestPart(t *testing.T) {
	paths := write(t, 9)
	for name, layout := range layouts() {
		if len(layout.Buckets) > 0 {
			continue // refused, see TestBuckets
		}
		var ids []int
		for p := range 2 {
			empty := 0
			for _, b := range all(t, dataset.Config{Files: paths, BatchSize: 8, Layout: layout, Part: dataset.Part{From: p, To: p + 1, Of: 2}}) {
				own := check(t, layout, b)
				if ids = append(ids, own...); len(own) == 0 {
					empty++
				}
			}
			if want := 1 - p; empty != want {
				t.Errorf("%s: part %d has %d empty batches, want %d", name, p, empty, want)
			}
		}
		if slices.Sort(ids); !slices.Equal(ids, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%s: examples %v", name, ids)
		}
	}
}

func TestValidate(t *testing.T) {
	with := func(f dataset.Spec) Config { return Config{Features: append(slices.Clone(padded), f)} }
	for _, c := range []struct {
		layout Config
		want   string
	}{
		{Config{}, "no features are given"},
		{with(dataset.Spec{DType: dataset.Int32}), "a feature has no name"},
		{with(dataset.Spec{Name: "ids", DType: dataset.Int32}), "feature ids is given twice"},
		{with(dataset.Spec{Name: "x", DType: "float64"}), `feature x has dtype "float64"; expected uint8, int32, int64, float32 or bool`},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Shape: []int{-1, -1}}), "feature x has shape [-1 -1]; expected at most one open axis"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Shape: []int{0}}), "feature x has shape [0]; expected axes of 1 or more, or -1 for an open one, and at most 268435456 values"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Shape: []int{1 << 20, 1 << 20}}), "feature x has shape [1048576 1048576]"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Role: "answer"}), `feature x has role "answer"; expected input, label, weight or id`},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Role: dataset.Weight}), "feature x has role weight and dtype int32; expected float32"},
		{with(dataset.Spec{Name: "x", DType: dataset.Float32, Below: number(3)}), "feature x has bounds and dtype float32"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Below: number(0)}), "feature x has bounds that leave 0 to -1"},
		{with(dataset.Spec{Name: "x", DType: dataset.Uint8, Pad: -1}), "feature x is padded with -1; expected a value of uint8"},
		{with(dataset.Spec{Name: "x", DType: dataset.Uint8, Make: "starts"}), `feature x is made as "starts"; expected "mask", "length", or nothing for the values of records`},
		{with(dataset.Spec{Name: "x", DType: dataset.Uint8, Make: MakeMask}), "feature x is made as mask and has shape []; expected [-1]"},
		{with(dataset.Spec{Name: "x", DType: dataset.Uint8, Make: MakeLength}), "feature x is made as length and has dtype uint8; expected int32, int64 or float32"},
		{with(dataset.Spec{Name: "x", DType: dataset.Uint8, Record: []string{}}), "feature x has an empty list of names in records"},
		{Config{Features: stacked[:3]}, "no feature has the role weight; expected one, so that an example can have weight 0"},
		{Config{Features: append(slices.Clone(stacked), padded[4])}, "feature mask is made as mask, but no feature with an open axis is read from records; expected one"},
		{Config{Features: padded, Labels: "some"}, `labels are "some"; expected "required", "optional" or "none"`},
		{Config{Features: padded, Truncate: true}, "the maximum length of an example is not set"},
		{Config{Features: padded, MaxLength: -1}, "maximum length of an example is -1; expected 0 (no limit) to 16777216"},
		{Config{Features: []dataset.Spec{{Name: "x", DType: dataset.Float32, Shape: []int{1 << 26, 4}}, stacked[5]}, Examples: 100}, "a batch of 100 examples of 1073741828 bytes each takes 1.07e+11 bytes; expected at most 6.87e+10"},
		{Config{Features: padded, Buckets: []int{3}}, "the maximum length of an example is not set; expected one, because there are buckets of lengths [3]"},
		{Config{Features: padded, MaxLength: 9, Buckets: []int{3, 3}}, "buckets of lengths are [3 3]; expected ascending numbers of 1 to 8"},
		{Config{Features: padded, MaxLength: 9, Buckets: []int{9}}, "buckets of lengths are [9]; expected ascending numbers of 1 to 8"},
		{Config{Features: stacked, MaxLength: 9, Buckets: []int{3}}, "there are buckets of lengths [3], but no feature with an open axis is read from records"},
		{Config{Features: padded, MaxLength: 1 << 17, Buckets: []int{3}}, "maximum length of an example is 131072; expected at most 65535 with buckets"},
		{Config{Features: padded, Examples: 3}, "fixed number of examples is 3; expected 0 (as many as a batch has), or at least the batch size of 4"},
	} {
		if err := c.layout.Validate(4); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for name, layout := range layouts() {
		if err := layout.Validate(8); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Config{Features: stacked[:3], Labels: dataset.LabelsNone}).Validate(4); err != nil {
		t.Errorf("a prediction needs no weights: %v", err)
	}
}

// TestTooLarge refuses an example that would make its batch take more memory than there is.
func TestTooLarge(t *testing.T) {
	layout := Config{Labels: dataset.LabelsNone, Features: []dataset.Spec{{Name: "x", DType: dataset.Float32, Shape: []int{-1, 1 << 12}}}}
	long := record(t, []tfrecord.Feature{tfrecord.BytesFeature("x", make([]byte, 4<<12<<9))}, false)
	short := record(t, []tfrecord.Feature{tfrecord.BytesFeature("x", make([]byte, 4<<12))}, false)
	a := layout.Assemblers()()
	for i := range int64(600) {
		of := short
		if i == 3 {
			of = long
		}
		bad := a.Add(dataset.RecordID{Record: i}, of)
		if i == 512 {
			if bad == nil || !strings.HasPrefix(bad.Reason, "has length 1, in a batch whose longest has 512: padded to that, 513 examples take 4.3e+09 bytes; expected at most 4.29e+09") {
				t.Errorf("got %v", bad)
			}
			return
		}
		if bad != nil {
			t.Fatal(bad)
		}
	}
}

// FuzzRecords holds that any bytes are refused, or make a batch whose features have the right size, and
// that what is refused leaves nothing behind.
func FuzzRecords(f *testing.F) {
	for n := range 4 {
		f.Add(record(f, example(n), n%2 == 0))
	}
	good := record(f, example(7), false)
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, layout := range layouts() {
			a := layout.Assemblers()()
			bad := a.Add(dataset.RecordID{}, data)
			if err := a.Add(dataset.RecordID{Record: 1}, good); err != nil {
				t.Fatalf("%s: a good record behind it: %v", name, err)
			}
			b := a.Batch()
			if want := 2; bad != nil && b.Examples != 1 || bad == nil && b.Examples != want {
				t.Fatalf("%s: %d examples, %v", name, b.Examples, bad)
			}
			for _, feature := range b.Features {
				if feature.Len() != feature.Size() || feature.Shape[0] != b.Rows {
					t.Fatalf("%s: feature %s has %d values of shape %v", name, feature.Name, feature.Len(), feature.Shape)
				}
			}
			if bad == nil {
				continue
			}
			a.Reset()
			if err := a.Add(dataset.RecordID{Record: 1}, good); err != nil {
				t.Fatal(err)
			}
			if again := a.Batch(); !reflect.DeepEqual(again.Features, b.Features) {
				t.Fatalf("%s: a refused record leaves something behind", name)
			}
		}
	})
}

func TestExampleBytes(t *testing.T) {
	if n := (Config{Features: padded, MaxLength: 10}).ExampleBytes(); n != 10*4+10*8+10*4+8+10*4+4+4 {
		t.Errorf("an example takes %d bytes", n)
	}
}

func Example() {
	below := int64(10)
	layout := Config{Features: []dataset.Spec{
		{Name: "image", DType: dataset.Uint8, Shape: []int{28, 28, 1}},
		{Name: "digit", DType: dataset.Int32, Role: dataset.Label, Below: &below},
		{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight},
	}}
	add := layout.Assemblers()()
	record, _ := tfrecord.AppendExample(nil, tfrecord.BytesFeature("image", make([]byte, 28*28)), tfrecord.Int64Feature("digit", 7))
	for i := range int64(3) {
		if err := add.Add(dataset.RecordID{Record: i}, record); err != nil {
			fmt.Println(err)
		}
	}
	for _, f := range add.Batch().Features {
		fmt.Println(f.Name, f.DType(), f.Shape)
	}
	// Output:
	// image uint8 [3 28 28 1]
	// digit int32 [3]
	// example_weights float32 [3]
}
