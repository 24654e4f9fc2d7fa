package convert

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// maxLine bounds the bytes of a line, and of a CSV file's row: a file that is not
// what it is taken for may have no line feeds.
const maxLine = 64 << 20

// field is what a row holds in one column. It may be missing: a test file has no
// label column.
type field struct {
	text string
	ok   bool
}

// column is a column asked for.
type column struct {
	name     string // "" stands for one that no file has
	optional bool   // the file may lack it
	words    bool   // holds text: in JSON, a string and no number
}

// rowReader reads the rows of a file one by one.
type rowReader interface {
	// next returns all fields of a row and the line that it begins on. Its error is
	// io.EOF, a *RowError after which reading may go on, or final.
	next() (fields []field, line int64, err error)
}

// table reads the columns asked for out of a file.
type table struct {
	path  string
	file  io.Closer
	raw   *meter
	rows  rowReader
	first *firstRow // a row already read, to be given out again
	index []int     // of each column asked for among the row's fields, or -1
	width int       // fields of a row, where all rows have as many; else 0
	read  int64     // rows given out, bad ones included
}

type firstRow struct {
	fields []field
	line   int64
	err    error
}

// meter counts and hashes what is read through it.
type meter struct {
	r io.Reader
	n int64
	h hash.Hash
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	m.h.Write(p[:n])
	return n, err
}

// openTable opens a file and finds the columns in it.
func openTable(cfg *Config, path string, columns []column) (*table, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	t, err := newTable(cfg, file, path, columns)
	if err != nil {
		file.Close()
		return nil, err
	}
	t.file = file
	return t, nil
}

// newTable reads a table from a stream, which path stands for.
func newTable(cfg *Config, r io.Reader, path string, columns []column) (*table, error) {
	format, err := cfg.formatOf(path)
	if err != nil {
		return nil, err
	}
	t := &table{path: path, raw: &meter{r: r, h: sha256.New()}}
	text, err := decode(bufio.NewReaderSize(t.raw, 1<<16), path, cfg.Charset)
	if err != nil {
		return nil, err
	}
	switch format {
	case TSV:
		t.rows = &tsvRows{lines: lines{r: text, path: path}}
	case CSV:
		t.rows = newCSVRows(text, path)
	case JSONL:
		t.rows = &jsonRows{lines: lines{r: text, path: path}, columns: columns}
		for i := range columns {
			t.index = append(t.index, i)
		}
		return t, nil
	}
	return t, t.findColumns(cfg, columns)
}

// decode returns the text of a file as UTF-8, without byte order mark.
func decode(r *bufio.Reader, path string, charset Charset) (*bufio.Reader, error) {
	mark, _ := r.Peek(3)
	if bytes.HasPrefix(mark, []byte("\xff\xfe")) || bytes.HasPrefix(mark, []byte("\xfe\xff")) {
		return nil, &RowError{path, 1, "begins with the byte order mark of UTF-16, which is not supported: convert the file to UTF-8"}
	}
	if bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		if charset == Latin1 || charset == Windows1252 {
			return nil, &RowError{path, 1, fmt.Sprintf("begins with the byte order mark of UTF-8, and its encoding is said to be %s", charset)}
		}
		r.Discard(3)
	}
	switch charset {
	case Latin1:
		return bufio.NewReader(charmap.ISO8859_1.NewDecoder().Reader(r)), nil
	case Windows1252:
		return bufio.NewReader(charmap.Windows1252.NewDecoder().Reader(r)), nil
	}
	return r, nil
}

// findColumns reads the header, or the first row where there is none.
func (t *table) findColumns(cfg *Config, columns []column) error {
	fields, line, err := t.rows.next()
	if err == io.EOF {
		return &RowError{t.path, 1, "the file is empty"}
	}
	if err != nil {
		return err
	}
	t.width = len(fields)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = strings.TrimSpace(f.text)
	}
	bare := cfg.task().bare
	switch {
	case cfg.NoHeader:
		for i := range names {
			names[i] = strconv.Itoa(i + 1)
		}
		t.first = &firstRow{fields: slices.Clone(fields), line: line}
	case bare != nil && !slices.Contains(names, cfg.task().text):
		names = bare
		t.width = len(bare)
		t.first = &firstRow{fields: slices.Clone(fields), line: line}
		if len(fields) != t.width {
			t.first.err = t.wrongWidth(len(fields), line)
		}
	}
	for _, c := range columns {
		i := slices.Index(names, c.name)
		if c.name == "" {
			i = -1
		}
		if i < 0 && !c.optional {
			return &RowError{t.path, line, fmt.Sprintf("there is no column %q among %s", c.name, list(names))}
		}
		if i >= 0 && slices.Contains(names[i+1:], c.name) {
			return &RowError{t.path, line, fmt.Sprintf("there are two columns %q among %s", c.name, list(names))}
		}
		t.index = append(t.index, i)
	}
	return nil
}

func (t *table) wrongWidth(n int, line int64) error {
	return &RowError{t.path, line, fmt.Sprintf("has %s, expected %d", count(n, "column"), t.width)}
}

// next puts the fields of the columns asked for into fields and returns the line
// that the row begins on, and the row's number. Their texts are the caller's to
// keep.
func (t *table) next(fields []field) (line, number int64, err error) {
	var all []field
	if t.first != nil {
		all, line, err = t.first.fields, t.first.line, t.first.err
		t.first = nil
	} else {
		all, line, err = t.rows.next()
		if err == nil && t.width > 0 && len(all) != t.width {
			err = t.wrongWidth(len(all), line)
		}
	}
	var bad *RowError
	if err == nil || errors.As(err, &bad) {
		number = t.read
		t.read++
	}
	if err != nil {
		return line, number, err
	}
	for i, k := range t.index {
		fields[i] = field{}
		if k >= 0 {
			fields[i] = all[k]
		}
	}
	return line, number, nil
}

