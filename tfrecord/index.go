package tfrecord

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

const indexSuffix = ".index"

// The format of the index file; docs/reference/tfrecord.md describes it byte by byte.
const (
	indexMagic       = "GORBITRX"
	indexVersion     = 2
	indexHeaderBytes = 72
	edgeBytes        = 4096 // bytes at the shard's beginning and end that identify it
)

// defaultMaxInflatedBytes limits the inflated size of a compressed file on disk.
const defaultMaxInflatedBytes = 64 << 30

// MaxInflatedBytes limits the uncompressed size of files that OpenIndexed inflates. The
// default is 64 GiB. Set it lower where the temporary folder has less space, or for files
// from others.
func MaxInflatedBytes(n int64) ReaderOption {
	return func(c *readerConfig) { c.maxSpill = n }
}

// IndexedFile provides random access to the records of a file. It is safe for concurrent
// use.
type IndexedFile struct {
	path        string
	content     *mapping // plain records: the file itself, or its inflated content
	spilled     *os.File // the inflated content; nil if the file is not compressed
	compression Compression
	maxRecord   int64
	index       index
}

// index holds the offsets of the intact records of a stream.
type index struct {
	offsets []int64
	size    int64 // size of the stream
	skipped Skipped
	digest  uint64 // digest of the records
}

// OpenIndexed opens a file for access to single records. It stores their offsets in an
// index file in the same folder, whose name is that of the file plus .index. To build
// the index, it reads the whole file once and verifies every checksum. It rebuilds the
// index if it is damaged or the file has changed, and keeps it only in memory if it
// cannot be written.
//
// Under OnCorrupt(Skip), damaged records are not records of the IndexedFile: the records
// after them are renumbered.
//
// A compressed file is inflated into an unlinked temporary file in os.TempDir, which
// takes up the uncompressed size until Close.
func OpenIndexed(path string, opts ...ReaderOption) (*IndexedFile, error) {
	cfg := newReaderConfig(opts)
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	x, err := openIndexed(f, path, size, cfg)
	if err != nil {
		f.Close()
		return nil, err
	}
	if remote, ok := f.(vfs.RemoteFile); ok {
		remote.Bind(context.Background())
	}
	return x, nil
}

