package tokenizers

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text"
)

// golden is what transformers gives for a folder; see testdata/gen_goldens.py.
type golden struct {
	Files      map[string][]byte
	IDs, Pairs [][]int32
	Types      [][]int32
	Offsets    [][][2]int
	Size       int
}

// readGolden reads a file of goldens.
func readGolden(t *testing.T, name string, to any) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(z).Decode(to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// goldens returns the goldens, by the folders that it writes.
func goldens(t *testing.T) (texts []string, pairs [][2]string, folders map[string]golden) {
	var all struct {
		Texts   []string
		Pairs   [][2]string
		Folders map[string]golden
	}
	readGolden(t, "goldens.json.gz", &all)
	folders = map[string]golden{}
	for name, g := range all.Folders {
		dir := filepath.Join(t.TempDir(), name)
		write(t, dir, g.Files)
		folders[dir] = g
	}
	return all.Texts, all.Pairs, folders
}

func write(t *testing.T, dir string, files map[string][]byte) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFamilies compares the ids and offsets of folders of SentencePiece models with those of transformers.
func TestFamilies(t *testing.T) {
	texts, pairs, folders := goldens(t)
	for dir, g := range folders {
		f, err := Open(dir, text.Config{})
		if err != nil {
			t.Error(err)
			continue
		}
		name := filepath.Base(dir)
		if f.Name != JSON || f.Tokenizer.Vocab().Size() != g.Size {
			t.Errorf("%s: %s of %d tokens; expected %s of %d", name, f.Name, f.Tokenizer.Vocab().Size(), JSON, g.Size)
		}
		for i, s := range texts {
			if got := f.Tokenizer.Encode(s, "", 0).IDs; !slices.Equal(got, g.IDs[i]) {
				t.Errorf("%s: %q: got %v, expected %v", name, s, got, g.IDs[i])
			}
			tokens, _ := f.Tokenizer.AppendTokens(nil, s, 1<<20)
			before := len(f.Tokenizer.Template().Single.Before)
			for k, token := range tokens {
				got := [2]int{utf8.RuneCountInString(s[:token.Start]), utf8.RuneCountInString(s[:token.End])}
				if want := g.Offsets[i][before+k]; got != want {
					t.Errorf("%s: %q: token %d is of %v, expected %v", name, s, k, got, want)
				}
			}
		}
		for i, p := range pairs {
			got := f.Tokenizer.Encode(p[0], p[1], 0)
			if !slices.Equal(got.IDs, g.Pairs[i]) || g.Types[i] != nil && !slices.Equal(got.TypeIDs, g.Types[i]) {
				t.Errorf("%s: %q: got %v %v, expected %v %v", name, p, got.IDs, got.TypeIDs, g.Pairs[i], g.Types[i])
			}
		}
	}
}
