package inspect

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

const (
	checkpoints = "../../../checkpoint/testdata"
	records     = "../../../tfrecord/testdata"
)

// safetensors writes float32 tensors to a file.
func safetensors(t *testing.T, path string, tensors map[string][]float32, shapes map[string][]int64) string {
	t.Helper()
	header := map[string]any{}
	var data []byte
	for _, name := range sorted(tensors) {
		from := len(data)
		for _, x := range tensors[name] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		shape := shapes[name]
		if shape == nil {
			shape = []int64{int64(len(tensors[name]))}
		}
		header[name] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{from, len(data)}}
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	if err := os.WriteFile(path, append(content, data...), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(content), 0o666)); err != nil {
		t.Fatal(err)
	}
	return path
}

// zipped writes an archive with empty files of the given names.
func zipped(t *testing.T, path string, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range names {
		if _, err := z.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, path, b.String())
}

func TestRecognise(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	weights := safetensors(t, in("a.safetensors"), map[string][]float32{"x": {1}}, nil)
	if err := os.Mkdir(in("empty"), 0o777); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(checkpoints, "plain", "ckpt.index"))
	if errors.Is(err, os.ErrNotExist) {
		found, globErr := filepath.Glob(filepath.Join(checkpoints, "plain", "*.index"))
		if globErr != nil || len(found) == 0 {
			t.Fatal("there is no golden checkpoint")
		}
		index, err = os.ReadFile(found[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("two/ckpt-1.index"), string(index))
	write(t, in("two/ckpt-2.index"), string(index))
	write(t, in("two/checkpoint"), "model_checkpoint_path: \"ckpt-2\"\n")
	write(t, in("run/params.yaml"), "graph: g\n")
	write(t, in("run/checkpoints/x"), "")
	write(t, in("served/saved_model.pb"), "x")
	write(t, in("served/assets/gorbit-serving.json"), "{}")
	write(t, in("export/saved_model.pb"), "x")
	write(t, in("export/assets/gorbit.json"), "{}")
	write(t, in("mixed/saved_model.pb"), "x")
	write(t, in("mixed/manifest.json"), "{}")
	small := filepath.Join("..", "..", "..", "checkpoint", "testdata", "gguf", "llama.gguf")
	for _, tt := range []struct {
		path string
		want Found
	}{
		{weights, Found{Kind: Safetensors, Path: weights}},
		{small, Found{Kind: GGUF, Path: small}},
		{in("two"), Found{Kind: Checkpoint, Path: in("two/ckpt-2"), Note: "2 checkpoints are there, and this is the newest; the others are ckpt-1"}},
		{in("two/ckpt-1"), Found{Kind: Checkpoint, Path: in("two/ckpt-1")}},
		{in("two/ckpt-1.index"), Found{Kind: Checkpoint, Path: in("two/ckpt-1")}},
		{in("run"), Found{Kind: Run, Path: in("run")}},
		{in("served"), Found{Kind: Served, Path: in("served")}},
		{in("export"), Found{Kind: Export, Path: in("export")}},
		{in("mixed"), Found{Kind: SavedModel, Path: in("mixed"), Note: "taken as a SavedModel; it also holds dataset " + in("mixed") + ", which can be named itself"}},
		{filepath.Join(records, "records.tfrecord.gz"), Found{Kind: Records, Path: filepath.Join(records, "records.tfrecord.gz")}},
	} {
		if got, err := Recognise(tt.path); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; expected %+v", tt.path, got, err, tt.want)
		}
	}
	for path, want := range map[string]string{
		in("gone"):  "no such file or folder",
		in("empty"): "is an empty folder; expected an export",
		write(t, in("a.csv"), "text,label\na,b\n"): "is a text file; expected",
		write(t, in("nothing"), ""):                "is an empty file",
		write(t, in("lfs.safetensors"), "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"): "is a Git LFS pointer, not the file itself; fetch the file with git lfs pull",
		zipped(t, in("pytorch_model.bin"), "archive/data.pkl"):                                                "is a PyTorch file; save the weights as safetensors",
		write(t, in("old.pt"), "\x80\x02}q\x00."):                                                             "is a pickle of Python, such as PyTorch writes; it runs code when it is loaded",
		zipped(t, in("m.keras"), "metadata.json", "model.weights.h5"):                                         "is a .keras file; export the model with python -m gorbit_export keras",
		write(t, in("m.h5"), "\x89HDF\r\n\x1a\n123"):                                                          "is an HDF5 file, such as Keras writes; export the model",
		write(t, in("t.parquet"), "PAR1\x00\x01"):                                                             "is a Parquet file",
		write(t, in("b.bin"), "\x01\x02\x00\xff\xfe"):                                                         "cannot be inspected: its kind is not known",
		in("served/saved_model.pb"):                                                                           "is a file of a SavedModel; name its folder",
		filepath.Dir(write(t, in("pt/pytorch_model.bin"), "x")):                                               "is a model of PyTorch (pytorch_model.bin)",
		filepath.Dir(write(t, in("pb/saved_model.pbtxt"), "x")):                                               "is a SavedModel in saved_model.pbtxt",
	} {
		_, err := Recognise(path)
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: %v; expected %q", path, err, want)
		}
	}
	if _, err := Recognise(write(t, in("bad.safetensors"), "\xff\xff\xff\xff\xff\xff\xff\x7f{")); !errors.Is(err, fault.Damaged) {
		t.Errorf("damaged safetensors: %v", err)
	}
}

