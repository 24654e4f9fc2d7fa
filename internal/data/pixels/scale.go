package pixels

import (
	"image"
	"slices"

	"golang.org/x/image/draw"
)

// Resize says how images are scaled to another size.
type Resize string

// The ways of scaling. Pixels are where TensorFlow has them: the centre of pixel i is at i + 1/2.
const (
	// Bilinear weighs the four nearest pixels, as tf.image.resize does by default, and so Keras'
	// image_dataset_from_directory and Resizing. An image that becomes much smaller is sampled.
	Bilinear Resize = "bilinear"
	// Antialias weighs all pixels that lie in a pixel of the new size, by their distance, as
	// tf.image.resize(antialias=True) does. An image that becomes larger is the same as with Bilinear.
	Antialias Resize = "antialias"
	// Nearest takes the nearest pixel, so that numbers of classes stay what they are.
	Nearest Resize = "nearest"
)

// Resizes are all ways of scaling.
var Resizes = []string{string(Bilinear), string(Antialias), string(Nearest)}

// Scaler scales images. It keeps memory, so it is for one goroutine.
type Scaler struct {
	Resize Resize
	// Crop first cuts the image down to the largest part of its middle that has the proportions of the
	// new size, as Keras does with crop_to_aspect_ratio. Without it, the proportions change.
	Crop bool

	from     []uint8
	old, new image.RGBA
}

// Memory returns memory for n values that is valid until the next call.
func (s *Scaler) Memory(n int) []uint8 {
	s.from = slices.Grow(s.from[:0], n)[:n]
	return s.from
}

// Scale scales the values of an image, row after row, into those of a new size. The results are whole
// numbers within 1 of those that tf.image.resize gives as fractions.
func (s *Scaler) Scale(to []uint8, height, width int, from []uint8, oldHeight, oldWidth, channels int) {
	part := image.Rect(0, 0, oldWidth, oldHeight)
	if s.Crop {
		part = middle(oldHeight, oldWidth, height, width)
	}
	// The scalers of golang.org/x/image are fast for pixels of four values, and take none to be larger than
	// the opacity, which is full here. So the opacity of the image itself is scaled alone.
	s.some(to, height, width, from, oldHeight, oldWidth, channels, 0, min(channels, 3), part)
	if channels == 4 {
		s.some(to, height, width, from, oldHeight, oldWidth, channels, 3, 4, part)
	}
}

// some scales the channels of a part of an image from one to another, up to three.
func (s *Scaler) some(to []uint8, height, width int, from []uint8, oldHeight, oldWidth, channels, first, end int, part image.Rectangle) {
	reset(&s.old, oldHeight, oldWidth)
	reset(&s.new, height, width)
	for i, at := 0, 0; at < len(from); i, at = i+4, at+channels {
		s.old.Pix[i+3] = 255
		copy(s.old.Pix[i:i+3], from[at+first:at+end])
	}
	scaler := map[Resize]draw.Scaler{Nearest: draw.NearestNeighbor, Bilinear: draw.ApproxBiLinear, Antialias: draw.BiLinear}[s.Resize]
	scaler.Scale(&s.new, s.new.Rect, &s.old, part, draw.Src, nil)
	for i, at := 0, 0; at < len(to); i, at = i+4, at+channels {
		copy(to[at+first:at+end], s.new.Pix[i:i+3])
	}
}

// reset gives an image a size, with any pixels.
func reset(m *image.RGBA, height, width int) {
	n := 4 * height * width
	m.Pix, m.Stride, m.Rect = slices.Grow(m.Pix[:0], n)[:n], 4*width, image.Rect(0, 0, width, height)
}

// middle returns the largest part in the middle of an image that has the proportions of a new size. It
// rounds as keras.utils.image_dataset_from_directory does.
func middle(oldHeight, oldWidth, height, width int) image.Rectangle {
	h := max(1, min(oldHeight, int(float32(oldWidth*height)/float32(width))))
	w := max(1, min(oldWidth, int(float32(oldHeight*width)/float32(height))))
	y, x := (oldHeight-h)/2, (oldWidth-w)/2
	return image.Rect(x, y, x+w, y+h)
}