func openIndexed(f vfs.File, path string, size int64, cfg readerConfig) (*IndexedFile, error) {
	x := &IndexedFile{path: path, maxRecord: cfg.maxRecord}
	indexPath, err := indexPathOf(f, path, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	id, err := identify(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	idx, err := loadIndex(indexPath, id)
	switch {
	case err == nil && (idx.skipped == Skipped{} || cfg.policy == Skip):
		x.index = idx
		x.serve(f, cfg)
		return x, nil
	case err == nil:
		// The scan below will find the damage and report it.
	case errors.Is(err, os.ErrNotExist):
	default:
		cfg.log.Debug("index is rebuilt", "index", indexPath, "reason", err)
	}

	rd, err := newReader(io.NewSectionReader(f, 0, size), path, size, cfg)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	if rd.Compression() != None {
		if err := x.inflate(rd); err != nil {
			return nil, err
		}
		return x, f.Close()
	}
	if x.index, err = scan(rd); err != nil {
		return nil, err
	}
	if now, err := identify(f); err != nil || now != id {
		return nil, fmt.Errorf("%s changed while it was read; try again", path)
	}
	if err := writeIndex(indexPath, id, x.index); err != nil {
		cfg.log.Debug("index is kept in memory", "index", indexPath, "reason", err)
	}
	x.serve(f, cfg)
	return x, nil
}

// indexPathOf returns the path of a file's index. A file that is reached over a network is
// first copied to this machine, if there is room, because its records are read in random order
// and in every epoch. Its index is on this machine as well.
func indexPathOf(f vfs.File, path string, cfg readerConfig) (string, error) {
	remote, ok := f.(vfs.RemoteFile)
	if !ok {
		return path + indexSuffix, nil
	}
	remote.Bind(cfg.ctx)
	kept, err := remote.Keep(cfg.ctx)
	if err != nil {
		return "", err
	}
	if kept == nil {
		cfg.log.Warn("no room to keep a copy of the file; every record is read over the network", "file", path)
	}
	return remote.Derived(indexSuffix)
}

// serve makes x read from the file f, and takes ownership of it.
func (x *IndexedFile) serve(f vfs.File, cfg readerConfig) {
	var err error
	if x.content, err = newMapping(f, x.index.size); err != nil {
		cfg.log.Debug("file is not mapped into memory", "file", x.path, "reason", err)
	}
}

// scan reads all records and returns their index.
func scan(rd *Reader) (index, error) {
	var offsets []int64
	digest := sha256.New()
	for {
		data, err := rd.Next()
		if err == io.EOF {
			return index{offsets: offsets, size: rd.pos(), skipped: rd.skipped, digest: binary.LittleEndian.Uint64(digest.Sum(nil))}, nil
		}
		if err != nil {
			return index{}, err
		}
		// Empty records compress so well that their offsets would take far more than the file.
		if most := freeOffsets + 4*rd.raw.n; int64(len(offsets)) >= most {
			return index{}, &CorruptError{Path: rd.name, Record: int64(len(offsets)), Offset: rd.offset, Compression: rd.compression,
				Reason: fmt.Sprintf("is one more than there may be in %d bytes of the file; expected at most %d", rd.raw.n, most)}
		}
		offsets = append(offsets, rd.offset)
		record := rd.buf[rd.r:][:rd.pending]
		digest.Write(record[:headerBytes])
		digest.Write(record[headerBytes+len(data):])
	}
}

// freeOffsets is the number of records that any file may have. A file may have four more for each of its
// bytes. Tests set less.
var freeOffsets int64 = 16 << 20

// inflate makes x read from a temporary file with the content that rd inflates.
func (x *IndexedFile) inflate(rd *Reader) (err error) {
	tmp, err := os.CreateTemp("", "gorbit-*.tfrecord")
	if err != nil {
		return fmt.Errorf("%s: inflating into a temporary file: %w", x.path, err)
	}
	os.Remove(tmp.Name()) // the open file remains usable without a name
	rd.src = &spill{r: rd.src, raw: rd.raw, to: tmp, left: rd.cfg.maxSpill, limit: rd.cfg.maxSpill}
	idx, err := scan(rd)
	if err != nil {
		tmp.Close()
		return err
	}
	x.spilled, x.compression, x.index, x.maxRecord = tmp, rd.Compression(), idx, rd.cfg.maxRecord
	x.serve(tmp, rd.cfg)
	return nil
}

// spill copies what is read through it to a file of limited size. A write error counts
// as an error of the source, so that it is never reported as damage.
type spill struct {
	r           io.Reader
	raw         *source
	to          *os.File
	left, limit int64
}

func (s *spill) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left -= int64(n); s.left < 0 {
		s.raw.err = fmt.Errorf("uncompressed content is larger than the limit of %d bytes", s.limit)
		return 0, s.raw.err
	}
	if _, werr := s.to.Write(p[:n]); werr != nil {
		s.raw.err = fmt.Errorf("inflating into a temporary file: %w", werr)
		return 0, s.raw.err
	}
	return n, err
}

// Len returns the number of records.
func (x *IndexedFile) Len() int { return len(x.index.offsets) }

// Path returns the path with which the file was opened.
func (x *IndexedFile) Path() string { return x.path }

// Skipped counts the damaged records that the index leaves out.
func (x *IndexedFile) Skipped() Skipped { return x.index.skipped }

// Digest returns a hash of the lengths and checksums of all records in order, computed
// when the index was built. Files with the same records have the same digest, compressed
// or not.
func (x *IndexedFile) Digest() uint64 { return x.index.digest }

// Close closes the file.
func (x *IndexedFile) Close() error {
	x.content.closed.Store(true)
	if x.spilled != nil {
		// The memory may stay mapped for a while, but the disk space can be freed now.
		if err := x.spilled.Truncate(0); err != nil && !errors.Is(err, os.ErrClosed) {
			return errors.Join(err, x.content.Close())
		}
	}
	return x.content.Close()
}

// oneRead is the most that is read in one call before the length of a record is known.
const oneRead = 64 << 10

// Record returns the data of record i, in buf if it is large enough, and in new memory
// otherwise. If each result is the buf of the next call, there are no allocations in
// the long run. The checksums are verified every time.
func (x *IndexedFile) Record(i int, buf []byte) ([]byte, error) {
	if i < 0 || i >= len(x.index.offsets) {
		return nil, fmt.Errorf("%s: record is %d; expected 0 to %d", x.path, i, len(x.index.offsets)-1)
	}
	offset := x.index.offsets[i]
	span := x.end(i) - offset // the record, and skipped bytes after it
	if data, ok := x.content.record(buf, offset, span, x.maxRecord); ok {
		return data, nil
	}
	buf, err := x.read(i, buf[:0], offset, min(span, oneRead))
	if err != nil {
		return nil, err
	}
	if len(buf) < headerBytes {
		return nil, x.corrupt(i, reasonTruncatedHeader(len(buf)))
	}
	length, ok := parseHeader(buf)
	switch {
	case !ok:
		return nil, x.corrupt(i, reasonLengthCRC(buf[:headerBytes]))
	case length > uint64(x.maxRecord):
		return nil, x.corrupt(i, reasonTooLong(length, x.maxRecord, x.compression))
	case int64(length) > span-frameBytes:
		return nil, x.corrupt(i, reasonTruncated(length+footerBytes, span-headerBytes))
	}
	if frame := int64(length) + frameBytes; frame > int64(len(buf)) {
		if buf, err = x.read(i, buf, offset, frame); err != nil {
			return nil, err
		}
		if int64(len(buf)) < frame {
			return nil, x.corrupt(i, reasonTruncated(length+footerBytes, int64(len(buf)-headerBytes)))
		}
	}
	data, footer := buf[headerBytes:][:length], buf[headerBytes+length:][:footerBytes]
	if binary.LittleEndian.Uint32(footer) != maskedCRC(data) {
		return nil, x.corrupt(i, reasonDataCRC(data, footer))
	}
	// Move the data to the front, so that buf keeps its capacity from call to call.
	return buf[:copy(buf, data)], nil
}

// read extends buf, which holds the bytes at offset, to n bytes, or fewer at the end of
// the file.
func (x *IndexedFile) read(i int, buf []byte, offset, n int64) ([]byte, error) {
	have := len(buf)
	buf = slices.Grow(buf, int(n)-have)[:n]
	m, err := x.content.ReadAt(buf[have:], offset+int64(have))
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: reading record %d at byte %d: %w", x.path, i, offset, err)
	}
	return buf[:have+m], nil
}

