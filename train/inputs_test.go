package train

import (
	"bytes"
	"image/png"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
)

// What a model is given is said in words, or shown as a picture if it looks like one.
func TestInputsInWords(t *testing.T) {
	for _, tt := range []struct {
		v    dataset.Feature
		want string
	}{
		{dataset.Feature{Shape: []int{1}, Int32: []int32{1}}, "dog"},
		{dataset.Feature{Shape: []int{1, 2}, Int64: []int64{7, -1}}, "7 -1"},
		{dataset.Feature{Shape: []int{1, 2}, Float32: []float32{0.5, 1.0 / 3}}, "0.5 0.3333"},
		{dataset.Feature{Shape: []int{1}, Bool: []bool{true}}, "true"},
		{dataset.Feature{Shape: []int{1, 9}, Uint8: []uint8{9, 8, 7, 6, 5, 4, 3, 2, 1}}, "9 8 7 6 5 4 3 2 … 9 values"},
	} {
		if got := inWords(&tt.v, []string{"cat", "dog"}); got != tt.want {
			t.Errorf("%v is said as %q; expected %q", tt.v, got, tt.want)
		}
		if thumbnail(&tt.v, nil) != nil {
			t.Errorf("%v is taken for a picture", tt.v)
		}
	}
}

func TestThumbnail(t *testing.T) {
	values := make([]uint8, 128*96)
	values[0], values[2] = 16, 8 // of the first two pixels of the picture
	below := int64(17)
	picture, err := png.Decode(bytes.NewReader(thumbnail(&dataset.Feature{Shape: []int{1, 96, 128, 1}, Uint8: values}, &below)))
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != 64 || size.Y != 48 {
		t.Errorf("the picture is %v; expected 64 by 48", size)
	}
	for x, want := range []uint32{255, 128, 0} {
		if got, _, _, _ := picture.At(x, 0).RGBA(); got>>8 != want {
			t.Errorf("pixel %d is %d; expected %d", x, got>>8, want)
		}
	}
}
