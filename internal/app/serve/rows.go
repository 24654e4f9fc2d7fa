package serve

import (
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// rowMaker makes records of examples that are given as the rows of a table, as gorbit predict reads them.
// One goroutine uses it at a time.
type rowMaker struct {
	columns []convert.RowColumn
	rows    *convert.RowRecords            // nil if the model does not say how features are made
	images  map[string]*convert.RowRecords // of images that are scaled, by the name of the feature
	names   []string                       // of the features
}

// maker returns a rowMaker. The caller puts it back into makers.
func (f *Features) maker() (*rowMaker, error) {
	if m, ok := f.makers.Get().(*rowMaker); ok {
		return m, nil
	}
	m := &rowMaker{images: map[string]*convert.RowRecords{}}
	for _, s := range f.Specs {
		m.names = append(m.names, s.Name)
	}
	if len(f.Rows) == 0 {
		return m, nil
	}
	var err error
	if m.rows, err = convert.NewRowRecords(f.Rows, "", f.Tokenizer); err != nil {
		return nil, err
	}
	m.columns = m.rows.Columns()
	for _, made := range f.Rows {
		if made.Kind == convert.KindImage && (made.Resize != "" || made.ConvertColors) {
			if m.images[made.Name], err = convert.NewRowRecords([]convert.Feature{made}, "", nil); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// record returns the record of an example that is a row: an object whose fields are columns, and are not
// the features themselves in numbers. cut says that a text was too long. ok is false for other examples.
func (m *rowMaker) record(raw json.RawMessage, number int) (record []byte, cut, ok bool, err error) {
	var fields map[string]json.RawMessage
	if m.rows == nil || kindOf(raw) != '{' || json.Unmarshal(raw, &fields) != nil || !m.isRow(fields) {
		return nil, false, false, nil
	}
	cells := make([]convert.Cell, len(m.columns))
	for i, c := range m.columns {
		if cells[i], err = cellOf(c, fields[c.Name]); err != nil {
			return nil, false, true, badf("example %d: %q %v", number+1, c.Name, err)
		}
	}
	before := m.rows.Cut()
	if record, err = m.rows.Record(cells); err != nil {
		return nil, false, true, badf("example %d: %v", number+1, err)
	}
	return record, m.rows.Cut() > before, true, nil
}

// isRow reports whether fields are columns rather than features.
func (m *rowMaker) isRow(fields map[string]json.RawMessage) bool {
	features, texts := true, false
	for name, value := range fields {
		if !slices.ContainsFunc(m.columns, func(c convert.RowColumn) bool { return c.Name == name }) {
			return false
		}
		features = features && slices.Contains(m.names, name)
		texts = texts || hasWords(value)
	}
	return !features || texts
}

// hasWords reports whether a value is a text, or a list with one.
func hasWords(raw json.RawMessage) bool {
	switch kindOf(raw) {
	case '"':
		return true
	case '[':
		var list []json.RawMessage
		return json.Unmarshal(raw, &list) == nil && slices.ContainsFunc(list, hasWords)
	}
	return false
}

// cellOf returns a value as the cell of a column.
func cellOf(c convert.RowColumn, raw json.RawMessage) (convert.Cell, error) {
	kind := kindOf(raw)
	switch {
	case raw == nil || string(raw) == "null":
		if c.Nulls {
			return convert.Cell{}, nil
		}
		return convert.Cell{}, badf("is missing; expected a value")
	case c.Image: // never of a path, which would be one of the server's
		file, err := bytesOf(raw)
		return convert.Cell{OK: true, File: file}, err
	case kind == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return convert.Cell{}, badf("is %s; expected a text", words.Clip(string(raw), 60))
		}
		return convert.Cell{Text: s, OK: true}, nil
	case kind == '{' || kind == '[' && !c.Lists || c.Words:
		return convert.Cell{}, badf("is %s; expected %s", words.Clip(string(raw), 60), expected(c))
	}
	return convert.Cell{Text: string(raw), OK: true}, nil
}

func expected(c convert.RowColumn) string {
	if c.Words {
		return "a text"
	}
	return "a value"
}

// bytesOf returns the bytes that an object stands for.
func bytesOf(raw json.RawMessage) ([]byte, error) {
	var coded map[string]*string
	if json.Unmarshal(raw, &coded) != nil || len(coded) != 1 || coded[bytesField] == nil {
		return nil, badf("is %s; expected an object with %q, the file in base64", words.Clip(string(raw), 60), bytesField)
	}
	data, err := base64.StdEncoding.DecodeString(*coded[bytesField])
	if err != nil {
		return nil, badf("is not base64: %v", err)
	}
	return data, nil
}

// scaled makes a feature of the file of an image, of any size, as the data of the training were made. It
// returns false for features and values that are taken as they are.
func (m *rowMaker) scaled(name string, raw json.RawMessage, to *tfrecord.Feature) (bool, error) {
	rows := m.images[name]
	if rows == nil || !isBytes(raw) {
		return false, nil
	}
	file, err := bytesOf(raw)
	if err != nil || !convert.IsImage(file) {
		return false, err
	}
	record, err := rows.Record([]convert.Cell{{OK: true, File: file}})
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
