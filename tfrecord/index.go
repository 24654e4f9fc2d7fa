package tfrecord

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/vfs"
)

const indexSuffix = ".index"

// The index file, in docs/reference/tfrecord.md byte by byte.
const (
	indexMagic       = "GORBITRX"
	indexVersion     = 2
	indexHeaderBytes = 72
	edgeBytes        = 4096 // of the shard's beginning and end that identify it
)

// defaultMaxInflatedBytes bounds what a compressed file may become on disk.
const defaultMaxInflatedBytes = 64 << 30

// MaxInflatedBytes sets how large the uncompressed content of a compressed file
// may become that OpenIndexed inflates. The default is 64 GiB.
func MaxInflatedBytes(n int64) ReaderOption {
	return func(c *readerConfig) { c.maxSpill = n }
}

// IndexedFile gives the records of a file in any order. It is safe for
// concurrent use.
type IndexedFile struct {
	path        string
	content     *mapping // plain records: the file itself, or its content inflated
	inflated    bool
	compression Compression
	maxRecord   int64
	index       index
}

// index is where the whole records of a stream begin.
type index struct {
	offsets []int64
	size    int64 // of the stream
	skipped Skipped
	digest  uint64 // of the records
}

// OpenIndexed opens a file for access to single records. Their offsets are kept
// in an index beside the file, named like it with .index appended. It is built
// by reading the whole file once, which verifies every checksum; it is built
// again when it is damaged or the file has changed, and kept in memory only
// where it cannot be written.
//
// Under OnCorrupt(Skip) damaged records are no records of the IndexedFile: the
// numbers of those behind them are smaller by their number.
//
// A compressed file is inflated into a temporary file (in os.TempDir, already
// unlinked), which takes its uncompressed size until Close.
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
	return x, nil
}

func openIndexed(f *os.File, path string, size int64, cfg readerConfig) (*IndexedFile, error) {
	if size < 0 {
		return nil, fmt.Errorf("%s: is no regular file, which random access needs", path)
	}
	x := &IndexedFile{path: path, maxRecord: cfg.maxRecord}
	id, err := identify(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	indexPath := path + indexSuffix
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
		return nil, fmt.Errorf("%s: changed while it was read", path)
	}
	if err := writeIndex(indexPath, id, x.index); err != nil {
		cfg.log.Debug("index is kept in memory", "index", indexPath, "reason", err)
	}
	x.serve(f, cfg)
	return x, nil
}

// serve takes over the file of the indexed content.
func (x *IndexedFile) serve(f *os.File, cfg readerConfig) {
	var err error
	if x.content, err = newMapping(f, x.index.size); err != nil {
		cfg.log.Debug("file is not mapped into memory", "file", x.path, "reason", err)
	}
}

// scan reads all records and returns where they begin.
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
		offsets = append(offsets, rd.offset)
		record := rd.buf[rd.r:][:rd.pending]
		digest.Write(record[:headerBytes])
		digest.Write(record[headerBytes+len(data):])
	}
}

// inflate makes x serve the content that rd inflates.
func (x *IndexedFile) inflate(rd *Reader) (err error) {
	tmp, err := os.CreateTemp("", "gorbit-*.tfrecord")
	if err != nil {
		return fmt.Errorf("%s: inflating into a temporary file: %w", x.path, err)
	}
	os.Remove(tmp.Name()) // open files live on without a name
	rd.src = &spill{r: rd.src, raw: rd.raw, to: tmp, left: rd.cfg.maxSpill, limit: rd.cfg.maxSpill}
	idx, err := scan(rd)
	if err != nil {
		tmp.Close()
		return err
	}
	x.inflated, x.compression, x.index = true, rd.Compression(), idx
	x.serve(tmp, rd.cfg)
	return nil
}

// spill copies what is read through it to a file of limited size. A failure to
// do so counts as one of the source, so that it is never taken for damage.
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

// Path returns the path that the file was opened by.
func (x *IndexedFile) Path() string { return x.path }

// Skipped returns what the index leaves out because it is damaged.
func (x *IndexedFile) Skipped() Skipped { return x.index.skipped }

// Digest returns a hash of all records' lengths and checksums in order, which was taken
// when the index was built. Files of the same records have the same digest, compressed or
// not.
func (x *IndexedFile) Digest() uint64 { return x.index.digest }

// Close closes the file.
func (x *IndexedFile) Close() error {
	x.content.closed.Store(true)
	if x.inflated {
		// The memory may stay mapped for a while; what it takes on disk need not.
		if err := x.content.Truncate(0); err != nil && !errors.Is(err, os.ErrClosed) {
			return errors.Join(err, x.content.Close())
		}
	}
	return x.content.Close()
}

// oneRead is how much is read at once in the hope that it is the record and
// little else.
const oneRead = 64 << 10

