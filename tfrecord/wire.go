package tfrecord

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of tensorflow/core/example/example.proto and feature.proto.
// The fields of Feature are the values of Kind.
const (
	exampleFeatures = 1
	featuresFeature = 1
	entryKey        = 1
	entryValue      = 2
	listValue       = 1
)

// parser parses the messages of one record. Each method parses the bytes between two
// positions of the record. It follows protobuf in everything: repeated messages merge,
// the last entry of a map key and the last kind of a feature win, and fields with an
// unknown number or an unexpected wire type are ignored.
type parser struct {
	b    []byte
	to   destination
	left int // bytes that what is decoded may still take
}

func newParser(record []byte, to destination) parser {
	return parser{record, to, maxDecoded(len(record))}
}

// Numbers take 8 bytes each and at least one in a record, byte strings 24 and two, and names and lists
// still more. So what is decoded of a record is limited, to twice the record and a share that is
// free: that of 32 million numbers. Tests set less.
var freeDecoded = 256 << 20

// Bytes of memory that what is decoded takes, about.
const (
	sizeOfInt64  = 8
	sizeOfFloat  = 4
	sizeOfString = 24  // the slice
	sizeOfStep   = 8   // of a list
	sizeOfName   = 256 // with its place in maps
)

func maxDecoded(record int) int { return freeDecoded + 2*record }

// take counts the memory of what is to be decoded at pos.
func (p *parser) take(pos, n int) error {
	if p.left -= n; p.left < 0 {
		return &ExampleError{Offset: pos, TooLarge: true, Reason: fmt.Sprintf("its features take more than %d bytes of memory when decoded; expected at most that of a record of %d bytes", maxDecoded(len(p.b)), len(p.b))}
	}
	return nil
}

// destination returns where to store the feature or the list of features called name; nil ignores it.
type destination interface {
	slot(name []byte) *Value
	list(name []byte) *List
	wantsLists() bool // whether list is called at all
}

func parseExample(record []byte, to destination) error {
	p := newParser(record, to)
	for pos := 0; pos < len(record); {
		f, err := p.field(pos, len(record))
		if err != nil {
			return err
		}
		switch {
		case f.is(exampleFeatures, protowire.BytesType):
			err = p.features(f.start, f.end)
		case f.is(sequenceLists, protowire.BytesType) && to.wantsLists():
			err = p.featureLists(f.start, f.end)
		}
		if err != nil {
			return err
		}
		pos = f.end
	}
	return nil
}

func (p *parser) features(pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		if f.is(featuresFeature, protowire.BytesType) {
			if err := p.entry(f.start, f.end); err != nil {
				return err
			}
		}
		pos = f.end
	}
	return nil
}

// entry parses one entry of the map of features.
func (p *parser) entry(start, end int) error {
	key, value, values, err := p.keyValue(start, end)
	if err != nil {
		return err
	}
	v := p.to.slot(key)
	if v == nil {
		return nil
	}
	if err := p.take(start, sizeOfName); err != nil {
		return err
	}
	v.reset(KindNone)
	if values <= 1 {
		return p.feature(v, value.start, value.end)
	}
	return p.eachValue(start, end, func(f field) error { return p.feature(v, f.start, f.end) })
}

// keyValue returns the key of a map's entry, its last value and the number of its values. Key and
// value may come in any order and more than once, so the value is parsed once the key is final.
func (p *parser) keyValue(start, end int) (key []byte, value field, values int, err error) {
	for pos := start; pos < end; {
		f, err := p.field(pos, end)
		if err != nil {
			return nil, value, 0, err
		}
		switch {
		case f.is(entryKey, protowire.BytesType):
			key = p.b[f.start:f.end]
			if !utf8.Valid(key) {
				return nil, value, 0, p.errorf(f.start, "feature name %q is not valid UTF-8", key)
			}
		case f.is(entryValue, protowire.BytesType):
			value = f
			values++
		}
		pos = f.end
	}
	return key, value, values, nil
}

