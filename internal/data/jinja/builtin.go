package jinja

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// functions are those that a template may call by name.
var functions = map[string]func(s *state, line int, args []any, named map[string]any) any{
	"raise_exception": func(s *state, line int, args []any, named map[string]any) any {
		a := bound{s, line, "raise_exception"}.args(args, named, "message")
		panic(&Error{Line: line, Raised: true, What: s.text(line, a[0])})
	},
	"strftime_now": func(s *state, line int, args []any, named map[string]any) any {
		b := bound{s, line, "strftime_now"}
		return b.now(b.text(b.args(args, named, "format")[0]))
	},
	"namespace": func(s *state, line int, args []any, named map[string]any) any {
		if len(args) > 0 {
			fail(line, "namespace has an argument without a name, which is not known here")
		}
		if named == nil {
			named = map[string]any{}
		}
		return &space{named}
	},
	"range": func(s *state, line int, args []any, named map[string]any) any {
		b := bound{s, line, "range"}
		a := b.args(args, named, "", "-", "-")
		from, to, step := int64(0), b.number(a[0]), int64(1)
		if len(a) > 1 {
			from, to = to, b.number(a[1])
		}
		if len(a) > 2 {
			step = b.number(a[2])
		}
		if step == 0 {
			fail(line, "range has the step 0")
		}
		if n := (to - from) / step; n > maxRange {
			fail(line, "range has %d numbers; expected at most %d", n, maxRange)
		} else {
			s.step(line, int(max(n, 0)))
		}
		l := &list{kind: aRange}
		for ; step > 0 && from < to || step < 0 && from > to; from += step {
			l.items = append(l.items, from)
		}
		return l
	},
}

// bound is a call of a function, filter, test or method.
type bound struct {
	*state
	line int
	name string
}

// args returns arguments in the order of names. Those whose names begin with - may be left out, from the end;
// others have to be there. A name of - alone, or "", is given by position only.
func (b bound) args(args []any, named map[string]any, names ...string) []any {
	out := slices.Clone(args)
	for i, n := range names {
		v, ok := named[strings.TrimPrefix(n, "-")]
		switch {
		case i < len(args) && ok:
			fail(b.line, "%s has the argument %s twice", b.name, n)
		case i < len(args):
		case ok && i == len(out):
			out = append(out, v)
		case !strings.HasPrefix(n, "-"):
			fail(b.line, "%s lacks an argument", b.name)
		}
	}
	if len(args) > len(names) || len(out)-len(args) < len(named) {
		fail(b.line, "%s has arguments that are not known here", b.name)
	}
	return out
}

func (b bound) text(v any) string {
	t, ok := v.(string)
	if !ok {
		fail(b.line, "%s is given %s; expected a text", b.name, sortOf(v))
	}
	b.bytes(b.line, len(t))
	return t
}

func (b bound) number(v any) int64 {
	n, ok := number(v)
	if !ok {
		fail(b.line, "%s is given %s; expected a number", b.name, sortOf(v))
	}
	return n
}

// ascii refuses a text whose case Go and Python may see otherwise.
func (b bound) ascii(t string) string {
	b.bytes(b.line, len(t))
	if strings.IndexFunc(t, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		fail(b.line, "%s is given letters beyond ASCII, whose case is not known here", b.name)
	}
	return t
}

func capitalize(t string) string {
	if t == "" {
		return t
	}
	return strings.ToUpper(t[:1]) + strings.ToLower(t[1:])
}

// cut returns a text without characters at its ends: those of set, or without one, white space.
func (b bound) cut(t string, set []any, left, right bool) string {
	b.bytes(b.line, len(t))
	is := isSpace
	if len(set) > 0 && set[0] != nil {
		chars := b.text(set[0])
		is = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if left {
		t = strings.TrimLeftFunc(t, is)
	}
	if right {
		t = strings.TrimRightFunc(t, is)
	}
	return t
}

// The formats of strftime_now by Go's.
var formats = map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", '%': "%"}

func (b bound) now(format string) string {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		i++
		if i == len(format) || formats[format[i]] == "" {
			fail(b.line, "the format %q of strftime_now is not known here", format)
		}
		out.WriteString(b.state.now.Format(formats[format[i]]))
	}
	return out.String()
}

// The names that Python's values have, besides those of Python itself, which begin with _.
const (
	ofTexts = "capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill"
	ofDicts = "clear copy fromkeys get items keys pop popitem setdefault update values"
	ofLists = "append clear copy count extend index insert pop remove reverse sort start stop step send throw close mapping isdisjoint"
	ofInts  = "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes is_integer"
)

