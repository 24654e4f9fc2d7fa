package columns

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/data/pixels"
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

// encoded is an image that fits a shape, or is scaled to it, and that is not decoded yet.
type encoded struct {
	pixels.Image
	channels      int
	height, width int // after scaling
	scaler        *pixels.Scaler
	jpeg          pixels.Decoder
}

// openImage reads the size of an image and compares it with a shape of height, width and, perhaps,
// channels. It decodes nothing, so it takes no memory.
func (c *column[T]) openImage(format string, data []byte, shape []int) (e encoded, reason string) {
	i, err := pixels.Open(data)
	if err != nil {
		return e, fmt.Sprintf("is a %s image that cannot be decoded: %v", format, err)
	}
	e = encoded{i, 1, i.Height, i.Width, &c.scaler, c.jpeg}
	if len(shape) == 3 {
		e.channels = shape[2]
	}
	height, width := shape[0], shape[1]
	switch {
	case i.Width < 1 || i.Height < 1 || i.Width > MostOpen/i.Height/e.channels:
		return e, fmt.Sprintf("is a %s image of height %d and width %d; expected at most %d values", format, i.Height, i.Width, MostOpen)
	case (height < 0 || height == i.Height) && (width < 0 || width == i.Width):
	case c.scaler.Resize != "" && height > 0 && width > 0:
		e.height, e.width = height, width
	default:
		reason = fmt.Sprintf("is a %s image of height %d and width %d; expected %s and %s", format, i.Height, i.Width, orAny("height", height), orAny("width", width))
		if height > 0 && width > 0 {
			reason += "; to scale images, set the feature's Resize, as --set data.resize=bilinear does"
		}
		return e, reason
	}
	return e, ""
}

func orAny(what string, n int) string {
	if n < 0 {
		return "any " + what
	}
	return fmt.Sprintf("%s %d", what, n)
}

// decode decodes the image, and scales it if it has another size, into memory that grow returns.
func (e encoded) decode(grow func(n int) []uint8) (reason string) {
	to := grow(e.width * e.height * e.channels)
	if e.height == e.Height && e.width == e.Width {
		return e.Decode(to, e.channels, e.jpeg)
	}
	from := e.scaler.Memory(e.Width * e.Height * e.channels)
	if reason := e.Decode(from, e.channels, e.jpeg); reason != "" {
		return reason
	}
	e.scaler.Scale(to, e.height, e.width, from, e.Height, e.Width, e.channels)
	return ""
}
