package tfrecord

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// mapping is a file whose content is also mapped into memory, so that reading takes no
// system call. The memory is unmapped once nobody can be reading it.
type mapping struct {
	vfs.File
	data   []byte // nil if the file cannot be mapped
	closed atomic.Bool
}

// newMapping maps size bytes of a file, and takes ownership of the file.
func newMapping(file vfs.File, size int64) (*mapping, error) {
	m := &mapping{File: file}
	if size == 0 {
		return m, nil
	}
	local := vfs.Local(file)
	if remote, far := file.(vfs.RemoteFile); far {
		local, _ = remote.Keep(context.Background()) // the copy that the opening made, if any
	}
	if local == nil {
		return m, errors.ErrUnsupported
	}
	data, err := mapFile(local, size)
	if err != nil {
		return m, err
	}
	m.data = data
	// Not in Close, because other goroutines may be reading.
	runtime.AddCleanup(m, unmapFile, data)
	return m, nil
}

// record copies the data of the record at offset, which has at most span bytes with its
// framing. It returns false if it finds no intact record. The caller must then read the
// file to learn why: the file may have become shorter, which memory shows as zeros and
// faults, or the disk may have failed, which is a fault too.
func (m *mapping) record(buf []byte, offset, span, longest int64) (data []byte, ok bool) {
	if offset+span > int64(len(m.data)) || span < frameBytes || m.closed.Load() {
		return nil, false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(func() { data, ok = nil, false })
	frame := m.data[offset : offset+span]
	length, whole := parseHeader(frame)
	if !whole || length > uint64(span-frameBytes) || length > uint64(longest) {
		return nil, false
	}
	buf = append(buf[:0], frame[headerBytes:headerBytes+length+footerBytes]...)
	runtime.KeepAlive(m)
	data = buf[:length]
	return data, binary.LittleEndian.Uint32(buf[length:]) == maskedCRC(data)
}

// cacheLine is the smallest unit that a processor fetches. mostTouched is how much of a
// record touch fetches; the processor prefetches the rest by itself.
const (
	cacheLine   = 64
	mostTouched = 8 * cacheLine
)

// span is a part of a file, in bytes.
type span struct{ begin, end int64 }

// touch reads the beginnings of spans, as far as possible.
func (m *mapping) touch(spans []span) {
	if m.closed.Load() {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(nil)
	var sum byte
	for _, s := range spans {
		end := min(s.end, s.begin+mostTouched, int64(len(m.data)))
		for at := s.begin; at < end; at += cacheLine {
			sum += m.data[at]
		}
	}
	runtime.KeepAlive(sum)
	runtime.KeepAlive(m)
}

// recoverFault, when deferred, recovers from a panic caused by unreadable memory.
func recoverFault(then func()) {
	if r := recover(); r != nil {
		if _, fault := r.(interface{ Addr() uintptr }); !fault {
			panic(r)
		}
		if then != nil {
			then()
		}
	}
}
