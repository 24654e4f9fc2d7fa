package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/table"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// RowRecords makes records of the rows of tables as a conversion by a schema did. It is for
// predictions, and for one goroutine.
type RowRecords struct {
	makers   []*cellMaker
	columns  []RowColumn
	folder   string
	features []tfrecord.Feature
}

// RowColumn is a column that RowRecords takes.
type RowColumn struct {
	Name    string // in the table
	Feature string // that is made of it
	// Words, Lists and Nulls say what JSON may have for it: only a text, an array, null.
	Words, Lists, Nulls bool
}

// Cell is the text that a row has in a column. OK is false if it has none.
type Cell struct {
	Text string
	OK   bool
}

// NewRowRecords returns what makes records with the given features, those of a manifest. Paths of
// images without a folder are relative to folder. Features of kind text cannot be made.
func NewRowRecords(features []Feature, folder string) (*RowRecords, error) {
	r := &RowRecords{folder: folder}
	for _, f := range features {
		if f.Kind == KindText {
			return nil, fmt.Errorf("feature %q has texts, which a manifest does not describe fully; expected records, made by gorbit convert", f.Name)
		}
		s := &featureSchema{name: f.Name, kind: f.Kind, role: f.Role, dtype: f.DType, columns: f.Columns, shape: f.Shape, raw: f.Encoding == "raw",
			categories: f.Categories, missing: f.Missing, missingValues: f.MissingValues, separator: f.Separator, lines: map[string]int{"categories": 1}}
		if len(s.columns) == 0 {
			s.columns = []string{f.Name}
		}
		m := &cellMaker{featureSchema: s, first: len(r.columns), ids: make(map[string]int64), all: -1}
		for i, name := range f.Categories {
			m.ids[name] = int64(i)
		}
		if f.Unknown {
			m.all = int64(len(f.Categories) - 1)
		}
		for _, name := range s.columns {
			r.columns = append(r.columns, RowColumn{Name: name, Feature: f.Name, Words: f.Kind == KindImage, Lists: s.list(), Nulls: s.missing != nil})
		}
		r.makers = append(r.makers, m)
	}
	return r, nil
}

// Columns returns the columns that a row needs, in the order of the cells of Record.
func (r *RowRecords) Columns() []RowColumn { return r.columns }

// Record returns the record of a row, as an Example. The error says what is wrong with a cell.
func (r *RowRecords) Record(row []Cell) ([]byte, error) {
	fields := make([]table.Field, len(row))
	for i, c := range row {
		fields[i] = table.Field{Text: c.Text, OK: c.OK}
	}
	r.features = r.features[:0]
	for _, m := range r.makers {
		for i, f := range fields[m.first : m.first+len(m.columns)] {
			if m.missing == nil && m.isMissing(f) {
				return nil, fmt.Errorf("column %q is empty; expected a value of %s", m.columns[i], m.name)
			}
		}
		if _, reason := m.make(fields, false, r.folder); reason != "" {
			return nil, errors.New(reason)
		}
		r.features = append(r.features, tfrecord.Feature{Name: m.name, Value: m.value})
	}
	slices.SortFunc(r.features, func(a, b tfrecord.Feature) int { return strings.Compare(a.Name, b.Name) })
	return tfrecord.AppendExample(nil, r.features...)
}
