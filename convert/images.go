package convert

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // image.Decode reads JPEG
	_ "image/png"  // and PNG

	"github.com/gorbit-ml/gorbit/internal/vfs"
)

// maxImage is the largest file of an image of so many values: what is beside its pixels, such as the
// camera's notes, has a limit, because many files are in memory at once.
func maxImage(values int64) int64 { return 4*values + 1<<20 }

// readImage reads a PNG or JPEG file and its pixels: height, width and channels after one another.
// It returns the reason why the file is no image of the shape. Pixels are appended to pixels[:0].
func readImage(path string, shape Shape, pixels []byte) (file, _ []byte, reason string) {
	values, _ := shape.elements()
	file, err := vfs.ReadBounded(path, maxImage(values))
	if err != nil {
		return nil, nil, err.Error()
	}
	pixels, reason = decodeImage(file, path, shape, pixels)
	return file, pixels, reason
}

// decodeImage returns the pixels of a file, which is called path in a reason.
func decodeImage(file []byte, path string, shape Shape, pixels []byte) (_ []byte, reason string) {
	cfg, format, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Sprintf("%s is not a PNG or JPEG file: %v", path, err)
	}
	channels, what := channelsOf(cfg.ColorModel)
	// Before the pixels are read, whose memory is that of the size.
	if int64(cfg.Height) != shape[0] || int64(cfg.Width) != shape[1] || channels != shape[2] {
		return nil, fmt.Sprintf("%s is %d x %d %s, of shape [%d, %d, %d]; expected shape %v, by HEIGHT, WIDTH, CHANNELS", path, cfg.Width, cfg.Height, what, cfg.Height, cfg.Width, channels, shape)
	}
	if what == deep {
		return nil, fmt.Sprintf("%s has 16 bits per channel; expected 8", path)
	}
	img, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Sprintf("%s is a damaged %s file: %v", path, format, err)
	}
	return appendPixels(pixels[:0], img, channels), ""
}

const deep = "with 16 bits per channel"

// channelsOf returns the number of channels of a file's pixels, and what they are.
func channelsOf(m color.Model) (int64, string) {
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

// appendPixels appends the pixels of an image without transparency.
func appendPixels(dst []byte, img image.Image, channels int64) []byte {
	r := img.Bounds()
	if g, ok := img.(*image.Gray); ok && channels == 1 {
		for y := r.Min.Y; y < r.Max.Y; y++ {
			dst = append(dst, g.Pix[g.PixOffset(r.Min.X, y):][:r.Dx()]...)
		}
		return dst
	}
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c := img.At(x, y)
			if channels == 1 {
				dst = append(dst, color.GrayModel.Convert(c).(color.Gray).Y)
				continue
			}
			red, green, blue, _ := c.RGBA()
			dst = append(dst, byte(red>>8), byte(green>>8), byte(blue>>8))
		}
	}
	return dst
}
