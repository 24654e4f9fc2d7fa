package table

import (
	"bufio"
	"fmt"
	"io"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// arrayRows are the objects of one JSON array, which is read as a stream: only one element is in
// memory. An element is cut out by its brackets and quotation marks; whether it is an object is
// checked later, as for a line of JSON lines.
type arrayRows struct {
	jsonRows
	in    *bufio.Reader
	at    int64 // the current line, from 1
	begun bool  // the opening bracket was read
	ended bool  // the closing bracket was read
	row   []byte
}

func newArrayRows(in *bufio.Reader, path string) *arrayRows {
	return &arrayRows{jsonRows: jsonRows{lines: lines{path: path}}, in: in, at: 1}
}

// next returns the text of the next element and its first line. Where elements end is unknown
// after an error of the array itself, so that error is final.
func (r *arrayRows) next() ([]byte, int64, error) {
	if r.ended {
		return nil, 0, io.EOF
	}
	first := !r.begun
	if first {
		if err := r.begin(); err != nil {
			return nil, 0, err
		}
	}
	c, err := r.space()
	if err != nil {
		return nil, 0, r.early(err)
	}
	if c == ']' && first {
		return nil, 0, r.end()
	}
	line := r.at
	r.row = r.row[:0]
	for depth, quoted := 0, false; ; {
		switch {
		case quoted && c == '\\': // takes the next byte with it
			r.row = append(r.row, c)
			if c, err = r.byte(); err != nil {
				return nil, 0, r.early(err)
			}
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ']'):
			if c == ']' {
				err = r.end()
			}
			if err != io.EOF && err != nil {
				return nil, 0, err
			}
			if len(r.row) == 0 {
				return nil, 0, r.broken("an element is missing before %q", c)
			}
			return r.row, line, nil
		case c == '}', c == ']':
			depth--
		}
		if r.row = append(r.row, c); len(r.row) > maxLine {
			return nil, 0, r.broken("an element is longer than %d bytes; is a quotation mark or bracket not closed?", maxLine)
		}
		if c, err = r.byte(); err != nil {
			return nil, 0, r.early(err)
		}
	}
}

// begin reads the opening bracket.
func (r *arrayRows) begin() error {
	c, err := r.space()
	switch {
	case err == io.EOF:
		return r.broken("the file is empty; expected an array of objects, [{...}, ...]")
	case err != nil:
		return r.early(err)
	case c == '{':
		return r.broken("begins with an object; expected an array of objects, [{...}, ...]; for an object on each line, choose the format jsonl")
	case c != '[':
		return r.broken("begins with %q; expected an array of objects, [{...}, ...]", c)
	}
	r.begun = true
	return nil
}

// end checks that nothing follows the closing bracket, and returns io.EOF.
func (r *arrayRows) end() error {
	r.ended = true
	c, err := r.space()
	if err == nil {
		return r.broken("%q follows the array; expected nothing", c)
	}
	if err != io.EOF {
		return r.early(err)
	}
	return io.EOF
}

// space returns the next byte that is no space.
func (r *arrayRows) space() (byte, error) {
	for {
		c, err := r.byte()
		if err != nil || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, err
		}
	}
}

func (r *arrayRows) byte() (byte, error) {
	c, err := r.in.ReadByte()
	if c == '\n' && err == nil {
		r.at++
	}
	return c, err
}

// early returns the error for an array that ends, or cannot be read, before its closing bracket.
func (r *arrayRows) early(err error) error {
	if err == io.EOF {
		return r.broken("the array does not end; expected ]")
	}
	return fmt.Errorf("%s: %w", r.path, err)
}

// broken returns an error after which no row can be read.
func (r *arrayRows) broken(format string, args ...any) error {
	r.ended = true
	return fault.Damagedf("%s:%d: %s", r.path, r.at, fmt.Sprintf(format, args...))
}