// Record returns the data of record i. It lies in buf if that is large enough,
// and in new memory otherwise: passing the last result on as the next buf
// costs no allocation in the long run. The checksums are verified every time.
func (x *IndexedFile) Record(i int, buf []byte) ([]byte, error) {
	if i < 0 || i >= len(x.index.offsets) {
		return nil, fmt.Errorf("%s: there is no record %d: the file holds %d", x.path, i, len(x.index.offsets))
	}
	offset := x.index.offsets[i]
	span := x.end(i) - offset // the record, and after it what was skipped
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
		return nil, x.corrupt(i, reasonTooLong(length, x.maxRecord))
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
	// The data moves to the front, so that buf keeps its room from call to call.
	return buf[:copy(buf, data)], nil
}

// read extends buf, which holds what is at offset, to n bytes, or fewer where
// the file ends.
func (x *IndexedFile) read(i int, buf []byte, offset, n int64) ([]byte, error) {
	have := len(buf)
	buf = slices.Grow(buf, int(n)-have)[:n]
	m, err := x.content.ReadAt(buf[have:], offset+int64(have))
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: reading record %d at byte %d: %w", x.path, i, offset, err)
	}
	return buf[:have+m], nil
}

// Touch brings records nearer to the processor, for calls of Record soon. The memory of
// all of them is fetched at the same time.
func (x *IndexedFile) Touch(records []int) {
	var spans [32]span
	for some := range slices.Chunk(records, len(spans)) {
		n := 0
		// Where they are comes first: a loop that waited for its own bounds would fetch
		// one after the other.
		for _, i := range some {
			if i >= 0 && i < len(x.index.offsets) {
				spans[n] = span{x.index.offsets[i], x.end(i)}
				n++
			}
		}
		x.content.touch(spans[:n])
	}
}

// end returns where record i ends, with what was skipped behind it.
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

// identity tells a file from what it was when it was indexed.
type identity struct {
	size, mtime int64  // bytes; nanoseconds since 1970
	head, tail  uint32 // checksums of the first and the last edgeBytes
}

func identify(f *os.File) (identity, error) {
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
		*edge.crc = crc32.Checksum(buf, castagnoli)
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
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeIndex is the inverse of encodeIndex. Whatever it returns without an
// error is safe to use: offsets rise and lie within the file.
func decodeIndex(b []byte) (identity, index, error) {
	le := binary.LittleEndian
	fail := func(format string, args ...any) (identity, index, error) {
		return identity{}, index{}, fmt.Errorf(format, args...)
	}
	switch {
	case len(b) < indexHeaderBytes+4:
		return fail("index of %d bytes is truncated", len(b))
	case string(b[:8]) != indexMagic:
		return fail("index begins with %q; expected %q", b[:8], indexMagic)
	case le.Uint64(b[8:]) != indexVersion:
		return fail("index is of version %d; expected %d", le.Uint64(b[8:]), indexVersion)
	}
	body, sum := b[:len(b)-4], le.Uint32(b[len(b)-4:])
	if crc := crc32.Checksum(body, castagnoli); crc != sum {
		return fail("index checksum is %#08x; expected %#08x", sum, crc)
	}
	id := identity{size: int64(le.Uint64(b[16:])), mtime: int64(le.Uint64(b[24:])), head: le.Uint32(b[32:]), tail: le.Uint32(b[36:])}
	idx := index{size: id.size, skipped: Skipped{Records: int64(le.Uint64(b[40:])), Bytes: int64(le.Uint64(b[48:]))}, digest: le.Uint64(b[64:])}
	count := le.Uint64(b[56:])
	body = body[indexHeaderBytes:]
	if count != uint64(len(body)/8) || len(body)%8 != 0 {
		return fail("index announces %d records in %d bytes", count, len(body))
	}
	if id.size < 0 || idx.skipped.Records < 0 || idx.skipped.Bytes < 0 {
		return fail("index holds a negative size")
	}
	idx.offsets = make([]int64, count)
	next := int64(0)
	for i := range idx.offsets {
		o := le.Uint64(body[8*i:])
		if o > math.MaxInt64-frameBytes || int64(o) < next {
			return fail("index offset %d of record %d; expected at least %d", o, i, next)
		}
		idx.offsets[i] = int64(o)
		next = int64(o) + frameBytes
	}
	if next > id.size {
		return fail("index leads to byte %d of a file of %d", next, id.size)
	}
	return id, idx, nil
}

// loadIndex reads an index file and checks that it belongs to the file that id
// tells of.
func loadIndex(path string, id identity) (index, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return index{}, err
	}
	defer f.Close()
	// No file of this size holds more records than that.
	if most := indexHeaderBytes + 4 + id.size/frameBytes*8; size < 0 || size > most {
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
		return index{}, errors.New("index is of another file or an earlier state of it")
	}
	return idx, nil
}

// writeIndex writes an index file. A kill may leave a part of it, and another process
// may read it meanwhile: its checksum tells, and whoever finds it so reads the records
// instead and writes the index anew.
func writeIndex(path string, id identity, idx index) error {
	files := vfs.At(path)
	f, err := files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(encodeIndex(id, idx))
	if err := errors.Join(err, f.Close()); err != nil {
		_ = files.Remove(path) // the first error is the one that tells
		return err
	}
	return nil
}
