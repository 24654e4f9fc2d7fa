package table

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// squadRows are the questions of a file in the form of SQuAD, which is read as a stream: only one
// paragraph is in memory.
type squadRows struct {
	jsonRows
	in    *paragraphReader
	d     *json.Decoder
	open  []json.Delim // objects and arrays that are open
	title json.RawMessage
	rows  [][]byte // of the paragraph that was read last
	line  int64    // of that paragraph
	err   error    // that ended reading
}

// newSQuADRows returns the reader for what a file has: questions in paragraphs, or an array of rows.
func newSQuADRows(in *bufio.Reader, path string) (rowReader, error) {
	for {
		c, err := in.Peek(1)
		if err != nil || c[0] != ' ' && c[0] != '\t' && c[0] != '\r' && c[0] != '\n' {
			if err == nil && c[0] == '{' {
				break
			}
			return newArrayRows(in, path), nil
		}
		in.Discard(1)
	}
	r := &squadRows{jsonRows: jsonRows{lines: lines{path: path}}, in: &paragraphReader{r: in, left: maxLine, line: 1}}
	r.d = json.NewDecoder(r.in)
	return r, r.begin()
}

// next returns a question as a JSON object.
func (r *squadRows) next() ([]byte, int64, error) {
	for len(r.rows) == 0 {
		if r.err == nil {
			r.err = r.paragraph()
		}
		if r.err != nil {
			return nil, 0, r.err
		}
	}
	row := r.rows[0]
	r.rows = r.rows[1:]
	return row, r.line, nil
}

// begin reads up to the array of articles.
func (r *squadRows) begin() error {
	if _, err := r.token('{'); err != nil {
		return err
	}
	return r.member("data", nil)
}

// paragraph reads the questions of the next paragraph. The error is final.
func (r *squadRows) paragraph() error {
	r.in.left = maxLine
	for {
		if r.d.More() {
			if len(r.open) == 2 { // in the array of articles
				r.title = nil
				if _, err := r.token('{'); err != nil {
					return err
				}
				if err := r.member("paragraphs", func(name string, value json.RawMessage) {
					if name == "title" {
						r.title = value
					}
				}); err != nil {
					return err
				}
				continue
			}
			break
		}
		// The end of the paragraphs of an article, or of all articles.
		if _, err := r.token(']'); err != nil {
			return err
		}
		for r.d.More() { // members after the array
			var skipped json.RawMessage
			if _, err := r.d.Token(); err != nil {
				return r.broken(err)
			}
			if err := r.d.Decode(&skipped); err != nil {
				return r.broken(err)
			}
		}
		if _, err := r.token('}'); err != nil {
			return err
		}
		if len(r.open) == 0 {
			if _, err := r.d.Token(); err != io.EOF {
				return r.broken(errors.New("more follows the object; expected nothing"))
			}
			return io.EOF
		}
	}
	var p struct {
		Context json.RawMessage              `json:"context"`
		QAs     []map[string]json.RawMessage `json:"qas"`
	}
	r.d.More() // goes to the beginning of the value
	err := r.d.Decode(&p)
	r.line = r.in.lineAt(r.d.InputOffset())
	if err != nil {
		return r.broken(err)
	}
	for _, q := range p.QAs {
		if q == nil {
			return r.broken(errors.New("an element of qas is null; expected an object"))
		}
		q["context"] = p.Context
		if r.title != nil {
			q["title"] = r.title
		}
		for name, value := range q {
			if value == nil {
				delete(q, name)
			}
		}
		row, err := json.Marshal(q)
		if err != nil {
			return r.broken(err)
		}
		r.rows = append(r.rows, row)
	}
	return nil
}

// member reads the members of an object up to the array of the given name, and its opening bracket.
func (r *squadRows) member(name string, other func(name string, value json.RawMessage)) error {
	for r.d.More() {
		token, err := r.d.Token()
		if err != nil {
			return r.broken(err)
		}
		if token == name {
			_, err := r.token('[')
			return err
		}
		var value json.RawMessage
		if err := r.d.Decode(&value); err != nil {
			return r.broken(err)
		}
		if key, ok := token.(string); ok && other != nil {
			other(key, value)
		}
	}
	return r.broken(fmt.Errorf("an object has no %q; expected the form of SQuAD, or an array of objects", name))
}

// token reads an expected bracket.
func (r *squadRows) token(want json.Delim) (json.Token, error) {
	token, err := r.d.Token()
	if err != nil {
		return nil, r.broken(err)
	}
	if token != want {
		return nil, r.broken(fmt.Errorf("found %v; expected %v, as in the form of SQuAD", token, want))
	}
	switch want {
	case '{', '[':
		r.open = append(r.open, want)
	default:
		r.open = slices.Delete(r.open, len(r.open)-1, len(r.open))
	}
	return token, nil
}

// broken returns the error after which no row can be read.
func (r *squadRows) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends in the middle of an object")
	}
	if r.in.err != nil {
		return fmt.Errorf("%s: %w", r.path, r.in.err)
	}
	return fault.Damagedf("%s:%d: %w", r.path, r.in.lineAt(r.d.InputOffset()), err)
}

// paragraphReader reads at most left bytes, and remembers where lines begin.
type paragraphReader struct {
	r      io.Reader
	left   int
	read   int64
	line   int64   // the line at the offset that was asked for last
	breaks []int64 // offsets of the line feeds after it
	err    error   // that ended reading, other than io.EOF
}

func (l *paragraphReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("a paragraph is longer than %d bytes", maxLine)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	for i, c := range p[:n] {
		if c == '\n' {
			l.breaks = append(l.breaks, l.read+int64(i))
		}
	}
	l.left, l.read = l.left-n, l.read+int64(n)
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

// lineAt returns the line of an offset that is not before the last one.
func (l *paragraphReader) lineAt(offset int64) int64 {
	for len(l.breaks) > 0 && l.breaks[0] < offset {
		l.breaks, l.line = l.breaks[1:], l.line+1
	}
	return l.line
}
