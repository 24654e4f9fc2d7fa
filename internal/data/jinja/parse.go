package jinja

import (
	"slices"
	"strings"
)

// statement is a part of a template that writes, sets or decides.
type statement interface{ run(s *state) signal }

// expression has a value. The value's types are in value.go.
type expression interface{ value(s *state) any }

// The statements. line is where one begins.
type (
	data  string
	print struct {
		line int
		of   expression
	}
	choice struct { // if
		line            int
		condition       expression
		then, otherwise []statement
	}
	loop struct {
		line         int
		names        []string
		over, filter expression
		body, empty  []statement
	}
	assignment struct {
		line       int
		name, attr string // attr is that of a namespace, or ""
		to         expression
		body       []statement // in place of an expression
	}
	macro struct {
		line     int
		name     string
		params   []string
		defaults []expression // of the last params
		body     []statement
	}
	generation struct {
		line int
		body []statement
	}
	jump struct{ leaves bool } // break or continue
)

// The expressions.
type (
	constant struct{ of any }
	name     struct {
		line int
		name string
	}
	attribute struct {
		line int
		of   expression
		name string
	}
	item struct {
		line    int
		of, key expression
	}
	slice struct {
		line           int
		of             expression
		from, to, step expression // may be nil
	}
	call struct {
		line int
		of   expression
		arguments
	}
	filter struct {
		line int
		of   expression
		name string
		arguments
	}
	test struct {
		line int
		of   expression
		name string
		not  bool
		arguments
	}
	unary struct {
		line int
		op   string
		of   expression
	}
	binary struct {
		line        int
		op          string
		left, right expression
	}
	comparison struct {
		line int
		of   expression
		ops  []string
		with []expression
	}
	conditional struct {
		condition, then, otherwise expression // otherwise may be nil
	}
	sequence struct {
		kind  listKind
		items []expression
	}
	object struct {
		line         int
		keys, values []expression
	}
	arguments struct {
		args  []expression
		names []string // of the last arguments
	}
)

// parser makes statements of tokens.
type parser struct {
	tokens []token
	depth  int
	loops  int  // around the statement, within its macro
	inner  bool // whether what is written does not go straight into the text
}

func (p *parser) next() token { return p.tokens[0] }

func (p *parser) take() token {
	t := p.tokens[0]
	if t.kind != endToken {
		p.tokens = p.tokens[1:]
	}
	return t
}

// skip takes a token if it is the one.
func (p *parser) skip(k kind, text string) bool {
	if p.next().is(k, text) {
		p.take()
		return true
	}
	return false
}

func (p *parser) op(text string) bool   { return p.skip(operatorToken, text) }
func (p *parser) word(text string) bool { return p.skip(nameToken, text) }

// expect takes a token that has to be there.
func (p *parser) expect(k kind, text string) token {
	t := p.take()
	if t.kind != k || text != "" && t.text != text {
		if text == "" {
			text = "a name"
		}
		fail(t.line, "found %v; expected %s", t, text)
	}
	return t
}

// deeper counts how deep the template nests.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxDepth {
		fail(p.next().line, "the template nests deeper than %d", maxDepth)
	}
	return func() { p.depth-- }
}

// body takes statements up to one with a word of ends, which it takes too, up to the word.
func (p *parser) body(ends ...string) ([]statement, string) {
	defer p.deeper()()
	var all []statement
	for {
		t := p.take()
		switch {
		case t.kind == endToken && len(ends) == 0:
			return all, ""
		case t.kind == endToken:
			fail(t.line, "the template ends; expected %s before it", strings.Join(ends, " or "))
		case t.kind == dataToken:
			all = append(all, data(t.text))
		case t.text == "{{":
			all = append(all, print{t.line, p.expression()})
			p.expect(operatorToken, "}}")
		default: // {%
			word := p.expect(nameToken, "")
			if slices.Contains(ends, word.text) {
				return all, word.text
			}
			all = append(all, p.statement(word))
		}
	}
}

func (p *parser) close() { p.expect(operatorToken, "%}") }

// within takes a body whose output goes elsewhere first, or which is a function for jinja.
func (p *parser) within(inner bool, end string) []statement {
	loops, was := p.loops, p.inner
	p.loops, p.inner = 0, was || inner
	body, _ := p.body(end)
	p.loops, p.inner = loops, was
	p.close()
	return body
}

func (p *parser) statement(word token) statement {
	switch word.text {
	case "if":
		return p.choice(word.line)
	case "for":
		return p.loop(word.line)
	case "set":
		return p.assignment(word.line)
	case "macro":
		return p.macro(word.line)
	case "generation":
		p.close()
		if p.inner {
			fail(word.line, "generation is in a macro or a set, which is not known here")
		}
		return generation{word.line, p.within(false, "endgeneration")}
	case "break", "continue":
		if p.loops == 0 {
			fail(word.line, "%s is outside of a loop", word.text)
		}
		p.close()
		return jump{word.text == "break"}
	}
	fail(word.line, "the statement %q is not known here; expected if, for, set, macro, generation, break or continue", word.text)
	return nil
}

