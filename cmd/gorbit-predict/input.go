package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxLineBytes bounds a line of input; the longest text that a model looks at is
// far shorter.
const maxLineBytes = 16 << 20

// example is a text, or a pair of texts where the second is not empty.
type example struct {
	text, pair string
}

// source gives examples, and io.EOF after the last one.
type source interface {
	next() (example, error)
}

// batch takes up to n examples; none is the end.
func batch(in source, n int) ([]example, error) {
	var out []example
	for len(out) < n {
		e, err := in.next()
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

// list is a source of given texts; pairs is empty or as long as texts.
type list struct {
	texts, pairs []string
	at           int
}

func (l *list) next() (example, error) {
	if l.at == len(l.texts) {
		return example{}, io.EOF
	}
	e := example{text: l.texts[l.at]}
	if len(l.pairs) > 0 {
		e.pair = l.pairs[l.at]
	}
	l.at++
	return e, nil
}

// lines is a source that reads one example a line.
type lines struct {
	r     *bufio.Reader
	name  string
	line  int
	parse func(line string) (example, error)
}

func newLines(r io.Reader, name string, parse func(string) (example, error)) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), name: name, parse: parse}
}

func (l *lines) next() (example, error) {
	line, err := l.read()
	if err != nil {
		return example{}, err
	}
	if !utf8.ValidString(line) {
		return example{}, fmt.Errorf("%s:%d: not valid UTF-8", l.name, l.line)
	}
	e, err := l.parse(line)
	if err != nil {
		return example{}, fmt.Errorf("%s:%d: %w", l.name, l.line, err)
	}
	return e, nil
}

// read returns the next line without its end, or io.EOF after the last one.
func (l *lines) read() (string, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return "", fmt.Errorf("%s:%d: a line of more than %d bytes", l.name, l.line+1, maxLineBytes)
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

// parserOf chooses how a file's lines are read, by its name.
func parserOf(path string) func(string) (example, error) {
	if strings.EqualFold(filepath.Ext(path), ".jsonl") {
		return parseJSON
	}
	return parseTSV
}

func parseTSV(line string) (example, error) {
	fields := strings.Split(line, "\t")
	if len(fields) > 2 {
		return example{}, fmt.Errorf("%d fields parted by tabs, expected a text and maybe a second one", len(fields))
	}
	e := example{text: fields[0]}
	if len(fields) == 2 {
		e.pair = fields[1]
	}
	return e, nil
}

func parseJSON(line string) (example, error) {
	var fields struct {
		Text *string `json:"text"`
		Pair string  `json:"text_pair"`
	}
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return example{}, fmt.Errorf("not an object with the field \"text\": %w", err)
	}
	if fields.Text == nil {
		return example{}, errors.New(`the field "text" is missing`)
	}
	return example{text: *fields.Text, pair: fields.Pair}, nil
}
