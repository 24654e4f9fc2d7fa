package tfrecord

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Policy says how a reader handles damage.
type Policy uint8

// The two policies.
const (
	Fail Policy = iota // return a CorruptError
	Skip               // continue with the next intact record, and count what was skipped
)

// String returns "fail" or "skip".
func (p Policy) String() string {
	if p == Skip {
		return "skip"
	}
	return "fail"
}

// ParsePolicy is the inverse of String.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "fail":
		return Fail, nil
	case "skip":
		return Skip, nil
	}
	return Fail, fmt.Errorf("policy is %q; expected fail or skip", s)
}

// Skipped counts damage that a reader skipped.
type Skipped struct {
	Records int64 // damaged places; each may have been several records
	Bytes   int64 // bytes of the uncompressed stream, including framing
}

type readerConfig struct {
	policy    Policy
	maxRecord int64
	inflated  int64 // maxRecord of a compressed file
	maxSpill  int64
	log       *slog.Logger
	ctx       context.Context
}

// ReaderOption is a setting of NewReader, Open and OpenIndexed.
type ReaderOption func(*readerConfig)

// OnCorrupt sets what happens on damage. The default is Fail.
func OnCorrupt(p Policy) ReaderOption {
	return func(c *readerConfig) { c.policy = p }
}

// MaxRecordBytes sets the size above which a record counts as damaged. The default is
// 2 GiB minus one byte, protobuf's limit for messages, and 256 MiB in a compressed file, which
// may be a thousand times smaller. Set it lower for files from others whose records are known
// to be small: it limits the memory that a record takes.
func MaxRecordBytes(n int64) ReaderOption {
	return func(c *readerConfig) { c.maxRecord, c.inflated = n, n }
}

// Logger sets the logger for skipped damage (at level warn) and for what happens to index
// files (at level debug). The default logs nothing.
func Logger(l *slog.Logger) ReaderOption {
	return func(c *readerConfig) {
		if l != nil {
			c.log = l
		}
	}
}

// Until makes reading end when the context is done. The default never ends it. For OpenIndexed, it applies until OpenIndexed returns; Close
// ends later reads.
func Until(ctx context.Context) ReaderOption {
	return func(c *readerConfig) { c.ctx = ctx }
}

