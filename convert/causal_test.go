package convert

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// Blocks of a causal language model are those of group_texts, which run_clm.py has as well, of what the
// tokenizer makes of each document. What cannot be learned from, a last block of one token, is left out.
func TestCausalBlocksOfReference(t *testing.T) {
	golden := readBlocks(t)
	dir := write(t, map[string]string{"x.txt": golden.Text})
	put(t, filepath.Join(dir, "vocab.txt"), joined(golden.Vocab))
	cases := 0
	for _, c := range golden.Cases {
		if c.Blocks != GroupDocuments {
			continue
		}
		cases++
		cfg := in(dir, Config{
			Task: "lm", MaxLength: c.Length, Documents: c.Documents, Overwrite: true,
			Tokenizer: text.Uncased(), Inputs: []Input{{Train, "x.txt"}}, Workers: 2,
		})
		if cfg.Documents == "texts" {
			cfg.Documents = EachText
		}
		mustRun(t, cfg)
		want := slices.DeleteFunc(slices.Clone(c.IDs), func(ids []int32) bool { return len(ids) < 2 })
		if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %d: got %v, expected %v", c.Documents, c.Length, got, want)
		}
	}
	if cases == 0 {
		t.Errorf("%d cases", cases)
	}
}

func joined(lines []string) (out string) {
	for _, line := range lines {
		out += line + "\n"
	}
	return out
}

// A document ends with the tokenizer's end-of-text token where texts do not end with one, begins as its
// texts do, and is cut by itself if it is to be kept.
func TestCausalDocuments(t *testing.T) {
	dir := write(t, map[string]string{"x.txt": "the girl is fast\nit\n"})
	for _, name := range []string{"gpt2.json", "llama3.json"} {
		path := filepath.Join("..", "text", "tokenizerjson", "testdata", name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tokenizer, err := tokenizerjson.Parse(content, path)
		if err != nil {
			t.Fatal(err)
		}
		var documents [][]int32
		for _, line := range []string{"the girl is fast", "it"} {
			var ids []int32
			for _, s := range tokenizer.Template().Single.Before {
				ids = append(ids, s.ID)
			}
			documents = append(documents, append(tokenizer.AppendIDs(ids, line), tokenizer.Roles().Sep))
		}
		const length = 5
		cut := func(ids []int32) (out [][]int32) {
			for part := range slices.Chunk(ids, length) {
				if len(part) > 1 {
					out = append(out, part)
				}
			}
			return out
		}
		for blocks, want := range map[Blocks][][]int32{
			JoinDocuments: cut(slices.Concat(documents...)),
			KeepDocuments: append(cut(documents[0]), cut(documents[1])...),
		} {
			cfg := in(dir, Config{Task: "lm", MaxLength: length, Blocks: blocks, Overwrite: true, Inputs: []Input{{Train, "x.txt"}}})
			cfg.Vocab = path
			mustRun(t, cfg)
			if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, blocks %q: got %v, expected %v", name, blocks, got, want)
			}
		}
		if want := map[string]bool{"gpt2.json": false, "llama3.json": true}[name]; want != (len(tokenizer.Template().Single.Before) > 0) {
			t.Errorf("%s: texts begin with a token: %t", name, !want)
		}
	}
}
