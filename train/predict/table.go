package predict

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
)

// Columns says how a file with named columns is laid out, and which of them are used.
type Columns struct {
	// Format is tsv (no quoting), csv (RFC 4180), jsonl, json (an array of objects), parquet, npz or tfrecord; "" goes by
	// the name of the file, which may end in .gz or .zst after that. FormatLines means that there are no columns.
	Format string
	// Charset is utf-8, latin-1 or windows-1252; "" is utf-8.
	Charset string
	// Delimiter is what separates the columns of tsv and csv, as table.ParseDelimiter takes it; ""
	// is a tab and a comma.
	Delimiter string
	// NoHeader says that the first row has data. Columns are then called by their numbers, from 1.
	NoHeader bool
	// Text and Pair are the columns of the text and of the second text of a pair; without Pair,
	// there is no second text.
	Text, Pair string
	// Choices says that the second text is a JSON array, of choices.
	Choices bool
	// ID is the only column to keep next to the answers; "" keeps all.
	ID string
	// EscapeFormulas writes a ' in front of cells of tsv and csv that a spreadsheet would compute.
	EscapeFormulas bool
	// Trained are the columns of the data that the model was trained on. If Text is "", they are
	// used if the file has them. nil is none.
	Trained *TrainedColumns
}

// TrainedColumns are the columns of the text and of the second text, or "". The second text may be put
// together of others: Choices are the columns of an example's choices in place of Pair, and Stem is that of
// what stands before each choice.
type TrainedColumns struct {
	Text, Pair string
	Choices    []string
	Stem       string
}

// in reports whether a file with these columns has all of them.
func (t TrainedColumns) in(names []string) bool {
	for _, name := range append([]string{t.Text, t.Pair, t.Stem}, t.Choices...) {
		if name != "" && !slices.Contains(names, name) {
			return false
		}
	}
	return t.Text != ""
}

// FormatLines is the format of files with a text, or a pair of texts, in each line.
const FormatLines = "lines"

// Validate returns an error for the first invalid setting.
func (c Columns) Validate() error {
	switch {
	case !slices.Contains([]string{"", FormatLines, string(table.TSV), string(table.CSV), string(table.JSONL), string(table.JSON), string(table.Parquet), string(table.NPZ), string(table.TFRecord)}, c.Format):
		return fmt.Errorf("input format is %q; expected lines, tsv, csv, jsonl, json, parquet, npz or tfrecord", c.Format)
	case c.Format == FormatLines && c.EscapeFormulas:
		return errors.New("input format lines has no columns, in whose cells formulas could be escaped; leave out --escape-formulas")
	case c.Format == FormatLines && (c.NoHeader || c.Text != "" || c.ID != "" || c.Charset != "" || c.Delimiter != ""):
		return errors.New("input format lines has no columns, header or encoding; leave out the options for these")
	case !slices.Contains([]table.Charset{"", table.UTF8, table.Latin1, table.Windows1252}, table.Charset(c.Charset)):
		return fmt.Errorf("encoding is %q; expected utf-8, latin-1 or windows-1252", c.Charset)
	case c.Pair != "" && c.Text == "":
		return fmt.Errorf("pair column %q is given without a text column; expected both", c.Pair)
	case c.Pair != "" && c.Pair == c.Text:
		return fmt.Errorf("column %q is both the text column and the pair column; expected different columns", c.Text)
	}
	if _, err := table.ParseDelimiter(c.Delimiter); err != nil {
		return err
	}
	return nil
}

// chosen reports whether something was chosen that only files with columns have.
func (c Columns) chosen() bool {
	return c.Format != "" || c.NoHeader || c.Text != "" || c.ID != "" || c.Charset != "" || c.Delimiter != ""
}

// HasColumns reports whether a file is to be read as a Table: because its name shows that it is one
// (.tsv, .csv, .json, .parquet, and .jsonl if it is compressed), or because columns are chosen. Other files have a
// text, or a pair of texts, in each line.
func (c Columns) HasColumns(path string) bool {
	if c.Format == FormatLines {
		return false
	}
	if plain, packed := stream.CutSuffix(path); packed {
		return plain != ""
	}
	return c.chosen() || slices.Contains([]string{".tsv", ".csv", ".json", ".parquet"}, strings.ToLower(filepath.Ext(path)))
}

