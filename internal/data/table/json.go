package table

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// jsonRows are JSON objects, one per line; blank lines are passed over. Their fields are those of the selected columns.
type jsonRows struct {
	lines
	columns []Column
	files   bool // whether objects of columns of Files are contents, see parquetColumn.file
}

// next returns the next line that is not blank.
func (r *jsonRows) next() ([]byte, int64, error) {
	for {
		line, n, err := r.lines.next()
		if err != nil || len(bytes.TrimSpace(line)) > 0 {
			return line, n, err
		}
	}
}

func (r *jsonRows) selects(columns []Column) { r.columns = columns }

func (r *jsonRows) cut(fields []Field, row string, line int64) ([]Field, error) {
	if err := checkUTF8(r.path, line, row); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(row), &object); err != nil {
		return nil, &Error{r.path, line, notObject(row, err)}
	}
	for _, c := range r.columns {
		f, reason := r.field(object[c.Name], c)
		if reason != "" {
			if _, ok := object[c.Name]; !ok {
				reason += "; its members are " + List(slices.Sorted(maps.Keys(object)))
			}
			return nil, &Error{r.path, line, reason}
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// notObject says why a line is no JSON object. err is encoding/json's error, which names Go types for
// values that are no objects.
func notObject(row string, err error) string {
	if json.Valid([]byte(row)) {
		return fmt.Sprintf("is %s; expected a JSON object", Clip(row))
	}
	return "is not a JSON object: " + err.Error()
}

// field returns a value as a field, or the reason why it is invalid.
func (r *jsonRows) field(raw json.RawMessage, c Column) (Field, string) {
	if !r.files || !c.Files || len(raw) == 0 || raw[0] != '{' {
		return jsonField(raw, c)
	}
	var file struct{ Bytes []byte }
	if err := json.Unmarshal(raw, &file); err != nil {
		return Field{}, fmt.Sprintf("%q: %v", c.Name, err)
	}
	return Field{Text: string(file.Bytes), OK: true, File: true}, ""
}

// jsonField returns a value as a field, or the reason why it is invalid.
func jsonField(raw json.RawMessage, c Column) (Field, string) {
	switch {
	case c.Name == "" || len(raw) == 0 || string(raw) == "null":
		if c.Optional || c.Nulls {
			return Field{}, ""
		}
		return Field{}, fmt.Sprintf("has no %q", c.Name)
	case raw[0] == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return Field{}, fmt.Sprintf("%q: %v", c.Name, err)
		}
		return Field{Text: s, OK: true}, ""
	case raw[0] == '[' && c.Lists, raw[0] == '{' && c.Objects:
		return Field{Text: string(raw), OK: true}, ""
	case raw[0] == '{' || raw[0] == '[' || c.Words:
		return Field{}, fmt.Sprintf("%q is %s; expected text", c.Name, Clip(string(raw)))
	}
	return Field{Text: string(raw), OK: true}, "" // a number, true or false
}
