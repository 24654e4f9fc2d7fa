package jinja

import (
	"slices"
	"strings"
	"time"
)

// Template is a template that was parsed. Any number of goroutines may render it.
type Template struct{ body []statement }

// Parse reads a template. What it does not know of the language is an *Error, but for filters, tests,
// methods and functions, which may stand where no conversation comes by.
func Parse(source string) (t *Template, err error) {
	defer caught(&err)
	p := &parser{tokens: lex(source)}
	body, _ := p.body()
	return &Template{body}, nil
}

// Span is a part of a text, in bytes.
type Span struct{ From, To int }

// Render returns the text of a template with values, each of which is nil, a bool, a string or a
// []Object, and the spans of its generation blocks. now is what strftime_now tells.
func (t *Template) Render(values map[string]any, now time.Time) (text string, spans []Span, err error) {
	defer caught(&err)
	s := &state{now: now, scope: &scope{names: map[string]any{}}, room: maxBytes}
	for name, v := range values {
		value, bytes := given(v)
		s.scope.names[name] = value
		s.room += bytes * bytesPerByte
	}
	s.scope = &scope{names: map[string]any{}, outer: s.scope}
	s.out = &strings.Builder{}
	s.run(t.body)
	return s.out.String(), s.spans, nil
}

// scope has the names that are set in a part of a template.
type scope struct {
	names map[string]any
	outer *scope
}

