package table

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/charmap"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// maxLine is the maximum size of a line, and of a row of a CSV file. A file of another
// kind may have no line feeds.
const maxLine = 64 << 20

// maxFields is the maximum number of fields of a row. In memory a field takes many times its delimiter.
const maxFields = 1 << 20

// Format is how a file is laid out.
type Format string

// The formats.
const (
	TSV   Format = "tsv"   // tab-separated, no quoting
	CSV   Format = "csv"   // comma-separated, quoted as in RFC 4180
	JSONL Format = "jsonl" // one JSON object per line
	JSON  Format = "json"  // one array of JSON objects
	NPZ   Format = "npz"   // arrays of numpy.savez, a row for each index of their first axes

	TFRecord Format = "tfrecord" // records of tf.train.Example
	Parquet  Format = "parquet"  // columns by row groups; read from a file, and not from a stream

	Lines      Format = "lines"      // one text per line, in the only column TextField
	Paragraphs Format = "paragraphs" // lines between empty lines as one text, in the only column TextField

	// SQuAD is the form of the SQuAD data set, {"data": [{"paragraphs": [{"context", "qas": [...]}]}]}.
	// A row is a question: the members of an element of qas, with the context and the title of its
	// paragraph. An array of objects is read as JSON.
	SQuAD Format = "squad"
)

// TextField is the column of formats without columns.
const TextField = "text"

// Objects reports whether the rows are JSON objects, each with names of its own.
func (f Format) Objects() bool {
	return f == JSONL || f == JSON || f == SQuAD || f == NPZ || f == TFRecord || f == Parquet
}

// FormatOf returns the format that the name of a file shows, or "". A name may end in .gz or .zst
// after that.
func FormatOf(path string) Format {
	plain, _ := stream.CutSuffix(path)
	switch strings.ToLower(filepath.Ext(plain)) {
	case ".tsv", ".txt":
		return TSV
	case ".csv":
		return CSV
	case ".jsonl", ".ndjson":
		return JSONL
	case ".json":
		return JSON
	case ".npz":
		return NPZ
	case ".tfrecord", ".tfrecords":
		return TFRecord
	case ".parquet":
		return Parquet
	}
	return ""
}

// Charset is the encoding of a file's text.
type Charset string

// The encodings. The zero value means UTF8.
const (
	UTF8        Charset = "utf-8"
	Latin1      Charset = "latin-1"
	Windows1252 Charset = "windows-1252"
)

// Error reports a row that cannot be used.
type Error struct {
	Path   string
	Line   int64 // from 1; the first line of the row
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *Error) Is(target error) bool { return target == fault.Damaged }

// Config says how a file is laid out.
type Config struct {
	Format  Format
	Charset Charset
	// Delimiter separates the columns of TSV and CSV; 0 means a tab for TSV and a comma for CSV.
	Delimiter byte
	// Names returns the names of the columns, given the fields of the first row, and whether
	// that row is data. If it is nil, the first row has the names. It is not used for JSON.
	Names func(first []string) (names []string, data bool)
	// FormatFlag is the flag with which a user chooses the format, if only the name of the file says it.
	// TSV whose fields seem to be quoted is then an error.
	FormatFlag string
	// Sum, if set, is given the bytes of the file as they are read.
	Sum hash.Hash
}

// Numbered is a Config.Names for files without a header. The columns are called by their numbers,
// from 1.
func Numbered(first []string) ([]string, bool) {
	names := make([]string, len(first))
	for i := range names {
		names[i] = strconv.Itoa(i + 1)
	}
	return names, true
}

// Field is the value of a row in a column. It may be missing: a test file has no label
// column.
type Field struct {
	Text string
	OK   bool
	File bool // Text is the content of a file, of a column of Files
}

