package serve

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// rowMaker makes records of examples that are given as the rows of a table, as gorbit predict reads them.
// One goroutine uses it at a time.
type rowMaker struct {
	columns []convert.RowColumn
	rows    *convert.RowRecords            // nil if the model does not say how features are made
	images  map[string]*convert.RowRecords // of images that are scaled, by the name of the feature
	names   []string                       // of the features
	given   []dataset.Spec                 // features that are not made from others
	// features are the fields of an example of features, and fields those of any example.
	features, fields fieldNames
	room             *room
}

// maker returns a rowMaker. The caller puts it back into makers.
func (f *Features) maker() (*rowMaker, error) {
	if m, ok := f.makers.Get().(*rowMaker); ok {
		return m, nil
	}
	m := &rowMaker{images: map[string]*convert.RowRecords{}}
	for _, s := range f.Specs {
		if m.names = append(m.names, s.Name); s.Make == "" {
			m.given, m.features.known = append(m.given, s), append(m.features.known, s.Name)
		}
	}
	m.features.expected = m.features.known
	m.fields = m.features
	if len(f.Rows) == 0 {
		return m, nil
	}
	var err error
	if m.rows, err = convert.NewRowRecords(f.Rows, "", f.Tokenizer); err != nil {
		return nil, err
	}
	m.columns = m.rows.Columns()
	for _, c := range m.columns {
		m.fields.known = append(m.fields.known, c.Name)
	}
	for _, made := range f.Rows {
		if made.Kind == convert.KindImage && (made.Resize != "" || made.ConvertColors) {
			if m.images[made.Name], err = convert.NewRowRecords([]convert.Feature{made}, "", nil); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// record returns the record of an example that is a row. cut says that a text was too long.
func (m *rowMaker) record(fields map[string][]byte, number int) (record []byte, cut bool, err error) {
	cells := make([]convert.Cell, len(m.columns))
	for i, c := range m.columns {
		if cells[i], err = cellOf(c, fields[c.Name]); err != nil {
			return nil, false, badf("example %d: %q %v", number+1, c.Name, err)
		}
	}
	before := m.rows.Cut()
	if record, err = m.decoded(m.rows, cells); err != nil {
		return nil, false, badf("example %d: %v", number+1, err)
	}
	return record, m.rows.Cut() > before, nil
}

// decoded makes a record, when there is room for the pixels of its images.
func (m *rowMaker) decoded(rows *convert.RowRecords, cells []convert.Cell) ([]byte, error) {
	defer m.room.take(cells)()
	defer rows.Free()
	return rows.Record(cells)
}

// isRow reports whether fields are columns of a table, and not the features themselves in numbers.
func (m *rowMaker) isRow(fields map[string][]byte) bool {
	features, texts := true, false
	for name, value := range fields {
		if !slices.ContainsFunc(m.columns, func(c convert.RowColumn) bool { return c.Name == name }) {
			return false
		}
		features = features && slices.Contains(m.names, name)
		texts = texts || hasWords(value)
	}
	return m.rows != nil && (!features || texts)
}

// hasWords reports whether a value is a text, or a list with one.
func hasWords(raw []byte) bool {
	return kindOf(raw) != '{' && bytes.IndexByte(raw, '"') >= 0
}

// cellOf returns a value as the cell of a column.
func cellOf(c convert.RowColumn, raw []byte) (convert.Cell, error) {
	kind := kindOf(raw)
	switch {
	case raw == nil || string(raw) == "null":
		if c.Nulls {
			return convert.Cell{}, nil
		}
		return convert.Cell{}, badf("is missing; expected a value")
	case c.Image: // never of a path, which would be one of the server's
		file, err := bytesOf(raw, fileExpected)
		return convert.Cell{OK: true, File: file}, err
	case kind == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return convert.Cell{}, badf("is %s; expected a text", clip(raw))
		}
		return convert.Cell{Text: s, OK: true}, nil
	case kind == '{' || kind == '[' && !c.Lists || c.Words:
		return convert.Cell{}, badf("is %s; expected %s", clip(raw), expected(c))
	}
	return convert.Cell{Text: string(raw), OK: true}, nil
}

func expected(c convert.RowColumn) string {
	if c.Words {
		return "a text"
	}
	return "a value"
}

// fileExpected says how a file is given.
const fileExpected = `an object with "b64", the file in base64`

// scaled makes a feature of the file of an image, of any size, as the data of the training were made. It
// returns false for features and values that are taken as they are.
func (m *rowMaker) scaled(name string, raw []byte, to *tfrecord.Feature) (bool, error) {
	rows := m.images[name]
	if rows == nil || !isBytes(raw) {
		return false, nil
	}
	file, err := bytesOf(raw, fileExpected)
	if err != nil || !convert.IsImage(file) {
		return false, err
	}
	record, err := m.decoded(rows, []convert.Cell{{OK: true, File: file}})
	if err != nil {
		return true, badf("%v", err)
	}
	d := tfrecord.NewDecoder(name)
	var values tfrecord.Values
	if err := d.Decode(record, &values); err != nil {
		return true, err
	}
	*to = tfrecord.Feature{Name: name, Value: *values.At(0)}
	return true, nil
}