// eachValue calls a function for each value of a map's entry that keyValue has parsed: they merge.
func (p *parser) eachValue(start, end int, each func(field) error) error {
	for pos := start; pos < end; {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		if f.is(entryValue, protowire.BytesType) {
			if err := each(f); err != nil {
				return err
			}
		}
		pos = f.end
	}
	return nil
}

func (p *parser) feature(v *Value, pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		pos = f.end
		if f.typ != protowire.BytesType || f.num > protowire.Number(KindInt64) {
			continue
		}
		if kind := Kind(f.num); v.Kind != kind {
			v.reset(kind)
		}
		switch v.Kind {
		case KindInt64:
			err = p.int64List(v, f.start, f.end)
		case KindFloat:
			err = p.floatList(v, f.start, f.end)
		case KindBytes:
			err = p.bytesList(v, f.start, f.end)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) int64List(v *Value, pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		// Packed and single values are the same bytes.
		if f.is(listValue, protowire.BytesType) || f.is(listValue, protowire.VarintType) {
			if err := p.varints(v, f.start, f.end); err != nil {
				return err
			}
		}
		pos = f.end
	}
	return nil
}

func (p *parser) varints(v *Value, pos, end int) error {
	b, list := p.b[pos:end], v.Int64s
	at := len(list)
	most := len(b) // no varint is shorter than a byte
	if most > manyVarints {
		most = min(most, 1+varintsIn(b)) // one more: three are written at a time
	}
	if err := p.take(pos, most*sizeOfInt64); err != nil {
		return err
	}
	list = slices.Grow(list, most)[:at+most]
	i := 0
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		if x&0x8080808080808080 == 0 {
			to := list[at : at+8 : at+8]
			to[0], to[1], to[2], to[3] = int64(x&0x7f), int64(x>>8&0x7f), int64(x>>16&0x7f), int64(x>>24&0x7f)
			to[4], to[5], to[6], to[7] = int64(x>>32&0x7f), int64(x>>40&0x7f), int64(x>>48&0x7f), int64(x>>56)
			at += 8
			i += 8
			continue
		}
		// Token ids take up to three bytes, so two or three of them end in these eight. The
		// position of the next ids does not depend on the values. The sizes are hard to
		// predict, and decide only whether it is three ids.
		if more := x & 0x8080808080808080; more&(more>>8)&(more>>16) == 0 {
			first := ^x & 0x8080808080808080
			second := first & (first - 1)
			third := second & (second - 1)
			n1, n2, n3 := bits.TrailingZeros64(first)+1, bits.TrailingZeros64(second)+1, bits.TrailingZeros64(third)+1
			to := list[at : at+3 : at+3]
			to[0] = shortVarint(x & (1<<(n1&63) - 1))
			to[1] = shortVarint(x & (1<<(n2&63) - 1) >> (n1 & 63))
			to[2] = shortVarint(x << (-n3 & 63) >> ((n2 - n3) & 63))
			if third != 0 {
				at += 3
				i += n3 / 8
			} else {
				at += 2
				i += n2 / 8
			}
			continue
		}
		x, n := protowire.ConsumeVarint(b[i:])
		if n < 0 {
			return p.errorf(pos+i, "%v", protowire.ParseError(n))
		}
		list[at] = int64(x)
		at++
		i += n
	}
	for i < len(b) {
		if x := b[i]; x < 0x80 {
			list[at] = int64(x)
			at++
			i++
			continue
		}
		x, n := protowire.ConsumeVarint(b[i:])
		if n < 0 {
			return p.errorf(pos+i, "%v", protowire.ParseError(n))
		}
		list[at] = int64(x)
		at++
		i += n
	}
	v.Int64s = list[:at]
	return nil
}

// manyVarints is the number of bytes from which on the varints in them are counted before there is memory
// for them.
const manyVarints = 64 << 10

// varintsIn counts the bytes that end a varint.
func varintsIn(b []byte) (n int) {
	for ; len(b) >= 8; b = b[8:] {
		n += bits.OnesCount64(^binary.LittleEndian.Uint64(b) & 0x8080808080808080)
	}
	for _, x := range b {
		n += int(^x >> 7)
	}
	return n
}

