package table

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// List names things in an error.
func List(names []string) string {
	const most = 20
	var b strings.Builder
	for i, s := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(Clip(strconv.Quote(s)))
	}
	return b.String()
}

// Clip shortens a string for an error.
func Clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// Count returns "1 row" or "2 rows".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// DidYouMean returns `; did you mean "x"?` for the name in a file that is most like a word, or "" if
// none is.
func DidYouMean(word string, names []string) string {
	if best := words.Closest(word, names); best != "" {
		return fmt.Sprintf("; did you mean %s?", Clip(strconv.Quote(best)))
	}
	return ""
}
