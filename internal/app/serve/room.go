package serve

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
)

// room is the bytes that the images which are decoded at the same time may take. A small file may be one of
// many pixels. An image that takes more is decoded alone.
type room struct {
	free *semaphore.Weighted
	most int64
}

func newRoom(most int64) *room {
	return &room{semaphore.NewWeighted(most), most}
}

// pixelBytes is the most that the decoders take for a pixel: of a progressive JPEG file, four colours of
// coefficients, and the values.
const pixelBytes = 24

// mostPixels is more than package convert decodes.
const mostPixels = 1 << 27

// take waits until there is room for the images of a row, and returns what gives it back.
func (r *room) take(row []convert.Cell) (give func()) {
	n := int64(0)
	for _, c := range row {
		if i, err := pixels.Open(c.File); c.File != nil && err == nil {
			n += pixelBytes * min(int64(i.Width)*int64(i.Height), mostPixels)
		}
	}
	n = min(n, r.most)
	r.free.Acquire(context.Background(), n) // others hold it only while they compute
	return func() { r.free.Release(n) }
}