func (c *scope) find(name string) (any, bool) {
	for ; c != nil; c = c.outer {
		if v, ok := c.names[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// state is a rendering.
type state struct {
	now   time.Time
	scope *scope
	out   *strings.Builder
	spans []Span
	steps int // done
	room  int // bytes that may still be made
	depth int
}

// step counts work, besides that of the node that does it.
func (s *state) step(line, n int) {
	if s.steps += n + 1; s.steps > maxSteps {
		fail(line, "rendering takes more than %d steps", maxSteps)
	}
}

// bytes counts bytes that are made or compared.
func (s *state) bytes(line, n int) {
	if s.room -= n; s.room < 0 {
		fail(line, "rendering makes more texts than %d MiB and %d times what it is given", maxBytes>>20, bytesPerByte)
	}
}

// made counts a text that was made.
func (s *state) made(line int, text string) string {
	s.bytes(line, len(text))
	return text
}

// deeper counts how deep macros call each other; they may call themselves.
func (s *state) deeper(line int) func() {
	if s.depth++; s.depth > maxCalls {
		fail(line, "macros call each other deeper than %d", maxCalls)
	}
	return func() { s.depth-- }
}

// signal is how statements end.
type signal int

const (
	goesOn signal = iota
	leaves
	repeats
)

func (s *state) run(all []statement) signal {
	for _, one := range all {
		s.step(0, 0)
		if sig := one.run(s); sig != goesOn {
			return sig
		}
	}
	return goesOn
}

// inside runs statements in a scope of their own.
func (s *state) inside(outer *scope, names map[string]any, all []statement) signal {
	was := s.scope
	s.scope = &scope{names: names, outer: outer}
	sig := s.run(all)
	s.scope = was
	return sig
}

// apart returns what statements write.
func (s *state) apart(outer *scope, names map[string]any, all []statement) string {
	was := s.out
	s.out = &strings.Builder{}
	s.inside(outer, names, all)
	text := s.out.String()
	s.out = was
	return text
}

func (s *state) write(line int, text string) { s.out.WriteString(s.made(line, text)) }

func (d data) run(s *state) signal {
	s.write(0, string(d))
	return goesOn
}

func (p print) run(s *state) signal {
	v := p.of.value(s)
	if t, ok := v.(safe); ok {
		v = string(t)
	}
	s.write(p.line, s.text(p.line, v))
	return goesOn
}

func (c choice) run(s *state) signal {
	if truth(c.condition.value(s)) {
		return s.run(c.then)
	}
	return s.run(c.otherwise)
}

func (l loop) run(s *state) signal {
	items := s.walk(l.line, l.over.value(s))
	outer := s.scope
	bind := func(v any) map[string]any {
		if len(l.names) == 1 {
			return map[string]any{l.names[0]: v}
		}
		parts := s.walk(l.line, v)
		if len(parts) != len(l.names) {
			fail(l.line, "a loop has %d names for %d values", len(l.names), len(parts))
		}
		names := map[string]any{}
		for i, n := range l.names {
			names[n] = parts[i]
		}
		return names
	}
	if l.filter != nil {
		var kept []any
		for _, v := range items {
			s.scope = &scope{names: bind(v), outer: outer}
			if truth(l.filter.value(s)) {
				kept = append(kept, v)
			}
		}
		s.scope = outer
		items = kept
	}
	if len(items) == 0 {
		return s.inside(outer, map[string]any{}, l.empty)
	}
	for i, v := range items {
		names := bind(v)
		names["loop"] = &turn{i, items}
		if s.inside(outer, names, l.body) == leaves {
			break
		}
	}
	return goesOn
}

// turn is the name loop within a loop.
type turn struct {
	i     int
	items []any
}

func (t *turn) attribute(line int, name string) any {
	n := len(t.items)
	switch name {
	case "index":
		return int64(t.i + 1)
	case "index0":
		return int64(t.i)
	case "revindex":
		return int64(n - t.i)
	case "revindex0":
		return int64(n - t.i - 1)
	case "first":
		return t.i == 0
	case "last":
		return t.i == n-1
	case "length":
		return int64(n)
	case "previtem":
		if t.i > 0 {
			return t.items[t.i-1]
		}
		return undefined{"loop.previtem"}
	case "nextitem":
		if t.i < n-1 {
			return t.items[t.i+1]
		}
		return undefined{"loop.nextitem"}
	}
	fail(line, "loop.%s is not known here", name)
	return nil
}

func (a assignment) run(s *state) signal {
	var v any
	if a.to != nil {
		v = a.to.value(s)
	} else {
		v = s.apart(s.scope, map[string]any{}, a.body)
	}
	if a.attr == "" {
		s.scope.names[a.name] = v
		return goesOn
	}
	of, _ := s.scope.find(a.name)
	to, ok := of.(*space)
	if !ok {
		fail(a.line, "%s is no namespace, so that %s.%s cannot be set", a.name, a.name, a.attr)
	}
	to.attrs[a.attr] = v
	return goesOn
}

func (m *macro) run(s *state) signal {
	outer := s.scope
	s.scope.names[m.name] = function{m.name, func(s *state, line int, args []any, named map[string]any) any {
		defer s.deeper(line)()
		if len(args) > len(m.params) {
			fail(line, "macro %s is called with %d arguments; expected at most %d", m.name, len(args), len(m.params))
		}
		names := map[string]any{}
		for i, p := range m.params {
			v, ok := named[p]
			switch d := i - len(m.params) + len(m.defaults); {
			case i < len(args) && ok:
				fail(line, "macro %s is called with the argument %s twice", m.name, p)
			case i < len(args):
				v = args[i]
			case ok:
			case d >= 0:
				was := s.scope
				s.scope = &scope{names: names, outer: outer}
				v = m.defaults[d].value(s)
				s.scope = was
			default:
				v = undefined{p}
			}
			names[p] = v
		}
		for n := range named {
			if !slices.Contains(m.params, n) {
				fail(line, "macro %s has no argument %s", m.name, n)
			}
		}
		return s.apart(outer, names, m.body)
	}}
	return goesOn
}

func (g generation) run(s *state) signal {
	from := s.out.Len()
	s.inside(s.scope, map[string]any{}, g.body)
	s.spans = append(s.spans, Span{from, s.out.Len()})
	return goesOn
}

func (j jump) run(*state) signal {
	if j.leaves {
		return leaves
	}
	return repeats
}

func (c constant) value(*state) any { return c.of }

func (n name) value(s *state) any {
	s.step(n.line, 0)
	if v, ok := s.scope.find(n.name); ok {
		return v
	}
	if f, ok := functions[n.name]; ok {
		return function{n.name, f}
	}
	if slices.Contains([]string{"dict", "lipsum", "cycler", "joiner"}, n.name) {
		fail(n.line, "the function %s is not known here", n.name)
	}
	return undefined{n.name}
}

func (a attribute) value(s *state) any {
	s.step(a.line, 0)
	of := a.of.value(s)
	if v, ok := s.method(a.line, of, a.name); ok {
		return v
	}
	switch of := of.(type) {
	case *dict:
		if v, ok := of.values[a.name]; ok {
			return v
		}
	case *space:
		if v, ok := of.attrs[a.name]; ok {
			return v
		}
	case *turn:
		return of.attribute(a.line, a.name)
	case undefined:
		fail(a.line, "%s is undefined and has no %s", of.name, a.name)
	case function:
		fail(a.line, "the attribute %s of the function %s is not known here", a.name, of.name)
	}
	return undefined{a.name}
}

func (e item) value(s *state) any {
	s.step(e.line, 0)
	of, key := e.of.value(s), e.key.value(s)
	n, isNumber := number(key)
	switch of := of.(type) {
	case undefined:
		fail(e.line, "%s is undefined and has no items", of.name)
	case *dict:
		if t, ok := key.(string); ok {
			if v, ok := of.values[t]; ok {
				return v
			}
		}
	case *list:
		if n += int64(len(of.items)) * negative(n); isNumber && of.kind <= aRange && n >= 0 && n < int64(len(of.items)) {
			return of.items[n]
		}
	case string:
		if isNumber {
			runes := s.runes(e.line, of)
			if n += int64(len(runes)) * negative(n); n >= 0 && n < int64(len(runes)) {
				return string(runes[n])
			}
		}
	case *turn, function:
		fail(e.line, "items of %s are not known here", sortOf(of))
	}
	if t, ok := key.(string); ok {
		return attribute{e.line, constant{of}, t}.value(s)
	}
	return undefined{"an item"}
}

// negative is 1 for a number below 0, which counts from the end.
func negative(n int64) int64 {
	if n < 0 {
		return 1
	}
	return 0
}

// runes returns the characters of a text.
func (s *state) runes(line int, t string) []rune {
	s.bytes(line, 4*len(t))
	return []rune(t)
}

func (e slice) value(s *state) any {
	s.step(e.line, 0)
	of := e.of.value(s)
	var runes []rune
	n := 0
	l, isList := of.(*list)
	switch t, isText := of.(string); {
	case isText:
		runes = s.runes(e.line, t)
		n = len(runes)
	case isList && l.kind <= aRange:
		n = len(l.items)
	default:
		fail(e.line, "%s is cut; expected a list or a text", sortOf(of))
	}
	whole := func(of expression, otherwise int) (int, bool) {
		if of == nil {
			return otherwise, false
		}
		v := of.value(s)
		at, ok := number(v)
		if !ok && v != nil {
			fail(e.line, "a slice has %s in it; expected a number", sortOf(v))
		}
		if !ok {
			at = int64(otherwise)
		}
		return int(at), ok
	}
	bound := func(of expression, otherwise, low, high int) int {
		at, ok := whole(of, otherwise)
		if ok && at < 0 {
			at += n
		}
		return min(max(at, low), high)
	}
	from, to := 0, 0
	step, _ := whole(e.step, 1)
	switch {
	case step == 0:
		fail(e.line, "a slice has the step 0")
	case step > 0:
		from, to = bound(e.from, 0, 0, n), bound(e.to, n, 0, n)
	default:
		from, to = bound(e.from, n-1, -1, n-1), bound(e.to, -1, -1, n-1)
	}
	var at []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		at = append(at, i)
	}
	s.step(e.line, len(at))
	if isList {
		out := &list{kind: l.kind}
		for _, i := range at {
			out.items = append(out.items, l.items[i])
		}
		return out
	}
	var b strings.Builder
	for _, i := range at {
		b.WriteRune(runes[i])
	}
	return s.made(e.line, b.String())
}

// values returns those of arguments.
func (a arguments) values(s *state) (args []any, named map[string]any) {
	plain := len(a.args) - len(a.names)
	for i, e := range a.args {
		if v := e.value(s); i < plain {
			args = append(args, v)
		} else {
			if named == nil {
				named = map[string]any{}
			}
			named[a.names[i-plain]] = v
		}
	}
	return args, named
}

func (c call) value(s *state) any {
	s.step(c.line, 0)
	f, ok := c.of.value(s).(function)
	args, named := c.values(s)
	if !ok {
		fail(c.line, "what is called is no function")
	}
	return f.call(s, c.line, args, named)
}

func (c conditional) value(s *state) any {
	switch {
	case truth(c.condition.value(s)):
		return c.then.value(s)
	case c.otherwise == nil:
		return undefined{"what an if without else leaves"}
	}
	return c.otherwise.value(s)
}

func (q sequence) value(s *state) any {
	l := &list{kind: q.kind}
	for _, e := range q.items {
		l.items = append(l.items, e.value(s))
	}
	s.step(0, len(l.items))
	return l
}

func (o object) value(s *state) any {
	d := &dict{values: map[string]any{}}
	for i, k := range o.keys {
		key, ok := k.value(s).(string)
		if !ok {
			fail(o.line, "an object has a key that is no text, which is not known here")
		}
		d.set(key, o.values[i].value(s))
	}
	s.step(o.line, len(o.keys))
	return d
}

func (u unary) value(s *state) any {
	s.step(u.line, 0)
	v := u.of.value(s)
	if u.op == "not" {
		return !truth(v)
	}
	n, ok := number(v)
	switch {
	case !ok:
		fail(u.line, "%s is before %s; expected a number", u.op, sortOf(v))
	case u.op == "-":
		n = -n
	}
	return n
}

func (b binary) value(s *state) any {
	s.step(b.line, 0)
	left := b.left.value(s)
	switch b.op {
	case "and":
		if !truth(left) {
			return left
		}
		return b.right.value(s)
	case "or":
		if truth(left) {
			return left
		}
		return b.right.value(s)
	}
	right := b.right.value(s)
	if b.op == "~" {
		return s.made(b.line, s.text(b.line, left)+s.text(b.line, right))
	}
	x, isNumber := number(left)
	y, isToo := number(right)
	if isNumber && isToo {
		return calculated(b.line, b.op, x, y)
	}
	t, isText := left.(string)
	switch u := right.(type) {
	case string:
		if isText && b.op == "+" {
			return s.made(b.line, t+u)
		}
	case int64:
		if isText && b.op == "*" {
			n := max(u, 0)
			s.bytes(b.line, int(min(n, 1<<40))*len(t))
			return strings.Repeat(t, int(n)*min(len(t), 1))
		}
	case *list:
		if l, ok := left.(*list); ok && b.op == "+" && l.kind == u.kind && l.kind <= aTuple {
			s.step(b.line, len(l.items)+len(u.items))
			return &list{l.kind, slices.Concat(l.items, u.items)}
		}
	}
	fail(b.line, "%s %s %s is not known here", sortOf(left), b.op, sortOf(right))
	return nil
}

// calculated computes with numbers, as Python does.
func calculated(line int, op string, x, y int64) any {
	quotient := func() (q, r int64) {
		if y == 0 {
			fail(line, "%d %s 0", x, op)
		}
		if q, r = x/y, x%y; r != 0 && r < 0 != (y < 0) {
			q, r = q-1, r+y
		}
		return q, r
	}
	var out int64
	switch op {
	case "+":
		out = x + y
	case "-":
		out = x - y
	case "*":
		if x != 0 && max(y, -y) > maxNumber/max(x, -x) {
			out = maxNumber + 1
		} else {
			out = x * y
		}
	case "//":
		out, _ = quotient()
	case "%":
		_, out = quotient()
	default:
		fail(line, "the operator %s is not known here", op)
	}
	if max(out, -out) > maxNumber {
		fail(line, "%d %s %d is more than %d", x, op, y, maxNumber)
	}
	return out
}

func (c comparison) value(s *state) any {
	s.step(c.line, 0)
	left := c.of.value(s)
	for i, op := range c.ops {
		right := c.with[i].value(s)
		var is bool
		switch op {
		case "==":
			is = s.equal(c.line, left, right)
		case "!=":
			is = !s.equal(c.line, left, right)
		case "in":
			is = s.contains(c.line, right, left)
		case "not in":
			is = !s.contains(c.line, right, left)
		case "<":
			is = s.order(c.line, left, right) < 0
		case "<=":
			is = s.order(c.line, left, right) <= 0
		case ">":
			is = s.order(c.line, left, right) > 0
		case ">=":
			is = s.order(c.line, left, right) >= 0
		}
		if !is {
			return false
		}
		left = right
	}
	return true
}