// method returns that of a value, if Python's has one.
func (s *state) method(line int, of any, name string) (any, bool) {
	has := func(all string) bool { return slices.Contains(strings.Fields(all), name) }
	if strings.HasPrefix(name, "_") {
		fail(line, "the name %s begins with _, which a template may not use", name)
	}
	var found bool
	var do func(b bound, args []any, named map[string]any) any
	switch of := of.(type) {
	case string:
		if found = has(ofTexts); found {
			do = textMethod(of, name)
		}
	case *dict:
		if found = has(ofDicts); found {
			do = dictMethod(of, name)
		}
	case *list:
		found = has(ofLists)
	case bool, int64, written:
		found = has(ofInts)
	case safe:
		fail(line, "%s of a text after | safe is not known here", name)
	}
	if found && do == nil {
		fail(line, "%s of %s is not known here", name, sortOf(of))
	}
	return function{name, func(s *state, line int, args []any, named map[string]any) any {
		return do(bound{s, line, name}, args, named)
	}}, found
}

func dictMethod(d *dict, name string) func(b bound, args []any, named map[string]any) any {
	view := func(of func(key string) any) func(b bound, args []any, named map[string]any) any {
		return func(b bound, args []any, named map[string]any) any {
			b.args(args, named)
			l := &list{kind: aView}
			for _, k := range b.walk(b.line, d) {
				l.items = append(l.items, of(k.(string)))
			}
			return l
		}
	}
	switch name {
	case "get":
		return func(b bound, args []any, named map[string]any) any {
			a := b.args(args, named, "", "-")
			key, ok := a[0].(string)
			if v, has := d.values[key]; ok && has {
				return v
			}
			return append(a, nil)[1]
		}
	case "keys":
		return view(func(k string) any { return k })
	case "values":
		return view(func(k string) any { return d.values[k] })
	case "items":
		return view(func(k string) any { return &list{aTuple, []any{k, d.values[k]}} })
	}
	return nil
}

// textMethod returns a method of a text, or nil.
func textMethod(t, name string) func(b bound, args []any, named map[string]any) any {
	// plain is a method with arguments by position, of which the last optional may be left out.
	plain := func(least, most int, do func(b bound, args []any) any) func(bound, []any, map[string]any) any {
		return func(b bound, args []any, named map[string]any) any {
			if len(named) > 0 || len(args) < least || len(args) > most {
				fail(b.line, "%s of a text has arguments that are not known here", b.name)
			}
			b.bytes(b.line, len(t))
			v := do(b, args)
			if t, ok := v.(string); ok {
				b.made(b.line, t)
			}
			return v
		}
	}
	changed := func(of func(string) string) func(bound, []any, map[string]any) any {
		return plain(0, 0, func(b bound, _ []any) any { return of(b.ascii(t)) })
	}
	cut := func(left, right bool) func(bound, []any, map[string]any) any {
		return plain(0, 1, func(b bound, a []any) any { return b.cut(t, a, left, right) })
	}
	switch name {
	case "lower":
		return changed(strings.ToLower)
	case "upper":
		return changed(strings.ToUpper)
	case "capitalize":
		return changed(capitalize)
	case "strip":
		return cut(true, true)
	case "lstrip":
		return cut(true, false)
	case "rstrip":
		return cut(false, true)
	case "startswith":
		return plain(1, 1, func(b bound, a []any) any { return strings.HasPrefix(t, b.text(a[0])) })
	case "endswith":
		return plain(1, 1, func(b bound, a []any) any { return strings.HasSuffix(t, b.text(a[0])) })
	case "removeprefix":
		return plain(1, 1, func(b bound, a []any) any { return strings.TrimPrefix(t, b.text(a[0])) })
	case "removesuffix":
		return plain(1, 1, func(b bound, a []any) any { return strings.TrimSuffix(t, b.text(a[0])) })
	case "find":
		return plain(1, 1, func(b bound, a []any) any {
			at := strings.Index(t, b.text(a[0]))
			return int64(utf8.RuneCountInString(t[:max(at, 0)]) + min(at, 0))
		})
	case "count":
		return plain(1, 1, func(b bound, a []any) any { return int64(strings.Count(t, b.text(a[0]))) })
	case "replace":
		return plain(2, 3, func(b bound, a []any) any {
			n := int64(-1)
			if len(a) > 2 {
				n = b.number(a[2])
			}
			return b.replace(t, b.text(a[0]), b.text(a[1]), n)
		})
	case "split", "rsplit":
		return plain(0, 2, func(b bound, a []any) any { return b.split(t, a, name == "rsplit") })
	case "join":
		return plain(1, 1, func(b bound, a []any) any {
			var parts []string
			for _, v := range b.walk(b.line, a[0]) {
				parts = append(parts, b.text(v))
				b.bytes(b.line, len(t))
			}
			return strings.Join(parts, t)
		})
	}
	return nil
}

