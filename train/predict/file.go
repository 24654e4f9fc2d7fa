package predict

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// Open opens a file of texts: a *Table if it has columns (Columns.HasColumns), and *Lines otherwise.
// The name - is standard input. The caller calls the function that comes with it at the end.
func Open(ctx context.Context, path string, stdin io.Reader, c Columns) (Source, func() error, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, fault.Usagef("%w", err)
	}
	if c.EscapeFormulas && !c.HasColumns(path) { // "-" has no ending
		return nil, nil, fault.Usagef("%s has no columns, in whose cells formulas could be escaped; leave out --escape-formulas, or choose --input-format", path)
	}
	if path == "-" {
		in, name := stream.WithContext(ctx, stdin), "standard input"
		if !c.HasColumns("") {
			return NewLines(in, name, ParseTSV), func() error { return nil }, nil
		}
		t, err := NewTable(in, name, c)
		if err != nil {
			return nil, nil, err
		}
		return t, t.Close, nil
	}
	if c.HasColumns(path) {
		t, err := OpenTable(ctx, path, c)
		if err != nil {
			return nil, nil, err
		}
		return t, t.Close, nil
	}
	in, err := vfs.OpenStream(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return NewLines(in, path, ParserOf(path, c.Choices)), in.Close, nil
}

// Answers creates an output as NewOutput does, and a function that writes a Renderer's answers to it as
// Writer does. format "" is the one that the name of the file says, if it says one.
func Answers(stdout io.Writer, path string, overwrite bool, in Source, format Format, r Renderer) (*Output, func(Answer) error, error) {
	if format == "" {
		var err error
		if format, err = formatOf(path, in); err != nil {
			return nil, nil, err
		}
	}
	out, err := NewOutput(stdout, path, overwrite)
	if err != nil {
		return nil, nil, err
	}
	write, end, err := Writer(out, in, format, r)
	if err != nil {
		out.Discard()
		return nil, nil, err
	}
	out.end = end
	return out, write, nil
}

// formatOf returns the format that the name of a file for answers says, or "": it says none, or that of
// the table that is answered, with its delimiter.
func formatOf(path string, in Source) (Format, error) {
	said := ofTable(table.FormatOf(path))
	if plain, _ := stream.CutSuffix(path); strings.EqualFold(filepath.Ext(plain), ".txt") {
		said = "" // of a table that is read it means tsv, and of answers nothing
	}
	t, ok := in.(*Table)
	switch {
	case ok && said == t.own():
		return "", nil
	case !ok && said == CSV:
		return "", fault.Usagef("%s: these answers have no columns, so they cannot be csv; expected a name that ends in .tsv or .jsonl, or choose --format", path)
	}
	return said, nil
}

// Writer returns a function that writes a Renderer's answers to the texts of a source: with the columns
// of a *Table, and alone for other sources, and one to call after the last. format "" is the format of
// the table, or Text.
func Writer(out io.Writer, in Source, format Format, r Renderer) (write func(Answer) error, end func() error, err error) {
	if t, ok := in.(*Table); ok {
		w, err := NewTableWriter(out, t, format, r)
		if err != nil {
			return nil, nil, err
		}
		return w.Write, w.End, nil
	}
	if format == "" {
		format = Text
	}
	if format == CSV {
		return nil, nil, fault.Usagef("format is csv, which is for files with columns; expected text, tsv or json")
	}
	return func(a Answer) error { return format.Write(out, a) }, func() error { return nil }, nil
}

// Output is where answers go: standard output, or a file that appears with all answers or not at
// all, also in a bucket. A file whose name ends in .gz or .zst is compressed.
type Output struct {
	*bufio.Writer
	file    *vfs.Whole     // nil for standard output
	content io.WriteCloser // of the file, which may be compressed
	end     func() error   // writes what comes after the answers; nil for nothing
}

// NewOutput creates the file at path, or uses stdout if path is "". An existing file is replaced
// only if overwrite is set; otherwise the error is a usage error. The caller calls End at the end,
// and Discard after that or instead.
func NewOutput(stdout io.Writer, path string, overwrite bool) (*Output, error) {
	if path == "" {
		return &Output{Writer: bufio.NewWriter(stdout)}, nil
	}
	file, err := vfs.CreateWhole(path, overwrite)
	if err != nil {
		return nil, err
	}
	content, err := stream.Compress(file, path)
	if err != nil {
		file.Discard()
		return nil, err
	}
	return &Output{Writer: bufio.NewWriter(content), file: file, content: content}, nil
}

// End writes what is left, and gives the file its name. err is the error that ended the answers: a
// file then keeps its old content, but standard output gets the answers so far. The context ends an
// upload.
func (o *Output) End(ctx context.Context, err error) error {
	if err == nil && o.end != nil {
		err = o.end()
	}
	if o.file == nil {
		if flush := o.Flush(); err == nil && flush != nil { // otherwise the first error is the one to report
			err = fmt.Errorf("write answers: %w", flush)
		}
		return err
	}
	if err != nil {
		return err
	}
	if err := errors.Join(o.Flush(), o.content.Close()); err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	if err := o.file.End(ctx); err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	return nil
}

// Discard removes a file that End has not given its name.
func (o *Output) Discard() {
	if o.file != nil {
		o.file.Discard()
	}
}