// TestDescribeWeights lists checkpoints that TensorFlow wrote, and finds a damaged one.
func TestDescribeWeights(t *testing.T) {
	prefix := strings.TrimSuffix(first1(t, filepath.Join(checkpoints, "graph", "*.index")), ".index")
	w, err := DescribeWeights(t.Context(), Found{Kind: Checkpoint, Path: prefix}, false)
	if err != nil {
		t.Fatal(err)
	}
	if w.Checksums != verified || len(w.Tensors) < 3 || w.Numbers == 0 || w.Bytes == 0 {
		t.Errorf("%+v", w)
	}
	for _, tensor := range w.Tensors {
		if strings.Contains(tensor.Name, ".ATTRIBUTES") {
			t.Errorf("%s is not named by its path", tensor.Name)
		}
	}
	var text bytes.Buffer
	if err := w.Write(&text); err != nil || !strings.Contains(text.String(), "checksums   verified\n") {
		t.Errorf("%v:\n%s", err, &text)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(prefix))); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, filepath.Base(prefix))
	data := first1(t, copied+".data-*")
	content, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	write(t, data, string(content))
	if _, err := DescribeWeights(t.Context(), Found{Kind: Checkpoint, Path: copied}, false); !errors.Is(err, fault.Damaged) {
		t.Errorf("a damaged checkpoint: %v", err)
	}
}

func first1(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing matches %s: %v", pattern, err)
	}
	return found[0]
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	nan := float32(math.NaN())
	a := safetensors(t, filepath.Join(dir, "a.safetensors"), map[string][]float32{
		"bert.same": {1, 2, 3}, "bert.moved": {0, 0, 0, 8}, "bert.nan": {nan, 1, nan}, "bert.shape": {1, 2}, "bert.more": {5}}, nil)
	b := safetensors(t, filepath.Join(dir, "b.safetensors"), map[string][]float32{
		"same": {1, 2, 3}, "moved": {0, 1, 0, 4}, "nan": {nan, nan, 2}, "shape": {1, 2, 3}, "other": {5}}, nil)
	d, err := Diff(t.Context(), Side{Path: a}, Side{Path: b})
	if err != nil {
		t.Fatal(err)
	}
	want := []TensorDifference{
		{A: "bert.moved", B: "moved", Shape: []int64{4}, Max: 4, Mean: 1.25, Different: 2, Elements: 4},
		{A: "bert.nan", B: "nan", Shape: []int64{3}, Different: 2, Elements: 3, NotFinite: 3},
		{A: "bert.same", B: "same", Shape: []int64{3}, Elements: 3},
	}
	if !reflect.DeepEqual(d.Compared, want) || d.Equal != 1 {
		t.Errorf("compared %+v, equal %d", d.Compared, d.Equal)
	}
	if !reflect.DeepEqual(d.OnlyA, []string{"bert.more"}) || !reflect.DeepEqual(d.OnlyB, []string{"other"}) || len(d.Shapes) != 1 {
		t.Errorf("only in A %q, only in B %q, other shapes %q", d.OnlyA, d.OnlyB, d.Shapes)
	}
	var text bytes.Buffer
	if err := d.Write(&text); err != nil || !strings.Contains(text.String(), "3 tensors, of which 1 are equal and 2 differ") || !strings.Contains(text.String(), "only in A: 1\n  bert.more\n") {
		t.Errorf("%v:\n%s", err, &text)
	}

	none := safetensors(t, filepath.Join(dir, "none.safetensors"), map[string][]float32{"x": {1}}, nil)
	if _, err := Diff(t.Context(), Side{Path: a}, Side{Path: none}); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "have no tensor in common") {
		t.Errorf("nothing in common: %v", err)
	}
}