func newReaderConfig(opts []ReaderOption) readerConfig {
	c := readerConfig{ctx: context.Background(), maxRecord: defaultMaxRecordBytes, inflated: defaultMaxInflatedRecordBytes, maxSpill: defaultMaxInflatedBytes, log: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Reader reads the records of a stream in order. It is not safe for
// concurrent use.
type Reader struct {
	cfg         readerConfig
	name        string
	compression Compression
	raw         *source   // the stream as it is stored
	src         io.Reader // the same, inflated
	closers     []io.Closer

	// buf[r:w] is read but not yet consumed; base is the offset of buf[0].
	buf     []byte
	r, w    int
	base    int64
	size    int64 // size of the whole stream, or -1 if unknown
	srcErr  error // error that ended the source
	pending int   // bytes of the record returned last, consumed by the next call

	number  int64 // number of the next record
	offset  int64 // offset of the record returned last
	skipped Skipped
	checked int64 // bytes of data whose checksum was computed and did not match
	err     error // sticky
}

// NewReader returns a reader of the records in r. It detects the compression from the
// first bytes. The name is the name of the stream in errors. It is for data that is not in
// a file, such as in memory; for a file use [Open], which also knows the size.
func NewReader(r io.Reader, name string, opts ...ReaderOption) (*Reader, error) {
	return newReader(r, name, -1, newReaderConfig(opts))
}

// Open returns a reader of the records of a file. The caller must close it.
func Open(path string, opts ...ReaderOption) (*Reader, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	cfg := newReaderConfig(opts)
	if remote, ok := f.(vfs.RemoteFile); ok {
		remote.Bind(cfg.ctx)
	}
	rd, err := newReader(f, path, size, cfg)
	if err != nil {
		f.Close()
		return nil, err
	}
	rd.closers = append(rd.closers, f)
	return rd, nil
}

// openRegular opens a file and returns its size.
func openRegular(path string) (vfs.File, int64, error) {
	f, err := vfs.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if st.IsDir() {
		f.Close()
		return nil, 0, fmt.Errorf("%s is a folder; expected a TFRecord file", path)
	}
	return f, st.Size(), nil
}

func newReader(r io.Reader, name string, size int64, cfg readerConfig) (*Reader, error) {
	if cfg.maxRecord <= 0 {
		return nil, fmt.Errorf("%s: maximum record size is %d bytes; expected 1 or more", name, cfg.maxRecord)
	}
	raw := &source{r: r}
	br := bufio.NewReaderSize(raw, sniffBytes)
	rd := &Reader{cfg: cfg, name: name, raw: raw, src: br, size: size, compression: sniff(br)}
	if raw.err != nil && br.Buffered() == 0 {
		return nil, fmt.Errorf("%s: %w", name, raw.err)
	}
	if rd.compression != None {
		rd.size, rd.cfg.maxRecord = -1, cfg.inflated
		in, err := newInflater(br, rd.compression)
		if err != nil {
			if raw.err != nil {
				return nil, fmt.Errorf("%s: %w", name, raw.err)
			}
			rd.srcErr = err // damage, which Next reports like all other damage
			return rd, nil
		}
		rd.src = in
		rd.closers = append(rd.closers, in)
	}
	return rd, nil
}

// Compression returns the compression of the stream.
func (rd *Reader) Compression() Compression { return rd.compression }

// Records returns the number of records passed so far, including damaged ones, for
// callers who report how far they are.
func (rd *Reader) Records() int64 { return rd.number }

// Skipped counts the damage skipped so far.
func (rd *Reader) Skipped() Skipped { return rd.skipped }

// Close closes the file opened by Open. It never closes a reader passed to NewReader.
func (rd *Reader) Close() error {
	var errs []error
	for _, c := range rd.closers {
		errs = append(errs, c.Close())
	}
	rd.closers = nil
	if rd.err == nil {
		rd.err = fmt.Errorf("%s: %w", rd.name, os.ErrClosed)
	}
	return errors.Join(errs...)
}

// Next returns the data of the next record. The slice is valid until the next call. At
// the end of the stream, after a whole record, it returns io.EOF. An empty stream has no
// records.
func (rd *Reader) Next() ([]byte, error) {
	if rd.err != nil {
		return nil, rd.err
	}
	data, err := rd.next()
	if err != nil {
		rd.err = err
		return nil, err
	}
	return data, nil
}

func (rd *Reader) next() ([]byte, error) {
	rd.r += rd.pending
	rd.pending = 0
	for {
		data, reason, err := rd.frame()
		if err != nil {
			return nil, err
		}
		if reason == "" {
			rd.offset = rd.pos()
			rd.pending = len(data) + frameBytes
			rd.number++
			return data, nil
		}
		corrupt := &CorruptError{Path: rd.name, Record: rd.number, Offset: rd.pos(), Compression: rd.compression, Reason: reason}
		if rd.cfg.policy == Fail {
			return nil, corrupt
		}
		lost, err := rd.resync()
		if err != nil {
			return nil, err
		}
		rd.number++
		rd.skipped.Records++
		rd.skipped.Bytes += lost
		rd.cfg.log.Warn("skipped damaged data", "file", rd.name, "record", corrupt.Record, "offset", corrupt.Offset, "bytes", lost, "reason", reason)
	}
}

// Data is checked only while the bytes whose check failed stay below this multiple of
// the position in the stream. Real damage never comes close. Without the limit, a file
// of forged headers, each covering the rest of the file, would take quadratic time.
const (
	checkFactor    = 16
	checkAllowance = 64 << 20
)

// frame examines the current position without consuming anything. It returns the data
// of an intact record, or the reason why there is none, or io.EOF if the stream ends
// cleanly, or an error of the source, which is not damage.
func (rd *Reader) frame() (data []byte, reason string, err error) {
	have := rd.fill(headerBytes)
	switch {
	case have == headerBytes:
	case rd.raw.err != nil:
		return nil, "", rd.ioError()
	case have == 0 && rd.srcErr == io.EOF:
		return nil, "", io.EOF
	default:
		return nil, rd.shortReason(reasonTruncatedHeader(have)), nil
	}
	header := rd.buf[rd.r:][:headerBytes]
	length, ok := parseHeader(header)
	if !ok {
		reason := reasonLengthCRC(header)
		if rd.pos() == 0 {
			reason += " (not a TFRecord file, or damaged at its beginning)"
		}
		return nil, reason, nil
	}
	if length > uint64(rd.cfg.maxRecord) {
		return nil, reasonTooLong(length, rd.cfg.maxRecord, rd.compression), nil
	}
	end := frameBytes + int(length)
	if rd.size >= 0 && int64(end) > rd.size-rd.pos() {
		return nil, reasonTruncated(length+footerBytes, rd.size-rd.pos()-headerBytes), nil
	}
	if have = rd.fill(end); have < end {
		if rd.raw.err != nil {
			return nil, "", rd.ioError()
		}
		return nil, rd.shortReason(reasonTruncated(length+footerBytes, int64(have-headerBytes))), nil
	}
	b := rd.buf[rd.r:][headerBytes:end:end]
	data, footer := b[:length:length], b[length:]
	if rd.checked > checkAllowance+checkFactor*rd.pos() {
		return nil, "too many headers before it had invalid data", nil
	}
	if binary.LittleEndian.Uint32(footer) != maskedCRC(data) {
		rd.checked += int64(length)
		return nil, reasonDataCRC(data, footer), nil
	}
	return data, "", nil
}

// shortReason explains a stream that ended too early: an error of the inflater, or else
// the given reason.
func (rd *Reader) shortReason(reason string) string {
	if rd.srcErr == io.EOF {
		return reason
	}
	return fmt.Sprintf("damaged %s data: %v", rd.compression, rd.srcErr)
}

// resync moves from a damaged record to the next intact one, or to the end of the
// stream, and returns how many bytes it skipped.
func (rd *Reader) resync() (lost int64, err error) {
	if n := rd.confirmedEnd(); n > 0 {
		rd.r += n
		return int64(n), nil
	}
	// The next record may start at any byte.
	for rd.r < rd.w {
		rd.r++
		lost++
		if rd.fill(headerBytes) < headerBytes {
			break
		}
		if _, ok := parseHeader(rd.buf[rd.r:]); !ok {
			continue
		}
		_, reason, err := rd.frame()
		if err != nil {
			return lost, err
		}
		if reason == "" {
			return lost, nil
		}
	}
	lost += int64(rd.w - rd.r)
	rd.r = rd.w
	rd.srcErr = io.EOF // the inflater's error has been reported with this damage
	return lost, nil
}

// confirmedEnd returns the size of the record at the current position if its header and
// the bytes after it confirm it. Then only its data is damaged, and must not be searched
// for records, because it may contain some.
func (rd *Reader) confirmedEnd() int {
	if rd.fill(headerBytes) < headerBytes {
		return 0
	}
	length, ok := parseHeader(rd.buf[rd.r:])
	if !ok || length > uint64(rd.cfg.maxRecord) {
		return 0
	}
	end := frameBytes + int(length)
	if rd.size >= 0 && int64(end) > rd.size-rd.pos() {
		return 0
	}
	switch have := rd.fill(end + headerBytes); {
	case have == end && rd.srcErr == io.EOF:
		return end
	case have == end+headerBytes:
		if _, ok := parseHeader(rd.buf[rd.r+end:]); ok {
			return end
		}
	}
	return 0
}

// pos returns the offset of the first byte not yet consumed.
func (rd *Reader) pos() int64 { return rd.base + int64(rd.r) }

// fill reads until n bytes are buffered or the source ends, and returns how many are
// buffered, at most n. The buffer grows only as bytes arrive.
func (rd *Reader) fill(n int) int {
	for rd.w-rd.r < n && rd.srcErr == nil {
		if rd.cfg.ctx.Err() != nil {
			rd.raw.err = context.Cause(rd.cfg.ctx)
			rd.srcErr = rd.raw.err
			break
		}
		if rd.w == len(rd.buf) {
			rd.makeRoom(n)
		}
		m, err := rd.src.Read(rd.buf[rd.w:])
		rd.w += m
		if err != nil {
			rd.srcErr = err
		}
	}
	return min(n, rd.w-rd.r)
}

const initialBuffer = 64 << 10

// makeRoom moves the buffered bytes to the front of the buffer, and doubles the buffer
// if it would still be more than half full, but not far beyond the n bytes that are wanted.
func (rd *Reader) makeRoom(n int) {
	have := rd.w - rd.r
	to := rd.buf
	if have > len(rd.buf)/2 || len(rd.buf) == 0 {
		to = make([]byte, max(initialBuffer, min(2*len(rd.buf), n+n/8)))
	}
	copy(to, rd.buf[rd.r:rd.w])
	rd.base += int64(rd.r)
	rd.buf, rd.r, rd.w = to, 0, have
}

func (rd *Reader) ioError() error {
	return fmt.Errorf("%s: reading after byte %d: %w", rd.name, rd.base+int64(rd.w), rd.raw.err)
}

// source remembers read errors, to distinguish a disk error from an inflater's error
// about the bytes.
type source struct {
	r   io.Reader
	n   int64 // bytes read
	err error // other than io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
