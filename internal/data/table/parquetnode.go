package table

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

// parquetNode is a column of a Parquet file, or a part of one, and how its values become JSON. Values of
// lists and of what may be missing have levels, which say where lists begin and what is there
// (https://parquet.apache.org/docs/file-format/nestedencoding/).
type parquetNode struct {
	name     string
	optional bool
	repeated bool
	rep, def int            // the levels of a value that is there
	fields   []*parquetNode // of a group
	alone    bool           // a group that stands for its only field: a list, and the elements of one
	leaves   int            // how many columns with values there are below, or 1
	value    func(out []byte, v parquet.Value) (text []byte, reason string)
}

// newParquetNode returns the node of a column. leaf is called with the number of each column that has
// values itself, in order. The reason says why the column cannot be in a table.
func newParquetNode(c *parquet.Column, rep, def int, leaf func(index int)) (n *parquetNode, reason string) {
	n = &parquetNode{name: c.Name(), optional: c.Optional(), repeated: c.Repeated(), rep: rep, def: def}
	if n.repeated {
		n.rep++
	}
	if n.repeated || n.optional {
		n.def++
	}
	if c.Leaf() {
		leaf(c.Index())
		n.leaves = 1
		n.value, reason = parquetValue(c)
		return n, reason
	}
	kind := c.Type().String()
	list := kind == "LIST"
	switch {
	case kind == "MAP" || kind == "VARIANT":
		return nil, fmt.Sprintf("is a %s; expected numbers, text, bool, lists or structs", strings.ToLower(kind))
	case list && (len(c.Columns()) != 1 || !c.Columns()[0].Repeated()):
		return nil, "is a list without elements; expected one repeated field"
	}
	n.alone = list
	for _, field := range c.Columns() {
		f, reason := newParquetNode(field, n.rep, n.def, leaf)
		if reason != "" {
			return nil, reason
		}
		// By the format's rules for lists of older writers, others are the elements themselves.
		if list && len(f.fields) == 1 && !f.fields[0].repeated && f.name != "array" && f.name != n.name+"_tuple" {
			f.alone = true
		}
		n.fields, n.leaves = append(n.fields, f), n.leaves+f.leaves
	}
	return n, ""
}

// append appends the node's value in a row as JSON. values has those of its leaves, at least one each.
func (n *parquetNode) append(out []byte, values [][]parquet.Value) (_ []byte, reason string) {
	there := values[0][0].DefinitionLevel() >= n.def
	switch {
	case n.optional && !there:
		return append(out, "null"...), ""
	case !n.repeated:
		return n.one(out, values)
	case !there:
		return append(out, "[]"...), ""
	}
	out = append(out, '[')
	element, rest := make([][]parquet.Value, len(values)), slices.Clone(values)
	for first := true; len(rest[0]) > 0; first = false {
		if !first {
			out = append(out, ',')
		}
		for i, v := range rest {
			if len(v) == 0 {
				return out, "has lists of different lengths in a struct"
			}
			k := 1
			for k < len(v) && v[k].RepetitionLevel() > n.rep {
				k++
			}
			element[i], rest[i] = v[:k], v[k:]
		}
		if out, reason = n.one(out, element); reason != "" {
			return out, reason
		}
	}
	if slices.ContainsFunc(rest, func(v []parquet.Value) bool { return len(v) > 0 }) {
		return out, "has lists of different lengths in a struct"
	}
	return append(out, ']'), ""
}

// one appends a value that is there, of several if the node is repeated.
func (n *parquetNode) one(out []byte, values [][]parquet.Value) (_ []byte, reason string) {
	switch {
	case n.value != nil:
		return n.value(out, values[0][0])
	case n.alone:
		return n.fields[0].append(out, values)
	}
	out = append(out, '{')
	for i, f := range n.fields {
		if i > 0 {
			out = append(out, ',')
		}
		name, _ := json.Marshal(f.name) // a string can always be written
		out = append(append(out, name...), ':')
		if out, reason = f.append(out, values[:f.leaves]); reason != "" {
			return out, reason
		}
		values = values[f.leaves:]
	}
	return append(out, '}'), ""
}

// parquetValue returns how values of a column become JSON, or the reason why they do not.
func parquetValue(c *parquet.Column) (value func(out []byte, v parquet.Value) (text []byte, reason string), reason string) {
	kind, logical := c.Type().Kind(), c.Type().String()
	logical, _, _ = strings.Cut(logical, "(")
	switch {
	case logical == "NULL": // of which a value is never there
		return func(out []byte, _ parquet.Value) ([]byte, string) { return out, "has a value of an unknown type" }, ""
	case logical == "DECIMAL" || logical == "DATE" || logical == "TIME" || logical == "TIMESTAMP" || logical == "UUID" || kind == parquet.Int96:
		return nil, fmt.Sprintf("has values of type %s; expected numbers, text, bool, or lists of them; write it with another type, as with pandas' astype(str) or astype(float)", c.Type())
	}
	switch kind {
	case parquet.Boolean:
		return func(out []byte, v parquet.Value) ([]byte, string) { return strconv.AppendBool(out, v.Boolean()), "" }, ""
	case parquet.Int32:
		if unsigned(c) {
			return func(out []byte, v parquet.Value) ([]byte, string) {
				return strconv.AppendUint(out, uint64(v.Uint32()), 10), ""
			}, ""
		}
		return func(out []byte, v parquet.Value) ([]byte, string) {
			return strconv.AppendInt(out, int64(v.Int32()), 10), ""
		}, ""
	case parquet.Int64:
		if unsigned(c) {
			return func(out []byte, v parquet.Value) ([]byte, string) { return strconv.AppendUint(out, v.Uint64(), 10), "" }, ""
		}
		return func(out []byte, v parquet.Value) ([]byte, string) { return strconv.AppendInt(out, v.Int64(), 10), "" }, ""
	case parquet.Float:
		return func(out []byte, v parquet.Value) ([]byte, string) { return appendReal(out, float64(v.Float()), 32) }, ""
	case parquet.Double:
		return func(out []byte, v parquet.Value) ([]byte, string) { return appendReal(out, v.Double(), 64) }, ""
	case parquet.ByteArray:
		return func(out []byte, v parquet.Value) ([]byte, string) { return appendText(out, v.ByteArray()) }, ""
	}
	return nil, fmt.Sprintf("has values of type %s; expected numbers, text, bool, or lists of them", c.Type())
}

// unsigned reports whether whole numbers are, which is said by the logical type: INT(8,false).
func unsigned(c *parquet.Column) bool { return strings.HasSuffix(c.Type().String(), "false)") }

// appendReal appends a number as Python writes it in JSON, so that labels are the same texts.
func appendReal(out []byte, x float64, bits int) (_ []byte, reason string) {
	switch abs := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return out, fmt.Sprintf("is %v; expected a finite number, or null where there is none", x)
	case abs != 0 && (abs < 1e-4 || abs >= 1e16):
		return strconv.AppendFloat(out, x, 'e', -1, bits), ""
	case x == math.Trunc(x):
		return append(strconv.AppendFloat(out, x, 'f', -1, bits), ".0"...), ""
	}
	return strconv.AppendFloat(out, x, 'f', -1, bits), ""
}

// appendText appends text as JSON.
func appendText(out, text []byte) (_ []byte, reason string) {
	if !utf8.Valid(text) {
		return out, "has bytes that are no text, as those of an image; expected UTF-8"
	}
	quoted, _ := json.Marshal(string(text)) // a text can always be written
	return append(out, quoted...), ""
}