func (p *parser) choice(line int) statement {
	defer p.deeper()()
	c := choice{line: line, condition: p.or()}
	p.close()
	then, end := p.body("elif", "else", "endif")
	c.then = then
	switch end {
	case "elif":
		c.otherwise = []statement{p.choice(p.next().line)}
		return c
	case "else":
		p.close()
		c.otherwise, _ = p.body("endif")
	}
	p.close()
	return c
}

func (p *parser) loop(line int) statement {
	l := loop{line: line}
	paren := p.op("(")
	for {
		l.names = append(l.names, p.target())
		if !p.op(",") {
			break
		}
	}
	if paren {
		p.expect(operatorToken, ")")
	}
	p.expect(nameToken, "in")
	l.over = p.or()
	if p.word("if") {
		l.filter = p.expression()
	}
	p.close()
	p.loops++
	body, end := p.body("else", "endfor")
	p.loops--
	if l.body = body; end == "else" {
		p.close()
		l.empty, _ = p.body("endfor")
	}
	p.close()
	return l
}

// reserved are names with a meaning that is not here, or that cannot be set.
var reserved = []string{"true", "false", "none", "True", "False", "None", "loop", "self", "super", "caller", "varargs", "kwargs", "not", "and", "or", "if", "else", "in", "is"}

func (p *parser) target() string {
	t := p.expect(nameToken, "")
	if slices.Contains(reserved, t.text) {
		fail(t.line, "the name %s cannot be set", t.text)
	}
	return t.text
}

func (p *parser) assignment(line int) statement {
	a := assignment{line: line, name: p.target()}
	if p.op(".") {
		a.attr = p.expect(nameToken, "").text
	}
	if p.op("=") {
		a.to = p.expression()
		p.close()
		return a
	}
	if a.attr != "" {
		fail(line, "a set of an attribute has no value; expected =")
	}
	p.close()
	a.body = p.within(true, "endset")
	return a
}

func (p *parser) macro(line int) statement {
	m := &macro{line: line, name: p.target()}
	p.expect(operatorToken, "(")
	for !p.op(")") {
		if len(m.params) > 0 {
			p.expect(operatorToken, ",")
		}
		m.params = append(m.params, p.target())
		if p.op("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			fail(line, "parameter %s of macro %s has no default, and one before it has", m.params[len(m.params)-1], m.name)
		}
	}
	p.close()
	m.body = p.within(true, "endmacro")
	return m
}

// expression takes one with the lowest binding: a if b else c.
func (p *parser) expression() expression {
	defer p.deeper()()
	e := p.or()
	for links := 0; p.word("if"); p.link(&links) {
		c := conditional{condition: p.or(), then: e}
		if p.word("else") {
			c.otherwise = p.expression()
		}
		e = c
	}
	return e
}

// link counts the operators of a row, each of which makes the expression deeper.
func (p *parser) link(links *int) {
	if *links++; *links > maxDepth {
		fail(p.next().line, "more than %d operators stand in a row", maxDepth)
	}
}

// chain takes expressions with operators between them that bind from the left.
func (p *parser) chain(of func() expression, k kind, ops ...string) expression {
	e, links := of(), 0
	for t := p.next(); t.kind == k && slices.Contains(ops, t.text); t = p.next() {
		p.take()
		p.link(&links)
		e = binary{t.line, t.text, e, of()}
	}
	return e
}

func (p *parser) or() expression  { return p.chain(p.and, nameToken, "or") }
func (p *parser) and() expression { return p.chain(p.not, nameToken, "and") }

func (p *parser) not() expression {
	defer p.deeper()()
	if t := p.next(); p.word("not") {
		return unary{t.line, "not", p.not()}
	}
	c := comparison{line: p.next().line, of: p.sum()}
	for {
		t := p.next()
		op := t.text
		switch {
		case t.kind == operatorToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op):
		case t.is(nameToken, "in"):
		case t.is(nameToken, "not") && p.tokens[1].is(nameToken, "in"):
			p.take()
			op = "not in"
		case len(c.ops) == 0:
			return c.of
		default:
			return c
		}
		p.take()
		c.ops = append(c.ops, op)
		c.with = append(c.with, p.sum())
	}
}

func (p *parser) sum() expression    { return p.chain(p.joined, operatorToken, "+", "-") }
func (p *parser) joined() expression { return p.chain(p.product, operatorToken, "~") }
func (p *parser) product() expression {
	return p.chain(func() expression { return p.unary(true) }, operatorToken, "*", "/", "//", "%", "**")
}

