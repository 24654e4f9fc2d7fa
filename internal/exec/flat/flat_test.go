package flat

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
)

func TestLay(t *testing.T) {
	want := []Feature{{"ids", "int32", 2}, {"labels", "int32", 1}, {"weights", "float32", 1}}
	ids := dataset.Feature{Name: "ids", Shape: []int{2, 3}, Int32: []int32{1, 2, 3, 4, 5, 6}}
	labels := dataset.Feature{Name: "labels", Shape: []int{2}, Int32: []int32{7, 8}}
	weights := dataset.Feature{Name: "weights", Shape: []int{2}, Float32: []float32{.5, 1}}
	got, err := Lay(want, []dataset.Feature{weights, {Name: "spare", Shape: []int{1}, Int32: []int32{9}}, labels, ids})
	if err != nil {
		t.Fatal(err)
	}
	wanted := Batch{[][][]byte{{ids.Raw(), labels.Raw()}, {weights.Raw()}}, []int64{8, 2}, []int64{6, 2, 2, 2, 3, 2, 2}}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("got %v, want %v", got, wanted)
	}
	for _, test := range []struct {
		name   string
		labels dataset.Feature
		want   string
	}{
		{"missing", dataset.Feature{Name: "label"}, "the batch has no feature labels; the graph needs it"},
		{"short", dataset.Feature{Name: "labels", Shape: []int{2}, Int32: []int32{7}}, "feature labels has 1 values; expected 2 for shape [2]"},
		{"axes", dataset.Feature{Name: "labels", Shape: []int{2, 1}, Int32: []int32{7, 8}}, "feature labels has shape [2 1]; expected 1 axes"},
		{"dtype", dataset.Feature{Name: "labels", Shape: []int{2}, Float32: []float32{7, 8}}, "feature labels has dtype float32; expected int32"},
		{"other dtype", dataset.Feature{Name: "labels", Shape: []int{2}, Int64: []int64{7, 8}}, "feature labels has dtype int64; expected int32"},
	} {
		if _, err := Lay(want, []dataset.Feature{ids, weights, test.labels}); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

// TestKinds lays features of every dtype.
func TestKinds(t *testing.T) {
	all := []dataset.Feature{
		{Name: "a", Shape: []int{2}, Bool: []bool{true, false}},
		{Name: "b", Shape: []int{1, 3}, Uint8: []uint8{1, 2, 255}},
		{Name: "c", Shape: []int{1}, Int64: []int64{-1}},
		{Name: "d", Shape: []int{1}, Float32: []float32{1}},
		{Name: "e", Shape: []int{0}, Int64: []int64{}},
	}
	var want []Feature
	for _, f := range all {
		want = append(want, Feature{f.Name, string(f.DType()), len(f.Shape)})
	}
	if err := Check(want); err == nil || err.Error() != `feature b has dtype "uint8"; expected features in the order of the dtypes [int32 float32 int64 uint8 bool]` {
		t.Errorf("got %v", err)
	}
	want = Sort(want, func(f Feature) string { return f.DType })
	if err := Check(want); err != nil {
		t.Fatal(err)
	}
	if got := Kinds(want); !slices.Equal(got, []Kind{{"int32", 0, 0}, {"float32", 0, 1}, {"int64", 1, 3}, {"uint8", 3, 4}, {"bool", 4, 5}}) {
		t.Errorf("kinds %v", got)
	}
	got, err := Lay(want, all)
	if err != nil {
		t.Fatal(err)
	}
	wanted := Batch{
		[][][]byte{nil, {{0, 0, 0x80, 0x3f}}, {{255, 255, 255, 255, 255, 255, 255, 255}, nil}, {{1, 2, 255}}, {{1, 0}}},
		[]int64{0, 1, 1, 3, 2}, []int64{1, 1, 0, 3, 2, 1, 1, 0, 1, 3, 2},
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("got %v, want %v", got, wanted)
	}
	if err := Check([]Feature{{"s", "string", 1}}); err == nil {
		t.Error("a feature of strings is fed")
	}
}
