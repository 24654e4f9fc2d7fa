package checkpoint

import (
	"maps"
	"slices"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
)

// TestManagerAverages restores averages in place of the variables that have one.
func TestManagerAverages(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	var tensors []NamedTensor
	for name, value := range map[string]float32{"model/a": 1, "model/b": 2, "average/model/a": 3} {
		tensor, err := tf.NewTensor(value)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, NamedTensor{Name: name, Value: tensor})
	}
	if err := m.Save(background, 1, tensors, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(background); err != nil {
		t.Fatal(err)
	}
	want := []Entry{{Name: "model/b", DType: tf.Float}, {Name: "model/a", DType: tf.Float}}
	for averages, value := range map[string]float32{"": 1, "average/": 3} {
		r, err := openTest(t, ManagerConfig{Dir: dir, ReadOnly: true, Averages: averages}).Restore(background, want)
		if err != nil {
			t.Fatal(err)
		}
		if names := slices.Sorted(maps.Keys(r.Tensors)); !slices.Equal(names, []string{"model/a", "model/b"}) || r.Averaged != int(value-1)/2 {
			t.Errorf("%q: %d averages among %v", averages, r.Averaged, names)
		}
		if a, b := r.Tensors["model/a"].Value(), r.Tensors["model/b"].Value(); a != value || b != float32(2) {
			t.Errorf("%q: restored %v and %v; expected %v and 2", averages, a, b, value)
		}
	}
}
