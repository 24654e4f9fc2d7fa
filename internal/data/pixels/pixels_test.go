package pixels

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"os"
	"testing"
)

// TestSubsampledColours holds the conversion of colours that pixels share against image/color's.
func TestSubsampledColours(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for ratio := image.YCbCrSubsampleRatio444; ratio <= image.YCbCrSubsampleRatio410; ratio++ {
		for _, size := range []image.Point{{17, 12}, {1, 1}, {8, 8}, {3, 5}} {
			img := image.NewYCbCr(image.Rectangle{Max: size}, ratio)
			for _, plane := range [][]uint8{img.Y, img.Cb, img.Cr} {
				for i := range plane {
					plane[i] = uint8(r.Uint32())
				}
			}
			to := make([]uint8, 3*size.X*size.Y)
			Image{Width: size.X, Height: size.Y}.convertYCbCr(to, img)
			for i := range size.X * size.Y {
				c := color.NRGBAModel.Convert(img.At(i%size.X, i/size.X)).(color.NRGBA)
				if got := [3]uint8(to[3*i:]); got != [3]uint8{c.R, c.G, c.B} {
					t.Fatalf("%v of %v: pixel %d is %v, want %v", ratio, size, i, got, c)
				}
			}
		}
	}
}

// TestScale compares scaled images with those of TensorFlow and Keras: see testdata/generate.py.
func TestScale(t *testing.T) {
	text, err := os.ReadFile("testdata/scaled.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Resize      Resize
		Crop        bool
		Shape, Size []int
		From        []byte
		To          []float64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	var scaler Scaler // used again, as a column does
	for _, c := range cases {
		t.Run(fmt.Sprintf("%v by %s to %v, crop %v", c.Shape, c.Resize, c.Size, c.Crop), func(t *testing.T) {
			scaler.Resize, scaler.Crop = c.Resize, c.Crop
			most := 1.0
			if c.Resize == Nearest {
				most = 0
			}
			got := make([]uint8, c.Size[0]*c.Size[1]*c.Shape[2])
			scaler.Scale(got, c.Size[0], c.Size[1], c.From, c.Shape[0], c.Shape[1], c.Shape[2])
			if len(got) != len(c.To) {
				t.Fatalf("%d values, expected %d", len(got), len(c.To))
			}
			sum := 0.0
			for i, v := range got {
				d := float64(v) - c.To[i]
				if sum += d; d < -most || d > most {
					t.Errorf("value %d is %d, expected %v", i, v, c.To[i])
				}
			}
			if mean := sum / float64(len(got)); mean < -0.3 || mean > 0.3 {
				t.Errorf("values differ by %v on average", mean)
			}
		})
	}
}
