package table

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// parquetFile is where a column has the contents of files: bytes that are no text, or a struct of bytes and a
// path, as Hugging Face's datasets have images. As JSON, a content is {"bytes": BASE64}.
type parquetFile struct {
	bytes, path int // positions among the leaves; path is -1 if there is none
	bytesAt     int // the level of bytes that are there
	pathAt      int
	nulls       bool // a row may have neither
}

// newParquetFile returns nil for a column of other values.
func newParquetFile(c *parquet.Column, n *parquetNode, nulls bool) *parquetFile {
	f := &parquetFile{path: -1, bytesAt: n.def, nulls: nulls}
	if n.repeated || !hasFiles(c) {
		return nil
	}
	for i, field := range n.fields { // of a struct, none of which has fields
		switch field.name {
		case "bytes":
			f.bytes, f.bytesAt = i, field.def
		case "path":
			f.path, f.pathAt = i, field.def
		}
	}
	return f
}

// hasFiles reports whether a column has the contents of files.
func hasFiles(c *parquet.Column) bool {
	if c.Leaf() {
		return !c.Repeated() && c.Type().Kind() == parquet.ByteArray && c.Type().LogicalType() == nil && c.Type().ConvertedType() == nil
	}
	if c.Type().LogicalType() != nil { // a list or a map
		return false
	}
	bytes := false
	for _, field := range c.Columns() {
		if !field.Leaf() || field.Repeated() {
			return false
		}
		bytes = bytes || field.Name() == "bytes" && hasFiles(field)
	}
	return bytes
}

// append appends the content of a row.
func (f *parquetFile) append(out []byte, values [][]parquet.Value) (_ []byte, reason string) {
	content := values[f.bytes][0]
	if content.DefinitionLevel() >= f.bytesAt && len(content.ByteArray()) > 0 {
		out = base64.StdEncoding.AppendEncode(append(out, `{"bytes":"`...), content.ByteArray())
		return append(out, `"}`...), ""
	}
	if f.path >= 0 {
		if path := values[f.path][0]; path.DefinitionLevel() >= f.pathAt {
			return out, fmt.Sprintf("has the path %q and no bytes; expected the bytes of the file; write them with it, as push_to_hub of Hugging Face's datasets does", path.ByteArray())
		}
	}
	if f.nulls {
		return append(out, "null"...), ""
	}
	return out, "has no bytes; expected those of a file"
}

// ParquetColumn is a column of a Parquet file, as its footer describes it.
type ParquetColumn struct {
	Name  string
	Files bool // contents of files, see Column.Files
	Text  bool
	// Image says that Hugging Face's metadata call the column an image, and Classes are the names that they have for
	// its numbers, from 0; nil if they name none.
	Image   bool
	Classes []string
}

// ParquetColumns returns the columns of a Parquet file.
func ParquetColumns(ctx context.Context, path string) (out []ParquetColumn, err error) {
	t, err := Open(ctx, path, Config{Format: Parquet})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	file := t.rows.(*parquetRows).file
	features, err := huggingFace(file, path)
	if err != nil {
		return nil, err
	}
	for _, c := range file.Root().Columns() {
		column := ParquetColumn{Name: c.Name(), Files: hasFiles(c), Text: c.Leaf() && c.Type().Kind() == parquet.ByteArray}
		column.Text = column.Text && !column.Files
		var feature struct {
			Type  string   `json:"_type"`
			Names []string `json:"names"`
		}
		if raw := features[c.Name()]; len(raw) > 0 && raw[0] == '{' { // a list is one of several values
			if err := json.Unmarshal(raw, &feature); err != nil {
				return nil, fault.Damagedf("%s has metadata of column %q that cannot be read: %w", path, c.Name(), err)
			}
		}
		column.Image = feature.Type == "Image"
		if feature.Type == "ClassLabel" {
			column.Classes = feature.Names
		}
		for i, name := range column.Classes {
			if name == "" || slices.Contains(column.Classes[:i], name) {
				return nil, fault.Damagedf("%s has metadata of column %q whose class %d is called %q, as no class or another one; expected different names", path, c.Name(), i, name)
			}
		}
		out = append(out, column)
	}
	return out, nil
}

// huggingFace returns the descriptions of the columns that Hugging Face's datasets leave in a file's footer; none of
// other writers.
func huggingFace(file *parquet.File, path string) (map[string]json.RawMessage, error) {
	text, ok := file.Lookup("huggingface")
	if !ok {
		return nil, nil
	}
	var meta struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if err := json.Unmarshal([]byte(text), &meta); err != nil {
		return nil, fault.Damagedf("%s has metadata called \"huggingface\" that cannot be read: %w", path, err)
	}
	return meta.Info.Features, nil
}
