package convert

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"github.com/gorbit-ml/gorbit/internal/ctxio"
	"github.com/gorbit-ml/gorbit/internal/fault"
)

// maxLine is the maximum size of a line, and of a row of a CSV file. A file of another
// kind may have no line feeds.
const maxLine = 64 << 20

// field is the value of a row in a column. It may be missing: a test file has no label
// column.
type field struct {
	text string
	ok   bool
}

// column is a requested column.
type column struct {
	name     string // "" for a column that no file has
	optional bool   // the file need not have it
	flag     string // with which a user chooses it; "" for a column of the task
	words    bool   // contains text: in JSON a string, not a number
}

// rowReader reads the rows of a file.
type rowReader interface {
	// next returns a row, which is valid until the next call, and its first line. The
	// error is io.EOF, a *RowError after which reading can continue, or final.
	next() (row []byte, line int64, err error)
	// cut appends the fields of a row. It may be called by several goroutines. The error
	// is a *RowError.
	cut(fields []field, row string, line int64) ([]field, error)
}

// table reads the requested columns of a file.
type table struct {
	path  string
	file  io.Closer
	raw   *meter
	rows  rowReader
	first *firstRow // a row already read, to be returned again
	index []int     // position of each requested column among the row's fields, or -1
	width int       // number of fields if it is the same for all rows; otherwise 0
	read  int64     // rows returned, including bad ones
}

type firstRow struct {
	text []byte
	line int64
}

// meter counts the bytes read through it, and hashes them if there is a hash.
type meter struct {
	r io.Reader
	n int64
	h hash.Hash
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	if m.h != nil {
		m.h.Write(p[:n])
	}
	return n, err
}

// openTable opens a file and finds the columns in it. The bytes read are added to sum,
// which may be nil. When the context is done, reading ends, even from a pipe to which
// nobody writes.
func openTable(ctx context.Context, cfg *Config, path string, columns []column, sum hash.Hash) (*table, error) {
	file, err := ctxio.Open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	t, err := newTable(cfg, &meter{r: file, h: sum}, path, columns)
	if err != nil {
		file.Close()
		return nil, err
	}
	t.file = file
	return t, nil
}

// newTable reads a table from a stream; path is its name in errors.
func newTable(cfg *Config, raw *meter, path string, columns []column) (*table, error) {
	format, err := cfg.formatOf(path)
	if err != nil {
		return nil, err
	}
	t := &table{path: path, raw: raw}
	text, err := decode(bufio.NewReaderSize(raw, 1<<16), path, cfg.Charset)
	if err != nil {
		return nil, err
	}
	switch format {
	case TSV:
		t.rows = &tsvRows{lines{r: text, path: path}}
	case CSV:
		t.rows = newCSVRows(text, path)
	case JSONL:
		t.rows = &jsonRows{lines{r: text, path: path}, columns}
		for i := range columns {
			t.index = append(t.index, i)
		}
		return t, nil
	}
	return t, t.findColumns(cfg, columns)
}

