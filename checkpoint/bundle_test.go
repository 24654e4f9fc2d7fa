package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

var background = context.Background()

// Everything that Python wrote reads back as Python reads it, by key and by path.
func TestGoldens(t *testing.T) {
	for name, want := range loadGoldens(t) {
		b, err := OpenBundle(filepath.Join("testdata", name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := b.Verify(background); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var keys, wanted []string
		for _, e := range b.Entries() {
			if e.Name == ObjectGraphKey {
				continue
			}
			keys = append(keys, e.Name)
			g := want.Entries[e.Name]
			if DTypeName(e.DType) != g.DType || !slices.Equal(e.Shape, g.Shape) {
				t.Errorf("%s: entry %s, want %s%v", name, e, g.DType, g.Shape)
			}
		}
		for key := range want.Entries {
			wanted = append(wanted, key)
		}
		slices.Sort(wanted)
		if !slices.Equal(keys, wanted) {
			t.Errorf("%s: entries %q, want %q", name, keys, wanted)
			continue
		}
		for path := range want.Paths {
			keys = append(keys, path)
		}
		got, err := b.Read(background, keys...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for key, g := range want.Entries {
			checkTensor(t, name+": "+key, got[key], g)
			if g.DType == "string" {
				s, err := b.Strings(key)
				if err != nil || !slices.Equal(s, decodeStrings(t, g.Strings)) {
					t.Errorf("%s: strings of %s: %q, error %v", name, key, s, err)
				}
			}
		}
		for path, g := range want.Paths {
			checkTensor(t, name+": "+path, got[path], g)
		}
	}
}

func TestVariants(t *testing.T) {
	b, err := OpenBundle("testdata/variants/model")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(background); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(background, "list"); err == nil || !strings.Contains(err.Error(), `list variant`) {
		t.Errorf("a variant was read: %v", err)
	}
	if got, err := b.Read(background, "x"); err != nil || got["x"].Value() != float32(1) {
		t.Errorf("x is %v, error %v", got, err)
	}
}

func TestReadMissing(t *testing.T) {
	b, err := OpenBundle("testdata/graph/ckpt-2")
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Read(background, "text", "model/nothing", "optimizer/m/nothing", "model/layers/0")
	var mismatch *MismatchError
	if !errors.As(err, &mismatch) || !slices.Equal(mismatch.Missing, []string{"model/nothing", "optimizer/m/nothing", "model/layers/0"}) {
		t.Errorf("error %v", err)
	}
}

// TestGoogleIndex opens indexes as Google's releases have them, whose data files are not there:
// a small one by TensorFlow 1's saver, and a real one where it lies next to the checkout.
func TestGoogleIndex(t *testing.T) {
	t.Run("small", func(t *testing.T) { holdGoogleIndex(t, "testdata/google/bert_model.ckpt.index", 1, 8, 40) })
	t.Run("real", func(t *testing.T) {
		holdGoogleIndex(t, testkit.SharedData(t, "the case small", "bert_index", "llSiddharthll_bert_model.ckpt.index"), 7, 512, 30522)
	})
}

func holdGoogleIndex(t *testing.T, path string, layer, hidden, vocab int64) {
	b, err := OpenBundle(strings.TrimSuffix(path, ".index"))
	if err != nil {
		t.Fatal(err)
	}
	e, ok := b.Entry(fmt.Sprintf("bert/encoder/layer_%d/attention/self/query/kernel", layer))
	if !ok || e.DType != tf.Float || !slices.Equal(e.Shape, []int64{hidden, hidden}) {
		t.Errorf("query kernel: %v, %v", e, ok)
	}
	if e, ok := b.Entry("bert/embeddings/word_embeddings"); !ok || !slices.Equal(e.Shape, []int64{vocab, hidden}) {
		t.Errorf("word embeddings: %v, %v", e, ok)
	}
	if g, err := b.ObjectGraph(); g != nil || err != nil {
		t.Errorf("object graph %v, error %v", g, err)
	}
	for _, err := range []error{b.Verify(background), b.CheckSizes()} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), ".data-00000-of-00001") {
			t.Errorf("without the data file: %v", err)
		}
	}
	if _, err := b.Read(background, e.Name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read without the data file: %v", err)
	}
}

