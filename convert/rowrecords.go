package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// RowRecords makes records of the rows of tables as a conversion by a schema did. It is for
// predictions, and for one goroutine.
type RowRecords struct {
	makers   []*cellMaker
	columns  []RowColumn
	folder   string
	features []tfrecord.Feature
	cut      int64
}

// RowColumn is a column that RowRecords takes.
type RowColumn struct {
	Name    string // in the table
	Feature string // that is made of it
	// Words, Lists and Nulls say what JSON may have for it: only a text, an array, null.
	Words, Lists, Nulls bool
	// Image says that it is the path of an image.
	Image bool
}

// Cell is the text that a row has in a column. OK is false if it has none.
type Cell struct {
	Text string
	OK   bool
	// File is the content of an image whose path is not given.
	File []byte
}

// NewRowRecords returns what makes records with the given features, those of a manifest. Paths of
// images without a folder are relative to folder. tokenizer is for features of kind text; nil if there
// is none.
func NewRowRecords(features []Feature, folder string, tokenizer *text.Tokenizer) (*RowRecords, error) {
	r := &RowRecords{folder: folder}
	made := make(map[string]bool) // by the feature of the text
	for _, f := range features {
		if f.Kind != KindText {
			continue
		}
		if made[f.Segments] = true; f.MaxLength < 1 || len(f.Columns) < 1 || len(f.Columns) > 2 {
			return nil, fault.Damagedf("feature %q has texts of at most %d tokens from columns %q; expected 1 or more tokens, and one or two columns; convert the data again", f.Name, f.MaxLength, f.Columns)
		}
		if tokenizer == nil {
			return nil, fmt.Errorf("feature %q has texts, and there is no vocabulary; expected one", f.Name)
		}
	}
	for _, f := range features {
		if made[f.Name] {
			continue
		}
		if f.Kind == KindImage && (len(f.Shape) != 3 || f.Shape.open() || f.Resize != "" && !slices.Contains(pixels.Resizes, f.Resize)) {
			return nil, fault.Damagedf("feature %q is an image of shape %v, resized by %q; expected [HEIGHT, WIDTH, CHANNELS] and one of %s; convert the data again", f.Name, f.Shape, f.Resize, strings.Join(pixels.Resizes, ", "))
		}
		if _, err := pixels.DecoderOf(f.JPEG); err != nil {
			return nil, fmt.Errorf("feature %q decodes %w", f.Name, err)
		}
		s := &featureSchema{name: f.Name, kind: f.Kind, role: f.Role, dtype: f.DType, columns: f.Columns, shape: f.Shape, raw: f.Encoding == "raw",
			resize: f.Resize, crop: f.CropToAspectRatio, convertColors: f.ConvertColors, jpeg: f.JPEG,
			categories: f.Categories, missing: f.Missing, missingValues: f.MissingValues, separator: f.Separator,
			maxLength: f.MaxLength, bare: f.Bare, segments: f.Segments, lines: map[string]int{"categories": 1}}
		if len(s.columns) == 0 {
			s.columns = []string{f.Name}
		}
		m := &cellMaker{featureSchema: s, first: len(r.columns), ids: make(map[string]int64), all: -1, tokenizer: tokenizer}
		for i, name := range f.Categories {
			m.ids[name] = int64(i)
		}
		if f.Unknown {
			m.all = int64(len(f.Categories) - 1)
		}
		for _, name := range s.columns {
			r.columns = append(r.columns, RowColumn{Name: name, Feature: f.Name, Words: f.Kind == KindImage || f.Kind == KindText, Lists: s.list(), Nulls: s.missing != nil, Image: f.Kind == KindImage})
		}
		r.makers = append(r.makers, m)
	}
	return r, nil
}

// TokenizerOf returns the tokenizer of the features of kind text, whose vocabulary is at path, or nil
// if there are none.
func TokenizerOf(features []Feature, path string) (*text.Tokenizer, error) {
	for _, f := range features {
		if f.Kind == KindText && f.Vocab != nil {
			return f.Vocab.Tokenizer(path)
		}
	}
	return nil, nil
}

// Columns returns the columns that a row needs, in the order of the cells of Record.
func (r *RowRecords) Columns() []RowColumn { return r.columns }

// Cut returns how many texts were too long and were cut.
func (r *RowRecords) Cut() int64 { return r.cut }

// Free gives back the memory that decoding images took, which is kept for the next ones.
func (r *RowRecords) Free() {
	for _, m := range r.makers {
		m.images = nil
	}
}

// Record returns the record of a row, as an Example. The error says what is wrong with a cell.
func (r *RowRecords) Record(row []Cell) ([]byte, error) {
	fields := make([]table.Field, len(row))
	for i, c := range row {
		fields[i] = table.Field{Text: c.Text, OK: c.OK}
	}
	r.features = r.features[:0]
	for _, m := range r.makers {
		if m.file = row[m.first].File; m.file != nil {
			fields[m.first].Text = "the image"
		}
		for i, f := range fields[m.first : m.first+len(m.columns)] {
			if m.missing == nil && m.isMissing(f) {
				return nil, fmt.Errorf("column %q is empty; expected a value of %s", m.columns[i], m.name)
			}
		}
		if _, reason := m.make(fields, false, r.folder); reason != "" {
			if m.unread != nil {
				return nil, m.unread
			}
			return nil, errors.New(reason)
		}
		r.features = append(r.features, tfrecord.Feature{Name: m.name, Value: m.value})
		if m.segments.Kind != tfrecord.KindNone {
			r.features = append(r.features, tfrecord.Feature{Name: m.featureSchema.segments, Value: m.segments})
		}
		if m.kind == KindText && m.encoding.Truncated {
			r.cut++
		}
	}
	slices.SortFunc(r.features, func(a, b tfrecord.Feature) int { return strings.Compare(a.Name, b.Name) })
	return tfrecord.AppendExample(nil, r.features...)
}