// replace replaces n times, or any number of times.
func (b bound) replace(t, old, by string, n int64) string {
	b.bytes(b.line, len(t))
	count := strings.Count(t, old)
	if n >= 0 {
		count = min(count, int(n))
	}
	if room := b.room; len(by) > 0 && count > room/len(by) {
		b.bytes(b.line, room+1)
	}
	return strings.Replace(t, old, by, count)
}

// split divides a text by a separator, or without one by white space.
func (b bound) split(t string, a []any, right bool) any {
	most := int64(-1)
	if len(a) > 1 {
		most = b.number(a[1])
	}
	var parts []string
	if len(a) == 0 || a[0] == nil {
		if most >= 0 {
			fail(b.line, "%s at white space, a number of times, is not known here", b.name)
		}
		parts = strings.FieldsFunc(t, isSpace)
	} else {
		by := b.text(a[0])
		if by == "" {
			fail(b.line, "%s is given no separator", b.name)
		}
		for parts = nil; most != 0; most-- {
			at := strings.Index(t, by)
			if right {
				at = strings.LastIndex(t, by)
			}
			if at < 0 {
				break
			}
			b.step(b.line, 0)
			if right {
				parts, t = append(parts, t[at+len(by):]), t[:at]
			} else {
				parts, t = append(parts, t[:at]), t[at+len(by):]
			}
		}
		if parts = append(parts, t); right {
			slices.Reverse(parts)
		}
	}
	b.step(b.line, len(parts))
	l := &list{}
	for _, p := range parts {
		l.items = append(l.items, p)
	}
	return l
}

func (f filter) value(s *state) any {
	s.step(f.line, 0)
	v := f.of.value(s)
	args, named := f.values(s)
	b := bound{s, f.line, "the filter " + f.name}
	switch f.name {
	case "trim":
		return s.made(f.line, b.cut(s.text(f.line, v), b.args(args, named, "-chars"), true, true))
	case "replace":
		a := b.args(args, named, "old", "new", "-count")
		n := int64(-1)
		if len(a) > 2 && a[2] != nil {
			n = b.number(a[2])
		}
		return s.made(f.line, b.replace(s.text(f.line, v), b.text(a[0]), b.text(a[1]), n))
	case "default", "d":
		a := b.args(args, named, "-default_value", "-boolean")
		_, none := v.(undefined)
		if !none && (len(a) < 2 || !truth(a[1]) || truth(v)) {
			return v
		}
		return append(a, "")[0]
	case "join":
		a := b.args(args, named, "-d")
		by := s.text(f.line, append(a, "")[0])
		var parts []string
		for _, e := range s.walk(f.line, v) {
			parts = append(parts, s.text(f.line, e))
			s.bytes(f.line, len(parts[len(parts)-1])+len(by))
		}
		return strings.Join(parts, by)
	case "map", "select", "reject", "selectattr", "rejectattr":
		return f.chosen(b, v, args, named)
	}
	b.args(args, named)
	return f.plain(b, v)
}

