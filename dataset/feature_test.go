package dataset_test

import (
	"bytes"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
)

func TestFeatureOfEveryDType(t *testing.T) {
	for _, c := range []struct {
		feature Feature
		dtype   DType
		length  int
		raw     []byte
	}{
		{Feature{}, "", 0, nil},
		{Feature{Uint8: []uint8{}}, Uint8, 0, nil},
		{Feature{Uint8: []uint8{1, 255}}, Uint8, 2, []byte{1, 255}},
		{Feature{Bool: []bool{true, false, true}}, Bool, 3, []byte{1, 0, 1}},
		{Feature{Int32: []int32{-2}}, Int32, 1, []byte{254, 255, 255, 255}},
		{Feature{Float32: []float32{1}}, Float32, 1, []byte{0, 0, 128, 63}},
		{Feature{Int64: []int64{-2}}, Int64, 1, []byte{254, 255, 255, 255, 255, 255, 255, 255}},
	} {
		f := c.feature
		if f.DType() != c.dtype || f.Len() != c.length || !bytes.Equal(f.Raw(), c.raw) {
			t.Errorf("%+v: dtype %q, %d values, bytes %v; want %q, %d, %v", f, f.DType(), f.Len(), f.Raw(), c.dtype, c.length, c.raw)
		}
		if f.Len() > 0 && len(f.Raw()) != f.Len()*f.DType().Size() {
			t.Errorf("%s: %d values take %d bytes, but the size of one is %d", f.DType(), f.Len(), len(f.Raw()), f.DType().Size())
		}
	}
	if f := (Feature{Shape: []int{2, 3, 4}}); f.Size() != 24 {
		t.Errorf("size of shape %v is %d", f.Shape, f.Size())
	}
	if n := DType("float64").Size(); n != 0 {
		t.Errorf("an unknown type has size %d", n)
	}
}

// TestMissingDecoder names a decoder of images that this program does not import, and one that there is
// not.
func TestMissingDecoder(t *testing.T) {
	for name, want := range map[string]string{
		"tensorflow": "feature x decodes JPEG images by tensorflow, which this program does not have; expected go",
		"webp":       `feature x decodes JPEG images by "webp"; expected tensorflow or go`,
	} {
		err := Spec{Name: "x", DType: Uint8, Shape: []int{2, 3, 1}, JPEG: name}.Validate()
		if err == nil || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}
