// Package tfjpeg decodes JPEG images with the decoder of TensorFlow's library, which is libjpeg-turbo with
// vector instructions. The pixels are those of tf.io.decode_jpeg with its defaults. A program that
// imports it has the decoder [pixels.TensorFlow].
//
// The decoder is called directly and not by the operation DecodeJpeg: the first session of a process
// decides how many threads all of them have, and records are read before a training opens its own.
// The function is not of TensorFlow's C API, so it is tried on an image whose pixels are known before
// it is used.
package tfjpeg

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework
// #cgo linux LDFLAGS: -ldl
// #include "tfjpeg.h"
import "C"

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/gorbit-ml/gorbit/internal/data/pixels"
)

// known is an image, and knownPixels are its pixels: testdata/generate.py makes both.
var (
	//go:embed known.jpg
	known []byte
	//go:embed known.rgb
	knownPixels []byte
)

// Height and width of known.
const knownHeight, knownWidth = 13, 22

func init() { pixels.Register(pixels.TensorFlow, open) }

// open finds the decoder and tries it.
func open() (pixels.Decoder, error) {
	if C.gorbit_jpeg_open() == 0 {
		return nil, errors.New("TensorFlow's library has no decoder of JPEG images that gorbit knows")
	}
	got := make([]byte, len(knownPixels))
	if doubtful, err := (decoder{}).Decode(got, known, knownHeight, knownWidth, 3); err != nil || doubtful || !bytes.Equal(got, knownPixels) {
		return nil, errors.New("TensorFlow's library decodes JPEG images in another way than gorbit knows")
	}
	return decoder{}, nil
}

// decoder implements pixels.Decoder.
type decoder struct{}

// Decode implements pixels.Decoder.
func (decoder) Decode(to, file []byte, height, width, channels int) (doubtful bool, err error) {
	if len(file) == 0 || len(file) > math.MaxInt32 || height < 1 || width < 1 || len(to) != height*width*channels {
		return false, fmt.Errorf("a file of %d bytes for %d values, of height %d and width %d; expected both to fit", len(file), len(to), height, width)
	}
	switch C.gorbit_jpeg_decode(unsafe.Pointer(unsafe.SliceData(file)), C.int(len(file)), (*C.uint8_t)(unsafe.SliceData(to)), C.int(width), C.int(height), C.int(channels)) {
	case C.GORBIT_JPEG_WHOLE:
		return false, nil
	case C.GORBIT_JPEG_DOUBTFUL:
		return true, nil
	case C.GORBIT_JPEG_OTHER:
		return false, errors.New("TensorFlow finds another size than the header's")
	}
	return false, errors.New("TensorFlow finds it invalid or cut off")
}
