// Package pixels reads PNG and JPEG images as 8-bit values, row after row, and scales them.
package pixels

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
)

// The formats of images.
const (
	PNG  = "PNG"
	JPEG = "JPEG"
)

// Format returns the format of an image by its first bytes, or "".
func Format(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return PNG
	case bytes.HasPrefix(b, []byte{0xff, 0xd8, 0xff}):
		return JPEG
	}
	return ""
}

// others are the formats that are known by their first bytes and not read.
var others = []struct{ first, name string }{
	{"GIF87a", "GIF"}, {"GIF89a", "GIF"}, {"BM", "BMP"}, {"RIFF", "WebP"}, {"II*\x00", "TIFF"}, {"MM\x00*", "TIFF"},
}

// Other returns the name of the format of an image that is neither PNG nor JPEG, by its first bytes, or "".
func Other(b []byte) string {
	for _, f := range others {
		if bytes.HasPrefix(b, []byte(f.first)) && (f.name != "WebP" || len(b) >= 12 && string(b[8:12]) == "WEBP") {
			return f.name
		}
	}
	return ""
}

// Image is an image whose size is known and which is not decoded yet.
type Image struct {
	Format        string
	Width, Height int
	Colors        color.Model
	data          []byte
}

// Open reads the header of an image. It decodes nothing, so it takes no memory. The error is that of the
// decoder.
func Open(data []byte) (Image, error) {
	i := Image{Format: Format(data), data: data}
	decode := png.DecodeConfig
	switch i.Format {
	case "":
		return i, image.ErrFormat
	case JPEG:
		decode = jpeg.DecodeConfig
	}
	c, err := decode(bytes.NewReader(data))
	i.Width, i.Height, i.Colors = c.Width, c.Height, c.ColorModel
	return i, err
}

// Decode decodes the image into Height * Width * channels values: gray values for one channel, red, green
// and blue for three, and the opacity for four. Gray images have three equal colours. Of 16 bits the upper
// 8 count, as in TensorFlow's decode_png with dtype uint8; the opacity is dropped for one and three
// channels, as it is there. CMYK becomes red, green and blue as there, too: (255-C)(255-K)/255 and so on. An
// image with colours is refused for one channel. by decodes JPEG files; nil is Go's library. It returns the
// reason why there are no values.
func (i Image) Decode(to []uint8, channels int, by Decoder) (reason string) {
	if i.Format == JPEG && by != nil {
		return i.decodeJPEG(to, channels, by)
	}
	img, err := i.decode()
	if err != nil {
		return fmt.Sprintf("is a %s image that cannot be decoded: %v", i.Format, err)
	}
	at := img.Bounds().Min
	if b := img.Bounds(); b.Dx() != i.Width || b.Dy() != i.Height {
		return fmt.Sprintf("is a %s image of height %d and width %d, and its header says %d and %d", i.Format, b.Dy(), b.Dx(), i.Height, i.Width)
	}
	if gray, ok := img.(*image.Gray); ok && channels == 1 {
		for y := range i.Height {
			copy(to[y*i.Width:(y+1)*i.Width], gray.Pix[gray.PixOffset(at.X, at.Y+y):])
		}
		return ""
	}
	if c, ok := img.(*image.YCbCr); ok && channels == 3 && at == (image.Point{}) {
		i.convertYCbCr(to, c)
		return ""
	}
	if channels == 3 && at == (image.Point{}) {
		switch img := img.(type) {
		case *image.RGBA: // of a PNG without opacity
			i.convertFour(to, img.Pix, img.Stride)
			return ""
		case *image.NRGBA:
			i.convertFour(to, img.Pix, img.Stride)
			return ""
		}
	}
	pixel := pixels(img)
	if pixel == nil {
		return fmt.Sprintf("is a %s image of type %T; expected gray, RGB or CMYK", i.Format, img)
	}
	for y := range i.Height {
		for x := range i.Width {
			c := pixel(at.X+x, at.Y+y)
			switch channels {
			case 1:
				if c.R != c.G || c.R != c.B {
					return i.coloured()
				}
				to[0] = c.R
			case 3:
				to[0], to[1], to[2] = c.R, c.G, c.B
			default:
				to[0], to[1], to[2], to[3] = c.R, c.G, c.B, c.A
			}
			to = to[channels:]
		}
	}
	return ""
}

// coloured says that the image is not gray.
func (i Image) coloured() string {
	return fmt.Sprintf("is a %s image with colours; expected a gray one, because the feature has one channel", i.Format)
}

// decode decodes the image with Go's library.
func (i Image) decode() (image.Image, error) {
	if i.Format == PNG {
		return png.Decode(bytes.NewReader(i.data))
	}
	return jpeg.Decode(bytes.NewReader(i.data))
}

// convertYCbCr converts an image that begins at (0, 0): the colours of most JPEG files.
func (i Image) convertYCbCr(to []uint8, img *image.YCbCr) {
	shift := 0 // pixels next to each other that share their colour, as a power of 2
	switch img.SubsampleRatio {
	case image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420:
		shift = 1
	case image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410:
		shift = 2
	}
	for y := range i.Height {
		light, c := img.Y[img.YOffset(0, y):][:i.Width], img.COffset(0, y)
		blue, red, row := img.Cb[c:], img.Cr[c:], to[3*y*i.Width:][:3*i.Width]
		for x, l := range light {
			p := row[3*x : 3*x+3]
			p[0], p[1], p[2] = color.YCbCrToRGB(l, blue[x>>shift], red[x>>shift])
		}
	}
}

// convertFour drops the opacity of pixels of four bytes.
func (i Image) convertFour(to, from []uint8, stride int) {
	for y := range i.Height {
		row := from[y*stride:][:4*i.Width]
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
	case *image.CMYK:
		return func(x, y int) color.NRGBA {
			c := img.CMYKAt(x, y)
			mix := func(ink uint8) uint8 { return uint8((255 - int(ink)) * (255 - int(c.K)) / 255) }
			return color.NRGBA{mix(c.C), mix(c.M), mix(c.Y), 255}
		}
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
