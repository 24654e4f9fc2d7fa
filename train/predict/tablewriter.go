package predict

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// TableWriter writes the rows of a Table, each with the Columns of its answer after the columns that
// it had. Those of a Label are:
//
//	label          name of the most probable label
//	score          its probability
//	probability_L  probability of each label L; in JSON the object probabilities, by label
//	truncated      whether the text was cut because it was too long
//
// If the file has a column of one of these names, the answer's are called predicted_label and so on,
// all of them.
type TableWriter struct {
	t         *Table
	format    Format
	out       io.Writer
	csv       *csv.Writer
	delimiter string // of TSV
	renderer  Renderer
	names     []string // of the answers' columns, see Renderer.Names
	prefix    string
	begun     bool
	width     int // fields of the header
}

// NewTableWriter returns a writer for the answers of a Renderer. format is TSV, CSV or JSON; "" is the
// format of the file, with its delimiter, and JSON lines for an array.
func NewTableWriter(out io.Writer, t *Table, format Format, r Renderer) (*TableWriter, error) {
	var delimiter byte
	if format == "" {
		format = t.own()
		delimiter = t.delimiter
	}
	w := &TableWriter{t: t, format: format, out: out, renderer: r, names: r.Names()}
	switch {
	case !slices.Contains([]Format{TSV, CSV, JSON}, format):
		return nil, fault.Usagef("format is %q; expected tsv, csv or json for a file with columns", string(format))
	case format == JSON && t.escape:
		return nil, fault.Usagef("the answers to %s are json, whose texts no spreadsheet computes; leave out --escape-formulas, or choose --format csv", t.path)
	case format != JSON && t.names == nil:
		return nil, fault.Usagef("the fields of %s differ from row to row, so its answers cannot be %s; choose --format json, or keep one field with --id-column", t.path, format)
	}
	w.delimiter = string(rune(cmp.Or(delimiter, '\t')))
	if format == CSV {
		w.csv = csv.NewWriter(out)
		w.csv.Comma = rune(cmp.Or(delimiter, ','))
	}
	return w, w.name(t.names)
}

// own is the format of answers in that of the table.
func (t *Table) own() Format { return ofTable(t.format) }

// ofTable is the format of answers in that of a table, or "".
func ofTable(f table.Format) Format {
	return map[table.Format]Format{table.TSV: TSV, table.CSV: CSV, table.JSONL: JSON, table.JSON: JSON, table.NPZ: JSON, table.TFRecord: JSON, table.Parquet: JSON}[f]
}

// name decides what the answer's columns are called, given the names of the columns to keep.
func (w *TableWriter) name(kept []string) error {
	taken := func(prefix string) bool {
		return slices.ContainsFunc(kept, func(name string) bool {
			return slices.ContainsFunc(w.names, func(of string) bool {
				begin, many := strings.CutSuffix(of, "*")
				return name == prefix+of || many && strings.HasPrefix(name, prefix+begin)
			})
		})
	}
	if taken("") {
		w.prefix = "predicted_"
	}
	if taken(w.prefix) {
		return fault.Usagef("%s has columns with the names of the answers, such as %s and predicted_%[2]s; keep one column with --id-column", w.t.path, w.names[0])
	}
	return nil
}

// Write writes the answer to the next row.
func (w *TableWriter) Write(a Answer) error {
	row := w.t.take()
	var err error
	if w.format == JSON {
		err = w.object(row, a)
	} else {
		err = w.row(row, a)
	}
	if err != nil && fault.ExitCode(err) == fault.ExitFailed {
		return fmt.Errorf("write answers: %w", err)
	}
	return err
}

// row writes a row of TSV or CSV, after the header.
func (w *TableWriter) row(row tableRow, a Answer) error {
	columns := a.Columns()
	if err := w.header(columns); err != nil {
		return err
	}
	fields := row.fields
	for _, c := range columns {
		fields = append(fields, cells(c)...)
	}
	if len(fields) != w.width {
		return fault.Usagef("%s:%d: the answer has other columns than those before, which %s cannot hold; choose --format json", w.t.path, max(row.line, 1), w.format)
	}
	return w.line(row.line, fields)
}

