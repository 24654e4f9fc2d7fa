package tfrecord

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

const (
	headerBytes = 12 // length and its checksum
	footerBytes = 4  // checksum of the data
	frameBytes  = headerBytes + footerBytes

	// defaultMaxRecordBytes is protobuf's own limit for messages, so by default no
	// record of a plain file that TensorFlow can parse is refused.
	defaultMaxRecordBytes = math.MaxInt32
	// defaultMaxInflatedRecordBytes is the limit in compressed files, where a record may take a
	// thousandth of its size.
	defaultMaxInflatedRecordBytes = 256 << 20
)

// maskedCRC returns the checksum of b as TFRecord files store it.
func maskedCRC(b []byte) uint32 {
	return crc32c.Mask(crc32.Checksum(b, crc32c.Table))
}

// parseHeader returns the length in a record header, and whether its checksum is valid.
// b has at least headerBytes.
func parseHeader(b []byte) (length uint64, ok bool) {
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]) == maskedCRC(b[:8])
}

// appendHeader appends the header of a record of n bytes.
func appendHeader(dst []byte, n int) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	return binary.LittleEndian.AppendUint32(dst, maskedCRC(dst[len(dst)-8:]))
}

// AppendRecord appends one framed record, as written by Writer, for callers with a
// buffer of their own.
func AppendRecord(dst, record []byte) []byte {
	dst = appendHeader(dst, len(record))
	dst = append(dst, record...)
	return binary.LittleEndian.AppendUint32(dst, maskedCRC(record))
}

// CorruptError reports bytes that violate the TFRecord format.
type CorruptError struct {
	Path        string      // the file, or the name given to NewReader
	Record      int64       // number of the damaged record, from 0
	Offset      int64       // start of that record in the uncompressed stream
	Compression Compression // compression of the file
	Reason      string      // what is wrong and what was expected
}

// Error names the file, the record, its offset and the reason.
func (e *CorruptError) Error() string {
	of := ""
	if e.Compression != None {
		of = " of the uncompressed content"
	}
	return fmt.Sprintf("%s: record %d at byte %d%s: %s", e.Path, e.Record, e.Offset, of, e.Reason)
}

// Is reports whether the target is the error's class, fault.Damaged.
func (e *CorruptError) Is(target error) bool { return target == fault.Damaged }

func reasonLengthCRC(header []byte) string {
	return fmt.Sprintf("length checksum is %#08x; expected %#08x for the length bytes % x",
		binary.LittleEndian.Uint32(header[8:]), maskedCRC(header[:8]), header[:8])
}

func reasonDataCRC(data, footer []byte) string {
	return fmt.Sprintf("data checksum is %#08x; expected %#08x for the %d data bytes",
		binary.LittleEndian.Uint32(footer), maskedCRC(data), len(data))
}

func reasonTruncated(want uint64, have int64) string {
	return fmt.Sprintf("truncated: has %d bytes of data and checksum; expected %d", have, want)
}

func reasonTruncatedHeader(have int) string {
	return fmt.Sprintf("truncated: header has %d bytes; expected %d", have, headerBytes)
}

func reasonTooLong(length uint64, limit int64, c Compression) string {
	reason := fmt.Sprintf("length is %d bytes; expected at most %d", length, limit)
	if c != None {
		reason += "; records that are to be longer can be read from a file without compression"
	}
	return reason
}