// plain is a filter without arguments.
func (f filter) plain(b bound, v any) any {
	s := b.state
	switch f.name {
	case "length", "count":
		return int64(s.length(f.line, v))
	case "upper":
		return strings.ToUpper(b.ascii(s.text(f.line, v)))
	case "lower":
		return strings.ToLower(b.ascii(s.text(f.line, v)))
	case "capitalize":
		return capitalize(b.ascii(s.text(f.line, v)))
	case "string":
		return s.text(f.line, v)
	case "safe":
		return safe(s.text(f.line, v))
	case "tojson":
		return s.json(f.line, v)
	case "list":
		return &list{items: slices.Clone(s.walk(f.line, v))}
	case "first", "last":
		if l, ok := v.(*list); f.name == "last" && ok && l.kind > aTuple {
			fail(f.line, "the filter last of what a filter gives is not known here; expected | list before it")
		}
		all := s.walk(f.line, v)
		switch {
		case len(all) == 0:
			return undefined{"an item of an empty list"}
		case f.name == "last":
			return all[len(all)-1]
		}
		return all[0]
	case "int":
		if n, ok := number(v); ok {
			return n
		}
		if t, ok := v.(string); ok && len(t) < 20 {
			n, err := strconv.ParseInt(strings.TrimFunc(t, isSpace), 10, 64)
			if err == nil && max(n, -n) <= maxNumber {
				return n
			}
		}
	case "items":
		if d, ok := v.(*dict); ok {
			l := dictMethod(d, "items")(b, nil, nil).(*list)
			l.kind = aGenerator
			return l
		}
	}
	fail(f.line, "the filter %s of %s is not known here", f.name, sortOf(v))
	return nil
}

// dotted reports whether a name is that of several attributes, or a number.
func dotted(name string) bool {
	return strings.Contains(name, ".") || name == "" || name[0] >= '0' && name[0] <= '9'
}

// chosen is a filter that maps the elements of a list or chooses of them.
func (f filter) chosen(b bound, v any, args []any, named map[string]any) any {
	out := &list{kind: aGenerator}
	if f.name == "map" {
		name, ok := named["attribute"].(string)
		if !ok || len(args) > 0 || len(named) > 1 || dotted(name) {
			fail(f.line, "the filter map is known here with an attribute alone")
		}
		for _, e := range b.walk(f.line, v) {
			out.items = append(out.items, item{f.line, constant{e}, constant{name}}.value(b.state))
		}
		return out
	}
	attr := ""
	if strings.HasSuffix(f.name, "attr") {
		if len(args) == 0 {
			fail(f.line, "%s lacks an attribute", b.name)
		}
		if attr, args = b.text(args[0]), args[1:]; dotted(attr) {
			fail(f.line, "%s of the attribute %s is not known here", b.name, attr)
		}
	}
	for _, e := range b.walk(f.line, v) {
		of := e
		if attr != "" {
			of = item{f.line, constant{e}, constant{attr}}.value(b.state)
		}
		is := truth(of)
		if len(args) > 0 {
			is = b.test(b.text(args[0]), of, args[1:], named)
		} else if len(named) > 0 {
			fail(f.line, "%s has arguments that are not known here", b.name)
		}
		if is == strings.HasPrefix(f.name, "select") {
			out.items = append(out.items, e)
		}
	}
	return out
}

func (t test) value(s *state) any {
	s.step(t.line, 0)
	v := t.of.value(s)
	args, named := t.values(s)
	return bound{s, t.line, "the test " + t.name}.test(t.name, v, args, named) != t.not
}

// test is what a value is.
func (b bound) test(name string, v any, args []any, named map[string]any) bool {
	_, isUndefined := v.(undefined)
	_, isNumber := v.(int64)
	as, isWritten := v.(written)
	_, isBool := v.(bool)
	_, isText := v.(string)
	_, isSafe := v.(safe)
	_, isDict := v.(*dict)
	l, isList := v.(*list)
	if _, ok := v.(*turn); ok && name != "defined" {
		fail(b.line, "%s of loop is not known here", b.name)
	}
	switch name {
	case "eq", "equalto", "==":
		return b.equal(b.line, v, b.args(args, named, "")[0])
	case "ne", "!=":
		return !b.equal(b.line, v, b.args(args, named, "")[0])
	case "in":
		return b.contains(b.line, b.args(args, named, "")[0], v)
	}
	b.args(args, named)
	switch name {
	case "defined":
		return !isUndefined
	case "undefined":
		return isUndefined
	case "none":
		return v == nil
	case "true":
		return v == true
	case "false":
		return v == false
	case "boolean":
		return isBool
	case "integer":
		return isNumber || isWritten && !strings.ContainsAny(string(as), ".eE")
	case "number":
		return isNumber || isWritten || isBool
	case "string":
		return isText || isSafe
	case "mapping":
		return isDict
	case "iterable":
		return isUndefined || isText || isSafe || isDict || isList
	case "sequence":
		return isUndefined || isText || isSafe || isDict || isList && l.kind <= aRange
	case "odd":
		return b.number(v)&1 == 1
	case "even":
		return b.number(v)&1 == 0
	}
	fail(b.line, "%s is not known here", b.name)
	return false
}