// shortVarint returns the number of a varint of at most three bytes.
func shortVarint(x uint64) int64 {
	return int64(x&0x7f | x>>1&0x3f80 | x>>2&0x1fc000)
}

func (p *parser) floatList(v *Value, pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		if f.is(listValue, protowire.BytesType) || f.is(listValue, protowire.Fixed32Type) {
			b := p.b[f.start:f.end]
			if len(b)%4 != 0 {
				return p.errorf(f.start, "packed floats have %d bytes; expected a multiple of 4", len(b))
			}
			if err := p.take(f.start, len(b)/4*sizeOfFloat); err != nil {
				return err
			}
			v.appendFloats(b)
		}
		pos = f.end
	}
	return nil
}

// appendFloats appends packed floats, whose bytes must be a multiple of 4.
func (v *Value) appendFloats(b []byte) {
	n := len(v.Floats)
	v.Floats = slices.Grow(v.Floats, len(b)/4)[:n+len(b)/4]
	to := v.Floats[n:]
	for ; len(b) >= 8 && len(to) >= 2; b, to = b[8:], to[2:] {
		x := binary.LittleEndian.Uint64(b)
		to[0], to[1] = math.Float32frombits(uint32(x)), math.Float32frombits(uint32(x>>32))
	}
	if len(b) >= 4 && len(to) > 0 {
		to[0] = math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
}

func (p *parser) bytesList(v *Value, pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		if f.is(listValue, protowire.BytesType) {
			if err := p.take(f.start, sizeOfString); err != nil {
				return err
			}
			v.Bytes = append(v.Bytes, p.b[f.start:f.end:f.end])
		}
		pos = f.end
	}
	return nil
}

// field is one field of a message. Its content is between start and end, without the
// length if it is length-delimited.
type field struct {
	num        protowire.Number
	typ        protowire.Type
	start, end int
}

func (f *field) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// field parses the field at pos in a message that ends at end.
func (p *parser) field(pos, end int) (field, error) {
	tag, n := p.varint(pos, end)
	if n < 0 {
		return field{}, p.errorf(pos, "field tag: %v", protowire.ParseError(n))
	}
	f := field{typ: protowire.Type(tag & 7), start: pos + n}
	if tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return field{}, p.errorf(pos, "field number %d is invalid", tag>>3)
	}
	f.num = protowire.Number(tag >> 3)
	if f.typ == protowire.BytesType {
		length, n := p.varint(f.start, end)
		if n < 0 {
			return field{}, p.errorf(f.start, "length of field %d: %v", f.num, protowire.ParseError(n))
		}
		f.start += n
		if length > uint64(end-f.start) {
			return field{}, p.errorf(f.start, "field %d is %d bytes long, but its message ends after %d", f.num, length, end-f.start)
		}
		f.end = f.start + int(length)
		return f, nil
	}
	n = protowire.ConsumeFieldValue(f.num, f.typ, p.b[f.start:end])
	if n < 0 {
		return field{}, p.errorf(f.start, "field %d: %v", f.num, protowire.ParseError(n))
	}
	f.end = f.start + n
	return f, nil
}

// varint is protowire.ConsumeVarint with the most common case inlined.
func (p *parser) varint(pos, end int) (uint64, int) {
	if pos < end && p.b[pos] < 0x80 {
		return uint64(p.b[pos]), 1
	}
	return protowire.ConsumeVarint(p.b[pos:end])
}

