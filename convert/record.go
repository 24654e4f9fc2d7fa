package convert

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/gorbit-ml/gorbit/internal/data/qa"
)

// recorder encodes rows as tf.train.Examples, with the same bytes as
// tfrecord.AppendExample. It writes an Example from the end to the beginning, so that each
// length is known when it is written and each number is visited once.
type recorder struct {
	buf []byte
	at  int // start of what has been written
}

// The tags of an Example's fields, which docs/reference/tfrecord.md describes.
const (
	tagFirst  = 1<<3 | 2 // Example.features, Features.feature, its key, Int64List.value
	tagSecond = 2<<3 | 2 // the value of a Features.feature, Feature.float_list
	tagThird  = 3<<3 | 2 // Feature.int64_list
)

// example returns the Example of a row, valid until the next call. number is the row's
// number; second is the number of ids at the end that belong to the second segment.
func (r *recorder) example(number int64, ids []int32, second int, a answer) []byte {
	// An id takes at most four bytes, because a vocabulary has at most 1 << 24 ids, and a negative
	// label ten.
	r.begin(5*len(ids) + 10*len(a.labels) + 4*len(a.starts) + 256)

	// The features in the order of their names, the last first.
	switch a.form {
	case started:
		r.starts(a.starts)
	case weighted:
		r.weights(a.starts)
	}
	r.segments(len(ids), second)
	r.answer(a)
	r.each("\n\x09"+InputIDs, ids)
	r.one("\n\x0a"+ExampleID, uint64(number))
	return r.end()
}

// sides returns the Example of a source and its target, valid until the next call.
func (r *recorder) sides(number int64, source, target []int32) []byte {
	r.begin(5*(len(source)+len(target)) + 256)
	r.each("\n\x0a"+TargetIDs, target)
	r.each("\n\x09"+InputIDs, source)
	r.one("\n\x0a"+ExampleID, uint64(number))
	return r.end()
}

// texts returns the Example of several texts, the numbers of which are those of their ids, and their score,
// if there is one. It is valid until the next call.
func (r *recorder) texts(number int64, ids, texts []int32, a answer) []byte {
	r.begin(10*len(ids) + 256)
	r.each("\n\x0b"+SegmentIDs, texts)
	r.answer(a)
	r.each("\n\x09"+InputIDs, ids)
	r.one("\n\x0a"+ExampleID, uint64(number))
	return r.end()
}

// choices returns the Example of a question, valid until the next call.
func (r *recorder) choices(number int64, q question, a answer) []byte {
	r.begin(10*len(q.ids) + 10*len(q.starts) + 256)
	r.each("\n\x0b"+SegmentIDs, q.types)
	r.answer(a)
	r.each("\n\x09"+InputIDs, q.ids)
	r.one("\n\x0a"+ExampleID, uint64(number))
	r.each("\n\x0d"+ChoiceStarts, q.starts)
	return r.end()
}

// window returns the Example of a window of a question, valid until the next call. number is the
// record's number, first and last are the tokens of the answer, if it is known.
func (r *recorder) window(number, question int64, w qa.Window, first, last int, known bool) []byte {
	r.begin(20*len(w.IDs) + 512)
	r.each("\n\x0c"+TokenStarts, w.Starts)
	r.each("\n\x0a"+TokenEnds, w.Ends)
	if known {
		r.one("\n\x0f"+StartPositions, uint64(first))
	}
	r.segments(len(w.IDs), w.Second())
	r.one("\n\x08"+QuestionID, uint64(question))
	r.each("\n\x09"+InputIDs, w.IDs)
	r.one("\n\x0a"+ExampleID, uint64(number))
	if known {
		r.one("\n\x0d"+EndPositions, uint64(last))
	}
	return r.end()
}

// begin begins an Example of at most so many bytes.
func (r *recorder) begin(most int) {
	if len(r.buf) < most {
		r.buf = make([]byte, 2*most)
	}
	r.at = len(r.buf)
}

// end returns the Example.
func (r *recorder) end() []byte {
	r.length(tagFirst, len(r.buf))
	return r.buf[r.at:]
}

// one writes a feature of a number.
func (r *recorder) one(key string, v uint64) {
	end := r.at
	r.varint(v)
	r.feature(key, end)
}

// each writes a feature of numbers.
func (r *recorder) each(key string, values []int32) {
	end := r.at
	r.ids(values)
	r.feature(key, end)
}

// segments writes the segments of n ids, of which the second has those at the end.
func (r *recorder) segments(n, second int) {
	end := r.at
	r.at -= n
	segments := r.buf[r.at:end]
	clear(segments)
	for i := n - second; i < n; i++ {
		segments[i] = 1
	}
	r.feature("\n\x0b"+SegmentIDs, end)
}

// answer writes the feature of an answer, if there is one.
func (r *recorder) answer(a answer) {
	end := r.at
	switch a.form {
	case labelled:
		for i := len(a.labels) - 1; i >= 0; i-- {
			r.varint(uint64(int64(a.labels[i])))
		}
		r.feature("\n\x09"+LabelIDs, end)
	case valued:
		r.at -= 4
		binary.LittleEndian.PutUint32(r.buf[r.at:], math.Float32bits(a.value))
		r.list("\n\x05"+Label, end, tagSecond)
	}
}

// starts writes which ids begin a word.
func (r *recorder) starts(starts []byte) {
	end := r.at
	r.at -= len(starts)
	copy(r.buf[r.at:], starts)
	r.feature("\n\x0b"+WordStarts, end)
}

// weights writes 1 for each id that is to be learned, and else 0.
func (r *recorder) weights(learned []byte) {
	end := r.at
	for i := len(learned) - 1; i >= 0; i-- {
		r.at -= 4
		binary.LittleEndian.PutUint32(r.buf[r.at:], math.Float32bits(float32(learned[i])))
	}
	r.list("\n\x0d"+TokenWeights, end, tagSecond)
}

// feature turns the integers written up to end into a feature. Its key is a tagFirst, the
// length of the name, and the name.
func (r *recorder) feature(key string, end int) { r.list(key, end, tagThird) }

// list is feature for a list of the given kind.
func (r *recorder) list(key string, end int, kind byte) {
	r.length(tagFirst, end)
	r.length(kind, end)
	r.length(tagSecond, end)
	r.at -= len(key)
	copy(r.buf[r.at:], key)
	r.length(tagFirst, end)
}

// length turns the bytes written up to end into a field.
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
		// The bytes before the varint will be overwritten.
		binary.LittleEndian.PutUint32(buf[at-4:], v<<((32-8*n)&31))
		at -= n
	}
	r.at = at
}