// decode returns the text of a file as UTF-8, without a byte order mark.
func decode(r *bufio.Reader, path string, charset Charset) (*bufio.Reader, error) {
	mark, _ := r.Peek(3)
	if bytes.HasPrefix(mark, []byte("\xff\xfe")) || bytes.HasPrefix(mark, []byte("\xfe\xff")) {
		return nil, &RowError{path, 1, "has the byte order mark of UTF-16; expected UTF-8; convert the file to UTF-8"}
	}
	if bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		if charset == Latin1 || charset == Windows1252 {
			return nil, &RowError{path, 1, fmt.Sprintf("has the byte order mark of UTF-8; expected encoding %s", charset)}
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

// findColumns reads the header, or the first row if there is no header.
func (t *table) findColumns(cfg *Config, columns []column) error {
	text, line, err := t.rows.next()
	if err == io.EOF {
		return &RowError{t.path, 1, "the file is empty"}
	}
	if err != nil {
		return err
	}
	fields, err := t.rows.cut(nil, string(text), line)
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
		t.first = &firstRow{slices.Clone(text), line}
	case bare != nil && !slices.Contains(names, cfg.task().text):
		names = bare
		t.width = len(bare)
		t.first = &firstRow{slices.Clone(text), line}
	}
	for _, c := range columns {
		i := slices.Index(names, c.name)
		if c.name == "" {
			i = -1
		}
		if i < 0 && !c.optional {
			what := fmt.Sprintf("has no column %q; expected one of %s", c.name, list(names))
			if c.flag != "" {
				return fault.Usagef("convert: %s %s; choose one with %s", t.path, what, c.flag)
			}
			return &RowError{t.path, line, what}
		}
		if i >= 0 && slices.Contains(names[i+1:], c.name) {
			return &RowError{t.path, line, fmt.Sprintf("has two columns %q; the columns are %s", c.name, list(names))}
		}
		t.index = append(t.index, i)
	}
	return nil
}

// next returns a row, which is valid until the next call, its first line, and its number.
// The error is io.EOF, a *RowError after which reading can continue, or final.
func (t *table) next() (text []byte, line, number int64, err error) {
	if t.first != nil {
		text, line = t.first.text, t.first.line
		t.first = nil
	} else {
		text, line, err = t.rows.next()
	}
	number = t.read
	if err == nil || asRowError(err) != nil {
		t.read++
	}
	return text, line, number, err
}

// asRowError returns err as a *RowError, or nil if it is another error.
func asRowError(err error) *RowError {
	var bad *RowError
	errors.As(err, &bad)
	return bad
}

// cutter splits the rows of a table into fields. Each goroutine has its own.
type cutter struct {
	t          *table
	all, asked []field
}

// cut returns the fields of the requested columns, which are valid until the next call.
// The error is a *RowError.
func (c *cutter) cut(text string, line int64) ([]field, error) {
	var err error
	if c.all, err = c.t.rows.cut(c.all[:0], text, line); err != nil {
		return nil, err
	}
	if w := c.t.width; w > 0 && len(c.all) != w {
		return nil, &RowError{c.t.path, line, fmt.Sprintf("has %s; expected %d", count(len(c.all), "column"), w)}
	}
	c.asked = c.asked[:0]
	for _, k := range c.t.index {
		if k < 0 {
			c.asked = append(c.asked, field{})
		} else {
			c.asked = append(c.asked, c.all[k])
		}
	}
	return c.asked, nil
}

func (t *table) close() error { return t.file.Close() }

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
			return nil, fmt.Errorf("convert: %s: %w", l.path, err)
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
		return nil, fmt.Errorf("convert: %s: %w", l.path, err)
	}
	if size == 0 {
		return nil, io.EOF
	}
	l.n++
	if size > maxLine {
		return nil, &RowError{l.path, l.n, fmt.Sprintf("is longer than %d bytes", maxLine)}
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// checkUTF8 returns a *RowError for a text that is not UTF-8.
func checkUTF8(path string, line int64, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	for i := 0; ; {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 {
			return &RowError{path, line, fmt.Sprintf("byte %#x at position %d is not UTF-8; if the file has another encoding, set it", s[i], i+1)}
		}
		i += size
	}
}

// tsvRows are lines split at tabs. Quotation marks have no special meaning.
type tsvRows struct{ lines }

func (r *tsvRows) cut(fields []field, row string, line int64) ([]field, error) {
	if err := checkUTF8(r.path, line, row); err != nil {
		return nil, err
	}
	return cutAt(fields, row, '\t'), nil
}

func cutAt(fields []field, row string, sep byte) []field {
	for {
		i := strings.IndexByte(row, sep)
		if i < 0 {
			return append(fields, field{row, true})
		}
		fields = append(fields, field{row[:i], true})
		row = row[i+1:]
	}
}

// csvRows are rows of RFC 4180: a quoted field may contain commas and line breaks.
type csvRows struct {
	r     *csv.Reader
	limit *limited
	path  string
	row   []byte
}

// csvSep separates the fields of a row after reading. It does not occur in text.
const csvSep = '\xff'

func newCSVRows(text io.Reader, path string) *csvRows {
	limit := &limited{r: text}
	r := csv.NewReader(limit)
	r.FieldsPerRecord, r.ReuseRecord = -1, true
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
			return nil, int64(pe.StartLine), &RowError{r.path, int64(pe.StartLine), pe.Err.Error()}
		}
		if err != io.EOF {
			err = fmt.Errorf("convert: %s: %w", r.path, err)
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

func (r *csvRows) cut(fields []field, row string, _ int64) ([]field, error) {
	return cutAt(fields, row, csvSep), nil
}

// jsonRows are JSON objects, one per line. Their fields are those of the requested
// columns.
type jsonRows struct {
	lines
	columns []column
}

func (r *jsonRows) cut(fields []field, row string, line int64) ([]field, error) {
	if err := checkUTF8(r.path, line, row); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(row), &object); err != nil {
		return nil, &RowError{r.path, line, notObject(row, err)}
	}
	for _, c := range r.columns {
		f, reason := jsonField(object[c.name], c)
		if reason != "" {
			return nil, &RowError{r.path, line, reason}
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// notObject says why a line is no JSON object. err is encoding/json's error, which names Go types for
// values that are no objects.
func notObject(row string, err error) string {
	if json.Valid([]byte(row)) {
		return fmt.Sprintf("is %s; expected a JSON object", clip(row))
	}
	return "is not a JSON object: " + err.Error()
}

// jsonField returns a value as a field, or the reason why it is invalid.
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
		return field{}, fmt.Sprintf("%q is %s; expected text", c.name, clip(string(raw)))
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