// Column is a column to select.
type Column struct {
	Name     string // "" for a column that no file has
	Optional bool   // the file need not have it
	Flag     string // with which a user chooses it; "" for a column that nobody chose
	Words    bool   // contains text: in JSON a string, not a number
	Nulls    bool   // in JSON, an object may have null for it, or not have it
	Lists    bool   // may be an array in JSON, whose text is then the field
	Objects  bool   // may be an object in JSON, whose text is then the field
	// Files says that bytes of Parquet, and structs of bytes and a path as Hugging Face's datasets have images, are
	// the content of files.
	Files bool
}

// rowReader reads the rows of a file.
type rowReader interface {
	// next returns a row, which is valid until the next call, and its first line. The
	// error is io.EOF, a *Error after which reading can continue, or final.
	next() (row []byte, line int64, err error)
	// cut appends the fields of a row. It may be called by several goroutines. The error
	// is a *Error.
	cut(fields []Field, row string, line int64) ([]Field, error)
}

// Table is an open file. Only a Cutter may be used by several goroutines, one each.
type Table struct {
	path   string
	close  []func() error
	raw    *meter
	rows   rowReader
	names  []string
	header int64     // line of the first row
	first  *firstRow // a row already read, to be returned again
	index  []int     // position of each selected column among the row's fields, or -1
	width  int       // number of fields if it is the same for all rows; otherwise 0
	read   int64     // rows returned, including bad ones
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

// Open opens a file and reads its header. A name that ends in .gz or .zst means that it is
// compressed. When the context is done, reading ends, even from a pipe to which nobody writes.
func Open(ctx context.Context, path string, cfg Config) (*Table, error) {
	if cfg.Format == Parquet {
		return openParquet(ctx, path, cfg)
	}
	file, err := vfs.OpenStream(ctx, path)
	if err != nil {
		return nil, err
	}
	t, err := New(file, path, cfg)
	if err != nil {
		file.Close()
		return nil, err
	}
	t.close = append(t.close, file.Close)
	return t, nil
}

// New reads a table from a stream. path is its name in errors and shows whether it is compressed.
func New(r io.Reader, path string, cfg Config) (*Table, error) {
	if cfg.Format == Parquet {
		return nil, fault.Usagef("%s is a stream, and Parquet is read from its end; expected the name of a file", path)
	}
	t := &Table{path: path, raw: &meter{r: r, h: cfg.Sum}}
	plain, err := t.decompress()
	if err != nil {
		return nil, err
	}
	if (cfg.Format == NPZ || cfg.Format == TFRecord) && cfg.Delimiter == 0 {
		if t.rows, err = newBinaryRows(plain, path, cfg.Format); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		return t, nil
	}
	text, err := decode(bufio.NewReaderSize(plain, 1<<16), path, cfg.Charset, cfg.Format != JSON && cfg.Format != SQuAD)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if cfg.Delimiter != 0 && cfg.Format.Objects() {
		return nil, errors.Join(fault.Usagef("%s has format %s, which has no delimiter; expected tsv or csv", path, cfg.Format), t.Close())
	}
	switch cfg.Format {
	case TSV:
		cfg.Delimiter = cmp.Or(cfg.Delimiter, '\t')
		if cfg.FormatFlag != "" {
			head, err := text.Peek(text.Size()) // an error comes again
			if end := bytes.LastIndexByte(head, '\n'); err == nil && end >= 0 {
				head = head[:end] // what follows may be a part of a line
			}
			if err := checkQuoted(path, head, cfg); err != nil {
				return nil, errors.Join(err, t.Close())
			}
		}
		t.rows = &tsvRows{lines{r: text, path: path}, cfg.Delimiter, cfg.FormatFlag}
	case CSV:
		t.rows = newCSVRows(text, path, cmp.Or(cfg.Delimiter, ','))
	case JSONL:
		t.rows = &jsonRows{lines: lines{r: text, path: path}}
		return t, nil
	case JSON:
		t.rows = newArrayRows(text, path)
		return t, nil
	case SQuAD:
		t.rows, err = newSQuADRows(text, path)
		return t, err
	case Lines:
		t.rows, t.names = &lineRows{lines{r: text, path: path}}, []string{TextField}
		return t, nil
	case Paragraphs:
		t.rows, t.names = newParagraphRows(lines{r: text, path: path}), []string{TextField}
		return t, nil
	default:
		return nil, errors.Join(fmt.Errorf("%s: format is %q; expected tsv, csv, jsonl or json", path, cfg.Format), t.Close())
	}
	if err := t.readHeader(cfg); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// newBinaryRows returns the rows of a format that is no text.
func newBinaryRows(in io.Reader, path string, f Format) (rowReader, error) {
	if f == NPZ {
		return newNPZRows(in, path)
	}
	return newRecordRows(in, path)
}

// decompress returns the content of the file.
func (t *Table) decompress() (io.Reader, error) {
	plain, err := stream.Decompress(t.raw, t.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path, err)
	}
	t.close = append(t.close, plain.Close)
	return plain, nil
}

// decode returns the text of a file as UTF-8, without a byte order mark.
// lines is set for a format that consists of lines.
func decode(r *bufio.Reader, path string, charset Charset, lines bool) (*bufio.Reader, error) {
	mark, _ := r.Peek(3)
	if bytes.HasPrefix(mark, []byte("\xff\xfe")) || bytes.HasPrefix(mark, []byte("\xfe\xff")) {
		return nil, &Error{path, 1, "has the byte order mark of UTF-16; expected UTF-8; convert the file, as with iconv -f UTF-16 -t UTF-8"}
	}
	if bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		if charset == Latin1 || charset == Windows1252 {
			return nil, &Error{path, 1, fmt.Sprintf("has the byte order mark of UTF-8; expected encoding %s", charset)}
		}
		r.Discard(3)
	}
	head, _ := r.Peek(r.Buffered())
	if reason := Unreadable(head, lines); reason != "" {
		return nil, &Error{path, 1, reason}
	}
	switch charset {
	case Latin1:
		return bufio.NewReader(charmap.ISO8859_1.NewDecoder().Reader(r)), nil
	case Windows1252:
		return bufio.NewReader(charmap.Windows1252.NewDecoder().Reader(r)), nil
	}
	return r, nil
}

