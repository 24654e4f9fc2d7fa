package convert

import (
	"encoding/binary"
	"math/bits"
)

// recorder makes the tf.train.Examples of rows, the bytes that tfrecord.AppendExample
// makes of the same features. It writes them from their end to their beginning, so that
// every length is known when it is written and each number is looked at once.
type recorder struct {
	buf []byte
	at  int // where begins what is written
}

// The tags of an Example's fields, which docs/reference/tfrecord.md describes.
const (
	tagFirst  = 1<<3 | 2 // Example.features, Features.feature, its key, Int64List.value
	tagSecond = 2<<3 | 2 // the value of a Features.feature
	tagThird  = 3<<3 | 2 // Feature.int64_list
)

// example returns the Example of a row, valid until the next call: its number, its
// label, which is absent where it is negative, its ids, and how many at their end are of
// the second segment.
func (r *recorder) example(number, label int64, ids []int32, second int) []byte {
	// An id takes four bytes at most, since a vocabulary has 1 << 24 at most.
	if most := 5*len(ids) + 256; len(r.buf) < most {
		r.buf = make([]byte, 2*most)
	}
	r.at = len(r.buf)

	// The features in the order of their names, the last first.
	end := r.at
	r.at -= len(ids)
	segments := r.buf[r.at:end]
	clear(segments)
	for i := len(ids) - second; i < len(ids); i++ {
		segments[i] = 1
	}
	r.feature("\n\x0b"+SegmentIDs, end)
	if label >= 0 {
		end = r.at
		r.varint(uint64(label))
		r.feature("\n\x09"+LabelIDs, end)
	}
	end = r.at
	r.ids(ids)
	r.feature("\n\x09"+InputIDs, end)
	end = r.at
	r.varint(uint64(number))
	r.feature("\n\x0a"+ExampleID, end)
	r.length(tagFirst, len(r.buf))
	return r.buf[r.at:]
}

// feature makes the numbers that are written up to end a feature. Its key is the name
// behind a tagFirst and the name's length.
func (r *recorder) feature(key string, end int) {
	r.length(tagFirst, end)
	r.length(tagThird, end)
	r.length(tagSecond, end)
	r.at -= len(key)
	copy(r.buf[r.at:], key)
	r.length(tagFirst, end)
}

// length makes what is written up to end a field.
func (r *recorder) length(tag byte, end int) {
	r.varint(uint64(end - r.at))
	r.at--
	r.buf[r.at] = tag
}

func (r *recorder) varint(v uint64) {
	if v < 0x80 {
		r.at--
		r.buf[r.at] = byte(v)
		return
	}
	r.at -= (9*bits.Len64(v) + 64) / 64
	binary.PutUvarint(r.buf[r.at:], v)
}

// ids writes numbers below 1 << 28 as varints, without a branch for their size.
func (r *recorder) ids(ids []int32) {
	buf, at := r.buf, r.at
	for i := len(ids) - 1; i >= 0; i-- {
		v := uint32(ids[i])
		n := (9*bits.Len32(v) + 64) / 64
		v = v&0x7f | v<<1&0x7f00 | v<<2&0x7f0000 | v<<3&0x7f000000 | 0x808080&(1<<((8*n-8)&31)-1)
		// What comes before the varint is written over.
		binary.LittleEndian.PutUint32(buf[at-4:], v<<((32-8*n)&31))
		at -= n
	}
	r.at = at
}
