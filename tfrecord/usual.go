package tfrecord

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Almost all records are written in the same way: each message once, the key before the
// value, numbers packed, and the features in the same order in all records of a file.

const (
	tagFeatures = exampleFeatures<<3 | byte(protowire.BytesType)
	tagEntry    = featuresFeature<<3 | byte(protowire.BytesType)
	tagKey      = entryKey<<3 | byte(protowire.BytesType)
	tagValue    = entryValue<<3 | byte(protowire.BytesType)
	tagBytes    = byte(KindBytes)<<3 | byte(protowire.BytesType)
	tagFloats   = byte(KindFloat)<<3 | byte(protowire.BytesType)
	tagInt64s   = byte(KindInt64)<<3 | byte(protowire.BytesType)
	tagPacked   = listValue<<3 | byte(protowire.BytesType)
)

// seen is the feature that was first seen at a position in a record.
type seen struct {
	name string
	slot int // -1 for a feature that was not requested
}

// usual decodes a record that is written in the usual way. Otherwise it returns false and leaves v
// undefined.
func (v *Values) usual(record []byte) bool {
	p := newParser(record, nil)
	i, end := p.message(0, len(record), tagFeatures)
	if i < 0 || end != len(record) {
		return false
	}
	for place := 0; i < len(record); place++ {
		at, entryEnd := p.message(i, len(record), tagEntry)
		if at < 0 {
			return false
		}
		i = entryEnd
		key, keyEnd := p.message(at, entryEnd, tagKey)
		if key < 0 {
			return false
		}
		at, end = p.message(keyEnd, entryEnd, tagValue)
		if at < 0 || end != entryEnd {
			return false
		}
		slot, ok := v.place(place, record[key:keyEnd])
		if !ok {
			return false
		}
		if slot < 0 {
			continue
		}
		value := &v.values[slot]
		value.reset(KindNone)
		if at == end {
			continue
		}
		if p.b[at] != tagInt64s {
			if !p.usualList(value, at, entryEnd) {
				return false
			}
			continue
		}
		if at, end = p.message(at, entryEnd, tagInt64s); at < 0 || end != entryEnd {
			return false
		}
		value.Kind = KindInt64
		if at == end {
			continue
		}
		if at, end = p.message(at, entryEnd, tagPacked); at < 0 || end != entryEnd || p.varints(value, at, end) != nil {
			return false
		}
	}
	return true
}

// usualList decodes the list of byte strings or floats of a feature that ends at last, if it is written
// in the usual way.
func (p *parser) usualList(value *Value, at, last int) bool {
	tag := p.b[at]
	at, end := p.message(at, last, tag)
	if at < 0 || end != last {
		return false
	}
	switch tag {
	case tagBytes:
		value.Kind = KindBytes
		for at < end {
			from, to := p.message(at, end, tagPacked)
			if from < 0 {
				return false
			}
			if p.take(from, sizeOfString) != nil {
				return false
			}
			value.Bytes = append(value.Bytes, p.b[from:to:to])
			at = to
		}
		return true
	case tagFloats:
		value.Kind = KindFloat
		if at == end {
			return true
		}
		if at, end = p.message(at, last, tagPacked); at < 0 || end != last || (end-at)%4 != 0 {
			return false
		}
		value.appendFloats(p.b[at:end])
		return true
	}
	return false
}

// place returns the slot of the feature at position k of the record, or -1, and false
// if the name is invalid.
func (v *Values) place(k int, name []byte) (slot int, ok bool) {
	if k < len(v.seen) && v.seen[k].name == string(name) {
		return v.seen[k].slot, true
	}
	if !utf8.Valid(name) {
		return 0, false
	}
	slot, ok = v.decoder.index[string(name)]
	if !ok {
		slot = -1
	}
	if k == len(v.seen) && k < mostSeen {
		v.seen = append(v.seen, seen{string(name), slot})
	}
	return slot, true
}

// mostSeen limits how many features of a record are remembered.
const mostSeen = 64

// message returns the start and the end of the content of the field with the given tag
// at pos, or -1 if there is no such field that ends by end.
func (p *parser) message(pos, end int, tag byte) (int, int) {
	if end-pos < 2 || p.b[pos] != tag {
		return -1, -1
	}
	length, n := uint64(p.b[pos+1]), 1
	if length >= 0x80 {
		if length, n = binary.Uvarint(p.b[pos+1 : end]); n <= 0 {
			return -1, -1
		}
	}
	pos += 1 + n
	if length > uint64(end-pos) {
		return -1, -1
	}
	return pos, pos + int(length)
}