// header writes the header, unless it is written, given the columns of an answer.
func (w *TableWriter) header(columns []Field) error {
	if w.begun {
		return nil
	}
	w.begun = true
	header := slices.Clone(w.t.names)
	for _, c := range columns {
		for _, name := range heads(c) {
			header = append(header, w.prefix+name)
		}
	}
	w.width = len(header)
	return w.line(0, header)
}

// End writes the header of a file without rows.
func (w *TableWriter) End() error {
	e, ok := w.renderer.(emptier)
	if w.format == JSON || !ok {
		return nil
	}
	if err := w.header(e.empty(w.t.from.Text != "").Columns()); err != nil {
		return fmt.Errorf("write answers: %w", err)
	}
	return nil
}

// line writes fields. number is that of their line in the file.
func (w *TableWriter) line(number int64, fields []string) error {
	if w.t.escape {
		for i, f := range fields {
			fields[i] = escapeFormula(f)
		}
	}
	if w.csv != nil {
		if err := w.csv.Write(fields); err != nil {
			return err
		}
		w.csv.Flush() // into w.out, which has a buffer
		return w.csv.Error()
	}
	for _, f := range fields {
		if strings.ContainsAny(f, w.delimiter+"\r\n") {
			what := "a tab"
			if w.delimiter != "\t" {
				what = strconv.Quote(w.delimiter)
			}
			return fault.Usagef("%s:%d: %s has %s or a line break, which tsv cannot hold; choose --format csv or json", w.t.path, max(number, 1), strconv.Quote(table.Clip(f)), what)
		}
	}
	_, err := io.WriteString(w.out, strings.Join(fields, w.delimiter)+"\n")
	return err
}

// escapeFormula returns a cell that a spreadsheet takes as text: with a ' in front if it would be a formula.
// Numbers stay numbers.
func escapeFormula(cell string) string {
	if cell == "" || !strings.Contains("=+-@\t\r\n", cell[:1]) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}

// object writes a JSON object on a line.
func (w *TableWriter) object(row tableRow, a Answer) error {
	var b strings.Builder
	b.WriteByte('{')
	add := func(name string, value any) error {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(v)
		return nil
	}
	if row.object != "" {
		if err := w.keep(&b, row); err != nil {
			return err
		}
	}
	for i, f := range row.fields {
		if err := add(w.t.names[i], f); err != nil {
			return err
		}
	}
	for _, c := range a.Columns() {
		if o, ok := c.Value.(Object); ok {
			c.Value = o.sorted()
		}
		if err := add(w.prefix+c.Name, c.Value); err != nil {
			return err
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w.out, b.String())
	return err
}

// keep adds the fields of the row's object. The first object decides how the answer's are called.
func (w *TableWriter) keep(b *strings.Builder, row tableRow) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(row.object), &fields); err != nil {
		return &LineError{Name: w.t.path, Line: int(row.line), Reason: err.Error()}
	}
	names := slices.Collect(maps.Keys(fields))
	before := w.prefix
	if err := w.name(names); err != nil {
		return err
	}
	if !w.begun {
		w.begun = true
	} else if w.prefix != before {
		if before == "" {
			return &LineError{Name: w.t.path, Line: int(row.line), Reason: "has a field with the name of an answer, which the rows before did not have; keep one field with --id-column"}
		}
		w.prefix = before
	}
	inner := strings.TrimSpace(row.object)
	if strings.ContainsAny(inner, "\r\n") { // an object of an array may have lines
		var line bytes.Buffer
		if err := json.Compact(&line, []byte(inner)); err != nil {
			return &LineError{Name: w.t.path, Line: int(row.line), Reason: err.Error()}
		}
		inner = line.String()
	}
	b.WriteString(strings.TrimSpace(inner[1 : len(inner)-1]))
	return nil
}
