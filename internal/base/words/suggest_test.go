package words

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"columns", "column", "kind", "Petal_Length", "learning-rate", "warmup-ratio", "warmup-steps", "a"}
	for word, want := range map[string]string{
		"colums":        "; did you mean columns?",
		"colmun":        "; did you mean column?",
		"COLUMN":        "; did you mean column?",
		"petal_lenght":  "; did you mean Petal_Length?",
		"knd":           "; did you mean kind?",
		"learing-rate":  "; did you mean learning-rate?",
		"learning_rate": "; did you mean learning-rate?",
		"learn":         "", // not by its beginning
		"laerning-rt":   "", // three letters
		"laerning-rte":  "; did you mean learning-rate?",
		"warmup":        "",
		"le":            "",
		"shape":         "",
		"A":             "; did you mean a?",
		"":              "",
		"é":             "",
		"xyz":           "",
	} {
		if got := DidYouMean(word, names); got != want {
			t.Errorf("%q: %q, expected %q", word, got, want)
		}
	}
}

func TestOneOf(t *testing.T) {
	for _, tt := range []struct {
		word  string
		names []string
		want  string
	}{
		{"lineer", []string{"constant", "linear", "cosine"}, "expected constant, linear or cosine; did you mean linear?"},
		{"yes", []string{"on", "off"}, "expected on or off"},
		{"x", []string{"y"}, "expected y"},
	} {
		if got := OneOf(tt.word, tt.names); got != tt.want {
			t.Errorf("%q: %q, expected %q", tt.word, got, tt.want)
		}
	}
}
