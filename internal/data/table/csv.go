package table

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// csvRows are rows of RFC 4180: a quoted field may contain commas and line breaks.
type csvRows struct {
	r     *csv.Reader
	limit *limited
	path  string
	line  int // after the last row
	row   []byte
}

// csvSep separates the fields of a row after reading. It does not occur in text.
const csvSep = '\xff'

func newCSVRows(text io.Reader, path string, delimiter byte) *csvRows {
	limit := &limited{r: text, delimiter: []byte{delimiter}}
	r := csv.NewReader(limit)
	r.FieldsPerRecord, r.ReuseRecord, r.Comma = -1, true, rune(delimiter)
	return &csvRows{r: r, limit: limit, path: path, line: 1}
}

// limited returns an error after left bytes, or after fields delimiters.
type limited struct {
	r            io.Reader
	delimiter    []byte
	left, fields int
}

// mostDelimiters limits the memory of a row's fields before they are known. There may be more of them than
// fields, in quoted texts.
const mostDelimiters = 4 * maxFields

var errLong = fmt.Errorf("a row is longer than %d bytes; is a quotation mark not closed?", maxLine)

var errFields = fmt.Errorf("a row has more than %d delimiters; is a quotation mark not closed?", mostDelimiters)

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLong
	}
	if l.fields < 0 {
		return 0, errFields
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	l.fields -= bytes.Count(p[:n], l.delimiter)
	return n, err
}

func (r *csvRows) next() ([]byte, int64, error) {
	r.limit.left, r.limit.fields = maxLine, mostDelimiters
	record, err := r.r.Read()
	if err != nil {
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			r.line = pe.Line + 1
			return nil, int64(pe.StartLine), &Error{r.path, int64(pe.StartLine), quoting(pe)}
		}
		switch {
		case errors.Is(err, errLong), errors.Is(err, errFields): // without its end, the next row's beginning is not known
			err = fault.Damagedf("%s:%d: %w", r.path, r.line, err)
		case err != io.EOF:
			err = fmt.Errorf("%s: %w", r.path, err)
		}
		return nil, 0, err
	}
	start, _ := r.r.FieldPos(0)
	last, _ := r.r.FieldPos(len(record) - 1)
	r.line = last + strings.Count(record[len(record)-1], "\n") + 1
	if err := checkFields(r.path, int64(start), len(record)); err != nil {
		return nil, int64(start), err
	}
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

// checkFields returns a *Error for a row of too many fields.
func checkFields(path string, line int64, n int) error {
	if n > maxFields {
		return &Error{path, line, fmt.Sprintf("has %d fields; expected at most %d", n, maxFields)}
	}
	return nil
}

// quoting says what is wrong with the quotation marks of a row.
func quoting(e *csv.ParseError) string {
	switch {
	case errors.Is(e.Err, csv.ErrBareQuote):
		return `a field has a quotation mark, and does not begin with one; expected "..." around the field, and "" for each mark in it`
	case errors.Is(e.Err, csv.ErrQuote):
		return `a field that begins with a quotation mark does not end with one; expected "" for each mark in it, and one at its end`
	}
	return e.Err.Error()
}

func (r *csvRows) cut(fields []Field, row string, _ int64) ([]Field, error) {
	return cutAt(fields, row, csvSep), nil
}
