package scores

import "strings"

// stem returns the stem of a word of small Latin letters and digits: the algorithm of M. F. Porter, "An
// algorithm for suffix stripping" (1980), with the extensions of NLTK, which rouge-score uses.
func stem(word string) string {
	if s, ok := irregular[word]; ok {
		return s
	}
	if len(word) <= 2 {
		return word
	}
	word = plural(word)
	word = past(word)
	if s, ok := strings.CutSuffix(word, "y"); ok && len(s) > 1 && !vowels(s)[len(s)-1] {
		word = s + "i"
	}
	word = derived(word)
	word = replace(word, endings3, measured(0))
	word = replace(word, endings4, func(s, ending string) bool {
		return measure(s) > 1 && (ending != "ion" || strings.HasSuffix(s, "s") || strings.HasSuffix(s, "t"))
	})
	if s, ok := strings.CutSuffix(word, "e"); ok {
		if m := measure(s); m > 1 || m == 1 && !short(s) {
			word = s
		}
	}
	if strings.HasSuffix(word, "ll") && measure(word[:len(word)-1]) > 1 {
		word = word[:len(word)-1]
	}
	return word
}

var irregular = map[string]string{
	"sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
	"inning": "inning", "innings": "inning", "outing": "outing", "outings": "outing", "canning": "canning",
	"cannings": "canning", "howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}

// The endings of the steps, each with what takes its place. The first that a word has is the one.
var (
	endings2 = [][2]string{
		{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"}, {"bli", "ble"},
		{"alli", "al"}, {"entli", "ent"}, {"eli", "e"}, {"ousli", "ous"}, {"ization", "ize"}, {"ation", "ate"},
		{"ator", "ate"}, {"alism", "al"}, {"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},
		{"iviti", "ive"}, {"biliti", "ble"}, {"fulli", "ful"}, {"logi", "log"},
	}
	endings3 = [][2]string{
		{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""}, {"ness", ""},
	}
	endings4 = [][2]string{
		{"al", ""}, {"ance", ""}, {"ence", ""}, {"er", ""}, {"ic", ""}, {"able", ""}, {"ible", ""}, {"ant", ""},
		{"ement", ""}, {"ment", ""}, {"ent", ""}, {"ion", ""}, {"ou", ""}, {"ism", ""}, {"ate", ""}, {"iti", ""},
		{"ous", ""}, {"ive", ""}, {"ize", ""},
	}
)

// replace replaces the first of the endings that a word has, if the rest of it allows that.
func replace(word string, endings [][2]string, allowed func(rest, ending string) bool) string {
	for _, e := range endings {
		if rest, ok := strings.CutSuffix(word, e[0]); ok {
			if allowed(rest, e[0]) {
				return rest + e[1]
			}
			return word
		}
	}
	return word
}

// measured allows the rests of a measure above m.
func measured(m int) func(rest, ending string) bool {
	return func(rest, _ string) bool { return measure(rest) > m }
}

// plural is the step 1a.
func plural(word string) string {
	switch {
	case strings.HasSuffix(word, "ies") && len(word) == 4:
		return word[:len(word)-1]
	case strings.HasSuffix(word, "sses"), strings.HasSuffix(word, "ies"):
		return word[:len(word)-2]
	case strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss"):
		return word[:len(word)-1]
	}
	return word
}

// past is the step 1b.
func past(word string) string {
	if strings.HasSuffix(word, "ied") {
		if len(word) == 4 {
			return word[:len(word)-1]
		}
		return word[:len(word)-2]
	}
	if rest, ok := strings.CutSuffix(word, "eed"); ok {
		if measure(rest) > 0 {
			return rest + "ee"
		}
		return word
	}
	rest, ok := strings.CutSuffix(word, "ed")
	if !ok {
		rest, ok = strings.CutSuffix(word, "ing")
	}
	if v := vowels(rest); !ok || !hasVowel(v) {
		return word
	}
	n := len(rest)
	switch {
	case strings.HasSuffix(rest, "at"), strings.HasSuffix(rest, "bl"), strings.HasSuffix(rest, "iz"):
		return rest + "e"
	case n >= 2 && rest[n-1] == rest[n-2] && !vowels(rest)[n-1]:
		if strings.IndexByte("lsz", rest[n-1]) >= 0 {
			return rest
		}
		return rest[:n-1]
	case measure(rest) == 1 && short(rest):
		return rest + "e"
	}
	return rest
}

// derived is the step 2.
func derived(word string) string {
	if rest, ok := strings.CutSuffix(word, "alli"); ok && measure(rest) > 0 {
		return derived(rest + "al")
	}
	return replace(word, endings2, func(rest, ending string) bool {
		if ending == "logi" {
			rest += "l"
		}
		return measure(rest) > 0
	})
}

// vowels says of each letter whether it is a vowel. A y after a consonant is one.
func vowels(word string) []bool {
	out := make([]bool, len(word))
	for i := range len(word) {
		out[i] = strings.IndexByte("aeiou", word[i]) >= 0 || word[i] == 'y' && i > 0 && !out[i-1]
	}
	return out
}

func hasVowel(vowels []bool) bool {
	for _, v := range vowels {
		if v {
			return true
		}
	}
	return false
}

// measure counts the vowels of a word that a consonant follows.
func measure(word string) (n int) {
	v := vowels(word)
	for i := 1; i < len(v); i++ {
		if v[i-1] && !v[i] {
			n++
		}
	}
	return n
}

// short reports whether a word ends with a short syllable.
func short(word string) bool {
	v, n := vowels(word), len(word)
	return n >= 3 && !v[n-3] && v[n-2] && !v[n-1] && strings.IndexByte("wxy", word[n-1]) < 0 ||
		n == 2 && v[0] && !v[1]
}
