package words

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Closest returns the name that is most like a word, or "" if none is. A name is like it if at most two
// of the word's letters differ, and no more than a third of them. Upper and lower case are the same, and
// so are "-" and "_".
func Closest(word string, names []string) string {
	typed := plain(word)
	best, least := "", 1+min(2, utf8.RuneCountInString(word)/3)
	for _, name := range names {
		if d := distance([]rune(typed), []rune(plain(name)), least+1); d < least || d == least && len(name) > len(best) && best != "" {
			best, least = name, d
		}
	}
	return best
}

// DidYouMean returns "; did you mean x?" for the name that is most like a word, or "" if none is.
func DidYouMean(word string, names []string) string {
	if best := Closest(word, names); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// OneOf returns "expected a, b or c" for the names, with what was most likely meant by a word that is
// none of them.
func OneOf(word string, names []string) string {
	return "expected " + Or(names) + DidYouMean(word, names)
}

// Or lists names: a, b or c.
func Or(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return strings.Join(names, "")
}

// plain returns a name as names are compared.
func plain(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
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
