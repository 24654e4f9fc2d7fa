package table

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// lines reads a text line by line. A line ends with a line feed, and a carriage return
// before it is part of the ending.
type lines struct {
	r    *bufio.Reader
	path string
	n    int64
	buf  []byte // a line longer than the reader's buffer
	rest bool   // the reader is still within a line that was too long
}

// next returns the next line that is not empty.
func (l *lines) next() ([]byte, int64, error) {
	for {
		line, err := l.line()
		if err != nil || len(line) > 0 {
			return line, l.n, err
		}
	}
}

func (l *lines) line() ([]byte, error) {
	for l.rest { // not sooner: such a line may have no end
		_, err := l.r.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return nil, fmt.Errorf("%s: %w", l.path, err)
		}
		l.rest = err == bufio.ErrBufferFull
	}
	line, err := l.r.ReadSlice('\n')
	size := len(line)
	if err == bufio.ErrBufferFull {
		l.buf = append(l.buf[:0], line...)
		for err == bufio.ErrBufferFull && size <= maxLine {
			line, err = l.r.ReadSlice('\n')
			size += len(line)
			l.buf = append(l.buf, line...)
		}
		line, l.rest = l.buf, err == bufio.ErrBufferFull
	}
	if l.rest {
		err = nil
	}
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", l.path, err)
	}
	if size == 0 {
		return nil, io.EOF
	}
	l.n++
	if size > maxLine {
		return nil, &Error{l.path, l.n, fmt.Sprintf("is longer than %d bytes", maxLine)}
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// checkUTF8 returns a *Error for a text that is not UTF-8.
func checkUTF8(path string, line int64, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	for i := 0; ; {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 {
			return &Error{path, line, fmt.Sprintf("byte %#x at position %d is not UTF-8; if the file has another encoding, name it, as with --encoding latin-1", s[i], i+1)}
		}
		i += size
	}
}

// tsvRows are lines split at a delimiter. Quotation marks have no special meaning.
type tsvRows struct {
	lines
	delimiter byte
	flag      string // see Config.FormatFlag
}

func (r *tsvRows) cut(fields []Field, row string, line int64) ([]Field, error) {
	if err := checkUTF8(r.path, line, row); err != nil {
		return nil, err
	}
	if len(row) >= maxFields {
		if err := checkFields(r.path, line, 1+strings.Count(row, string(rune(r.delimiter)))); err != nil {
			return nil, err
		}
	}
	fields = cutAt(fields, row, r.delimiter)
	if r.flag != "" {
		for i, f := range fields {
			if doubled(f.Text) {
				return nil, &Error{r.path, line, fmt.Sprintf("field %d has quotation marks around it, and doubled ones in it; %s", i+1, toSay(r.flag))}
			}
		}
	}
	return fields, nil
}

func cutAt(fields []Field, row string, sep byte) []Field {
	for {
		i := strings.IndexByte(row, sep)
		if i < 0 {
			return append(fields, Field{Text: row, OK: true})
		}
		fields = append(fields, Field{Text: row[:i], OK: true})
		row = row[i+1:]
	}
}
