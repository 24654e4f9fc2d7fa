package shardinput

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// layouts are layouts of every kind, for the records of writeKinds.
func layouts() map[string]dataset.Layout {
	below := int64(9)
	weights := dataset.Spec{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight}
	label := dataset.Spec{Name: "label_ids", DType: dataset.Int64, Role: dataset.Label, Below: &below}
	return map[string]dataset.Layout{
		"dense": dense.Config{Features: []dataset.Spec{{Name: "image", DType: dataset.Uint8, Shape: []int{2, 3}}, {Name: "flag", DType: dataset.Bool}, label, weights}},
		"padded": dense.Config{Features: []dataset.Spec{{Name: "input_ids", DType: dataset.Int32, Shape: []int{-1}},
			{Name: "mask", DType: dataset.Bool, Shape: []int{-1}, Make: dense.MakeMask}, label, weights}},
		"packed": packed.Config{RowLength: 16, Standard: []string{packed.InputIDs, packed.SequenceIDs, packed.ExampleWeights},
			Extras: []dataset.Spec{label, {Name: "tags", DType: dataset.Uint8, Shape: []int{-1}, Role: dataset.Label, Pad: 7},
				{Name: "predictions", DType: dataset.Int32, Make: packed.MakeMaskedPositions}},
			Masking: &packed.Masking{MaskToken: 1, VocabSize: 100, Special: []int{0, 1}, Seed: 5}},
	}
}

// writeKinds writes records that all layouts read.
func writeKinds(t testing.TB, path string, n int) {
	t.Helper()
	records.WriteFile(t, path, n, func(i int) []byte {
		ids := slices.Repeat([]int64{int64(2 + i%50)}, 1+i*7%13)
		b, err := tfrecord.AppendExample(nil, tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("tags", ids...), tfrecord.Int64Feature("label_ids", int64(i%9)),
			tfrecord.BytesFeature("image", slices.Repeat([]byte{byte(i)}, 6)), tfrecord.Int64Feature("flag", int64(i%2)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// TestLayouts holds what workers read and divide, for every kind of layout, against what the chief
// reads of the same part.
func TestLayouts(t *testing.T) {
	for name, layout := range layouts() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeKinds(t, filepath.Join(dir, "train.tfrecord"), 37)
			c := Config{
				Data:     Data{Dir: dir, Files: []dataset.FileInfo{{Path: "train.tfrecord"}}, Dataset: dataset.Config{BatchSize: 10, Seed: 3}, Layout: layout, Workers: []string{"a:1", "b:2"}},
				Worker:   1,
				Part:     dataset.Part{From: 1, To: 3, Of: 5},
				Replicas: 2,
			}
			d := whole(t, c, dataset.Part{})
			c.Data.Settings, c.Data.Files = d.State().Settings, d.FileInfos()
			c.Data.Files[0].Path = "train.tfrecord"
			first, err := d.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, dtype := range flat.DTypes {
				for _, f := range first.Features {
					if string(f.DType()) == dtype {
						c.Features = append(c.Features, flat.Feature{Name: f.Name, DType: dtype, Axes: len(f.Shape)})
					}
				}
			}
			h, config := closed(t), text(t, c)
			part := whole(t, c, c.Part)
			at := part.State()
			for ticket := range int64(9) {
				b, err := part.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				divided, err := layout.Divide(b, 6, 0)
				if err != nil {
					t.Fatal(err)
				}
				got := drawFor(t, h, config, ticket+1, at)
				if want := []int64{int64(b.Examples), int64(b.Labeled), 0, int64(b.Tokens)}; !slices.Equal(got.numbers[:4], want) {
					t.Fatalf("%v: stats are %v, expected to begin with %v", at, got.numbers, want)
				}
				for i, m := range got.made {
					want, err := c.lay(divided[i])
					if err != nil {
						t.Fatal(err)
					}
					if !reflect.DeepEqual(m, want) {
						t.Fatalf("%v: micro-batch %d is %v, expected %v", at, i, m, want)
					}
				}
				at = b.State
			}
		})
	}
}

// TestLayoutJSON sends layouts as they are, and refuses those that a worker cannot know.
func TestLayoutJSON(t *testing.T) {
	for name, layout := range layouts() {
		c := written(t)
		c.Data.Layout = layout
		read, err := parseConfig(text(t, c))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read.Data.Layout, layout) || read.Data.Dir != c.Data.Dir {
			t.Errorf("%s: %+v became %+v", name, layout, read.Data.Layout)
		}
	}
	c := written(t)
	c.Data.Layout = nil
	if _, err := c.JSON(); err == nil || !strings.Contains(err.Error(), "expected a packed.Config or a dense.Config") {
		t.Errorf("no error for no layout: %v", err)
	}
	for _, wrong := range []string{`{"data": {}}`, `{"data": {"packed": {}, "dense": {}}}`} {
		if _, err := parseConfig([]byte(wrong)); err == nil || !strings.Contains(err.Error(), "no layout, or two layouts") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
