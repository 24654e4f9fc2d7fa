package train

import (
	"testing"

	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/text"
)

// TestDecoded checks that the texts of records come apart again, whether types or tokens divide them.
func TestDecoded(t *testing.T) {
	for _, name := range []string{"roberta", "t5", "albert"} {
		f, err := tokenizers.Open("../text/tokenizerjson/testdata/"+name+".json", text.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range [][2]string{{"the cat", "in a mat"}, {"the cat", ""}} {
			e := f.Tokenizer.Encode(want[0], want[1], 0)
			if a, b := decoded(f.Tokenizer, e.IDs, e.TypeIDs); a != want[0] || b != want[1] {
				t.Errorf("%s: got %q and %q, expected %q", name, a, b, want)
			}
		}
	}
}