// TestDiffMapsNames compares weights whose names and orders of axes are those of another library, with
// the model on either side.
func TestDiffMapsNames(t *testing.T) {
	dir := t.TempDir()
	own := safetensors(t, filepath.Join(dir, "own.safetensors"), map[string][]float32{"model/kernel": {1, 2, 3, 4, 5, 6}},
		map[string][]int64{"model/kernel": {2, 3}})
	theirs := safetensors(t, filepath.Join(dir, "theirs.safetensors"), map[string][]float32{"dense.weight": {1, 4, 2, 5, 3, 7}},
		map[string][]int64{"dense.weight": {3, 2}})
	wanted := []checkpoint.Wanted{{Name: "model/kernel", Shape: []int64{2, 3}, Foreign: []checkpoint.Candidate{{Name: "dense.weight", Transpose: true}}}}
	d, err := Diff(t.Context(), Side{Path: own, Wanted: wanted}, Side{Path: theirs})
	if err != nil {
		t.Fatal(err)
	}
	want := TensorDifference{A: "model/kernel", B: "dense.weight", Shape: []int64{2, 3}, Transposed: true, Max: 1, Mean: 1.0 / 6, Different: 1, Elements: 6}
	if !reflect.DeepEqual(d.Compared, []TensorDifference{want}) {
		t.Errorf("compared %+v", d.Compared)
	}
	if d, err = Diff(t.Context(), Side{Path: theirs}, Side{Path: own, Wanted: wanted}); err != nil {
		t.Fatal(err)
	}
	want.A, want.B = want.B, want.A
	if !reflect.DeepEqual(d.Compared, []TensorDifference{want}) {
		t.Errorf("the other way round: compared %+v", d.Compared)
	}
}

