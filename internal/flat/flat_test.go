package flat

import (
	"reflect"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
)

func TestLay(t *testing.T) {
	want := []Feature{{"ids", 2}, {"labels", 1}, {"weights", 1}}
	ids := dataset.Feature{Name: "ids", Shape: []int{2, 3}, Int32: []int32{1, 2, 3, 4, 5, 6}}
	labels := dataset.Feature{Name: "labels", Shape: []int{2}, Int32: []int32{7, 8}}
	weights := dataset.Feature{Name: "weights", Shape: []int{2}, Float32: []float32{.5, 1}}
	got, err := Lay(want, 2, []dataset.Feature{weights, {Name: "spare", Shape: []int{1}, Int32: []int32{9}}, labels, ids})
	if err != nil {
		t.Fatal(err)
	}
	if wanted := (Batch{[][]int32{ids.Int32, labels.Int32}, [][]float32{weights.Float32}, []int64{6, 2, 2, 2, 3, 2, 2}}); !reflect.DeepEqual(got, wanted) {
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
	} {
		if _, err := Lay(want, 2, []dataset.Feature{ids, weights, test.labels}); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}