func (p *parser) errorf(offset int, format string, args ...any) error {
	return &ExampleError{Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// AppendExample appends a serialized tf.train.Example of the given features. It writes
// them in the order of their names, so that equal features give equal bytes, those of
// protobuf's deterministic serialization. Two features with the same name, or a name
// that is not UTF-8, are an error.
func AppendExample(dst []byte, features ...Feature) ([]byte, error) {
	byName := func(a, b Feature) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(features, byName) {
		features = slices.Clone(features)
		slices.SortFunc(features, byName)
	}
	var few [8]sizes
	all := few[:0]
	size := 0
	for i := range features {
		f := &features[i]
		switch {
		case !utf8.ValidString(f.Name):
			return dst, fmt.Errorf("feature name %q is not valid UTF-8", f.Name)
		case i > 0 && features[i-1].Name == f.Name:
			return dst, fmt.Errorf("feature %q is given twice", f.Name)
		}
		of := sizesOf(f)
		all = append(all, of)
		size += sizeField(of.entry)
	}
	dst = slices.Grow(dst, sizeField(size))
	dst = appendLength(dst, exampleFeatures, size)
	for i := range features {
		f := &features[i]
		of := all[i]
		dst = appendLength(dst, featuresFeature, of.entry)
		dst = appendLength(dst, entryKey, len(f.Name))
		dst = append(dst, f.Name...)
		if f.Kind == KindNone {
			dst = appendLength(dst, entryValue, 0)
			continue
		}
		dst = appendLength(dst, entryValue, sizeField(of.list))
		dst = appendLength(dst, protowire.Number(f.Kind), of.list)
		dst = appendList(dst, &f.Value, of.packed)
	}
	return dst, nil
}

// sizes are the sizes in bytes of a feature's map entry, of its list, and of the numbers
// packed in the list.
type sizes struct{ entry, list, packed int }

func sizesOf(f *Feature) (of sizes) {
	value := 0
	switch f.Kind {
	case KindNone:
	case KindBytes:
		for _, b := range f.Bytes {
			of.list += sizeField(len(b))
		}
		value = sizeField(of.list)
	default:
		if of.packed = sizePacked(&f.Value); of.packed > 0 {
			of.list = sizeField(of.packed)
		}
		value = sizeField(of.list)
	}
	of.entry = sizeField(len(f.Name)) + sizeField(value)
	return of
}

// sizeField returns the size of a length-delimited field. The field numbers of all these
// messages are below 16.
func sizeField(n int) int { return 1 + protowire.SizeBytes(n) }

func sizePacked(v *Value) (n int) {
	if v.Kind == KindFloat {
		return 4 * len(v.Floats)
	}
	for _, x := range v.Int64s {
		n += protowire.SizeVarint(uint64(x))
	}
	return n
}

func appendLength(dst []byte, num protowire.Number, n int) []byte {
	tag := byte(num)<<3 | byte(protowire.BytesType) // numbers are below 16 here
	if n < 0x80 {
		return append(dst, tag, byte(n))
	}
	dst = append(dst, tag)
	return protowire.AppendVarint(dst, uint64(n))
}

func appendList(dst []byte, v *Value, packed int) []byte {
	if v.Kind == KindBytes {
		for _, b := range v.Bytes {
			dst = appendLength(dst, listValue, len(b))
			dst = append(dst, b...)
		}
		return dst
	}
	if packed == 0 {
		return dst
	}
	dst = appendLength(dst, listValue, packed)
	if v.Kind == KindFloat {
		for _, x := range v.Floats {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		}
		return dst
	}
	return appendVarints(dst, v.Int64s, packed)
}

// appendVarints appends numbers that take size bytes in total.
func appendVarints(dst []byte, list []int64, size int) []byte {
	at := len(dst)
	dst = slices.Grow(dst, size+4) // short numbers are written four bytes at a time
	to := dst[at : at+size+4]
	if size == len(list) {
		for i, x := range list {
			to[i] = byte(x)
		}
		return dst[:at+size]
	}
	i := 0
	for _, x := range list {
		n := protowire.SizeVarint(uint64(x))
		if n > 3 {
			i += binary.PutUvarint(to[i:], uint64(x))
			continue
		}
		v := uint32(x)
		v = v&0x7f | v<<1&0x7f00 | v<<2&0x7f0000 | 0x808080&(1<<(8*n-8)-1)
		binary.LittleEndian.PutUint32(to[i:], v)
		i += n
	}
	return dst[:at+size]
}
