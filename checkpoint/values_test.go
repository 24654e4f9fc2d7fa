package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// flattened appends the numbers of a value of any rank.
func flattened(out []float64, v reflect.Value) []float64 {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			out = flattened(out, v.Index(i))
		}
		return out
	case reflect.Bool:
		if v.Bool() {
			return append(out, 1)
		}
		return append(out, 0)
	case reflect.Float32, reflect.Float64:
		return append(out, v.Float())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return append(out, float64(v.Uint()))
	}
	return append(out, float64(v.Int()))
}

// readValues reads an entry in parts of three numbers.
func readValues(t *testing.T, src Source, e Entry) ([]float64, error) {
	t.Helper()
	v, err := OpenValues(t.Context(), src, e)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	out := []float64{}
	for buf := make([]float64, 3); ; {
		n, err := v.Next(buf)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, buf[:n]...)
	}
}

// TestValues compares the numbers of checkpoints that TensorFlow wrote with what RestoreV2 reads.
func TestValues(t *testing.T) {
	indexes, err := filepath.Glob("testdata/*/*.index")
	if err != nil || len(indexes) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	compared := 0
	for _, index := range indexes {
		b, err := OpenBundle(strings.TrimSuffix(index, ".index"))
		if err != nil {
			t.Fatal(err)
		}
		if errors.Is(b.CheckSizes(), fs.ErrNotExist) {
			continue // a golden of names only
		}
		for _, e := range b.Entries() {
			if !e.Numeric() {
				if _, err := OpenValues(t.Context(), b, e); err == nil {
					t.Errorf("%s: %s has values", index, e)
				}
				continue
			}
			got, err := readValues(t, b, e)
			if err != nil {
				t.Fatalf("%s: %s: %v", index, e, err)
			}
			if name := DTypeName(e.DType); strings.HasSuffix(name, "float16") {
				continue // the binding has no numbers of these
			}
			tensors, err := b.Read(t.Context(), e.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := flattened([]float64{}, reflect.ValueOf(tensors[e.Name].Value()))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v; expected %v", index, e, got, want)
			}
			compared++
		}
	}
	if compared < 5 {
		t.Errorf("%d tensors were compared; expected more", compared)
	}
}

func TestDamagedValues(t *testing.T) {
	indexes, err := filepath.Glob("testdata/plain/*.index")
	if err != nil || len(indexes) == 0 {
		t.Fatalf("no golden: %v", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(indexes[0]))); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(filepath.Join(dir, strings.TrimSuffix(filepath.Base(indexes[0]), ".index")))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Entries() {
		if !e.Numeric() || e.Size == 0 {
			continue
		}
		content, err := os.ReadFile(b.dataPath(e.Shard))
		if err != nil {
			t.Fatal(err)
		}
		content[e.Offset] ^= 1
		if err := os.WriteFile(b.dataPath(e.Shard), content, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readValues(t, b, e); !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), e.Name) {
			t.Errorf("%s: %v", e, err)
		}
		if err := os.Truncate(b.dataPath(e.Shard), e.Offset); err != nil {
			t.Fatal(err)
		}
		if _, err := readValues(t, b, e); !errors.Is(err, fault.Damaged) {
			t.Errorf("%s, cut: %v", e, err)
		}
		return
	}
	t.Error("the golden has no numbers")
}
