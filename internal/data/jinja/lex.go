package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is a kind of token.
type kind int

const (
	endToken kind = iota
	dataToken
	nameToken
	textToken
	numberToken
	operatorToken // also {{, }}, {% and %}
)

// token is a piece of a template. text is that of data, a name or an operator, or the value of a text.
type token struct {
	kind   kind
	text   string
	number int64
	line   int
}

// is reports whether a token is that operator or name.
func (t token) is(k kind, text string) bool { return t.kind == k && t.text == text }

func (t token) String() string {
	if t.kind == endToken {
		return "the end of the template"
	}
	return strconv.Quote(t.text)
}

// The ends of tags by their beginnings, and operators, longer ones first.
var (
	closers   = map[string]string{"{{": "}}", "{%": "%}", "{#": "#}"}
	operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}
	brackets  = map[string]string{"(": ")", "[": "]", "{": "}"}
)

// lexer divides a template into tokens.
type lexer struct {
	source string
	at     int
	tokens []token
	// starts is whether what comes begins a line, though no newline is before it: the template begins, or
	// the newline went with a tag.
	starts bool
	// lines are the newlines before counted.
	lines, counted int
}

// lex returns the tokens of a template, the last of which is endToken.
func lex(source string) []token {
	if len(source) > MaxSource {
		fail(0, "a chat template has %d bytes; expected at most %d", len(source), MaxSource)
	}
	if !utf8.ValidString(source) {
		fail(0, "a chat template is not UTF-8")
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{source: strings.TrimSuffix(source, "\n"), starts: true}
	for l.at < len(l.source) {
		l.root()
	}
	l.add(endToken, "")
	return l.tokens
}

// line returns the line that the lexer is at.
func (l *lexer) line() int {
	l.lines += strings.Count(l.source[l.counted:l.at], "\n")
	l.counted = l.at
	return l.lines + 1
}

func (l *lexer) add(k kind, text string) {
	if k == dataToken && text == "" {
		return
	}
	l.tokens = append(l.tokens, token{kind: k, text: text, line: l.line()})
}

// root takes data and the tag after it.
func (l *lexer) root() {
	rest := l.source[l.at:]
	at := 0
	for ; ; at++ {
		next := strings.IndexByte(rest[at:], '{')
		if next < 0 || at+next+1 >= len(rest) {
			l.add(dataToken, rest)
			l.at = len(l.source)
			return
		}
		if at += next; closers[rest[at:at+2]] != "" {
			break
		}
	}
	data, open := rest[:at], rest[at:at+2]
	sign := rest[at+2 : min(at+3, len(rest))]
	lineAt := strings.LastIndexByte(data, '\n') + 1
	switch {
	case sign == "-":
		data = strings.TrimRightFunc(data, isSpace)
	case sign == "+" || open == "{{":
	case (lineAt > 0 || l.starts) && strings.TrimLeftFunc(data[lineAt:], isSpace) == "":
		data = data[:lineAt]
	}
	l.add(dataToken, data)
	l.at += at + 2
	if sign == "-" || sign == "+" {
		l.at++
	}
	switch open {
	case "{#":
		end := strings.Index(l.source[l.at:], "#}")
		if end < 0 {
			fail(l.line(), "a comment does not end; expected #}")
		}
		minus := end > 0 && l.source[l.at+end-1] == '-'
		plus := end > 0 && l.source[l.at+end-1] == '+'
		l.at += end + 2
		l.after(open, minus, plus)
	default:
		l.add(operatorToken, open)
		l.tag(open)
	}
}

// after passes over what follows the end of a tag and goes with it.
func (l *lexer) after(open string, minus, plus bool) {
	begin := l.at
	switch {
	case minus:
		l.at = len(l.source) - len(strings.TrimLeftFunc(l.source[l.at:], isSpace))
	case open != "{{" && !plus && strings.HasPrefix(l.source[l.at:], "\n"):
		l.at++
	}
	l.starts = l.at > begin && l.source[l.at-1] == '\n'
}

// tag takes what is in a tag, and its end.
func (l *lexer) tag(open string) {
	var unclosed []string // brackets that are to be closed
	for closer := closers[open]; ; {
		l.at = len(l.source) - len(strings.TrimLeftFunc(l.source[l.at:], isSpace))
		rest := l.source[l.at:]
		if rest == "" {
			fail(l.line(), "a tag does not end; expected %s", closer)
		}
		if len(unclosed) == 0 {
			signed := strings.TrimPrefix(rest, "-")
			plus := open == "{%" && strings.HasPrefix(rest, "+"+closer)
			if plus {
				signed = rest[1:]
			}
			if strings.HasPrefix(signed, closer) {
				l.add(operatorToken, closer)
				l.at += len(rest) - len(signed) + 2
				l.after(open, rest[0] == '-', plus)
				return
			}
		}
		switch c := rest[0]; {
		case c == '\'' || c == '"':
			l.quoted(rest)
		case c >= '0' && c <= '9':
			l.digits(rest)
		case isLetter(c):
			n := 1
			for n < len(rest) && (isLetter(rest[n]) || rest[n] >= '0' && rest[n] <= '9') {
				n++
			}
			l.add(nameToken, rest[:n])
			l.at += n
		default:
			op := ""
			for _, o := range operators {
				if strings.HasPrefix(rest, o) {
					op = o
					break
				}
			}
			switch {
			case op == "":
				r, _ := utf8.DecodeRuneInString(rest)
				fail(l.line(), "the character %q is not of the language of templates", r)
			case brackets[op] != "":
				unclosed = append(unclosed, brackets[op])
			case op == ")" || op == "]" || op == "}":
				if len(unclosed) == 0 || unclosed[len(unclosed)-1] != op {
					fail(l.line(), "%q closes nothing", op)
				}
				unclosed = unclosed[:len(unclosed)-1]
			}
			l.add(operatorToken, op)
			l.at += len(op)
		}
	}
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// digits takes a whole number.
func (l *lexer) digits(rest string) {
	n := 1
	for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '_' || isLetter(rest[n])) {
		n++
	}
	attribute := len(l.tokens) > 0 && l.tokens[len(l.tokens)-1].is(operatorToken, ".")
	number, err := strconv.ParseInt(rest[:n], 10, 64)
	switch {
	case err != nil || n > 1 && rest[0] == '0' || number > maxNumber:
		fail(l.line(), "the number %s is not known here; expected a whole one up to %d", rest[:n], maxNumber)
	case !attribute && n+1 < len(rest) && rest[n] == '.' && rest[n+1] >= '0' && rest[n+1] <= '9':
		fail(l.line(), "numbers with fractions, such as %s, are not known here", rest[:n+2])
	}
	l.add(numberToken, rest[:n])
	l.tokens[len(l.tokens)-1].number = number
	l.at += n
}

// simple are the escapes of one letter.
var simple = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"', 'a': '\a', 'b': '\b', 'f': '\f', 'v': '\v'}

// quoted takes a text between quotes, with Python's escapes.
func (l *lexer) quoted(rest string) {
	var b strings.Builder
	at := 1
	for ; at < len(rest) && rest[at] != rest[0]; at++ {
		if rest[at] != '\\' {
			b.WriteByte(rest[at])
			continue
		}
		if at++; at == len(rest) {
			break
		}
		c := rest[at]
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch e, ok := simple[c]; {
		case ok:
			b.WriteByte(e)
		case c == '\n':
		case digits > 0:
			code, err := strconv.ParseUint(rest[at+1:min(at+1+digits, len(rest))], 16, 32)
			if err != nil || !utf8.ValidRune(rune(code)) || at+1+digits > len(rest) {
				fail(l.line(), "a text has an escape \\%c that is no character", c)
			}
			b.WriteRune(rune(code))
			at += digits
		case c == 'N' || c >= '0' && c <= '7':
			fail(l.line(), "the escape \\%c of a text is not known here", c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	if at >= len(rest) {
		fail(l.line(), "a text does not end; expected %c", rest[0])
	}
	l.add(textToken, b.String())
	l.at += at + 1
}
