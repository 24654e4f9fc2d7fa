package predict

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
	"github.com/gorbit-ml/gorbit/text"
)

// maxLineBytes bounds a line of input; the longest text that a model looks at is
// far shorter.
const maxLineBytes = 16 << 20

// Source gives texts, or pairs of texts, and io.EOF after the last one.
type Source interface {
	Next() (text.Pair, error)
}

// List is a Source of given texts; Pairs is empty or as long as Texts.
type List struct {
	Texts, Pairs []string
	at           int
}

// Next implements Source.
func (l *List) Next() (text.Pair, error) {
	if l.at == len(l.Texts) {
		return text.Pair{}, io.EOF
	}
	e := text.Pair{A: l.Texts[l.at]}
	if len(l.Pairs) > 0 {
		e.B = l.Pairs[l.at]
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
	parse func(line string) (text.Pair, error)
}

// NewLines returns a Source of a reader's lines, named in errors.
func NewLines(r io.Reader, name string, parse func(string) (text.Pair, error)) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), name: name, parse: parse}
}

// Next implements Source. A line that is no example is a *LineError.
func (l *Lines) Next() (text.Pair, error) {
	line, err := l.read()
	if err != nil {
		return text.Pair{}, err
	}
	if !utf8.ValidString(line) {
		return text.Pair{}, &LineError{l.name, l.line, "not valid UTF-8"}
	}
	e, err := l.parse(line)
	if err != nil {
		return text.Pair{}, &LineError{l.name, l.line, err.Error()}
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
		content := strings.TrimRight(string(line), "\r\n")
		if l.line == 1 {
			content = strings.TrimPrefix(content, "\ufeff")
		}
		return content, nil
	}
}

// ParserOf chooses how a file's lines are read, by its name: .jsonl holds objects.
func ParserOf(path string) func(string) (text.Pair, error) {
	if strings.EqualFold(filepath.Ext(path), ".jsonl") {
		return ParseJSON
	}
	return ParseTSV
}

// ParseTSV reads a text, or two with a tab between them. Quotes mean nothing.
func ParseTSV(line string) (text.Pair, error) {
	fields := strings.Split(line, "\t")
	if len(fields) > 2 {
		return text.Pair{}, fmt.Errorf("%d fields parted by tabs, expected a text and maybe a second one", len(fields))
	}
	e := text.Pair{A: fields[0]}
	if len(fields) == 2 {
		e.B = fields[1]
	}
	return e, nil
}

// ParseJSON reads an object with the fields text and text_pair.
func ParseJSON(line string) (text.Pair, error) {
	var fields struct {
		Text *string `json:"text"`
		Pair string  `json:"text_pair"`
	}
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return text.Pair{}, fmt.Errorf("not an object with the field \"text\": %w", err)
	}
	if fields.Text == nil {
		return text.Pair{}, errors.New(`the field "text" is missing`)
	}
	return text.Pair{A: *fields.Text, B: fields.Pair}, nil
}
