package table

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"columns", "column", "kind", "Petal_Length", "a"}
	for word, want := range map[string]string{
		"colums":       `; did you mean "columns"?`,
		"colmun":       `; did you mean "column"?`,
		"COLUMN":       `; did you mean "column"?`,
		"petal_lenght": `; did you mean "Petal_Length"?`,
		"knd":          `; did you mean "kind"?`,
		"shape":        "",
		"A":            `; did you mean "a"?`,
		"":             "",
		"é":            "",
		"xyz":          "",
	} {
		if got := DidYouMean(word, names); got != want {
			t.Errorf("%q: %q, expected %q", word, got, want)
		}
	}
}