// Table is a Source that reads columns of a file. It keeps the rows until TableWriter has written
// them with their answers.
type Table struct {
	path      string
	in        *table.Table
	cutter    *table.Cutter
	format    table.Format
	delimiter byte     // 0: the format's own
	names     []string // of the columns to keep; nil for all fields of a JSON object
	keep      []int    // their positions in a row
	from      TrainedColumns
	id        string
	escape    bool // see Columns.EscapeFormulas

	line int64 // of the row that was read last
	mu   sync.Mutex
	rows []tableRow // read and not yet written
}

// tableRow is a row that waits for its answer.
type tableRow struct {
	line   int64
	fields []string // in the order of names
	object string   // the JSON object if all its fields are kept
}

// OpenTable opens a file whose rows have the texts in columns. It returns a usage error if it is not
// clear which columns.
func OpenTable(ctx context.Context, path string, c Columns) (*Table, error) {
	config, err := c.layout(path)
	if err != nil {
		return nil, err
	}
	in, err := table.Open(ctx, path, config)
	if err != nil {
		return nil, lineError(err)
	}
	t, err := newTable(in, path, config, c)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return t, nil
}

// NewTable is like OpenTable for a stream called name. Its format must be given.
func NewTable(r io.Reader, name string, c Columns) (*Table, error) {
	config, err := c.layout(name)
	if err != nil {
		return nil, err
	}
	in, err := table.New(r, name, config)
	if err != nil {
		return nil, lineError(err)
	}
	return newTable(in, name, config, c)
}

// layout returns how a file is laid out.
func (c Columns) layout(path string) (table.Config, error) {
	if err := c.Validate(); err != nil {
		return table.Config{}, fault.Usagef("%w", err)
	}
	config := table.Config{Format: table.Format(c.Format), Charset: table.Charset(c.Charset)}
	if config.Format == "" {
		config.Format, config.FormatFlag = table.FormatOf(path), "--input-format"
	}
	if config.Format == "" {
		return table.Config{}, fault.Usagef("the name of %s does not show its format; choose one with --input-format tsv, csv, jsonl, json, parquet, npz or tfrecord", path)
	}
	var err error
	if config.Delimiter, err = table.ParseDelimiter(c.Delimiter); err != nil {
		return table.Config{}, fault.Usagef("%w", err)
	}
	if err := table.CheckDelimiter(path, config.Format, c.Format != "", config.Delimiter, "--input-format"); err != nil {
		return table.Config{}, err
	}
	if c.NoHeader {
		if config.Format.Objects() {
			return table.Config{}, fault.Usagef("%s is %s, whose fields have names; leave out --no-header", path, config.Format)
		}
		config.Names = table.Numbered
	}
	return config, nil
}

func newTable(in *table.Table, path string, layout table.Config, c Columns) (*Table, error) {
	format := layout.Format
	t := &Table{path: path, in: in, format: format, delimiter: layout.Delimiter, names: in.Names(), id: c.ID}
	var err error
	if t.from, err = c.resolve(path, format, t.names); err != nil {
		return nil, err
	}
	columns := []table.Column{
		{Name: t.from.Text, Words: true, Flag: "--text-column"},
		{Name: t.from.Pair, Words: true, Lists: c.Choices, Optional: t.from.Pair == "", Flag: "--pair-column"},
		{Name: t.from.Stem, Words: true, Optional: t.from.Stem == "", Flag: "--text-column"},
	}
	for _, name := range t.from.Choices {
		columns = append(columns, table.Column{Name: name, Words: true, Flag: "--text-column"})
	}
	return t, t.choose(columns, c)
}

// choose selects the columns that are read, and those to keep.
func (t *Table) choose(columns []table.Column, c Columns) error {
	t.escape = c.EscapeFormulas
	t.cutter = t.in.NewCutter()
	if c.ID != "" {
		columns = append(columns, table.Column{Name: c.ID, Flag: "--id-column"})
	}
	if err := t.in.Select(columns...); err != nil {
		return lineError(err)
	}
	for i, name := range t.names {
		if c.ID == "" || name == c.ID {
			t.keep = append(t.keep, i)
		}
	}
	if c.ID != "" {
		t.names = []string{c.ID}
	}
	return nil
}

