package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/snappy"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

// The index of a bundle is TensorFlow's variant of a LevelDB table: blocks of
// prefix-compressed, sorted keys, then a block of block handles, then a footer.
// docs/reference/checkpoint.md describes the layout.
const (
	tableMagic      = 0xdb4775248b80fb57
	tableFooter     = 48 // two padded block handles and the magic number
	tableTrailer    = 5  // compression type, checksum
	blockRaw        = 0
	blockSnappy     = 1
	snappyMostRatio = 64 // a copy of 64 bytes is at least two bytes long
)

type blockHandle struct{ offset, size uint64 }

// parseHandle reads a block handle and returns the bytes after it.
func parseHandle(b []byte) (h blockHandle, rest []byte, ok bool) {
	var n int
	if h.offset, n = binary.Uvarint(b); n <= 0 {
		return h, nil, false
	}
	b = b[n:]
	if h.size, n = binary.Uvarint(b); n <= 0 {
		return h, nil, false
	}
	return h, b[n:], true
}

// tableReader reads the table in r, which has the given size. Memory use is proportional
// to that size for any content: a block is read only if it is inside the file and after
// the previous one, and the total size of keys, which prefix compression can inflate, is
// limited.
type tableReader struct {
	r         io.ReaderAt
	size      int64
	path      string
	keyBudget int64
}

func (t *tableReader) corrupt(offset int64, format string, args ...any) error {
	return &CorruptError{Path: t.path, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// each calls visit for every key and value of the table, in key order. Both
// slices are valid during the call only; offset is that of their block.
func (t *tableReader) each(visit func(key, value []byte, offset int64) error) error {
	if t.size < tableFooter {
		return t.corrupt(t.size, "the file has %d bytes, which are too few for the footer of an index", t.size)
	}
	t.keyBudget = 16<<20 + 32*t.size
	end := t.size - tableFooter
	var footer [tableFooter]byte
	if _, err := t.r.ReadAt(footer[:], end); err != nil {
		return fmt.Errorf("%s: footer: %w", t.path, err)
	}
	if magic := binary.LittleEndian.Uint64(footer[40:]); magic != tableMagic {
		return t.corrupt(t.size-8, "magic number is %#016x; expected that of a checkpoint index", magic)
	}
	_, rest, ok := parseHandle(footer[:40])
	if !ok {
		return t.corrupt(end, "bad handle of the metaindex block")
	}
	handle, _, ok := parseHandle(rest)
	if !ok {
		return t.corrupt(end, "bad handle of the index block")
	}
	index, err := t.block(handle, end)
	if err != nil {
		return err
	}
	var (
		next    uint64 // minimum offset of the next block
		last    []byte
		started bool
	)
	return t.entries(index, int64(handle.offset), func(_, value []byte) error {
		h, _, ok := parseHandle(value)
		if !ok {
			return t.corrupt(int64(handle.offset), "bad block handle in the index block")
		}
		if h.offset < next {
			return t.corrupt(int64(handle.offset), "block at %d overlaps the previous one", h.offset)
		}
		data, err := t.block(h, end)
		if err != nil {
			return err
		}
		next = h.offset + h.size + tableTrailer
		return t.entries(data, int64(h.offset), func(key, value []byte) error {
			if started && string(key) <= string(last) {
				return t.corrupt(int64(h.offset), "key %q is out of order", key)
			}
			started, last = true, append(last[:0], key...)
			return visit(key, value, int64(h.offset))
		})
	})
}

// block reads a block that must end at or before end, checks its checksum and
// expands it.
func (t *tableReader) block(h blockHandle, end int64) ([]byte, error) {
	if h.offset > uint64(end) || h.size > uint64(end)-h.offset || uint64(end)-h.offset-h.size < tableTrailer {
		return nil, t.corrupt(-1, "block of %d bytes at %d does not fit in %d bytes", h.size, h.offset, end)
	}
	at := int64(h.offset)
	raw := make([]byte, h.size+tableTrailer)
	if _, err := t.r.ReadAt(raw, at); err != nil {
		return nil, fmt.Errorf("%s: block at %d: %w", t.path, at, err)
	}
	body, kind := raw[:h.size], raw[h.size]
	stored := crc32c.Unmask(binary.LittleEndian.Uint32(raw[h.size+1:]))
	if got := crc32.Checksum(raw[:h.size+1], crc32c.Table); got != stored {
		return nil, t.corrupt(at, "checksum of the index block is %08x; expected %08x", got, stored)
	}
	switch kind {
	case blockRaw:
		return body, nil
	case blockSnappy:
		n, err := snappy.DecodedLen(body)
		if err != nil || n > snappyMostRatio*len(body) {
			return nil, t.corrupt(at, "bad snappy length %d of a block of %d bytes", n, len(body))
		}
		out, err := snappy.Decode(nil, body)
		if err != nil {
			return nil, t.corrupt(at, "snappy block: %v", err)
		}
		return out, nil
	}
	return nil, t.corrupt(at, "unknown compression type %d of a block", kind)
}

// entries walks the prefix-compressed entries of a block found at offset.
func (t *tableReader) entries(b []byte, offset int64, visit func(key, value []byte) error) error {
	if len(b) < 4 {
		return t.corrupt(offset, "block of %d bytes has no restart count", len(b))
	}
	restarts := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	if restarts > uint64(len(b)-4)/4 {
		return t.corrupt(offset, "block of %d bytes cannot hold %d restart points", len(b), restarts)
	}
	b = b[:uint64(len(b)-4)-4*restarts]
	var key []byte
	for len(b) > 0 {
		var field [3]uint64 // shared and own bytes of the key, bytes of the value
		for i := range field {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return t.corrupt(offset, "bad entry header in a block")
			}
			field[i], b = v, b[n:]
		}
		shared, own, length := field[0], field[1], field[2]
		if shared > uint64(len(key)) || own > uint64(len(b)) || length > uint64(len(b))-own {
			return t.corrupt(offset, "entry of %d+%d+%d bytes does not fit in its block", shared, own, length)
		}
		key = append(key[:shared], b[:own]...)
		if t.keyBudget -= int64(len(key)); t.keyBudget < 0 {
			return t.corrupt(offset, "names are too long for a file of %d bytes", t.size)
		}
		value := b[own : own+length]
		b = b[own+length:]
		if err := visit(key, value); err != nil {
			return err
		}
	}
	return nil
}