// Unreadable says why a text whose first bytes are head cannot be read, or returns "": it is UTF-16
// without a mark, or its lines, if it has lines, end with carriage returns alone.
func Unreadable(head []byte, lines bool) string {
	const enough = 8
	zero := [2]int{}
	for i, b := range head[:min(enough, len(head))] {
		if b == 0 {
			zero[i%2]++
		}
	}
	switch {
	case zero == [2]int{0, enough / 2}:
		return "is UTF-16; expected UTF-8; convert the file, as with iconv -f UTF-16LE -t UTF-8"
	case zero == [2]int{enough / 2, 0}:
		return "is UTF-16; expected UTF-8; convert the file, as with iconv -f UTF-16BE -t UTF-8"
	case !lines || bytes.IndexByte(head, '\n') >= 0:
		return ""
	}
	if _, rest, ok := bytes.Cut(head, []byte("\r")); ok && len(bytes.TrimSpace(rest)) > 0 {
		return `lines end with carriage returns alone; expected line feeds; convert the file, as with tr '\r' '\n'`
	}
	return ""
}

// readHeader reads the first row and finds the names of the columns.
func (t *Table) readHeader(cfg Config) error {
	text, line, err := t.rows.next()
	if err == io.EOF {
		return &Error{t.path, 1, "the file is empty"}
	}
	if err != nil {
		return err
	}
	fields, err := t.rows.cut(nil, string(text), line)
	if err != nil {
		return err
	}
	t.names, t.header = make([]string, len(fields)), line
	for i, f := range fields {
		t.names[i] = strings.TrimSpace(f.Text)
	}
	if cfg.Names != nil {
		data := false
		if t.names, data = cfg.Names(t.names); data {
			t.first = &firstRow{slices.Clone(text), line}
		}
	}
	t.width = len(t.names)
	return nil
}

// Names returns the names of the columns, or nil for JSON, where each row has its own.
func (t *Table) Names() []string { return t.names }

