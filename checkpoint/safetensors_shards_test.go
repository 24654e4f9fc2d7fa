package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// writeShards writes two files of safetensors and their index, after change has changed what that says.
func writeShards(t testing.TB, change func(of map[string]string)) string {
	t.Helper()
	dir := t.TempDir()
	of := map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}
	for name, tensors := range map[string][]string{"model-00001-of-00002.safetensors": {"a"}, "model-00002-of-00002.safetensors": {"b", "c"}} {
		var list []SafeTensor
		for _, tensor := range tensors {
			value, err := tf.NewTensor([]float32{float32(tensor[0]), 1})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, SafeTensor{Name: tensor, Value: value})
		}
		var content bytes.Buffer
		if err := WriteSafetensors(&content, list, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(of)
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 24}, "weight_map": of})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), content, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestShards(t *testing.T) {
	dir := writeShards(t, nil)
	source, closing, err := OpenSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	tensors, err := source.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tensor := range tensors {
		if got := tensor.Value().([]float32); !slices.Equal(got, []float32{float32(name[0]), 1}) {
			t.Errorf("%s is %v", name, got)
		}
	}
	if names := slices.Sorted(maps.Keys(tensors)); !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("%v", names)
	}
	for _, e := range source.Entries() {
		v, err := OpenValues(t.Context(), source, e)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]float64, 2)
		if _, err := v.Next(out); err != nil || out[0] != float64(e.Name[0]) {
			t.Errorf("%s is %v, %v", e.Name, out, err)
		}
	}
	if err := source.(*Safetensors).Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestShardsThatDiffer(t *testing.T) {
	for want, change := range map[string]func(of map[string]string){
		`tensor "a" is in model-00001-of-00002.safetensors; the index says "model-00002-of-00002.safetensors"`: func(of map[string]string) { of["a"], of["x"] = of["b"], of["a"] },
		`tensor "x" is not in model-00001-of-00002.safetensors`:                                                func(of map[string]string) { of["x"] = of["a"] },
		`names the file "../x.safetensors"`:                                                                    func(of map[string]string) { of["x"] = "../x.safetensors" },
		"expected an object with a weight_map":                                                                 func(of map[string]string) { clear(of) },
		"model-00003-of-00002.safetensors: no such file":                                                       func(of map[string]string) { of["x"] = "model-00003-of-00002.safetensors" },
	} {
		_, _, err := OpenSource(writeShards(t, change))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %q", err, want)
		} else if !strings.Contains(want, "no such file") && !errors.Is(err, fault.Damaged) {
			t.Errorf("%v is no damage", err)
		}
	}
}

// FuzzShards holds that an index which is accepted names every tensor of its files, where it is.
func FuzzShards(f *testing.F) {
	dir := writeShards(f, nil)
	path := filepath.Join(dir, "model"+shardsSuffix)
	content, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../model-00001-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		all, err := openShards(path)
		if err != nil {
			return
		}
		defer all.Close()
		var index struct {
			Of map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(data, &index); err != nil || len(all.Entries()) != len(index.Of) {
			t.Errorf("%d tensors of %q, %v", len(all.Entries()), data, err)
		}
		for _, e := range all.Entries() {
			want := "model-00001-of-00002.safetensors"
			if e.Name != "a" {
				want = "model-00002-of-00002.safetensors"
			}
			if index.Of[e.Name] != want {
				t.Errorf("tensor %q is accepted in %q; expected %s", e.Name, index.Of[e.Name], want)
			}
		}
	})
}
