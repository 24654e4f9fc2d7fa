// Package questions reads the texts that a model is to answer on: those of a command
// line, or of a file with one example per line, plain (a tab between the texts of a
// pair) or as JSON objects with the fields text and text_pair. Both programs that
// predict read them alike.
package questions

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// maxLineBytes bounds a line of input; the longest text that a model looks at is
// far shorter.
const maxLineBytes = 16 << 20

// Example is a text, or a pair of texts where the second is not empty.
type Example struct {
	Text, Pair string
}

// Source gives examples, and io.EOF after the last one.
type Source interface {
	Next() (Example, error)
}

// Batch takes up to n examples; none is the end.
func Batch(in Source, n int) ([]Example, error) {
	var out []Example
	for len(out) < n {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// List is a Source of given texts; Pairs is empty or as long as Texts.
type List struct {
	Texts, Pairs []string
	at           int
}

// Next implements Source.
func (l *List) Next() (Example, error) {
	if l.at == len(l.Texts) {
		return Example{}, io.EOF
	}
	e := Example{Text: l.Texts[l.at]}
	if len(l.Pairs) > 0 {
		e.Pair = l.Pairs[l.at]
	}
	l.at++
	return e, nil
}

// LineError says what is wrong with a line.
type LineError struct {
	Name   string // of the file
	Line   int    // from 1
	Reason string
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *LineError) Is(target error) bool { return target == fault.Damaged }

// Lines is a Source that reads one example a line.
type Lines struct {
	r     *bufio.Reader
	name  string
	line  int
	parse func(line string) (Example, error)
}

// NewLines returns a Source of a reader's lines, named in errors.
func NewLines(r io.Reader, name string, parse func(string) (Example, error)) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), name: name, parse: parse}
}

// Next implements Source. A line that is no example is a *LineError.
func (l *Lines) Next() (Example, error) {
	line, err := l.read()
	if err != nil {
		return Example{}, err
	}
	if !utf8.ValidString(line) {
		return Example{}, &LineError{l.name, l.line, "not valid UTF-8"}
	}
	e, err := l.parse(line)
	if err != nil {
		return Example{}, &LineError{l.name, l.line, err.Error()}
	}
	return e, nil
}

// read returns the next line without its end, or io.EOF after the last one.
func (l *Lines) read() (string, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return "", &LineError{l.name, l.line + 1, fmt.Sprintf("a line of more than %d bytes", maxLineBytes)}
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(line) == 0:
			return "", io.EOF
		case err != nil && err != io.EOF:
			return "", fmt.Errorf("%s:%d: %w", l.name, l.line+1, err)
		}
		l.line++
		text := strings.TrimRight(string(line), "\r\n")
		if l.line == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		return text, nil
	}
}

// ParserOf chooses how a file's lines are read, by its name: .jsonl holds objects.
func ParserOf(path string) func(string) (Example, error) {
	if strings.EqualFold(filepath.Ext(path), ".jsonl") {
		return ParseJSON
	}
	return ParseTSV
}

// ParseTSV reads a text, or two with a tab between them. Quotes mean nothing.
func ParseTSV(line string) (Example, error) {
	fields := strings.Split(line, "\t")
	if len(fields) > 2 {
		return Example{}, fmt.Errorf("%d fields parted by tabs, expected a text and maybe a second one", len(fields))
	}
	e := Example{Text: fields[0]}
	if len(fields) == 2 {
		e.Pair = fields[1]
	}
	return e, nil
}

// ParseJSON reads an object with the fields text and text_pair.
func ParseJSON(line string) (Example, error) {
	var fields struct {
		Text *string `json:"text"`
		Pair string  `json:"text_pair"`
	}
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return Example{}, fmt.Errorf("not an object with the field \"text\": %w", err)
	}
	if fields.Text == nil {
		return Example{}, errors.New(`the field "text" is missing`)
	}
	return Example{Text: *fields.Text, Pair: fields.Pair}, nil
}
