package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// cellMaker makes the value of a feature from the cells of a row. Each goroutine has its own.
type cellMaker struct {
	*featureSchema
	schema    string           // its path
	first     int              // position of its first field
	ids       map[string]int64 // of the categories
	all       int64            // id of all other categories, or -1
	tokenizer *text.Tokenizer

	value    tfrecord.Value
	segments tfrecord.Value // of kind text with segments
	encoding text.Encoding
	bytes    []byte
	picks    []int32 // categories
	parts    []string
	images   *imageReader
	file     []byte // of an image whose path is not given
	unread   error  // of the machine, which kept an image from being read
	collect  bool   // only the texts of categories are wanted, in parts
}

// make makes the value of a row. It returns the cell, or the reason why there is none.
func (m *cellMaker) make(fields []table.Field, optional bool, folder string) (cell, string) {
	fields = fields[m.first : m.first+len(m.columns)]
	m.value = tfrecord.Value{Int64s: m.value.Int64s[:0], Floats: m.value.Floats[:0], Bytes: m.value.Bytes[:0]}
	m.segments.Kind, m.picks, m.bytes = tfrecord.KindNone, m.picks[:0], m.bytes[:0]
	m.unread = nil
	var c cell
	if optional && !slices.ContainsFunc(fields, func(f table.Field) bool { return !m.isMissing(f) }) {
		return c, ""
	}
	c.present = true
	reason := ""
	switch m.kind {
	case KindNumber, KindCategory:
		reason = m.plain(fields, &c)
	case KindText:
		reason = m.text(fields, &c)
	case KindImage:
		reason = m.image(fields[0], folder, &c)
	case KindBytes:
		if m.isMissing(fields[0]) {
			return c, fmt.Sprintf("column %q is empty; expected text", m.columns[0])
		}
		m.value.Kind, m.value.Bytes = tfrecord.KindBytes, append(m.value.Bytes, constBytes(fields[0].Text))
		c.values = 1
	}
	return c, reason
}

// isMissing reports whether a cell is empty.
func (m *cellMaker) isMissing(f table.Field) bool {
	s := strings.TrimSpace(f.Text)
	return !f.OK || s == "" || slices.Contains(m.missingValues, s)
}

// plain makes the value of numbers and categories.
func (m *cellMaker) plain(fields []table.Field, c *cell) string {
	for i, field := range fields {
		if !m.isMissing(field) {
			var reason string
			if m.list() {
				reason = m.listOf(strings.TrimSpace(field.Text), c)
			} else {
				reason = m.one(strings.TrimSpace(field.Text), c)
			}
			if reason != "" {
				return fmt.Sprintf("column %q is %s; %s", m.columns[i], table.Clip(strconv.Quote(field.Text)), reason)
			}
			continue
		}
		c.filled = true
		if m.missing == nil {
			what := "a number"
			if m.kind == KindCategory {
				what = "a category"
			}
			reason := fmt.Sprintf("column %q is %s, which is not a value; expected %s", m.columns[i], table.Clip(strconv.Quote(field.Text)), what)
			if m.line > 0 {
				reason += fmt.Sprintf("; to take such rows, say what it means, as \"missing:\" of feature %q in %s:%d", m.name, m.schema, m.line)
			}
			return reason
		}
		n := int64(1)
		if m.list() && !m.shape.open() {
			n, _ = m.shape.elements()
		}
		for range n {
			if reason := m.one(*m.missing, c); reason != "" {
				return fmt.Sprintf("column %q is empty, and missing is %q; %s", m.columns[i], *m.missing, reason)
			}
		}
	}
	return m.store(c)
}

// store completes the value.
func (m *cellMaker) store(c *cell) string {
	per, _ := m.shape.elements()
	c.steps = c.values / max(1, per)
	switch {
	case m.dtype == "float32":
		m.value.Kind = tfrecord.KindFloat
	case m.dtype == "uint8" && !m.shape.open() && len(m.shape) > 0 && !IsImage(m.bytes):
		// One byte per value. Bytes that begin as an image would be read as one.
		m.value.Kind, m.value.Bytes, m.value.Int64s = tfrecord.KindBytes, append(m.value.Bytes, m.bytes), m.value.Int64s[:0]
	default:
		m.value.Kind = tfrecord.KindInt64
	}
	return ""
}

