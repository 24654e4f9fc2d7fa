package tokenizers

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/text"
)

// tasks are windows and words as transformers has them; see testdata/gen_tasks.py.
type tasks struct {
	Contexts, Questions []string
	Sentences           [][]string
	Tokenizers          map[string]struct {
		Rooms   []int
		Windows [][]json.RawMessage
		Tagged  [][2][]int32
	}
}

func readTasks(t *testing.T) (all tasks) {
	readGolden(t, "tasks.json.gz", &all)
	return all
}

func tokenizerOf(t *testing.T, name string) *text.Tokenizer {
	f, err := Open(filepath.Join("../../../text/tokenizerjson/testdata", name+".json"), text.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return f.Tokenizer
}

// TestWindows compares the windows of questions with return_overflowing_tokens of transformers, and the
// characters of their tokens with its offset mapping.
func TestWindows(t *testing.T) {
	all := readTasks(t)
	for name, want := range all.Tokenizers {
		tok, n := tokenizerOf(t, name), 0
		for _, q := range all.Questions {
			for _, c := range all.Contexts {
				for _, room := range want.Rooms {
					question := tok.AppendIDs(nil, q)
					pair := tok.Template().Pair
					got := qa.Windows(tok, question, qa.Tokenize(tok, c, math.MaxInt), len(question)+pair.Specials()+room, room/3)
					compare(t, tok, name+", "+c, got, want.Windows[n])
					n++
				}
			}
		}
	}
}

func compare(t *testing.T, tok *text.Tokenizer, what string, got []qa.Window, want []json.RawMessage) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%q: %d windows, expected %d", what, len(got), len(want))
		return
	}
	for i, w := range got {
		var ids, types []int32
		var offsets [][2]int32
		if err := json.Unmarshal(want[i], &[]any{&ids, &types, &offsets}); err != nil {
			t.Fatal(err)
		}
		// In windows after the first, the library leaves the types that it had before the template.
		usesTypes := i == 0 || tok.Template().Pair.TypeB == 1
		if !slices.Equal(w.IDs, ids) || usesTypes && !slices.Equal(w.Types, types) {
			t.Errorf("%q: got %v %v, expected %v %v", what, w.IDs, w.Types, ids, types)
			continue
		}
		if tok.ByWords() {
			continue // the words of a vocab.txt
		}
		for k, o := range offsets {
			if [2]int32{w.Starts[k], w.Ends[k]} != o {
				t.Errorf("%q: token %d is of characters %d to %d, expected %v", what, k, w.Starts[k], w.Ends[k], o)
			}
		}
	}
}

// TestWords compares the tokens of words with word_ids of transformers.
func TestWords(t *testing.T) {
	all := readTasks(t)
	for name, want := range all.Tokenizers {
		tok := tokenizerOf(t, name)
		for i, words := range all.Sentences {
			ids, ends := tok.EncodeWords(nil, nil, words, math.MaxInt)
			frame := tok.Template().Single
			of := slices.Repeat([]int32{-1}, len(frame.Before))
			for word, end := range ends {
				for len(of) < end {
					of = append(of, int32(word))
				}
			}
			of = append(of, slices.Repeat([]int32{-1}, len(frame.After))...)
			if w := want.Tagged[i]; !slices.Equal(ids, w[0]) || !slices.Equal(of, w[1]) {
				t.Errorf("%s, %q: got\n%v %v, expected\n%v %v", name, words, ids, of, w[0], w[1])
			}
		}
	}
}