// Touch loads records into the processor's caches, ahead of calls of Record. Their
// memory is fetched in parallel.
func (x *IndexedFile) Touch(records []int) {
	var spans [32]span
	for some := range slices.Chunk(records, len(spans)) {
		n := 0
		// Compute the positions first: a loop that waits for its own bounds would fetch
		// one record after the other.
		for _, i := range some {
			if i >= 0 && i < len(x.index.offsets) {
				spans[n] = span{x.index.offsets[i], x.end(i)}
				n++
			}
		}
		x.content.touch(spans[:n])
	}
}

// end returns the end of record i, including skipped bytes after it.
func (x *IndexedFile) end(i int) int64 {
	if i+1 < len(x.index.offsets) {
		return x.index.offsets[i+1]
	}
	return x.index.size
}

func (x *IndexedFile) corrupt(i int, reason string) error {
	if x.content.closed.Load() {
		return fmt.Errorf("%s: reading record %d: %w", x.path, i, os.ErrClosed)
	}
	return &CorruptError{Path: x.path, Record: int64(i), Offset: x.index.offsets[i], Compression: x.compression, Reason: reason}
}

// identity identifies the state of a file when it was indexed.
type identity struct {
	size, mtime int64  // bytes; nanoseconds since 1970
	head, tail  uint32 // checksums of the first and the last edgeBytes
}

func identify(f vfs.File) (identity, error) {
	st, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	id := identity{size: st.Size(), mtime: st.ModTime().UnixNano()}
	buf := make([]byte, min(edgeBytes, id.size))
	for _, edge := range []struct {
		at  int64
		crc *uint32
	}{{0, &id.head}, {id.size - int64(len(buf)), &id.tail}} {
		if _, err := f.ReadAt(buf, edge.at); err != nil && err != io.EOF {
			return identity{}, err
		}
		*edge.crc = crc32.Checksum(buf, crc32c.Table)
	}
	return id, nil
}

