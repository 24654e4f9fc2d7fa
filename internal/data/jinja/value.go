package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A value is nil (None), undefined, a bool, an int64, a written, a string, a safe, a *list, a *dict, a *space
// or a function.
type (
	// written is a number of JSON that is no int64 here, such as 1.50. Python would write it as 1.5, but a
	// model that wrote the number goes on from what it wrote.
	written string
	// undefined is a name or attribute that there is not.
	undefined struct{ name string }
	// safe is a text after the filter safe. Python's escapes what it is joined with, so that it may only
	// be written.
	safe string
	list struct {
		kind  listKind
		items []any
	}
	// dict is an object, whose keys are texts in the order in which they were set.
	dict struct {
		keys   []string
		values map[string]any
	}
	// space is a namespace, whose attributes a template may set.
	space    struct{ attrs map[string]any }
	function struct {
		name string
		call func(s *state, line int, args []any, named map[string]any) any
	}
)

// listKind is what Python has in the place of a list.
type listKind int

const (
	aList      listKind = iota
	aTuple              // equals no list
	aRange              // equals no other
	aView               // of a dict: it has no items by number
	aGenerator          // of a filter: it can be walked once, and is always true
	spent               // a generator that was walked
)

// maxNumber is the largest number; Python has no limit.
const maxNumber = 1 << 53

// sortOf says in errors what a value is.
func sortOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case undefined:
		return fmt.Sprintf("%s, which is undefined", v.name)
	case bool:
		return "a bool"
	case int64:
		return "a number"
	case written:
		return fmt.Sprintf("the number %.40s", string(v))
	case string:
		return "a text"
	case safe:
		return "a text after | safe"
	case *list:
		return "a list"
	case *dict:
		return "an object"
	case *space:
		return "a namespace"
	default:
		return "a function"
	}
}

// truth is Python's bool of a value.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case written:
		number, _ := strconv.ParseFloat(string(v), 64) // an error is that it is out of range, as it is in Python
		return number != 0
	case string:
		return v != ""
	case safe:
		return v != ""
	case *list:
		return v.kind >= aGenerator || len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// text is Python's str of a value.
func (s *state) text(line int, v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case undefined:
		return ""
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return fmt.Sprint(v)
	case written:
		return string(v)
	case string:
		return v
	}
	fail(line, "%s is to become text, which is not done here", sortOf(v))
	return ""
}

// number returns a value that counts as a number.
func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// walk returns the elements of a value.
func (s *state) walk(line int, v any) []any {
	var all []any
	switch v := v.(type) {
	case undefined:
	case string:
		for _, r := range s.runes(line, v) {
			s.step(line, 0)
			all = append(all, string(r))
		}
	case *list:
		switch v.kind {
		case spent:
			fail(line, "the values of a filter are walked twice, which is not done here; expected | list")
		case aGenerator:
			v.kind = spent
		}
		all = v.items
	case *dict:
		for _, key := range v.keys {
			all = append(all, key)
		}
	default:
		fail(line, "%s is walked; expected a list, an object or a text", sortOf(v))
	}
	s.step(line, len(all))
	return all
}

// length is Python's len.
func (s *state) length(line int, v any) int {
	switch v := v.(type) {
	case undefined:
		return 0
	case string:
		s.bytes(line, len(v))
		return utf8.RuneCountInString(v)
	case *list:
		if v.kind < aGenerator {
			return len(v.items)
		}
	case *dict:
		return len(v.keys)
	}
	fail(line, "%s has no length", sortOf(v))
	return 0
}