func (p *parser) unary(filters bool) expression {
	defer p.deeper()()
	var e expression
	if t := p.next(); p.op("-") || p.op("+") {
		e = unary{t.line, t.text, p.unary(false)}
	} else {
		e = p.primary()
	}
	if e = p.postfix(e); filters {
		e = p.filters(e)
	}
	return e
}

func (p *parser) primary() expression {
	switch t := p.take(); {
	case t.kind == nameToken:
		switch t.text {
		case "true", "True":
			return constant{true}
		case "false", "False":
			return constant{false}
		case "none", "None":
			return constant{nil}
		}
		if t.text != "loop" && slices.Contains(reserved, t.text) {
			fail(t.line, "found %v; expected a value", t)
		}
		return name{t.line, t.text}
	case t.kind == textToken:
		for p.next().kind == textToken {
			t.text += p.take().text
		}
		return constant{t.text}
	case t.kind == numberToken:
		return constant{t.number}
	case t.text == "(":
		items, comma := p.items(")")
		if len(items) == 1 && !comma {
			return items[0]
		}
		return sequence{aTuple, items}
	case t.text == "[":
		items, _ := p.items("]")
		return sequence{aList, items}
	case t.text == "{":
		o := object{line: t.line}
		for !p.op("}") {
			if len(o.keys) > 0 {
				p.expect(operatorToken, ",")
				if p.op("}") {
					break
				}
			}
			o.keys = append(o.keys, p.expression())
			p.expect(operatorToken, ":")
			o.values = append(o.values, p.expression())
		}
		return o
	default:
		fail(t.line, "found %v; expected a value", t)
		return nil
	}
}

// items takes expressions up to a closing bracket, and says whether a comma was among them.
func (p *parser) items(end string) (items []expression, comma bool) {
	for !p.op(end) {
		if len(items) > 0 {
			p.expect(operatorToken, ",")
			if comma = true; p.op(end) {
				break
			}
		}
		items = append(items, p.expression())
	}
	return items, comma
}

// postfix takes attributes, items and calls.
func (p *parser) postfix(e expression) expression {
	for links := 0; ; p.link(&links) {
		switch t := p.next(); {
		case p.op("."):
			if n := p.take(); n.kind == numberToken {
				e = item{t.line, e, constant{n.number}}
			} else if n.kind == nameToken {
				e = attribute{t.line, e, n.text}
			} else {
				fail(n.line, "found %v; expected a name", n)
			}
		case p.op("["):
			e = p.subscript(t.line, e)
		case p.op("("):
			e = call{t.line, e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) subscript(line int, of expression) expression {
	var parts [3]expression
	n := 0
	for !p.op("]") {
		switch {
		case p.op(":"):
			if n++; n > 2 {
				fail(line, "a slice has more than three parts")
			}
		case parts[n] != nil:
			fail(p.next().line, "found %v; expected ]", p.next())
		default:
			parts[n] = p.expression()
		}
	}
	switch {
	case n > 0:
		return slice{line, of, parts[0], parts[1], parts[2]}
	case parts[0] == nil:
		fail(line, "[] has nothing in it; expected a key")
	}
	return item{line, of, parts[0]}
}

func (p *parser) arguments() arguments {
	var a arguments
	for !p.op(")") {
		if len(a.args) > 0 {
			p.expect(operatorToken, ",")
			if p.op(")") {
				break
			}
		}
		t := p.next()
		if t.kind == nameToken && p.tokens[1].is(operatorToken, "=") {
			p.take()
			p.take()
			if slices.Contains(a.names, t.text) {
				fail(t.line, "the argument %s is given twice", t.text)
			}
			a.names = append(a.names, t.text)
		} else if len(a.names) > 0 {
			fail(t.line, "an argument without a name comes after one with a name")
		}
		a.args = append(a.args, p.expression())
	}
	return a
}

// filters takes filters, tests and calls of their values.
func (p *parser) filters(e expression) expression {
	for links := 0; ; p.link(&links) {
		switch t := p.next(); {
		case p.op("|"):
			f := filter{line: t.line, of: e, name: p.expect(nameToken, "").text}
			if p.op("(") {
				f.arguments = p.arguments()
			}
			e = f
		case p.word("is"):
			e = p.test(t.line, e)
		case p.op("("):
			e = call{t.line, e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) test(line int, of expression) expression {
	t := test{line: line, of: of, not: p.word("not")}
	t.name = p.expect(nameToken, "").text
	switch n := p.next(); {
	case p.op("("):
		t.arguments = p.arguments()
	case n.kind == textToken || n.kind == numberToken || n.is(operatorToken, "[") || n.is(operatorToken, "{"),
		n.kind == nameToken && !slices.Contains([]string{"else", "or", "and"}, n.text):
		t.args = []expression{p.postfix(p.primary())}
	}
	return t
}
