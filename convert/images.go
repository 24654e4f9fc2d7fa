package convert

import (
	"fmt"
	"image/color"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
)

// maxImage is the largest file of an image of so many values: what it has in addition to its pixels,
// such as the camera's notes, has a limit, because many files are in memory at once.
func maxImage(values int64) int64 { return 4*values + 1<<20 }

// The largest file and the most values of an image that is scaled, which is in memory alone.
const (
	maxScaledFile   = 1 << 28
	maxScaledValues = 1 << 28
)

// imageReader reads images as a feature wants them. It keeps memory, so it is for one goroutine.
type imageReader struct {
	*featureSchema
	schema string // its path, "" for rows without one
	scaler pixels.Scaler
	jpeg   pixels.Decoder
	pixels []byte // of the last image
	rgb    []byte
}

func newImageReader(f *featureSchema, schema string) *imageReader {
	jpeg, _ := pixels.DecoderOf(f.jpeg) // which was had before
	return &imageReader{featureSchema: f, schema: schema, jpeg: jpeg, scaler: pixels.Scaler{Resize: pixels.Resize(f.resize), Crop: f.crop}}
}

// read reads a PNG or JPEG file. Its pixels, height, width and channels after one another, are in r.pixels
// until the next call. It returns the reason why the file is no image of the shape. The error is one of the
// machine, and the file may be good.
func (r *imageReader) read(path string) (file []byte, reason string, err error) {
	values, _ := r.shape.elements()
	most := maxImage(values)
	if r.resize != "" {
		most = maxScaledFile
	}
	file, err = vfs.ReadBounded(path, most)
	switch {
	case fault.OfMachine(err):
		return nil, err.Error(), err
	case err != nil:
		return nil, err.Error(), nil
	}
	if reason := r.decode(file); reason != "" {
		return nil, path + " " + reason, nil
	}
	return file, "", nil
}

// decode makes the pixels of a file.
func (r *imageReader) decode(file []byte) (reason string) {
	i, err := pixels.Open(file)
	if err != nil {
		return fmt.Sprintf("is not a PNG or JPEG file: %v", err)
	}
	height, width, want := int(r.shape[0]), int(r.shape[1]), int(r.shape[2])
	channels, what := channelsOf(i.Colors)
	fits := i.Height == height && i.Width == width
	// Before the pixels are read, whose memory is that of the size.
	if !fits && r.resize == "" || channels != want && !r.convertColors {
		reason := fmt.Sprintf("is %d x %d %s, of shape [%d, %d, %d]; expected shape %v, by HEIGHT, WIDTH, CHANNELS", i.Width, i.Height, what, i.Height, i.Width, channels, r.shape)
		if !fits && r.resize == "" {
			reason += r.hint("scale images", "resize: bilinear")
		}
		if channels != want && !r.convertColors {
			reason += r.hint("convert colours", "convert_colors: true")
		}
		return reason
	}
	if what == deep {
		return "has 16 bits per channel; expected 8"
	}
	if i.Height < 1 || i.Width < 1 || i.Width > maxScaledValues/4/i.Height {
		return fmt.Sprintf("is %d x %d; expected at most %d pixels", i.Width, i.Height, maxScaledValues/4)
	}
	decoded := want
	if channels != 1 && want == 1 {
		decoded = 3
	}
	r.pixels = slices.Grow(r.pixels[:0], height*width*want)[:height*width*want]
	from, n := r.pixels, i.Height*i.Width
	if !fits {
		from = r.scaler.Memory(n * want)
	}
	if decoded == want {
		if reason := i.Decode(from, want, r.jpeg); reason != "" {
			return reason
		}
	} else {
		r.rgb = slices.Grow(r.rgb[:0], 3*n)[:3*n]
		if reason := i.Decode(r.rgb, 3, r.jpeg); reason != "" {
			return reason
		}
		for p := range from {
			from[p], _, _ = color.RGBToYCbCr(r.rgb[3*p], r.rgb[3*p+1], r.rgb[3*p+2])
		}
	}
	if !fits {
		r.scaler.Scale(r.pixels, height, width, from, i.Height, i.Width, want)
	}
	return ""
}

// hint says which key of the schema would take an image.
func (r *imageReader) hint(what, key string) string {
	switch {
	case r.schema == "":
		return ""
	case r.line == 0: // of ImagesTask
		return fmt.Sprintf("; to %s, give --image-shape HEIGHT,WIDTH,CHANNELS", what)
	}
	return fmt.Sprintf("; to %s, set %q of feature %q in %s:%d", what, key, r.name, r.schema, r.line)
}

const deep = "with 16 bits per channel"

// channelsOf returns the number of channels of a file's pixels, and what they are.
func channelsOf(m color.Model) (int, string) {
	switch m {
	case color.GrayModel:
		return 1, "gray"
	case color.Gray16Model:
		return 1, deep
	case color.RGBAModel, color.YCbCrModel:
		return 3, "RGB"
	case color.RGBA64Model:
		return 3, deep
	case color.NRGBAModel, color.NRGBA64Model:
		return 4, "RGB with transparency"
	case color.CMYKModel:
		return 4, "CMYK"
	}
	if p, ok := m.(color.Palette); ok {
		for _, c := range p {
			if _, _, _, a := c.RGBA(); a != 0xffff {
				return 4, "RGB with transparency"
			}
		}
		return 3, "RGB"
	}
	return 0, "of unknown pixels"
}
