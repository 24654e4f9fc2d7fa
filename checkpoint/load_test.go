package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
)

// safeTensors writes tensors of float32, or of the given types, counting up from one.
func safeTensors(t testing.TB, dtype string, shapes map[string][]int64) *Safetensors {
	t.Helper()
	header := map[string]any{}
	var names []string
	for name := range shapes {
		names = append(names, name)
	}
	slices.Sort(names)
	var data []byte
	for _, name := range names {
		n, _ := elements(shapes[name])
		at := len(data)
		for i := range n {
			switch dtype {
			case "F32":
				data = append(data, le(float32(i+1))...)
			case "F64":
				data = append(data, le(float64(i+1))...)
			case "I64":
				data = append(data, le(i+1)...)
			default:
				t.Fatal(dtype)
			}
		}
		header[name] = map[string]any{"dtype": dtype, "shape": shapes[name], "data_offsets": []int{at, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return openSafe(t, safeFile(string(text), data))
}

func want(name string, shape []int64, foreign ...Candidate) Wanted {
	return Wanted{Name: name, DType: tf.Float, Shape: shape, Foreign: foreign}
}

func TestLoad(t *testing.T) {
	wanted := []Wanted{
		want("model/kernel", []int64{2, 3}, Candidate{"layer.0.dense.weight", true, false}),
		want("model/bias", []int64{3}, Candidate{"layer.0.dense.bias", false, false}),
		want("model/norm/gamma", []int64{3}, Candidate{"layer.0.LayerNorm.weight", false, false}),
		want("model/norm/beta", []int64{3}, Candidate{"layer.0.LayerNorm.bias", false, false}),
		want("model/classifier", []int64{3, 2}, Candidate{"classifier.weight", true, false}),
	}
	encoder := func(prefix, scale, shift string) map[string][]int64 {
		return map[string][]int64{
			prefix + "layer.0.dense.weight": {3, 2}, prefix + "layer.0.dense.bias": {3},
			prefix + "layer.0.LayerNorm." + scale: {3}, prefix + "layer.0.LayerNorm." + shift: {3},
			prefix + "position_ids": {1, 4},
		}
	}
	with := func(m map[string][]int64, name string, shape ...int64) map[string][]int64 {
		m[name] = shape
		return m
	}
	for _, test := range []struct {
		name               string
		tensors            map[string][]int64
		wanted             []Wanted // nil: as above
		matched            int
		missing, wrong     []string
		unused             []string
		prefix, lack, says string
	}{
		{
			name: "plain names, no classifier", tensors: encoder("", "weight", "bias"),
			matched: 4, missing: []string{"model/classifier"}, unused: []string{"position_ids"},
			says: "missing     model/classifier float32[3,2]",
		}, {
			name: "prefix and old names", tensors: encoder("bert.", "gamma", "beta"),
			matched: 4, missing: []string{"model/classifier"}, unused: []string{"bert.position_ids"}, prefix: "bert.",
			says: "matched     model/norm/gamma <- bert.layer.0.LayerNorm.gamma float32[3]",
		}, {
			name: "prefix, but not of the classifier", tensors: with(encoder("bert.encoder.", "weight", "bias"), "classifier.weight", 2, 3),
			matched: 5, unused: []string{"bert.encoder.position_ids"}, prefix: "bert.encoder.",
			says: "matched     model/classifier <- classifier.weight float32[2,3] transposed",
		}, {
			name: "classifier of three labels", tensors: with(encoder("", "weight", "bias"), "classifier.weight", 3, 3),
			matched: 4, wrong: []string{"model/classifier"}, unused: []string{"position_ids"},
			says: "mismatched  model/classifier float32[3,2] <- classifier.weight float32[3,3] transposed",
		}, {
			name: "a vector where a matrix is to be transposed", tensors: with(encoder("", "weight", "bias"), "classifier.weight", 6),
			matched: 4, wrong: []string{"model/classifier"}, unused: []string{"position_ids"},
		}, {
			name: "names of the candidates have a prefix", tensors: encoder("", "weight", "bias"),
			wanted: []Wanted{
				want("model/bias", []int64{3}, Candidate{"bert.layer.0.dense.bias", false, false}),
				want("model/norm/gamma", []int64{3}, Candidate{"bert.layer.0.LayerNorm.weight", false, false}),
			},
			matched: 2, unused: []string{"layer.0.LayerNorm.bias", "layer.0.dense.weight", "position_ids"}, lack: "bert.",
		}, {
			name: "the first candidate that is there", tensors: map[string][]int64{"new": {2}, "old": {2}},
			wanted:  []Wanted{want("v", []int64{2}, Candidate{"newest", false, false}, Candidate{"new", false, false}, Candidate{"old", false, false})},
			matched: 1, unused: []string{"old"}, says: "v <- new",
		}, {
			name: "two variables share one tensor", tensors: map[string][]int64{"embedding": {2, 3}},
			wanted: []Wanted{
				want("in", []int64{2, 3}, Candidate{"embedding", false, false}),
				want("out", []int64{3, 2}, Candidate{"embedding", true, false}),
			},
			matched: 2,
		}, {
			name: "another type", tensors: map[string][]int64{"ids": {2}, "w": {2}},
			wanted:  []Wanted{{Name: "ids", DType: tf.Int64, Shape: []int64{2}}, want("w", []int64{2})},
			matched: 1, wrong: []string{"ids"}, says: "mismatched  ids int64[2] <- ids float32[2]",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			list := test.wanted
			if list == nil {
				list = wanted
			}
			got, report, err := Load(background, safeTensors(t, "F32", test.tensors), list)
			if err != nil {
				t.Fatal(err)
			}
			var missing, wrong []string
			for _, w := range report.Missing {
				missing = append(missing, w.Name)
			}
			for _, m := range report.Mismatched {
				wrong = append(wrong, m.Want.Name)
			}
			if len(report.Matched) != test.matched || len(got) != test.matched || !slices.Equal(missing, test.missing) ||
				!slices.Equal(wrong, test.wrong) || !slices.Equal(entryNames(report.Unused), test.unused) ||
				report.Prefix != test.prefix || report.Stripped != test.lack {
				t.Errorf("%s", report)
			}
			if !strings.Contains(report.String(), test.says) {
				t.Errorf("the report does not say %q:\n%s", test.says, report)
			}
			for _, w := range list {
				if x := got[w.Name]; x != nil && (!slices.Equal(x.Shape(), w.Shape) || x.DataType() != w.DType) {
					t.Errorf("%s is %s%v", w.Name, DTypeName(x.DataType()), x.Shape())
				}
			}
			err = report.Strict()
			if (err == nil) != (test.missing == nil && test.wrong == nil) {
				t.Errorf("strict: %v", err)
			}
			for _, name := range append(missing, wrong...) {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the strict error does not name %s: %v", name, err)
				}
			}
		})
	}
}

func TestLoadConverts(t *testing.T) {
	s := safeTensors(t, "F64", map[string][]int64{"w": {2, 3}})
	got, _, err := Load(background, s, []Wanted{
		{Name: "a", DType: tf.Float, Shape: []int64{3, 2}, Foreign: []Candidate{{"w", true, false}}},
		{Name: "b", DType: tf.Half, Shape: []int64{2, 3}, Foreign: []Candidate{{"w", false, false}}},
		{Name: "c", DType: tf.Double, Shape: []int64{2, 3}, Foreign: []Candidate{{"w", false, false}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(got["a"].Value().([][]float32), [][]float32{{1, 4}, {2, 5}, {3, 6}}, slices.Equal) {
		t.Errorf("a is %v", got["a"].Value())
	}
	if !slices.Equal(rawBytes(t, got["b"]), le([]uint16{0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600})) {
		t.Errorf("b is %x", rawBytes(t, got["b"]))
	}
	if !slices.EqualFunc(got["c"].Value().([][]float64), [][]float64{{1, 2, 3}, {4, 5, 6}}, slices.Equal) {
		t.Errorf("c is %v", got["c"].Value())
	}
}

func TestLoadNothing(t *testing.T) {
	_, report, err := Load(background, safeTensors(t, "F32", map[string][]int64{"vision.patch": {2}}), []Wanted{want("a", []int64{2}), want("b", []int64{2})})
	var failed *LoadError
	if !errors.As(err, &failed) || failed.Report != report || !strings.Contains(err.Error(), "none of the 2 variables") || !strings.Contains(err.Error(), "vision.patch") {
		t.Errorf("error %v", err)
	}
}

// Checkpoints as sources: by path, by path under another root, and by plain names.
func TestLoadBundles(t *testing.T) {
	const slash = "/.ATTRIBUTES/VARIABLE_VALUE"
	for _, test := range []struct {
		path   string
		want   Wanted
		prefix string
		unused string
	}{
		{"testdata/root/ckpt-1", want("dense/kernel", []int64{1, 2}), "", "save_counter" + slash},
		{"testdata/root/ckpt-1", want("net/dense/kernel", []int64{1, 2}), "", "save_counter" + slash},
		// Listed by its shortest path, tied/kernel.
		{"testdata/graph/ckpt-2.index", want("layers/0/kernel", []int64{2, 3}), "model/", "text" + slash},
		{"testdata/graph", want("odd/a.b", nil), "model/", "text" + slash},
		{"testdata/plain/model.ckpt.data-00000-of-00001", want("x", nil, Candidate{"scalar", false, false}), "", "empty"},
		{"testdata/plain/model.ckpt", want("x", nil, Candidate{"bert/scalar", false, false}), "", "empty"},
	} {
		src, closeSource, err := OpenSource(test.path)
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		w := test.want
		if w.Name == "odd/a.b" {
			w.DType = tf.Int32
		}
		got, report, err := Load(background, src, []Wanted{w})
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		if got[w.Name] == nil || report.Prefix != test.prefix || !slices.Contains(entryNames(report.Unused), test.unused) || slices.Contains(entryNames(report.Unused), ObjectGraphKey) {
			t.Errorf("%s: %s", test.path, report)
		}
		if err := closeSource(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenSource(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "torch.bin"), []byte("PK\x03\x04 and so on"))
	writeFile(t, filepath.Join(dir, "old.bin"), []byte("\x80\x02\x8a\nl\xfc\x9cF"))
	writeFile(t, filepath.Join(dir, "keras.h5"), []byte("\x89HDF\r\n\x1a\n"))
	writeFile(t, filepath.Join(dir, "model.keras"), []byte("PK\x03\x04 and so on"))
	writeFile(t, filepath.Join(dir, "notes.txt"), []byte("something else"))
	for path, says := range map[string]string{
		"none": "no such file", "none.index": "no such file", "empty": "has no checkpoint", "torch.bin": "PyTorch", "old.bin": "PyTorch",
		"keras.h5": "HDF5 file; expected a checkpoint, safetensors or GGUF; if it is of a Keras model, export that with --weights", "model.keras": "archive of Keras", "notes.txt": "not a safetensors file",
	} {
		_, _, err := OpenSource(filepath.Join(dir, path))
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want %q", path, err, says)
		}
		if strings.HasPrefix(path, "none") && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: error %v", path, err)
		}
	}
	saved := filepath.Join(dir, "saved")
	if err := os.MkdirAll(filepath.Join(saved, "variables"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteBundle(background, filepath.Join(saved, "variables", "variables"), []NamedTensor{{"a", tensor(t, float32(1))}}); err != nil {
		t.Fatal(err)
	}
	face := filepath.Join(dir, "face")
	if err := os.Mkdir(face, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(face, "model.safetensors"), safeFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, []byte{1}))
	for _, path := range []string{saved, filepath.Join(saved, "variables"), face} {
		src, closeSource, err := OpenSource(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if names := entryNames(src.Entries()); !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s holds %q", path, names)
		}
		if err := closeSource(); err != nil {
			t.Error(err)
		}
	}
}
