package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// mostOriginals is the largest size in bytes of the sources of a split whose texts are read into memory.
const mostOriginals = 256 << 20

// OriginalsConfig says where the texts that records were made of are looked for.
type OriginalsConfig struct {
	// Data is the folder of the dataset.
	Data string
	// Sources are the folders of the sources, of which the first that has a source is taken.
	Sources []string
	// Tokenizer is that of the dataset.
	Tokenizer *text.Tokenizer
}

// Originals are the texts that the records of a split were made of. Its methods are for one goroutine.
type Originals struct {
	manifest  *Manifest
	cfg       *Config
	tokenizer *text.Tokenizer
	rows      []original // by ExampleID
	questions []Question // by QuestionID, of QuestionAnswering
	maker     *cellMaker // of records that were made by a schema
	decoder   *tfrecord.Decoder
	values    tfrecord.Values
	encoding  text.Encoding
	number    int64 // of the question that windows are of, or -1
	windows   []qa.Window
}

// original is what a source has of a record: two texts, or, of Tokens, a sentence as the format has it, or, of
// Choices, a text and the texts of choices.
type original struct {
	text.Pair
	choices []string
	format  Format
}

// Originals reads the texts that the records of a split were made of. It looks for each source of the
// split, by its name, in the folders, and takes the first file that is the one of the manifest;
// questions and their contexts are in the dataset itself. It returns an error that says why there are
// none: a source was not found or has changed, is too large, or its layout cannot be told from its name
// and the manifest.
//
// The manifest does not say how a source was encoded or quoted, so Text compares what a text gives with
// its record.
func (m *Manifest) Originals(ctx context.Context, split string, c OriginalsConfig) (*Originals, error) {
	o := &Originals{manifest: m, cfg: m.layout(), tokenizer: c.Tokenizer, number: -1}
	var columns []table.Column
	tokens, number := InputIDs, ExampleID
	switch t := o.cfg.task(); {
	case m.Task == SchemaTask:
		if err := o.makeText(); err != nil {
			return nil, err
		}
		tokens = o.maker.name
		for _, name := range o.maker.columns {
			columns = append(columns, table.Column{Name: name, Words: true, Nulls: o.maker.missing != nil})
		}
	case t.kind == Choices:
		columns = m.choiceColumns()
	case t.kind.texts(), t.kind == Seq2Seq, t.kind == Embed:
		return nil, fmt.Errorf("records of task %s are not made of whole texts", m.Task)
	case t.kind == QuestionAnswering:
		number = QuestionID
	case t.kind == Tokens:
		columns = []table.Column{{Name: t.text, Lists: true}}
	default:
		columns = []table.Column{{Name: t.text, Words: true}, {Name: t.pair, Words: true, Optional: t.pair == ""}}
	}
	o.decoder = tfrecord.NewDecoder(tokens, number, TokenStarts)
	if number == QuestionID {
		var err error
		o.questions, err = ReadQuestions(ctx, c.Data, m, split)
		return o, err
	}
	split = m.sourceSplit(split)
	left := int64(mostOriginals)
	for _, s := range m.Sources {
		if s.Split != split {
			continue
		}
		if left -= s.Bytes; left < 0 {
			return nil, fmt.Errorf("the sources have more than %d MiB", mostOriginals>>20)
		}
		path, err := s.find(c.Sources)
		if err == nil {
			err = o.read(ctx, &s, path, columns)
		}
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

// layout returns the settings of the conversion that say how the sources are laid out.
func (m *Manifest) layout() *Config {
	cfg := &Config{Task: m.Task}
	named := []string{m.Columns.Text}
	switch {
	case m.Task == SchemaTask:
		cfg = &Config{Schema: ManifestName}
		named = nil
		for _, f := range m.Features {
			named = append(named, f.Columns...)
		}
	case cfg.task().kind == Tokens:
		// Formats without columns have the names of the others in the manifest.
		if cfg.TextColumn, cfg.LabelColumn = m.Columns.Text, m.Columns.Label; cfg.TextColumn == wordsColumn {
			cfg.TextColumn = ""
		}
		if cfg.LabelColumn == tagsColumn {
			cfg.LabelColumn = ""
		}
		return cfg
	case cfg.free():
		cfg.TextColumn, cfg.PairColumn, cfg.LabelColumn = m.Columns.Text, m.Columns.Pair, m.Columns.Label
	default:
		return cfg
	}
	cfg.NoHeader = len(named) > 0 && !slices.ContainsFunc(named, func(name string) bool {
		_, err := strconv.Atoi(name)
		return err != nil
	})
	return cfg
}

// choiceColumns returns the columns of the text, of what stands before each choice, and of the choices.
func (m *Manifest) choiceColumns() []table.Column {
	out := []table.Column{{Name: m.Columns.Text, Words: true}, {Name: m.Columns.Stem, Words: true, Optional: m.Columns.Stem == ""}}
	if len(m.Columns.Choices) == 0 {
		return append(out, table.Column{Name: m.Columns.Pair, Words: true, Lists: true})
	}
	for _, name := range m.Columns.Choices {
		out = append(out, table.Column{Name: name, Words: true})
	}
	return out
}

// question returns the original of the fields of choiceColumns.
func (m *Manifest) question(fields []table.Field) original {
	out := original{Pair: text.Pair{A: fields[0].Text}}
	if len(m.Columns.Choices) == 0 {
		out.choices, _ = list(fields[2].Text) // of a row that was converted
	} else {
		for _, f := range fields[2:] {
			out.choices = append(out.choices, f.Text)
		}
	}
	if m.Columns.Stem != "" {
		for i := range out.choices {
			out.choices[i] = fields[1].Text + " " + out.choices[i]
		}
	}
	return out
}

// chosen returns a text and its choices, as a JSON array, if they give the tokens of a record.
func (o *Originals) chosen(row original, ids []int64) (text.Pair, bool) {
	var all []int32
	for _, choice := range row.choices {
		o.tokenizer.EncodeInto(&o.encoding, row.A, choice, o.manifest.MaxLength)
		all = append(all, o.encoding.IDs...)
	}
	b, err := json.Marshal(row.choices)
	return text.Pair{A: row.A, B: string(b)}, err == nil && len(row.choices) > 0 && equal(all, ids)
}

// makeText sets the maker of the first text of a schema.
func (o *Originals) makeText() error {
	i := slices.IndexFunc(o.manifest.Features, func(f Feature) bool { return f.Kind == KindText })
	if i < 0 {
		return errors.New("no feature of the records is a text")
	}
	if !o.manifest.numbered() {
		return errors.New("the records have ids of the schema in place of the numbers of their rows")
	}
	made, err := NewRowRecords(o.manifest.Features[i:i+1], "", o.tokenizer)
	if err != nil {
		return err
	}
	o.maker = made.makers[0]
	return nil
}

// numbered reports whether the ExampleID of records is the number of their row.
func (m *Manifest) numbered() bool {
	f := m.Feature(ExampleID)
	return m.Task != SchemaTask || f != nil && len(f.Columns) == 0
}

// Text returns the texts that a record was made of, an Example; ok is false if they are not known or do
// not give its tokens. The second text of a question is the part of its context that the record has, and that
// of Choices a JSON array.
func (o *Originals) Text(record []byte) (texts text.Pair, ok bool) {
	if o.decoder.Decode(record, &o.values) != nil {
		return text.Pair{}, false
	}
	ids, err := o.values.Int64s(0)
	if err != nil {
		return text.Pair{}, false
	}
	numbers, err := o.values.Int64s(1)
	if err != nil || len(numbers) != 1 {
		return text.Pair{}, false
	}
	number := numbers[0]
	if o.questions != nil {
		return o.part(number, ids)
	}
	if number < 0 || number >= int64(len(o.rows)) {
		return text.Pair{}, false
	}
	row := o.rows[number]
	switch kind := o.cfg.task().kind; {
	case kind == Tokens:
		return o.sentence(row, ids)
	case kind == Choices:
		return o.chosen(row, ids)
	case o.maker == nil:
		o.tokenizer.EncodeInto(&o.encoding, row.A, row.B, o.manifest.MaxLength)
		return row.Pair, equal(o.encoding.IDs, ids)
	}
	fields := []table.Field{{Text: row.A, OK: true}, {Text: row.B, OK: true}}
	if _, reason := o.maker.make(fields, false, ""); reason != "" {
		return text.Pair{}, false
	}
	return row.Pair, equal(o.maker.encoding.IDs, ids)
}

// sentence returns the words of a sentence with spaces between them. The name of a source does not show
// the format Brown.
func (o *Originals) sentence(row original, ids []int64) (text.Pair, bool) {
	field := table.Field{Text: row.A, OK: true}
	for _, format := range []Format{row.format, Brown} {
		s, reason := o.cfg.sentence(format, field, table.Field{})
		if reason != "" {
			continue
		}
		if o.encoding.IDs, _ = o.tokenizer.EncodeWords(o.encoding.IDs[:0], nil, s.words, o.manifest.MaxLength); equal(o.encoding.IDs, ids) {
			return text.Pair{A: strings.Join(s.words, " ")}, true
		}
	}
	return text.Pair{}, false
}

// part returns a question and the part of its context that a window with the given tokens has.
func (o *Originals) part(number int64, ids []int64) (text.Pair, bool) {
	starts, err := o.values.Int64s(2)
	if err != nil || number < 0 || number >= int64(len(o.questions)) {
		return text.Pair{}, false
	}
	q := o.questions[number]
	if o.number != number {
		question, _ := qa.Question(o.tokenizer, q.Question, o.manifest.MaxLength)
		o.number, o.windows = number, qa.Windows(o.tokenizer, question, qa.Tokenize(o.tokenizer, q.Context, math.MaxInt), o.manifest.MaxLength, o.manifest.DocStride)
	}
	for _, w := range o.windows {
		if equal(w.IDs, ids) && equal(w.Starts, starts) {
			return text.Pair{A: q.Question, B: qa.Slice(q.Context, int(w.Starts[w.First]), int(w.Ends[w.Last]))}, true
		}
	}
	return text.Pair{}, false
}

// equal reports whether tokens are those of a record.
func equal(ids []int32, record []int64) bool {
	return slices.EqualFunc(ids, record, func(a int32, b int64) bool { return int64(a) == b })
}

// find returns the path of the source: that of the first file of its name and size.
func (s *Source) find(folders []string) (string, error) {
	changed := ""
	for _, folder := range folders {
		path := vfs.Join(folder, s.Name)
		info, err := vfs.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode().IsRegular() && info.Size() == s.Bytes:
			return path, nil
		default:
			changed = path
		}
	}
	if changed != "" {
		return "", fmt.Errorf("%s is not the file that the data were made of", changed)
	}
	return "", fmt.Errorf("%s was not found", s.Name)
}

// read reads the rows of a source; those of a row that cannot be read are empty.
func (o *Originals) read(ctx context.Context, s *Source, path string, columns []table.Column) (err error) {
	format, err := o.cfg.formatOf(path)
	if err != nil {
		return err
	}
	formats := []Format{format}
	if o.cfg.task().kind == Tokens && !table.Format(format).Objects() {
		formats, columns = []Format{format, Brown}, []table.Column{{Name: table.TextField}}
	}
	before := len(o.rows)
	for _, f := range formats {
		cfg := *o.cfg
		cfg.Format = f
		o.rows = o.rows[:before]
		if err = o.readAs(ctx, &cfg, s, path, columns); err == nil {
			return nil
		}
	}
	return err
}

// readAs reads the rows of a source in a format.
func (o *Originals) readAs(ctx context.Context, cfg *Config, s *Source, path string, columns []table.Column) error {
	sum := sha256.New()
	from, err := openTable(ctx, cfg, path, columns, sum)
	if err != nil {
		return err
	}
	defer from.Close()
	cutter := from.NewCutter()
	first := len(o.rows)
	for {
		row, line, _, err := from.Next()
		if err == io.EOF {
			break
		}
		if bad := (*table.Error)(nil); err != nil && !errors.As(err, &bad) {
			return err
		}
		texts := original{format: cfg.Format}
		if err == nil {
			if fields, err := cutter.Cut(string(row), line); err == nil {
				if o.cfg.task().kind == Choices {
					texts = o.manifest.question(fields)
				} else if texts.A = fields[0].Text; len(fields) > 1 {
					texts.B = fields[1].Text
				}
			}
		}
		o.rows = append(o.rows, texts)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 || int64(len(o.rows)-first) != s.Rows {
		return fmt.Errorf("%s is not the file that the data were made of", path)
	}
	return nil
}
