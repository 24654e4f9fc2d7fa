package scores

// errorsOf counts for a rate of errors: the fewest tokens to replace, add and leave out that make the
// reference a text, and the tokens of the reference.
func errorsOf(tokenize func(string) []string) func(text, reference string) Counts {
	return func(text, reference string) Counts {
		got, want := tokenize(text), tokenize(reference)
		return Counts{float64(distance(got, want)), float64(len(want))}
	}
}

// distance is that of Levenshtein.
func distance(a, b []string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range b {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
