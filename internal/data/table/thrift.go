package table

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The limits of what Parquet's metadata hold. A library that decodes them makes room for what a length
// says, so that lengths are checked before.
const (
	maxThriftElements = 1 << 20 // of all lists together
	maxThriftDepth    = 32
)

// errThriftEnd says that a value does not end in the bytes that are there.
var errThriftEnd = errors.New("ends early")

// The types of Thrift's compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftStruct = 12
)

// thriftWalk passes over a struct in Thrift's compact protocol and checks that all lengths fit.
type thriftWalk struct {
	data     []byte
	at       int
	elements int // of lists so far
	// number, if set, is called with each integer, or bool as 0 or 1, of the struct itself, by its field and
	// 0, and of structs in it, by the fields of both.
	number func(field, inner int16, v int64)
}

// structure passes over a struct. outer is the field that it is in of a struct at depth 0, which is 0
// itself, or -1 for one further down.
func (w *thriftWalk) structure(depth int, outer int16) error {
	if depth > maxThriftDepth {
		return errors.New("is nested too deeply")
	}
	for id := int16(0); ; {
		head, err := w.byte()
		if err != nil || head == 0 {
			return err
		}
		if delta := head >> 4; delta != 0 {
			id += int16(delta)
		} else if v, err := w.zigzag(); err != nil {
			return err
		} else {
			id = int16(v)
		}
		kind := head & 15
		switch {
		case kind == thriftTrue || kind == thriftFalse: // the type is the value
			w.found(outer, id, int64(thriftFalse-kind))
			continue
		case kind >= thriftI16 && kind <= thriftI64:
			v, err := w.zigzag()
			if err != nil {
				return err
			}
			w.found(outer, id, v)
			continue
		}
		inner := int16(-1)
		if outer == 0 && kind == thriftStruct {
			inner = max(id, -1)
		}
		if err := w.value(kind, depth+1, inner); err != nil {
			return err
		}
	}
}

// found reports an integer of a struct.
func (w *thriftWalk) found(outer, id int16, v int64) {
	switch {
	case w.number == nil || outer < 0:
	case outer == 0:
		w.number(id, 0, v)
	default:
		w.number(outer, id, v)
	}
}

// value passes over a value that is not a bool field of a struct.
func (w *thriftWalk) value(kind byte, depth int, outer int16) error {
	switch kind {
	case thriftTrue, thriftFalse, thriftByte:
		return w.skip(1)
	case thriftI16, thriftI32, thriftI64:
		_, err := w.zigzag()
		return err
	case thriftDouble:
		return w.skip(8)
	case thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case thriftList, thriftSet:
		return w.list(depth)
	case thriftStruct:
		return w.structure(depth, outer)
	}
	return fmt.Errorf("has a value of type %d of Thrift, which no Parquet file has", kind) // maps, too
}

// list passes over a list.
func (w *thriftWalk) list(depth int) error {
	if depth > maxThriftDepth {
		return errors.New("is nested too deeply")
	}
	head, err := w.byte()
	if err != nil {
		return err
	}
	n := uint64(head >> 4)
	if n == 15 {
		if n, err = w.varint(); err != nil {
			return err
		}
	}
	if n > maxThriftElements || w.elements+int(n) > maxThriftElements {
		return fmt.Errorf("has lists of more than %d elements", maxThriftElements)
	}
	w.elements += int(n)
	for range n {
		if err := w.value(head&15, depth+1, -1); err != nil {
			return err
		}
	}
	return nil
}

func (w *thriftWalk) byte() (byte, error) {
	if w.at >= len(w.data) {
		return 0, errThriftEnd
	}
	w.at++
	return w.data[w.at-1], nil
}

func (w *thriftWalk) skip(n uint64) error {
	if n > uint64(len(w.data)-w.at) {
		return errThriftEnd
	}
	w.at += int(n)
	return nil
}

func (w *thriftWalk) varint() (uint64, error) {
	v, n := binary.Uvarint(w.data[w.at:])
	if n == 0 {
		return 0, errThriftEnd
	}
	if n < 0 {
		return 0, errors.New("has a number of more than 64 bits")
	}
	w.at += n
	return v, nil
}

func (w *thriftWalk) zigzag() (int64, error) {
	v, err := w.varint()
	return int64(v>>1) ^ -int64(v&1), err
}