// one adds a value.
func (m *cellMaker) one(s string, c *cell) string {
	if m.collect {
		m.parts = append(m.parts, s)
		c.add(0)
		return ""
	}
	if m.kind == KindCategory {
		id, ok := m.ids[s]
		if !ok && m.all < 0 {
			reason := fmt.Sprintf("expected one of %s%s", table.List(m.categories), table.DidYouMean(s, m.categories))
			switch {
			case m.numbered:
				reason = fmt.Sprintf("expected 0 to %d, the numbers of the classes that the file names", len(m.categories)-1)
			case m.line == 0 && !m.given("categories"):
				reason += ", those of the train split"
			case !m.given("categories"):
				mend := `to take others as one category, name it with "unknown:"`
				if m.role == RoleLabel {
					mend = `to have classes that it lacks, list all with "categories:"`
				}
				reason += fmt.Sprintf(", those of the train split; %s of feature %q in %s:%d", mend, m.name, m.schema, m.line)
			}
			return reason
		}
		if !ok {
			id = m.all
		}
		m.value.Int64s = append(m.value.Int64s, id)
		m.picks = append(m.picks, int32(id))
		c.add(float64(id))
		return ""
	}
	v, reason := m.number(s)
	if reason != "" {
		return reason
	}
	c.add(m.float(v))
	if m.dtype == "float32" {
		m.value.Floats = append(m.value.Floats, v.real)
		return ""
	}
	m.value.Int64s = append(m.value.Int64s, v.whole)
	if m.dtype == "uint8" {
		m.bytes = append(m.bytes, byte(v.whole))
	}
	return ""
}

// listOf adds the values of a cell: a JSON array, or values with the separator between them.
func (m *cellMaker) listOf(s string, c *cell) string {
	var reason string
	switch {
	case s[0] == '[':
		reason = m.array(s, c)
	case m.separator != "":
		for part := range strings.SplitSeq(s, m.separator) {
			if reason = m.element(strings.TrimSpace(part), c); reason != "" {
				break
			}
		}
	default:
		for part := range strings.FieldsSeq(s) {
			if reason = m.element(part, c); reason != "" {
				break
			}
		}
	}
	if reason != "" {
		return reason
	}
	n, _ := m.shape.elements()
	switch {
	case c.values == 0:
		return "has no values; expected one or more"
	case !m.shape.open() && c.values != n:
		return fmt.Sprintf("has %s; expected %d, for shape %v", table.Count(int(c.values), "value"), n, m.shape)
	case m.shape.open() && c.values%n != 0:
		return fmt.Sprintf("has %s; expected a multiple of %d, for shape %v", table.Count(int(c.values), "value"), n, m.shape)
	}
	return ""
}

// element adds a value of a list.
func (m *cellMaker) element(s string, c *cell) string {
	if c.values >= maxElements {
		return fmt.Sprintf("expected at most %d values", maxElements)
	}
	if n, _ := m.shape.elements(); !m.shape.open() && c.values >= n {
		c.values++ // for the message
		return ""
	}
	if reason := m.one(s, c); reason != "" {
		return fmt.Sprintf("value %d is %s; %s", c.values+1, table.Clip(strconv.Quote(s)), reason)
	}
	return ""
}

// array adds the values of a JSON array: a flat one, or one whose arrays have the sizes of the shape.
func (m *cellMaker) array(s string, c *cell) string {
	if !json.Valid(constBytes(s)) {
		return "expected a JSON array, such as [1, 2], or values with " + m.between() + " between them"
	}
	shape := Shape{-1}
	if first := strings.TrimLeft(s[1:], " \t\r\n"); first[0] == '[' {
		shape = m.shape
	}
	// Token by token, because an array as a value of Go takes many times its text.
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	dec.Token()
	return m.nested(dec, shape, c)
}

func (m *cellMaker) between() string {
	if m.separator == "" {
		return "spaces"
	}
	return strconv.Quote(m.separator)
}

// nested adds the values of an array of the given shape, which has begun, to its end. dec reads valid JSON.
func (m *cellMaker) nested(dec *json.Decoder, shape Shape, c *cell) (reason string) {
	n := int64(0)
	for ; dec.More(); n++ {
		v, _ := dec.Token()
		delim, more := v.(json.Delim)
		if delim == '[' && len(shape) > 1 && reason == "" {
			if reason := m.nested(dec, shape[1:], c); reason != "" {
				return reason
			}
			continue
		}
		if reason == "" {
			reason = m.single(v, shape, c)
		}
		for depth := 1; more && depth > 0; {
			switch t, _ := dec.Token(); t {
			case json.Delim('['), json.Delim('{'):
				depth++
			case json.Delim(']'), json.Delim('}'):
				depth--
			}
		}
	}
	dec.Token()
	if shape[0] >= 0 && n != shape[0] {
		return fmt.Sprintf("has an array of %s; expected %d, for shape %v", table.Count(int(n), "value"), shape[0], m.shape)
	}
	return reason
}

