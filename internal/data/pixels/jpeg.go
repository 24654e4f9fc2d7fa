package pixels

import (
	"fmt"
	"image/color"
	"slices"
	"strings"
	"sync"
)

// The decoders of JPEG images. Their pixels differ: by the rounding of the inverse transform, and at the
// edges of colours that several pixels share, which TensorFlow interpolates and Go repeats.
const (
	Go         = "go"         // image/jpeg of Go's library
	TensorFlow = "tensorflow" // libjpeg-turbo in TensorFlow's library: the pixels of tf.io.decode_jpeg
)

// JPEGDecoders are all decoders of JPEG images.
var JPEGDecoders = []string{TensorFlow, Go}

// Decoder decodes JPEG images. It may be used by several goroutines.
type Decoder interface {
	// Decode decodes a file of a height and a width into as many values for 1 or 3 channels. doubtful
	// says that something about the file is not as it should be, however little.
	Decode(to, file []uint8, height, width, channels int) (doubtful bool, err error)
}

var (
	mu      sync.Mutex
	openers = make(map[string]func() (Decoder, error))
)

// Register makes a decoder known under one of the names of JPEGDecoders. open is called once, at the
// first use. A program has those decoders whose packages it imports, and always Go's.
func Register(name string, open func() (Decoder, error)) {
	mu.Lock()
	defer mu.Unlock()
	openers[name] = sync.OnceValues(open)
}

// DecoderOf returns a decoder by its name; nil for Go's, which is also that of "". The error goes on after
// "decodes".
func DecoderOf(name string) (Decoder, error) {
	if name == "" || name == Go {
		return nil, nil
	}
	mu.Lock()
	open := openers[name]
	mu.Unlock()
	switch {
	case !slices.Contains(JPEGDecoders, name):
		return nil, fmt.Errorf("JPEG images by %q; expected %s", name, strings.Join(JPEGDecoders, " or "))
	case open == nil:
		return nil, fmt.Errorf("JPEG images by %s, which this program does not have; expected %s", name, Go)
	}
	d, err := open()
	if err != nil {
		return nil, fmt.Errorf("JPEG images by %s: %w; expected a library of a release that gorbit supports, or %s", name, err, Go)
	}
	return d, nil
}

// Fastest returns the name of the fastest decoder of JPEG images that this program has.
func Fastest() string {
	if d, err := DecoderOf(TensorFlow); err != nil || d == nil {
		return Go
	}
	return TensorFlow
}

// decodeJPEG is Decode with another decoder than Go's.
func (i Image) decodeJPEG(to []uint8, channels int, by Decoder) (reason string) {
	own, values := channels, to
	if channels == 4 || channels == 1 && i.Colors != color.GrayModel {
		own, values = 3, make([]uint8, 3*i.Height*i.Width)
	}
	doubtful, err := by.Decode(values, i.data, i.Height, i.Width, own)
	if err != nil || doubtful {
		// Go's library knows what is wrong, and whether it matters: bytes between two parts of a file
		// do not, and data that are no pixels do.
		if _, known := i.decode(); known != nil {
			err = known
		}
	}
	if err != nil {
		return fmt.Sprintf("is a %s image that cannot be decoded: %v", i.Format, err)
	}
	if own == channels {
		return ""
	}
	for from := values; len(from) >= 3; from, to = from[3:], to[channels:] {
		if channels == 4 {
			to[0], to[1], to[2], to[3] = from[0], from[1], from[2], 255
			continue
		}
		if from[0] != from[1] || from[0] != from[2] {
			return i.coloured()
		}
		to[0] = from[0]
	}
	return ""
}