// encodeIndex returns the content of an index file.
func encodeIndex(id identity, idx index) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, indexHeaderBytes+8*len(idx.offsets)+4)
	b = append(b, indexMagic...)
	b = le.AppendUint64(b, indexVersion)
	b = le.AppendUint64(b, uint64(id.size))
	b = le.AppendUint64(b, uint64(id.mtime))
	b = le.AppendUint32(b, id.head)
	b = le.AppendUint32(b, id.tail)
	b = le.AppendUint64(b, uint64(idx.skipped.Records))
	b = le.AppendUint64(b, uint64(idx.skipped.Bytes))
	b = le.AppendUint64(b, uint64(len(idx.offsets)))
	b = le.AppendUint64(b, idx.digest)
	for _, o := range idx.offsets {
		b = le.AppendUint64(b, uint64(o))
	}
	return le.AppendUint32(b, crc32.Checksum(b, crc32c.Table))
}

// decodeIndex is the inverse of encodeIndex. An index it returns without an error is
// safe to use: the offsets rise and are within the file.
func decodeIndex(b []byte) (identity, index, error) {
	le := binary.LittleEndian
	fail := func(format string, args ...any) (identity, index, error) {
		return identity{}, index{}, fmt.Errorf(format, args...)
	}
	switch {
	case len(b) < indexHeaderBytes+4:
		return fail("index has %d bytes; it is truncated", len(b))
	case string(b[:8]) != indexMagic:
		return fail("index begins with %q; expected %q", b[:8], indexMagic)
	case le.Uint64(b[8:]) != indexVersion:
		return fail("index version is %d; expected %d", le.Uint64(b[8:]), indexVersion)
	}
	body, sum := b[:len(b)-4], le.Uint32(b[len(b)-4:])
	if crc := crc32.Checksum(body, crc32c.Table); crc != sum {
		return fail("index checksum is %#08x; expected %#08x", sum, crc)
	}
	id := identity{size: int64(le.Uint64(b[16:])), mtime: int64(le.Uint64(b[24:])), head: le.Uint32(b[32:]), tail: le.Uint32(b[36:])}
	idx := index{size: id.size, skipped: Skipped{Records: int64(le.Uint64(b[40:])), Bytes: int64(le.Uint64(b[48:]))}, digest: le.Uint64(b[64:])}
	count := le.Uint64(b[56:])
	body = body[indexHeaderBytes:]
	if count != uint64(len(body)/8) || len(body)%8 != 0 {
		return fail("index has a count of %d records, which do not fit in %d bytes", count, len(body))
	}
	if id.size < 0 || idx.skipped.Records < 0 || idx.skipped.Bytes < 0 {
		return fail("index has a negative size")
	}
	idx.offsets = make([]int64, count)
	next := int64(0)
	for i := range idx.offsets {
		o := le.Uint64(body[8*i:])
		if o > math.MaxInt64-frameBytes || int64(o) < next {
			return fail("index offset of record %d is %d; expected at least %d", i, o, next)
		}
		idx.offsets[i] = int64(o)
		next = int64(o) + frameBytes
	}
	if next > id.size {
		return fail("index ends at byte %d; expected at most the file size %d", next, id.size)
	}
	return id, idx, nil
}

// loadIndex reads an index file and checks that it belongs to the file described by id.
func loadIndex(path string, id identity) (index, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return index{}, err
	}
	defer f.Close()
	// A file of this size cannot have more records than that.
	if most := indexHeaderBytes + 4 + id.size/frameBytes*8; size > most {
		return index{}, fmt.Errorf("index has %d bytes; expected at most %d", size, most)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return index{}, err
	}
	was, idx, err := decodeIndex(b)
	if err != nil {
		return index{}, err
	}
	if was != id {
		return index{}, errors.New("index belongs to another file, or to an earlier state of this one")
	}
	return idx, nil
}

// writeIndex writes an index file. A killed process may leave part of it, and another
// process may read it during the write. The checksum detects both, and the reader then
// scans the records and rewrites the index.
func writeIndex(path string, id identity, idx index) error {
	f, err := vfs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(encodeIndex(id, idx))
	if err := errors.Join(err, f.Close()); err != nil {
		_ = vfs.Remove(path) // the first error is the one to report
		return err
	}
	return nil
}
