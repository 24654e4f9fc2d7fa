package table

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
)

// csvRows are rows of RFC 4180: a quoted field may contain commas and line breaks.
type csvRows struct {
	r     *csv.Reader
	limit *limited
	path  string
	row   []byte
}

// csvSep separates the fields of a row after reading. It does not occur in text.
const csvSep = '\xff'

func newCSVRows(text io.Reader, path string, delimiter byte) *csvRows {
	limit := &limited{r: text}
	r := csv.NewReader(limit)
	r.FieldsPerRecord, r.ReuseRecord, r.Comma = -1, true, rune(delimiter)
	return &csvRows{r: r, limit: limit, path: path}
}

// limited returns an error after left bytes.
type limited struct {
	r    io.Reader
	left int
}

var errLong = fmt.Errorf("a row is longer than %d bytes; is a quotation mark not closed?", maxLine)

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLong
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

func (r *csvRows) next() ([]byte, int64, error) {
	r.limit.left = maxLine
	record, err := r.r.Read()
	if err != nil {
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			return nil, int64(pe.StartLine), &Error{r.path, int64(pe.StartLine), pe.Err.Error()}
		}
		if err != io.EOF {
			err = fmt.Errorf("%s: %w", r.path, err)
		}
		return nil, 0, err
	}
	start, _ := r.r.FieldPos(0)
	r.row = r.row[:0]
	for i, s := range record {
		line, _ := r.r.FieldPos(i)
		if err := checkUTF8(r.path, int64(line), s); err != nil {
			return nil, int64(start), err
		}
		if i > 0 {
			r.row = append(r.row, csvSep)
		}
		r.row = append(r.row, s...)
	}
	return r.row, int64(start), nil
}

func (r *csvRows) cut(fields []Field, row string, _ int64) ([]Field, error) {
	return cutAt(fields, row, csvSep), nil
}
