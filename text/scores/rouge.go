package scores

import "strings"

// rougeOf counts for ROUGE: the F-measure of each pair, and the pairs. f compares the tokens of the reference
// with those of the text; lines has those of each line apart. stem, if not nil, shortens words.
func rougeOf(lines bool, stem func(string) string, f func(want, got [][]string) float64) func(text, reference string) Counts {
	tokens := func(text string) [][]string {
		parts := []string{text}
		if lines {
			parts = strings.Split(text, "\n")
		}
		out := make([][]string, 0, len(parts))
		for _, part := range parts {
			out = append(out, rougeTokens(part, stem))
		}
		return out
	}
	return func(text, reference string) Counts { return Counts{f(tokens(reference), tokens(text)), 1} }
}

// rougeTokens returns the runs of Latin letters and digits of a text, in lower case.
func rougeTokens(text string, stem func(string) string) []string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			b.WriteRune(r)
		case 'A' <= r && r <= 'Z':
			b.WriteRune(r - 'A' + 'a')
		case r == '\u212a': // the sign of Kelvin, whose lower case is a Latin letter
			b.WriteByte('k')
		case r == '\u0130': // I with a dot, whose lower case is a Latin letter and a dot
			b.WriteString("i ")
		default:
			b.WriteByte(' ')
		}
	}
	words := strings.Fields(b.String())
	if stem != nil {
		for i, w := range words {
			if len(w) > 3 {
				words[i] = stem(w)
			}
		}
	}
	return words
}

// fMeasure returns that of hits among expected and given tokens.
func fMeasure(hits, want, got int) float64 {
	if hits == 0 {
		return 0
	}
	precision, recall := float64(hits)/float64(got), float64(hits)/float64(want)
	return 2 * precision * recall / (precision + recall)
}

func rougeN(n int) func(want, got [][]string) float64 {
	return func(want, got [][]string) float64 {
		return fMeasure(common(ngrams(want[0], n), ngrams(got[0], n)), len(want[0])-n+1, len(got[0])-n+1)
	}
}

func rougeL(want, got [][]string) float64 {
	return fMeasure(len(longest(want[0], got[0])), len(want[0]), len(got[0]))
}

// rougeLsum joins, for each line of the reference, what it has in common with the lines of the text. No token
// counts more often than both have it.
func rougeLsum(want, got [][]string) float64 {
	left, leftWanted := make(map[string]int), make(map[string]int)
	wanted, given, hits := 0, 0, 0
	for _, line := range want {
		wanted += len(line)
		for _, w := range line {
			leftWanted[w]++
		}
	}
	for _, line := range got {
		given += len(line)
		for _, w := range line {
			left[w]++
		}
	}
	for _, line := range want {
		in := make([]bool, len(line))
		for _, other := range got {
			for _, i := range longest(line, other) {
				in[i] = true
			}
		}
		for i, w := range line {
			if in[i] && left[w] > 0 && leftWanted[w] > 0 {
				hits++
				left[w]--
				leftWanted[w]--
			}
		}
	}
	return fMeasure(hits, wanted, given)
}

// longest returns the places in a of one of its longest common subsequences with b.
func longest(a, b []string) []int {
	width := len(b) + 1
	length := make([]int32, (len(a)+1)*width) // of the first tokens of both
	for i := range a {
		for j := range b {
			at := (i+1)*width + j + 1
			if a[i] == b[j] {
				length[at] = length[at-width-1] + 1
			} else {
				length[at] = max(length[at-1], length[at-width])
			}
		}
	}
	places := make([]int, length[len(length)-1])
	for i, j, n := len(a), len(b), len(places); n > 0; {
		switch {
		case a[i-1] == b[j-1]:
			i, j, n = i-1, j-1, n-1
			places[n] = i
		case length[i*width+j-1] > length[(i-1)*width+j]:
			j--
		default:
			i--
		}
	}
	return places
}
