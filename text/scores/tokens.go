package scores

import (
	"regexp"
	"strings"
	"unicode"
)

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// fields is Python's str.split.
func fields(text string) []string { return strings.FieldsFunc(text, isSpace) }

// characters returns the characters of a text without white space.
func characters(text string) []string { return strings.Split(strings.Join(fields(text), ""), "") }

// spaced returns the characters of a text in which words are one space apart.
func spaced(text string) []string { return strings.Split(strings.Join(fields(text), " "), "") }

// rule replaces what an expression finds.
type rule struct {
	find *regexp.Regexp
	by   string
}

// The rules of the scripts mteval-v13a and mteval-v14 of the evaluations of machine translation.
var (
	rules13a = []rule{
		{regexp.MustCompile("([{-~\\[-` -&(-+:-@/])"), " ${1} "},
		{regexp.MustCompile(`([^0-9])([.,])`), "${1} ${2} "},
		{regexp.MustCompile(`([.,])([^0-9])`), " ${1} ${2}"},
		{regexp.MustCompile(`([0-9])(-)`), "${1} ${2} "},
	}
	rulesIntl = []rule{
		{regexp.MustCompile(`(\PN)(\pP)`), "${1} ${2} "},
		{regexp.MustCompile(`(\pP)(\PN)`), " ${1} ${2}"},
		{regexp.MustCompile(`(\pS)`), " ${1} "},
	}
)

func apply(rules []rule, text string) []string {
	for _, r := range rules {
		text = r.find.ReplaceAllString(text, r.by)
	}
	return fields(text)
}

func tokensIntl(text string) []string { return apply(rulesIntl, strings.TrimRightFunc(text, isSpace)) }

func tokens13a(text string) []string {
	text = strings.TrimRightFunc(text, isSpace)
	// One after the other: what one makes, the next replaces.
	for _, r := range [][2]string{{"<skipped>", ""}, {"-\n", ""}, {"\n", " "}, {"&quot;", `"`}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}} {
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	return apply(rules13a, " "+text+" ")
}