// equal is Python's ==.
func (s *state) equal(line int, a, b any) bool {
	s.step(line, 1)
	x, isNumber := number(a)
	y, isToo := number(b)
	_, aWritten := a.(written)
	_, bWritten := b.(written)
	switch {
	case isNumber && isToo:
		return x == y
	case (isNumber || aWritten) && (isToo || bWritten):
		fail(line, "%s and %s are compared, which is not done here", sortOf(a), sortOf(b))
	case isNumber || isToo || aWritten || bWritten:
		return false
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case string:
		if b, ok := b.(string); ok {
			s.bytes(line, min(len(a), len(b)))
			return a == b
		}
		if _, ok := b.(safe); !ok {
			return false
		}
	case *list:
		b, ok := b.(*list)
		switch {
		case !ok:
			return false
		case a.kind > aTuple || b.kind > aTuple:
			fail(line, "the values of a filter or an object are compared, which is not done here; expected | list")
		case a.kind != b.kind || len(a.items) != len(b.items):
			return false
		}
		for i := range a.items {
			if !s.equal(line, a.items[i], b.items[i]) {
				return false
			}
		}
		return true
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for _, key := range a.keys {
			if v, ok := b.values[key]; !ok || !s.equal(line, a.values[key], v) {
				return false
			}
		}
		return true
	}
	fail(line, "%s and %s are compared, which is not done here", sortOf(a), sortOf(b))
	return false
}

// contains is Python's in.
func (s *state) contains(line int, in, v any) bool {
	switch in := in.(type) {
	case undefined:
		return false
	case string:
		if v, ok := v.(string); ok {
			s.bytes(line, len(in)+len(v))
			return strings.Contains(in, v)
		}
	case *dict:
		if v, ok := v.(string); ok {
			_, ok = in.values[v]
			return ok
		}
	case *list:
		for _, e := range s.walk(line, in) {
			if s.equal(line, e, v) {
				return true
			}
		}
		return false
	}
	fail(line, "%s is looked for in %s", sortOf(v), sortOf(in))
	return false
}

// order compares two values by their order.
func (s *state) order(line int, a, b any) int {
	x, isNumber := number(a)
	y, isToo := number(b)
	if isNumber && isToo {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	t, isText := a.(string)
	u, isToo := b.(string)
	if !isText || !isToo {
		fail(line, "%s and %s have no order", sortOf(a), sortOf(b))
	}
	s.bytes(line, min(len(t), len(u)))
	return strings.Compare(t, u) // UTF-8 has the order of code points
}

// json is Python's json.dumps with ensure_ascii=False.
func (s *state) json(line int, v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strings.ToLower(s.text(line, v))
	case int64:
		return fmt.Sprint(v)
	case written:
		return s.made(line, string(v))
	case string:
		return s.made(line, quoted(v))
	case *list:
		if v.kind > aTuple {
			break
		}
		var parts []string
		for _, e := range s.walk(line, v) {
			parts = append(parts, s.json(line, e))
		}
		return s.made(line, "["+strings.Join(parts, ", ")+"]")
	case *dict:
		var parts []string
		for _, e := range s.walk(line, v) {
			parts = append(parts, quoted(e.(string))+": "+s.json(line, v.values[e.(string)]))
		}
		return s.made(line, "{"+strings.Join(parts, ", ")+"}")
	}
	fail(line, "%s has no form in JSON", sortOf(v))
	return ""
}

// quoted is a text in JSON. Go's own encoder also escapes U+2028 and U+2029.
func quoted(t string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range t {
		switch e := strings.IndexRune("\"\\\n\r\t\b\f", r); {
		case e >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\nrtbf`[e])
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Object is an object with its fields in their order.
type Object []Field

// Field is a key with its value, a string or a JSON.
type Field struct {
	Key   string
	Value any
}

// given makes a value of one of Go's: nil, a bool, a string, a []Object or a JSON.
func given(v any) (value any, bytes int) {
	switch v := v.(type) {
	case string:
		return v, len(v)
	case []Object:
		l := &list{}
		for _, o := range v {
			d := &dict{values: map[string]any{}}
			for _, f := range o {
				v, n := given(f.Value)
				d.set(f.Key, v)
				bytes += n
			}
			l.items = append(l.items, d)
		}
		return l, bytes
	case JSON:
		return v.value, v.bytes
	}
	return v, 0
}

func (d *dict) set(key string, v any) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = v
}