// resolve returns the columns of the texts: those chosen, or those that the model was trained on.
func (c Columns) resolve(path string, format table.Format, names []string) (TrainedColumns, error) {
	var trained TrainedColumns
	if c.Trained != nil {
		trained = *c.Trained
	}
	switch {
	case c.Text != "":
		return TrainedColumns{Text: c.Text, Pair: c.Pair}, nil
	case format.Objects() && trained.Text == "":
		return TrainedColumns{}, fault.Usagef("%s has objects, and no field is chosen; name it with --text-column", path)
	case format.Objects(), !c.NoHeader && trained.in(names):
		return trained, nil
	}
	if c.NoHeader {
		return TrainedColumns{}, fault.Usagef("%s has %s, and none is chosen; name that of the text by its number with --text-column", path, table.Count(len(names), "column"))
	}
	return TrainedColumns{}, fault.Usagef("%s has the columns %s, and none is chosen; name that of the text with --text-column (with --no-header if the first line is data; for a text or a pair in each line, --input-format lines)", path, table.List(names))
}

// TextColumns returns the columns of the texts.
func (t *Table) TextColumns() TrainedColumns { return t.from }

// Next implements Source.
func (t *Table) Next() (text.Pair, error) {
	fields, _, err := t.next()
	if err != nil {
		return text.Pair{}, err
	}
	return text.Pair{A: fields[0].Text, B: t.second(fields)}, nil
}

// second returns the second text of a row. Choices are a JSON array; one that is empty stays so.
func (t *Table) second(fields []table.Field) string {
	if t.from.Stem == "" && len(t.from.Choices) == 0 {
		return fields[1].Text
	}
	var all []string
	for _, f := range fields[3 : 3+len(t.from.Choices)] {
		all = append(all, f.Text)
	}
	if all == nil && json.Unmarshal([]byte(fields[1].Text), &all) != nil {
		return fields[1].Text // which is refused
	}
	for i, choice := range all {
		if t.from.Stem != "" && strings.TrimSpace(choice) != "" {
			all[i] = fields[2].Text + " " + choice
		}
	}
	out, err := json.Marshal(all)
	if err != nil {
		panic(err) // texts
	}
	return string(out)
}

// Refuse implements Source. The error is a *LineError, and the row gets no answer.
func (t *Table) Refuse(reason string) error {
	t.mu.Lock()
	t.rows = t.rows[:len(t.rows)-1]
	t.mu.Unlock()
	return &LineError{Name: t.path, Line: int(t.line), Reason: reason}
}

// next returns the fields of the next row, and its line.
func (t *Table) next() ([]table.Field, int64, error) {
	row, line, _, err := t.in.Next()
	if err != nil {
		return nil, 0, lineError(err)
	}
	// Fields share the memory of the row, which must live until the answer is written.
	content := string(row)
	fields, err := t.cutter.Cut(content, line)
	if err != nil {
		return nil, 0, lineError(err)
	}
	t.line = line
	kept := tableRow{line: line}
	switch {
	case !t.format.Objects():
		all := t.cutter.All()
		for _, i := range t.keep {
			kept.fields = append(kept.fields, all[i].Text)
		}
	case t.id != "":
		kept.fields = []string{fields[len(fields)-1].Text}
	default:
		kept.object = content
	}
	t.mu.Lock()
	t.rows = append(t.rows, kept)
	t.mu.Unlock()
	return fields, line, nil
}

// take returns the first row that waits for its answer.
func (t *Table) take() tableRow {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows[0]
	t.rows = t.rows[1:]
	return row
}

// Close closes the file.
func (t *Table) Close() error { return t.in.Close() }

// lineError returns an error of package table as one of this package.
func lineError(err error) error {
	if bad := (*table.Error)(nil); errors.As(err, &bad) {
		return &LineError{Name: bad.Path, Line: int(bad.Line), Reason: bad.Reason}
	}
	return err
}
