package tokenizerjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// finder returns the next match of a pattern in s from byte at on, and -1 if there is none. The memo is for s
// alone.
type finder func(s string, at int, m *memo) (from, to int)

// scanner returns where the match that begins at byte i ends, or i if there is none.
type scanner func(s string, i int) int

// find returns the finder of a scanner.
func find(scan scanner) finder {
	return func(s string, at int, _ *memo) (int, int) {
		for i := at; i < len(s); {
			if to := scan(s, i); to > i {
				return i, to
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
		}
		return -1, -1
	}
}

// byClass finds single characters of a class.
func byClass(c chars.Class) finder {
	return func(s string, at int, _ *memo) (int, int) {
		for i, r := range s[at:] {
			if chars.Is(r, c) {
				return at + i, at + i + utf8.RuneLen(r)
			}
		}
		return -1, -1
	}
}

// literal finds a text.
func literal(what string) finder {
	return func(s string, at int, _ *memo) (int, int) {
		i := strings.Index(s[at:], what)
		if i < 0 {
			return -1, -1
		}
		return at + i, at + i + len(what)
	}
}

// scanners are regular expressions that many models divide texts by, and what scans by them faster than a
// regex.
var scanners = map[string]scanner{
	gpt2Pattern: gpt2,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: cl100k(3),
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:       cl100k(3),
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      cl100k(1),
}

const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// patternOf returns what finds the matches of a pattern of a file.
func patternOf(raw json.RawMessage) (finder, error) {
	var in struct{ String, Regex *string }
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	switch {
	case in.String != nil && *in.String != "":
		return literal(*in.String), nil
	case in.Regex == nil:
		return nil, fmt.Errorf("pattern %s is not known; expected a String that is not empty, or a Regex", raw)
	}
	if scan := scanners[*in.Regex]; scan != nil {
		return find(scan), nil
	}
	r, err := newRegex(*in.Regex)
	if err != nil {
		return nil, err
	}
	return r.finder(), nil
}

// kinds has the class of each ASCII character, and wide for the bytes of others.
var kinds = func() (out [256]chars.Class) {
	for c := range out {
		switch {
		case c >= utf8.RuneSelf:
			out[c] = wide
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			out[c] = chars.Letter
		case '0' <= c && c <= '9':
			out[c] = chars.Number
		case c == ' ' || '\t' <= c && c <= '\r':
			out[c] = chars.Space
		}
	}
	return out
}()

// wide is the class of bytes that are not ASCII.
const wide chars.Class = 1 << 31

// kindAt returns the class of the character at byte i, chars.Letter, chars.Number, chars.Space or 0, and its length.
func kindAt(s string, i int) (chars.Class, int) {
	if k := kinds[s[i]]; k != wide {
		return k, 1
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	return chars.Of(r) & (chars.Letter | chars.Number | chars.Space), size
}

// run returns the end of the characters from byte i on that are of a class, at most some.
func run(s string, i int, c chars.Class, most int) int {
	if most == many {
		for i < len(s) && kinds[s[i]] == c {
			i++
		}
	}
	for ; i < len(s) && most > 0; most-- {
		k, size := kindAt(s, i)
		if k != c {
			break
		}
		i += size
	}
	return i
}

// blanks returns the end of the white space that begins at byte i: without its last character, which
// belongs to the word after it, unless it is the only one or the text ends.
func blanks(s string, i int) int {
	end, last := i, i
	for end < len(s) {
		k, size := kindAt(s, end)
		if k != chars.Space {
			if last > i {
				return last
			}
			return end
		}
		last, end = end, end+size
	}
	return end
}

const many = 1 << 62

// gpt2 scans by gpt2Pattern.
func gpt2(s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s[i:], false); n > 0 {
			return i + n
		}
	}
	at := i
	k, size := kindAt(s, at)
	if s[i] == ' ' && i+1 < len(s) {
		if next, n := kindAt(s, i+1); next != chars.Space {
			at, k, size = i+1, next, n
		}
	}
	if k == chars.Space {
		return blanks(s, i)
	}
	return run(s, at+size, k, many)
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning of s, or 0.
func contraction(s string, fold bool) int {
	if len(s) < 2 {
		return 0
	}
	lower := func(c byte) byte {
		if fold && 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	switch c := lower(s[1]); c {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(s) > 2 {
			if d := lower(s[2]); c == 'l' && d == 'l' || c != 'l' && d == 'e' {
				return 3
			}
		}
	}
	if fold && strings.HasPrefix(s[1:], "ſ") {
		return 1 + len("ſ")
	}
	return 0
}

// cl100k scans by the expressions of Llama 3, with numbers of at most 3 digits, and of Qwen 2, with 1.
func cl100k(digits int) scanner {
	return func(s string, i int) int {
		if s[i] == '\'' {
			if n := contraction(s[i:], true); n > 0 {
				return i + n
			}
		}
		k, size := kindAt(s, i)
		switch k {
		case chars.Letter:
			return run(s, i+size, chars.Letter, many)
		case chars.Number:
			return run(s, i+size, chars.Number, digits-1)
		}
		next, nextSize := chars.Space, 0
		if i+size < len(s) {
			next, nextSize = kindAt(s, i+size)
		}
		if next == chars.Letter && s[i] != '\r' && s[i] != '\n' {
			return run(s, i+size+nextSize, chars.Letter, many)
		}
		if k == 0 || s[i] == ' ' && next == 0 {
			end := run(s, i+size, 0, many)
			for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
				end++
			}
			return end
		}
		if end := run(s, i, chars.Space, many); strings.ContainsAny(s[i:end], "\r\n") {
			return i + strings.LastIndexAny(s[i:end], "\r\n") + 1
		}
		return blanks(s, i)
	}
}

// rustWords scans by \w+|[^\w\s]+.
func rustWords(s string, i int) int {
	at := i
	var first chars.Class
	for j, r := range s[i:] {
		c := chars.Of(r) & (chars.Word | chars.Space)
		if j == 0 {
			first = c
		}
		if c != first || c == chars.Space {
			break
		}
		at = i + j + utf8.RuneLen(r)
	}
	return at
}