// single adds a value of an array that is not an array itself.
func (m *cellMaker) single(v json.Token, shape Shape, c *cell) string {
	if v == nil || v == json.Delim('{') {
		return "has a null or an object in an array; expected values"
	}
	if _, array := v.(json.Delim); array || len(shape) > 1 {
		return fmt.Sprintf("expected arrays within arrays as shape %v has sizes, or one array of all values", m.shape)
	}
	switch x := v.(type) {
	case json.Number:
		return m.element(x.String(), c)
	case string:
		return m.element(strings.TrimSpace(x), c)
	}
	return m.element(fmt.Sprint(v), c)
}

// text makes the ids of a text's tokens.
func (m *cellMaker) text(fields []table.Field, c *cell) string {
	a, b := fields[0].Text, ""
	if len(fields) > 1 {
		b = fields[1].Text
	}
	var lengths text.Lengths
	if m.bare {
		ids, more := m.tokenizer.AppendFirst(m.encoding.IDs[:0], a, m.maxLength)
		m.encoding.IDs, m.encoding.Truncated = ids, more > 0
		lengths.A = len(ids) + more
	} else {
		lengths = m.tokenizer.EncodeInto(&m.encoding, a, b, m.maxLength)
	}
	for i := range fields {
		if []int{lengths.A, lengths.B}[i] == 0 {
			return fmt.Sprintf("column %q has no text", m.columns[i])
		}
	}
	m.value.Kind = tfrecord.KindInt64
	for _, id := range m.encoding.IDs {
		m.value.Int64s = append(m.value.Int64s, int64(id))
		c.add(float64(id))
	}
	c.steps = c.values
	if m.featureSchema.segments != "" {
		m.segments.Kind, m.segments.Int64s = tfrecord.KindInt64, m.segments.Int64s[:0]
		for _, id := range m.encoding.TypeIDs {
			m.segments.Int64s = append(m.segments.Int64s, int64(id))
		}
	}
	return ""
}

// image makes the bytes of an image: those of its file, or its pixels.
func (m *cellMaker) image(field table.Field, base string, c *cell) string {
	name, file := field.Text, m.file
	if field.File {
		file = constBytes(name)
	}
	if file == nil && strings.TrimSpace(name) == "" {
		return fmt.Sprintf("column %q is empty; expected the path of an image", m.columns[0])
	}
	if m.images == nil {
		m.images = newImageReader(m.featureSchema, m.schema)
	}
	reason := ""
	if file == nil {
		file, reason, m.unread = m.images.read(pathOf(name, base))
	} else if reason = m.images.decode(file); reason != "" {
		reason = "the image " + reason
	}
	if reason != "" {
		return fmt.Sprintf("column %q: %s", m.columns[0], reason)
	}
	pixels := m.images.pixels
	c.values = int64(len(pixels))
	m.value.Kind = tfrecord.KindBytes
	switch {
	case !m.raw:
		m.value.Bytes = append(m.value.Bytes, file)
	case IsImage(pixels):
		m.value.Kind = tfrecord.KindInt64
		for _, p := range pixels {
			m.value.Int64s = append(m.value.Int64s, int64(p))
		}
	default:
		m.value.Bytes = append(m.value.Bytes, pixels)
	}
	return ""
}

// pathOf returns the path that a cell names, which begins in base if it is not absolute.
func pathOf(name, base string) string {
	if vfs.Scheme(name) == "" {
		name = filepath.FromSlash(name)
	}
	if !vfs.IsAbs(name) {
		name = vfs.Join(base, name)
	}
	return name
}

// IsImage reports whether raw values begin as a PNG or JPEG file does, so that a reader would take
// them for one. Such values are stored as numbers.
func IsImage(b []byte) bool {
	return bytes.HasPrefix(b, []byte("\xff\xd8")) || bytes.HasPrefix(b, []byte("\x89PNG"))
}

// constBytes returns the bytes of a text, which must not be changed.
func constBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