// Select chooses the columns whose fields Cut returns. A column that the file lacks, or has twice,
// is an *Error, or a usage error if a flag chose it. In JSON, the rows that lack it are.
func (t *Table) Select(columns ...Column) error {
	t.index = t.index[:0]
	if rows, ok := t.rows.(interface{ selects([]Column) }); ok {
		rows.selects(columns)
		for i := range columns {
			t.index = append(t.index, i)
		}
		return nil
	}
	for _, c := range columns {
		i := slices.Index(t.names, c.Name)
		if c.Name == "" {
			i = -1
		}
		if i < 0 && !c.Optional {
			other := otherDelimiter(c.Name, t.names)
			what := fmt.Sprintf("has no column %q; expected one of %s%s", c.Name, List(t.names), cmp.Or(other, DidYouMean(c.Name, t.names)))
			if c.Flag != "" && other != "" {
				return fault.Usagef("%s %s", t.path, what)
			}
			if c.Flag != "" {
				return fault.Usagef("%s %s; choose one with %s", t.path, what, c.Flag)
			}
			return &Error{t.path, t.header, what}
		}
		if i >= 0 && slices.Contains(t.names[i+1:], c.Name) {
			return &Error{t.path, t.header, fmt.Sprintf("has two columns %q; the columns are %s", c.Name, List(t.names))}
		}
		t.index = append(t.index, i)
	}
	return nil
}

// otherDelimiter returns what to do if a column would be there with another delimiter, or "".
func otherDelimiter(column string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	if strings.HasPrefix(names[0], "sep=") {
		return "; the first line is no header, but says what separates columns: remove it"
	}
	for _, d := range []struct{ sign, flag string }{{";", "';'"}, {"\t", "tab"}, {",", "','"}, {"|", "'|'"}} {
		for _, name := range names {
			if parts := strings.Split(name, d.sign); len(parts) > 1 && slices.ContainsFunc(parts, func(p string) bool { return strings.Trim(p, ` "`) == column }) {
				return "; if columns have another character between them: --delimiter " + d.flag
			}
		}
	}
	return ""
}

// Next returns a row, which is valid until the next call, its first line, and its number.
// The error is io.EOF, an *Error after which reading can continue, or final.
func (t *Table) Next() (text []byte, line, number int64, err error) {
	if t.first != nil {
		text, line = t.first.text, t.first.line
		t.first = nil
	} else {
		text, line, err = t.rows.next()
	}
	number = t.read
	if bad := (*Error)(nil); err == nil || errors.As(err, &bad) {
		t.read++
	}
	return text, line, number, err
}

// Rows returns the number of rows that Next has returned, including those that cannot be used.
func (t *Table) Rows() int64 { return t.read }

// Bytes returns the number of bytes of the file that have been read.
func (t *Table) Bytes() int64 { return t.raw.n }

// Close closes the file.
func (t *Table) Close() error {
	var errs []error
	for _, c := range t.close {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// Cutter splits the rows of a table into fields. Each goroutine has its own.
type Cutter struct {
	t          *Table
	all, asked []Field
}

// NewCutter returns a cutter for the rows of the table.
func (t *Table) NewCutter() *Cutter { return &Cutter{t: t} }

// Cut returns the fields of the selected columns, which are valid until the next call.
// The error is an *Error.
func (c *Cutter) Cut(text string, line int64) ([]Field, error) {
	t := c.t
	var err error
	if c.all, err = t.rows.cut(c.all[:0], text, line); err != nil {
		return nil, err
	}
	if t.width > 0 && len(c.all) != t.width {
		return nil, &Error{t.path, line, fmt.Sprintf("has %s; expected %d", Count(len(c.all), "column"), t.width)}
	}
	c.asked = c.asked[:0]
	for _, k := range t.index {
		if k < 0 {
			c.asked = append(c.asked, Field{})
		} else {
			c.asked = append(c.asked, c.all[k])
		}
	}
	return c.asked, nil
}

// All returns all fields of the row that was cut last, in the order of Names. For JSON, it returns
// the selected ones.
func (c *Cutter) All() []Field { return c.all }