func TestWriteBundleRefuses(t *testing.T) {
	dir := t.TempDir()
	one := tensor(t, float32(1))
	cancelled, cancel := context.WithCancel(background)
	cancel()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		prefix  string
		tensors []NamedTensor
		want    string
	}{
		{"nothing", background, "p", nil, "no tensors"},
		{"no name", background, "p", []NamedTensor{{"", one}}, "bad tensor name"},
		{"name of a slice", background, "p", []NamedTensor{{"\x00a", one}}, "bad tensor name"},
		{"no value", background, "p", []NamedTensor{{"a", nil}}, `"a" has no value`},
		{"twice", background, "p", []NamedTensor{{"b", one}, {"a", one}, {"b", one}}, `two tensors are named "b"`},
		{"no folder", background, "none/p", []NamedTensor{{"a", one}}, "no such file"},
		{"cancelled", cancelled, "p", []NamedTensor{{"a", one}}, "canceled"},
	} {
		err := WriteBundle(test.ctx, filepath.Join(dir, test.prefix), test.tensors)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The bytes of a checkpoint depend on its tensors, not on their order in the call.
func TestWriteBundleOrder(t *testing.T) {
	dir := t.TempDir()
	list := mustModel(t, 3)
	back := slices.Clone(list)
	slices.Reverse(back)
	for name, l := range map[string][]NamedTensor{"a": list, "b": back} {
		if err := WriteBundle(background, filepath.Join(dir, name), l); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []string{".index", ".data-00000-of-00001"} {
		if !bytes.Equal(readFile(t, filepath.Join(dir, "a"+end)), readFile(t, filepath.Join(dir, "b"+end))) {
			t.Errorf("%s differs", end)
		}
	}
}

// RestoreV2 takes the name of the index for a pattern.
func TestPatternInPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `lr[1e-5]*?\x`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(dir, "c[0]")
	if err := WriteBundle(background, prefix, []NamedTensor{{"a", tensor(t, float32(2))}}); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(prefix)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Read(background)
	if err != nil || got["a"].Value() != float32(2) {
		t.Errorf("%v, error %v", got, err)
	}
}

// Every flipped byte is noticed, before TensorFlow sees it, or changes nothing:
// the metaindex block and the padding of the footer say nothing.
func TestEveryByteFlipped(t *testing.T) {
	prefix := writeSmall(t)
	good, err := OpenBundle(prefix)
	if err != nil {
		t.Fatal(err)
	}
	index, data := readFile(t, IndexPath(prefix)), readFile(t, DataPath(prefix, 0, 1))
	check := func() error {
		b, err := OpenBundle(prefix)
		if err == nil {
			err = b.Verify(background)
		}
		if err == nil && !slices.EqualFunc(b.Entries(), good.Entries(), func(a, b Entry) bool { return a.String() == b.String() }) {
			t.Error("another index was accepted")
		}
		return err
	}
	harmless := 0
	for i := range index {
		bad := bytes.Clone(index)
		bad[i] ^= 0x15
		writeFile(t, IndexPath(prefix), bad)
		var corrupt *CorruptError
		switch err := check(); {
		case err == nil:
			harmless++
		case !errors.As(err, &corrupt) || corrupt.Path != IndexPath(prefix):
			t.Errorf("byte %d of the index: %v", i, err)
		}
	}
	// 13 bytes of metaindex block and at most 36 of footer in addition to the handles.
	if harmless > 13+40 {
		t.Errorf("%d bytes of the index may be anything", harmless)
	}
	writeFile(t, IndexPath(prefix), index)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x15
		writeFile(t, DataPath(prefix, 0, 1), bad)
		err := check()
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Errorf("byte %d of the data: %v", i, err)
			continue
		}
		at := slices.IndexFunc(good.Entries(), func(e Entry) bool { return int64(i) >= e.Offset && int64(i) < e.Offset+e.Size })
		if e := good.Entries()[at]; corrupt.Tensor != e.Name || corrupt.Offset != e.Offset || corrupt.Path != DataPath(prefix, 0, 1) {
			t.Errorf("byte %d of the data is in %s: %v", i, e.Name, err)
		}
	}
	for n := range data {
		writeFile(t, DataPath(prefix, 0, 1), data[:n])
		if err := check(); err == nil {
			t.Errorf("data cut to %d bytes was accepted", n)
		}
	}
	writeFile(t, DataPath(prefix, 0, 1), data)
	for n := range index {
		writeFile(t, IndexPath(prefix), index[:n])
		if err := check(); err == nil {
			t.Errorf("index cut to %d bytes was accepted", n)
		}
	}
}

// Damage in a part of a tensor that was saved in slices is that tensor's.
func TestDamagedSlice(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/slices")); err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(dir, "model")
	path := DataPath(prefix, 0, 1)
	data := readFile(t, path)
	data[3] ^= 1
	writeFile(t, path, data)
	b, err := OpenBundle(prefix)
	if err != nil {
		t.Fatal(err)
	}
	_, read := b.Read(background, "w/part")
	for _, err := range []error{b.Verify(background), read} {
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Tensor != "w/part" || corrupt.Path != path {
			t.Errorf("error %v", err)
		}
	}
	if got := sliceOwner("\x00a\x00\xffb\xff\x00c\x00\x01\x01\x02"); got != "a\x00b\xffc" {
		t.Errorf("the owner of a slice is %q", got)
	}
}

// Reading alone, without Verify, names the damaged tensor too, whether TensorFlow
// found the damage or we did.
func TestReadDamaged(t *testing.T) {
	prefix := writeSmall(t)
	path := DataPath(prefix, 0, 1)
	data := readFile(t, path)
	b, err := OpenBundle(prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Entries() {
		bad := bytes.Clone(data)
		bad[e.Offset] ^= 0x80
		writeFile(t, path, bad)
		_, err := b.Read(background)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Tensor != e.Name || corrupt.Path != path {
			t.Errorf("damage in %s: %v", e.Name, err)
		}
	}
}

func TestVerifyCancelled(t *testing.T) {
	b, err := OpenBundle(writeSmall(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if err := b.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("verify: %v", err)
	}
	if _, err := b.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
}

// String lengths decide allocations, here and in TensorFlow.
func FuzzStrings(f *testing.F) {
	f.Add([]byte("\x03\x00\x05\x00\x00\x00\x00onethree"), 3)
	b, err := OpenBundle("testdata/plain/model.ckpt")
	if err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(b.dataPath(0))
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range b.Entries() {
		if e.DType == tf.String {
			n, _ := elements(e.Shape)
			f.Add(data[e.Offset:e.Offset+e.Size], int(n))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if n < 0 || n > len(data) {
			return
		}
		prefix := filepath.Join(t.TempDir(), "x")
		writeFile(t, DataPath(prefix, 0, 1), data)
		e := Entry{Name: "s", DType: tf.String, Shape: []int64{int64(n)}, Size: int64(len(data))}
		b := &Bundle{prefix: prefix, index: "x", shards: 1, order: b.order, entries: []Entry{e}, byName: map[string]int{"s": 0}}
		got, err := b.strings("s")
		if err == nil && len(data) > 0 && len(got) != n {
			t.Errorf("%d strings of %d", len(got), n)
		}
	})
}
