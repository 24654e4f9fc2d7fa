package predict

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
)

// TestCheckPairs warns once, whichever way texts differ from those of the training, and changes no
// text.
func TestCheckPairs(t *testing.T) {
	for _, test := range []struct {
		pairs bool // whether the model was trained on pairs
		texts string
		want  string
	}{
		{false, "a\nb\tc\nd\te\n", "2: the model was trained on single texts; its answers for pairs are unreliable"},
		{true, "a\tb\nb\nd\n", "2: the model was trained on pairs of texts; its answers for single texts are unreliable"},
		{true, "a\tb\n", ""},
		{false, "a\nb\n", ""},
	} {
		var warnings []string
		in := CheckPairs(NewLines(strings.NewReader(test.texts), "texts", ParseTSV), test.pairs, func(number int, message string) {
			warnings = append(warnings, fmt.Sprintf("%d: %s", number, message))
		})
		if got, want := all(t, in), all(t, NewLines(strings.NewReader(test.texts), "texts", ParseTSV)); !slices.Equal(got, want) {
			t.Errorf("%q: texts %v, want %v", test.texts, got, want)
		}
		if got := strings.Join(warnings, "; "); got != test.want {
			t.Errorf("%q: warned %q, want %q", test.texts, got, test.want)
		}
	}
}

func all(t *testing.T, in Source) (out []text.Pair) {
	t.Helper()
	for {
		e, err := in.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}
