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

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
)

// maxLineBytes limits the length of an input line. Models read only a small part of so long a
// text.
const maxLineBytes = 16 << 20

// Source is a sequence of texts or pairs of texts.
type Source interface {
	// Next returns the next one, or io.EOF after the last. After a *LineError the next call continues
	// with the next line.
	Next() (text.Pair, error)
	// Refuse returns the error for the text that Next returned last, which is not answered because of
	// reason.
	Refuse(reason string) error
}

// List is a Source of the given texts. Pairs is empty or has the length of Texts; "" in it is no second
// text.
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
	if !utf8.ValidString(e.A) || !utf8.ValidString(e.B) {
		return text.Pair{}, fault.Usagef("text %d is not valid UTF-8", l.at+1)
	}
	l.at++
	return e, nil
}

// Refuse implements Source. The error is a usage error.
func (l *List) Refuse(reason string) error { return fault.Usagef("text %d: %s", l.at, reason) }

// LineError reports an invalid line of a file.
type LineError struct {
	Name   string // name of the file
	Line   int    // number of the line, from 1
	Reason string
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *LineError) Is(target error) bool { return target == fault.Damaged }

// Lines is a Source that reads one example per line.
type Lines struct {
	r     *bufio.Reader
	name  string
	line  int
	rest  bool // the reader is still within a line that was too long
	parse func(line string) (text.Pair, error)
}

// NewLines returns a Source of the lines of r. name stands for the file in errors; parse reads one
// line, such as ParseTSV.
func NewLines(r io.Reader, name string, parse func(string) (text.Pair, error)) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), name: name, parse: parse}
}

// Next implements Source. The error for an invalid line is a *LineError.
func (l *Lines) Next() (text.Pair, error) {
	for {
		line, err := l.read()
		if err != nil {
			return text.Pair{}, err
		}
		if !utf8.ValidString(line) {
			return text.Pair{}, &LineError{l.name, l.line, "the line is not valid UTF-8"}
		}
		e, err := l.parse(line)
		switch {
		case errors.Is(err, errBlank):
			continue
		case err != nil:
			return text.Pair{}, &LineError{l.name, l.line, err.Error()}
		}
		return e, nil
	}
}

// Refuse implements Source. The error is a *LineError.
func (l *Lines) Refuse(reason string) error { return &LineError{l.name, l.line, reason} }

// read returns the next line without its line break, or io.EOF after the last line.
func (l *Lines) read() (string, error) {
	var line []byte
	if l.line == 0 {
		_, _ = l.r.Peek(1) // an error comes again
		head, _ := l.r.Peek(l.r.Buffered())
		if reason := table.Unreadable(head, true); reason != "" {
			return "", fault.Damagedf("%s:1: %s", l.name, reason)
		}
	}
	for l.rest {
		_, err := l.r.ReadSlice('\n')
		l.rest = err == bufio.ErrBufferFull
	}
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			l.line++
			l.rest = err == bufio.ErrBufferFull
			return "", &LineError{l.name, l.line, fmt.Sprintf("the line has more than %d bytes", maxLineBytes)}
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

// ParserOf returns the parser for the lines of a file: ParseJSON if its name ends in .jsonl,
// otherwise ParseTSV. With choices, the second text of an object may be a list of them.
func ParserOf(path string, choices bool) func(string) (text.Pair, error) {
	switch {
	case !strings.EqualFold(filepath.Ext(path), ".jsonl"):
		return ParseTSV
	case choices:
		return func(line string) (text.Pair, error) { return parseObject(line, true) }
	}
	return ParseJSON
}

// ParseTSV parses a text, or two texts separated by a tab. Quotes have no special meaning.
func ParseTSV(line string) (text.Pair, error) {
	fields := strings.Split(line, "\t")
	if len(fields) > 2 {
		return text.Pair{}, fmt.Errorf("%d fields separated by tabs; expected one text, or two for a pair", len(fields))
	}
	e := text.Pair{A: fields[0]}
	if len(fields) == 2 {
		e.B = fields[1]
	}
	return e, nil
}

// errBlank is the error of a parser for a line that Lines passes over.
var errBlank = errors.New("the line is blank")

// ParseJSON parses an object with the field text and, optionally, text_pair, which are texts, or with
// question and context. Other fields are ignored. Lines passes over blank lines, for which there is an
// error.
func ParseJSON(line string) (text.Pair, error) { return parseObject(line, false) }

func parseObject(line string, choices bool) (text.Pair, error) {
	if strings.TrimSpace(line) == "" {
		return text.Pair{}, errBlank
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		if json.Valid([]byte(line)) {
			return text.Pair{}, fmt.Errorf(`the line is %s; expected an object with the field "text"`, words.Clip(line, 60))
		}
		return text.Pair{}, fmt.Errorf("not an object with the field \"text\": %w", err)
	}
	var pair text.Pair
	first, second := "text", "text_pair"
	if fields[first] == nil && fields["question"] != nil && fields["context"] != nil {
		first, second = "question", "context"
	}
	if choices && fields[second] == nil {
		second = "choices"
	}
	for name, value := range map[string]*string{first: &pair.A, second: &pair.B} {
		raw, ok := fields[name]
		if !ok || string(raw) == "null" {
			continue
		}
		if choices && name == second && raw[0] == '[' {
			*value = string(raw)
			continue
		}
		if err := json.Unmarshal(raw, value); err != nil {
			return text.Pair{}, fmt.Errorf("%q is %s; expected a text in quotes", name, words.Clip(string(raw), 60))
		}
	}
	if raw, ok := fields[first]; !ok || string(raw) == "null" {
		return text.Pair{}, errors.New(`the field "text" is missing`)
	}
	return pair, nil
}
