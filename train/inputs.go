package train

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

const (
	// mostValues is the number of values of an input that are written out.
	mostValues = 8
	// thumbnailSide is the longer side of a picture of an input, in pixels.
	thumbnailSide = 64
)

// DescribeInputs adds to rows of a split, such as the worst, what a model is given that takes no texts: values in
// words, and small pictures of images. split "" means the run's own.
func (r *Run) DescribeInputs(ctx context.Context, split string, rows []evaluation.Row) (err error) {
	if r.TakesTexts() || len(rows) == 0 {
		return nil
	}
	split = cmp.Or(split, r.Params.Data.Eval.First())
	wanted := make(map[string][]int, len(rows))
	for i, row := range rows {
		wanted[row.Record] = append(wanted[row.Record], i)
	}
	e, err := r.openExamples(ctx, split)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	for len(wanted) > 0 {
		b, err := e.data.Next(ctx)
		if err != nil {
			return notEnd(err)
		}
		record := b.Describe(0)
		for _, i := range wanted[record] {
			rows[i].Inputs = r.inputs(b)
		}
		delete(wanted, record)
	}
	return nil
}

// inputs describes what the model is given of a batch of one example.
func (r *Run) inputs(b *dataset.Batch) []evaluation.Input {
	var out []evaluation.Input
	for _, f := range r.Export.Contract.Features {
		v := b.Feature(f.Name)
		if f.Role != graphs.RoleInput || f.Make != "" || v == nil {
			continue
		}
		in := evaluation.Input{Name: f.Name}
		if in.PNG = thumbnail(v, f.Below); in.PNG == nil {
			in.Value = inWords(v, r.Classes(f.Name))
		}
		out = append(out, in)
	}
	return out
}

// numberAt returns the i-th value of a feature of any type.
func numberAt(v *dataset.Feature, i int) float64 {
	switch {
	case v.Int32 != nil:
		return float64(v.Int32[i])
	case v.Int64 != nil:
		return float64(v.Int64[i])
	case v.Uint8 != nil:
		return float64(v.Uint8[i])
	case v.Float32 != nil:
		return float64(v.Float32[i])
	case v.Bool[i]:
		return 1
	}
	return 0
}

// inWords writes the first values of a feature. Names are those of its categories, if it has any.
func inWords(v *dataset.Feature, names []string) string {
	var words []string
	for i := range min(v.Len(), mostValues) {
		x := numberAt(v, i)
		switch {
		case v.Bool != nil:
			words = append(words, strconv.FormatBool(v.Bool[i]))
		case v.Float32 == nil && x >= 0 && x < float64(len(names)):
			words = append(words, names[int(x)])
		case v.Float32 == nil:
			words = append(words, strconv.FormatFloat(x, 'f', -1, 64))
		default:
			words = append(words, strconv.FormatFloat(x, 'g', 4, 32))
		}
	}
	out := strings.Join(words, " ")
	if v.Len() > mostValues {
		out += fmt.Sprintf(" … %d values", v.Len())
	}
	return out
}

// thumbnail returns a PNG of a feature whose shape is that of an image, [1, height, width, 1 to 4], and nil for
// any other. The brightest value is the greatest that the graph takes, or else that the image has.
func thumbnail(v *dataset.Feature, below *int64) []byte {
	if len(v.Shape) != 4 || v.Bool != nil {
		return nil
	}
	height, width, channels := v.Shape[1], v.Shape[2], v.Shape[3]
	if min(height, width) < 4 || channels < 1 || channels > 4 || channels == 2 || v.Len() != height*width*channels {
		return nil
	}
	low, high := 0.0, 255.0
	switch {
	case v.Uint8 != nil && below == nil:
	case below != nil:
		high = float64(*below - 1)
	default:
		low, high = math.Inf(1), math.Inf(-1)
		for i := range v.Len() {
			x := numberAt(v, i)
			low, high = min(low, x), max(high, x)
		}
	}
	if !(high > low) { // also NaN
		return nil
	}
	step := max(1, float64(max(width, height))/thumbnailSide)
	picture := image.NewNRGBA(image.Rect(0, 0, int(float64(width)/step), int(float64(height)/step)))
	for y := range picture.Rect.Dy() {
		for x := range picture.Rect.Dx() {
			at := (int(float64(y)*step)*width + int(float64(x)*step)) * channels
			part := func(k int) uint8 {
				return uint8(255*min(max((numberAt(v, at+k)-low)/(high-low), 0), 1) + 0.5)
			}
			c := color.NRGBA{part(0), part(0), part(0), 255}
			if channels >= 3 {
				c.G, c.B = part(1), part(2)
			}
			if channels == 4 {
				c.A = part(3)
			}
			picture.SetNRGBA(x, y, c)
		}
	}
	var out bytes.Buffer
	if (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, picture) != nil {
		return nil
	}
	return slices.Clip(out.Bytes())
}