func (t *table) close() error { return t.file.Close() }

// lines reads a text line by line: line feeds end lines, and a carriage return
// before one belongs to it.
type lines struct {
	r    *bufio.Reader
	path string
	n    int64
	buf  []byte
}

// next returns the next line that is not empty.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err != nil {
			return nil, err
		}
		if len(line) > 0 {
			return line, nil
		}
	}
}

func (l *lines) line() ([]byte, error) {
	l.buf = l.buf[:0]
	size := 0
	for {
		part, err := l.r.ReadSlice('\n')
		size += len(part)
		if size <= maxLine {
			l.buf = append(l.buf, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("convert: %s: %w", l.path, err)
		}
		if size == 0 {
			return nil, io.EOF
		}
		break
	}
	l.n++
	if size > maxLine {
		return nil, &RowError{l.path, l.n, fmt.Sprintf("is longer than %d bytes", maxLine)}
	}
	line := bytes.TrimSuffix(bytes.TrimSuffix(l.buf, []byte("\n")), []byte("\r"))
	if at := invalidUTF8(line); at >= 0 {
		return nil, notUTF8(l.path, l.n, line, at)
	}
	return line, nil
}

// invalidUTF8 returns where in s the first byte is that is not UTF-8, or -1.
func invalidUTF8(s []byte) int {
	if utf8.Valid(s) {
		return -1
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
}

func notUTF8(path string, line int64, s []byte, at int) error {
	return &RowError{path, line, fmt.Sprintf("byte %#x at position %d is not UTF-8: if the file has another encoding, say which", s[at], at+1)}
}

// tsvRows are lines cut at tabs. Quotation marks mean nothing.
type tsvRows struct {
	lines
	fields []field
}

func (r *tsvRows) next() ([]field, int64, error) {
	line, err := r.lines.next()
	if err != nil {
		return nil, r.n, err
	}
	r.fields = r.fields[:0]
	for rest, more := string(line), true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "\t")
		r.fields = append(r.fields, field{part, true})
	}
	return r.fields, r.n, nil
}

// csvRows are rows as RFC 4180 has them: a quoted field may hold commas and lines.
type csvRows struct {
	r      *csv.Reader
	limit  *limited
	path   string
	fields []field
}

func newCSVRows(text io.Reader, path string) *csvRows {
	limit := &limited{r: text}
	r := csv.NewReader(limit)
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	return &csvRows{r: r, limit: limit, path: path}
}

// limited fails rather than read more than left bytes.
type limited struct {
	r    io.Reader
	left int
}

var errLong = fmt.Errorf("a row is longer than %d bytes: is a quotation mark left open?", maxLine)

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLong
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

func (r *csvRows) next() ([]field, int64, error) {
	r.limit.left = maxLine
	record, err := r.r.Read()
	if err != nil {
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			return nil, int64(pe.StartLine), &RowError{r.path, int64(pe.StartLine), pe.Err.Error()}
		}
		if err != io.EOF {
			err = fmt.Errorf("convert: %s: %w", r.path, err)
		}
		return nil, 0, err
	}
	start, _ := r.r.FieldPos(0)
	r.fields = r.fields[:0]
	for i, s := range record {
		if !utf8.ValidString(s) {
			line, _ := r.r.FieldPos(i)
			return nil, int64(start), notUTF8(r.path, int64(line), []byte(s), invalidUTF8([]byte(s)))
		}
		r.fields = append(r.fields, field{s, true})
	}
	return r.fields, int64(start), nil
}

// jsonRows are JSON objects, one a line. Its fields are those of the columns asked
// for.
type jsonRows struct {
	lines
	columns []column
	fields  []field
}

func (r *jsonRows) next() ([]field, int64, error) {
	line, err := r.lines.next()
	if err != nil {
		return nil, r.n, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, r.n, &RowError{r.path, r.n, "is not a JSON object: " + err.Error()}
	}
	r.fields = r.fields[:0]
	for _, c := range r.columns {
		f, reason := jsonField(object[c.name], c)
		if reason != "" {
			return nil, r.n, &RowError{r.path, r.n, reason}
		}
		r.fields = append(r.fields, f)
	}
	return r.fields, r.n, nil
}

// jsonField returns a value as a field, or the reason why it is none.
func jsonField(raw json.RawMessage, c column) (field, string) {
	switch {
	case c.name == "" || len(raw) == 0 || string(raw) == "null":
		if c.optional {
			return field{}, ""
		}
		return field{}, fmt.Sprintf("has no %q", c.name)
	case raw[0] == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return field{}, fmt.Sprintf("%q: %v", c.name, err)
		}
		return field{s, true}, ""
	case raw[0] == '{' || raw[0] == '[' || c.words:
		return field{}, fmt.Sprintf("%q is %s, expected text", c.name, clip(string(raw)))
	}
	return field{string(raw), true}, "" // a number, true or false
}

// list names things in an error.
func list(names []string) string {
	const most = 20
	var b strings.Builder
	for i, s := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clip(strconv.Quote(s)))
	}
	return b.String()
}

// clip shortens a string for an error.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
