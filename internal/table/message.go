package table

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
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

// DidYouMean returns `; did you mean "x"?` for the name that is most like a word, or "" if none is:
// if more than a third of its letters differ.
func DidYouMean(word string, names []string) string {
	best, least := "", 1+utf8.RuneCountInString(word)/3
	for _, name := range names {
		if d := distance([]rune(strings.ToLower(word)), []rune(strings.ToLower(name)), least+1); d < least || d == least && len(name) > len(best) && best != "" {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", Clip(strconv.Quote(best)))
}

// distance returns how many letters must be inserted, removed, replaced or swapped with their
// neighbour to make b of a, or most if it is more (Damerau and Levenshtein's, of optimal string
// alignment).
func distance(a, b []rune, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		if before == nil {
			before = make([]int, len(b)+1)
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], most)
}
