package qa

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Normalize returns an answer in the form in which SQuAD's script compares answers: in lower case,
// without ASCII punctuation and the words a, an and the, and with single spaces.
func Normalize(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
			return -1
		}
		return r
	}, cases.Lower(language.Und).String(s))
	return strings.Join(strings.FieldsFunc(withoutArticles(s), space), " ")
}

// space reports what Python's str.split takes for white space.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// withoutArticles puts a space in the place of each run of letters and numbers that is an article, as
// Python's \b(a|an|the)\b.
func withoutArticles(s string) string {
	var b strings.Builder
	word := -1
	end := func(at int) {
		if word < 0 {
			return
		}
		switch w := s[word:at]; w {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(w)
		}
		word = -1
	}
	for i, r := range s {
		if unicode.IsLetter(r) || unicode.IsNumber(r) || r == '_' {
			if word < 0 {
				word = i
			}
			continue
		}
		end(i)
		b.WriteRune(r)
	}
	end(len(s))
	return b.String()
}

// ExactMatch returns 1 if an answer is equal to one of the true ones after Normalize, else 0. No true
// answers are those of a question without an answer, for which "" is right.
func ExactMatch(answer string, truths []string) float64 {
	got, best := Normalize(answer), 0.0
	for _, t := range orNone(truths) {
		if got == Normalize(t) {
			best = 1
		}
	}
	return best
}

// F1 returns the highest F1 of the words of an answer with those of one of the true ones, after
// Normalize. empty says that an answer without words is right if the true one has none, as in the
// script of SQuAD 2.0; in that of 1.1 it is wrong.
func F1(answer string, truths []string, empty bool) float64 {
	best := 0.0
	got := strings.Fields(Normalize(answer))
	for _, t := range orNone(truths) {
		best = max(best, f1(got, strings.Fields(Normalize(t)), empty))
	}
	return best
}

func f1(got, want []string, empty bool) float64 {
	if empty && (len(got) == 0 || len(want) == 0) {
		if len(got) == len(want) {
			return 1
		}
		return 0
	}
	left := make(map[string]int)
	for _, w := range want {
		left[w]++
	}
	same := 0
	for _, w := range got {
		if left[w] > 0 {
			left[w]--
			same++
		}
	}
	if same == 0 {
		return 0
	}
	precision, recall := float64(same)/float64(len(got)), float64(same)/float64(len(want))
	return 2 * precision * recall / (precision + recall)
}

// Truths returns the true answers that SQuAD 2.0's script counts: those of which Normalize leaves
// something.
func Truths(answers []string) []string {
	var out []string
	for _, a := range answers {
		if Normalize(a) != "" {
			out = append(out, a)
		}
	}
	return out
}

func orNone(truths []string) []string {
	if len(truths) == 0 {
		return []string{""}
	}
	return truths
}
