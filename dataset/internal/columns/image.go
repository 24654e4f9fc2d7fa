package columns

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
)

// imageAxes returns how many of the last axes of a shape are those of an image: 3 if the last is a
// number of channels, otherwise 2, or 0 for a shape that is no image's.
func imageAxes(shape []int) int {
	n := len(shape)
	switch {
	case n >= 3 && (shape[n-1] == 1 || shape[n-1] == 3 || shape[n-1] == 4):
		return 3
	case n >= 2:
		return 2
	}
	return 0
}

const (
	formatPNG  = "PNG"
	formatJPEG = "JPEG"
)

// imageFormat returns the format of an image by its first bytes, or "".
func imageFormat(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return formatPNG
	case bytes.HasPrefix(b, []byte{0xff, 0xd8, 0xff}):
		return formatJPEG
	}
	return ""
}

// encoded is an image whose size is known and which is not decoded yet.
type encoded struct {
	format                  string
	data                    []byte
	width, height, channels int
}

// openImage reads the size of an image and compares it with a shape of height, width and, perhaps,
// channels. It decodes nothing, so it takes no memory.
func openImage(format string, data []byte, shape []int) (e encoded, reason string) {
	decode := png.DecodeConfig
	if format == formatJPEG {
		decode = jpeg.DecodeConfig
	}
	c, err := decode(bytes.NewReader(data))
	if err != nil {
		return e, fmt.Sprintf("is a %s image that cannot be decoded: %v", format, err)
	}
	e = encoded{format, data, c.Width, c.Height, 1}
	if len(shape) == 3 {
		e.channels = shape[2]
	}
	height, width := shape[0], shape[1]
	switch {
	case c.Width < 1 || c.Height < 1 || c.Width > mostOpen/c.Height/e.channels:
		return e, fmt.Sprintf("is a %s image of height %d and width %d; expected at most %d values", format, c.Height, c.Width, mostOpen)
	case height >= 0 && height != c.Height || width >= 0 && width != c.Width:
		return e, fmt.Sprintf("is a %s image of height %d and width %d; expected %s and %s: gorbit does not scale images; write the records with images of one size (tf.image.resize)", format, c.Height, c.Width, orAny("height", height), orAny("width", width))
	}
	return e, ""
}

func orAny(what string, n int) string {
	if n < 0 {
		return "any " + what
	}
	return fmt.Sprintf("%s %d", what, n)
}

func (e encoded) size() int { return e.width * e.height * e.channels }

// decode decodes the image: gray values for one channel, red, green and blue for three, and the
// opacity for four. Gray images have three equal colours. Of 16 bits the upper 8 count, as in
// TensorFlow's decode_png with dtype uint8; the opacity is dropped for one and three channels, as it is
// there.
func (e encoded) decode(to []uint8) (reason string) {
	var img image.Image
	var err error
	if e.format == formatPNG {
		img, err = png.Decode(bytes.NewReader(e.data))
	} else {
		img, err = jpeg.Decode(bytes.NewReader(e.data))
	}
	if err != nil {
		return fmt.Sprintf("is a %s image that cannot be decoded: %v", e.format, err)
	}
	at := img.Bounds().Min
	if b := img.Bounds(); b.Dx() != e.width || b.Dy() != e.height {
		return fmt.Sprintf("is a %s image of height %d and width %d, and its header says %d and %d", e.format, b.Dy(), b.Dx(), e.height, e.width)
	}
	if gray, ok := img.(*image.Gray); ok && e.channels == 1 {
		for y := range e.height {
			copy(to[y*e.width:(y+1)*e.width], gray.Pix[gray.PixOffset(at.X, at.Y+y):])
		}
		return ""
	}
	if c, ok := img.(*image.YCbCr); ok && e.channels == 3 && at == (image.Point{}) {
		e.convertYCbCr(to, c)
		return ""
	}
	if e.channels == 3 && at == (image.Point{}) {
		switch img := img.(type) {
		case *image.RGBA: // of a PNG without opacity
			e.convertFour(to, img.Pix, img.Stride)
			return ""
		case *image.NRGBA:
			e.convertFour(to, img.Pix, img.Stride)
			return ""
		}
	}
	pixel := pixels(img)
	if pixel == nil {
		return fmt.Sprintf("is a %s image of type %T; expected gray or RGB", e.format, img)
	}
	for y := range e.height {
		for x := range e.width {
			c := pixel(at.X+x, at.Y+y)
			switch e.channels {
			case 1:
				if c.R != c.G || c.R != c.B {
					return fmt.Sprintf("is a %s image with colours; expected a gray one, because the feature has one channel", e.format)
				}
				to[0] = c.R
			case 3:
				to[0], to[1], to[2] = c.R, c.G, c.B
			default:
				to[0], to[1], to[2], to[3] = c.R, c.G, c.B, c.A
			}
			to = to[e.channels:]
		}
	}
	return ""
}