func TestDescribeRecords(t *testing.T) {
	dir := t.TempDir()
	w, err := tfrecord.Create(filepath.Join(dir, "train.tfrecord.gz"), tfrecord.Compress(tfrecord.Gzip))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		features := []tfrecord.Feature{
			tfrecord.Int64Feature("ids", make([]int64, i+1)...), tfrecord.BytesFeature("text", []byte(fmt.Sprintf("line %d", i))),
			tfrecord.BytesFeature("image", []byte("\x89PNG\r\n\x1a\n123")),
		}
		if i%2 == 0 {
			features = append(features, tfrecord.FloatFeature("weight", 0.5))
		}
		record, err := tfrecord.AppendExample(nil, features...)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "train.tfrecord.gz")} {
		found, err := Recognise(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := DescribeRecords(t.Context(), found, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Sets) != 1 || r.Sets[0].Records != 5 || r.Sets[0].Compression != "gzip" || len(r.Sets[0].Examples) != 2 {
			t.Fatalf("%s: %+v", path, r)
		}
		want := []FeatureStats{{"ids", "int64", 5, 1, 3, 5}, {"image", "bytes", 5, 1, 1, 1}, {"text", "bytes", 5, 1, 1, 1}, {"weight", "float", 3, 1, 1, 1}}
		if !reflect.DeepEqual(r.Sets[0].Features, want) {
			t.Errorf("%s: features %+v; expected %+v", path, r.Sets[0].Features, want)
		}
		second := []ShownFeature{{"ids", 2, "0 0", ""}, {"image", 1, "<PNG image of 11 bytes>", ""}, {"text", 1, `"line 1"`, ""}}
		if !reflect.DeepEqual(r.Sets[0].Examples[1].Features, second) {
			t.Errorf("%s: shown %+v", path, r.Sets[0].Examples[1])
		}
		if err := r.Write(io.Discard); err != nil {
			t.Error(err)
		}
	}

	// Lists of SequenceExamples, damaged records, and records that are no Examples.
	r, err := DescribeRecords(t.Context(), Found{Kind: Records, Path: filepath.Join(records, "sequences.tfrecord")}, 1)
	if err != nil || !strings.Contains(fmt.Sprint(r.Sets[0].Features), "list of ") {
		t.Errorf("sequences: %+v, %v", r, err)
	}
	content, err := os.ReadFile(filepath.Join(records, "examples.tfrecord"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := write(t, filepath.Join(dir, "bad.tfrecord"), string(content[:len(content)-3]))
	if _, err := DescribeRecords(t.Context(), Found{Kind: Records, Path: damaged}, 1); !errors.Is(err, fault.Damaged) {
		t.Errorf("a cut file: %v", err)
	}
	events := write(t, filepath.Join(dir, "events"), string(tfrecord.AppendRecord(nil, []byte("\xff\xff\xff"))))
	if r, err := DescribeRecords(t.Context(), Found{Kind: Records, Path: events}, 1); err != nil || r.Sets[0].NotExamples != 1 {
		t.Errorf("no Examples: %+v, %v", r, err)
	}
	event := write(t, filepath.Join(dir, "event"), string(tfrecord.AppendRecord(nil, []byte("\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x01v"))))
	if r, err := DescribeRecords(t.Context(), Found{Kind: Records, Path: event}, 1); err != nil || r.Sets[0].NotExamples != 1 || len(r.Sets[0].Examples) != 0 {
		t.Errorf("an event of TensorBoard: %+v, %v", r, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := DescribeRecords(ctx, Found{Kind: Records, Path: filepath.Join(records, "examples.tfrecord")}, 1); err == nil {
		t.Error("a stopped reader has no error")
	}
}

// TestLargeExample inspects an Example of one feature with more numbers than are decoded, which is not taken
// for an event of TensorBoard.
func TestLargeExample(t *testing.T) {
	list := protowire.AppendBytes([]byte{1<<3 | 2}, make([]byte, 48<<20))
	entry := protowire.AppendBytes([]byte{1<<3 | 2, 1, 'a', 2<<3 | 2}, protowire.AppendBytes([]byte{3<<3 | 2}, list))
	example := protowire.AppendBytes([]byte{1<<3 | 2}, protowire.AppendBytes([]byte{1<<3 | 2}, entry))
	large := write(t, filepath.Join(t.TempDir(), "large"), string(tfrecord.AppendRecord(nil, example)))
	if r, err := DescribeRecords(t.Context(), Found{Kind: Records, Path: large}, 1); !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), "memory when decoded") || r.Sets[0].NotExamples != 0 {
		t.Errorf("an Example with too many numbers: %+v, %v", r, err)
	}
}

// TestDamagedShards inspects a folder without a manifest, of whose shards one is missing, one is damaged in
// its first record, and one later. The rest is shown.
func TestDamagedShards(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(records, "examples.tfrecord"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := DescribeRecords(t.Context(), Found{Kind: Records, Path: filepath.Join(records, "examples.tfrecord")}, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	flipped := bytes.Clone(content)
	flipped[3] ^= 1
	write(t, filepath.Join(dir, "train-00000-of-00004.tfrecord"), string(flipped))
	write(t, filepath.Join(dir, "train-00001-of-00004.tfrecord"), string(content))
	write(t, filepath.Join(dir, "train-00002-of-00004.tfrecord"), string(content[:len(content)-3]))
	found, err := Recognise(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := DescribeRecords(t.Context(), found, 1)
	if !errors.Is(err, fault.Damaged) || r == nil {
		t.Fatalf("%+v, %v; expected a report and an error of damage", r, err)
	}
	for _, want := range []string{"train-00000-of-00004.tfrecord", "train-00002-of-00004.tfrecord", "train-00003-of-00004.tfrecord"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if n := whole.Sets[0].Records; len(r.Sets) != 1 || r.Sets[0].Records != 2*n-1 || len(r.Sets[0].Damaged) != 2 || len(r.Sets[0].Examples) != 1 {
		t.Errorf("of shards with %d records: %+v", n, r.Sets)
	}
}

func TestDescribeGGUF(t *testing.T) {
	path := filepath.Join("..", "..", "..", "checkpoint", "testdata", "gguf", "llama.gguf")
	w, err := DescribeWeights(t.Context(), Found{Kind: GGUF, Path: path}, false)
	if err != nil {
		t.Fatal(err)
	}
	if w.Metadata["llama.rope.freq_base"] != "50000" || len(w.Tensors) != 26 || w.Checksums != noneKnown {
		t.Errorf("%d tensors, metadata %v, checksums %s", len(w.Tensors), w.Metadata, w.Checksums)
	}
	if got, want := w.Tensors[0], (Tensor{Name: "blk.0.attn_k.bias", DType: "F32", Shape: []int64{16}, Bytes: 64}); !reflect.DeepEqual(got, want) {
		t.Errorf("the first is %+v; expected %+v", got, want)
	}
	if got, want := w.Tensors[1], (Tensor{Name: "blk.0.attn_k.weight", DType: "Q4_1", Shape: []int64{16, 32}, Bytes: 320}); !reflect.DeepEqual(got, want) {
		t.Errorf("the second is %+v; expected %+v", got, want)
	}
}