// convertYCbCr converts an image that begins at (0, 0): the colours of most JPEG files.
func (e encoded) convertYCbCr(to []uint8, img *image.YCbCr) {
	shift := 0 // pixels beside each other that share their colour, as a power of 2
	switch img.SubsampleRatio {
	case image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420:
		shift = 1
	case image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410:
		shift = 2
	}
	for y := range e.height {
		light, c := img.Y[img.YOffset(0, y):][:e.width], img.COffset(0, y)
		blue, red, row := img.Cb[c:], img.Cr[c:], to[3*y*e.width:][:3*e.width]
		for x, l := range light {
			p := row[3*x : 3*x+3]
			p[0], p[1], p[2] = color.YCbCrToRGB(l, blue[x>>shift], red[x>>shift])
		}
	}
}

// convertFour drops the opacity of pixels of four bytes.
func (e encoded) convertFour(to, from []uint8, stride int) {
	for y := range e.height {
		row := from[y*stride:][:4*e.width]
		for ; len(row) >= 4; row, to = row[4:], to[3:] {
			to[0], to[1], to[2] = row[0], row[1], row[2]
		}
	}
}

// pixels returns a function that returns a pixel of an image, or nil if the image has no such colours.
func pixels(img image.Image) func(x, y int) color.NRGBA {
	switch img := img.(type) {
	case *image.Gray:
		return func(x, y int) color.NRGBA {
			v := img.Pix[img.PixOffset(x, y)]
			return color.NRGBA{v, v, v, 255}
		}
	case *image.YCbCr:
		return func(x, y int) color.NRGBA {
			c := img.COffset(x, y)
			r, g, b := color.YCbCrToRGB(img.Y[img.YOffset(x, y)], img.Cb[c], img.Cr[c])
			return color.NRGBA{r, g, b, 255}
		}
	case *image.RGBA: // of a PNG without opacity
		return func(x, y int) color.NRGBA {
			p := img.Pix[img.PixOffset(x, y):]
			return color.NRGBA{p[0], p[1], p[2], p[3]}
		}
	case *image.NRGBA:
		return func(x, y int) color.NRGBA { return img.NRGBAAt(x, y) }
	case *image.Paletted:
		palette := make([]color.NRGBA, len(img.Palette))
		for i, c := range img.Palette {
			palette[i] = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		return func(x, y int) color.NRGBA { return palette[img.ColorIndexAt(x, y)] }
	case *image.Gray16:
		return func(x, y int) color.NRGBA {
			v := uint8(img.Gray16At(x, y).Y >> 8)
			return color.NRGBA{v, v, v, 255}
		}
	case *image.RGBA64:
		return func(x, y int) color.NRGBA {
			c := img.RGBA64At(x, y)
			return color.NRGBA{uint8(c.R >> 8), uint8(c.G >> 8), uint8(c.B >> 8), uint8(c.A >> 8)}
		}
	case *image.NRGBA64:
		return func(x, y int) color.NRGBA {
			c := img.NRGBA64At(x, y)
			return color.NRGBA{uint8(c.R >> 8), uint8(c.G >> 8), uint8(c.B >> 8), uint8(c.A >> 8)}
		}
	}
	return nil
}
