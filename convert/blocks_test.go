package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// idsOf returns the ids of the records of a split.
func idsOf(t *testing.T, cfg Config, split string) (all [][]int32) {
	t.Helper()
	return numbersOf(t, cfg, split, InputIDs)
}

// numbersOf returns the numbers of a feature of the records of a split.
func numbersOf(t *testing.T, cfg Config, split, feature string) (all [][]int32) {
	t.Helper()
	eachRecord(t, cfg, split, func(data []byte) {
		features, err := tfrecord.ParseExample(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range features {
			if f.Name == feature {
				ids := make([]int32, len(f.Int64s))
				for i, id := range f.Int64s {
					ids[i] = int32(id)
				}
				all = append(all, ids)
			}
		}
	})
	return all
}

// goldenBlocks are blocks that Hugging Face's programs made.
type goldenBlocks struct {
	Vocab []string
	Text  string
	Cases []struct {
		Documents Documents
		Blocks    Blocks
		Length    int
		IDs       [][]int32
	}
}

func readBlocks(t *testing.T) (golden goldenBlocks) {
	t.Helper()
	content, err := os.ReadFile("testdata/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	return golden
}

// Blocks are those of Hugging Face's group_texts, and of the windows of its tokenizers, whatever is a
// document, in files of lines and in tables.
func TestBlocksOfReference(t *testing.T) {
	golden := readBlocks(t)
	var table strings.Builder
	for _, line := range strings.Split(golden.Text, "\n") {
		fmt.Fprintf(&table, "{\"t\":%q}\n", line)
	}
	dir := write(t, map[string]string{"x.txt": golden.Text, "x.jsonl": table.String()})
	put(t, filepath.Join(dir, "vocab.txt"), strings.Join(golden.Vocab, "\n")+"\n")
	if len(golden.Cases) != 12 {
		t.Fatalf("%d cases; expected 12", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		for _, file := range []struct{ name, column string }{{"x.txt", ""}, {"x.jsonl", "t"}} {
			cfg := in(dir, Config{
				Task: "mlm", MaxLength: c.Length, Documents: c.Documents, Blocks: c.Blocks, TextColumn: file.column, Overwrite: true,
				Tokenizer: text.Uncased(), Inputs: []Input{{Train, file.name}}, Workers: 2,
			})
			if cfg.Documents == "texts" {
				cfg.Documents = EachText
			}
			m := mustRun(t, cfg)
			if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, c.IDs) {
				t.Errorf("%s, %s, %s, %d: got %v, expected %v", file.name, c.Documents, c.Blocks, c.Length, got, c.IDs)
			}
			if m.Blocks != c.Blocks || cmp.Or(m.Documents, "texts") != c.Documents {
				t.Errorf("the manifest has documents %q, blocks %q", m.Documents, m.Blocks)
			}
		}
	}
}

// A document ends with its file, and a [SEP] is between documents, not between their lines.
func TestDocumentsOfFiles(t *testing.T) {
	dir := write(t, map[string]string{"x.txt": "a b\nc\n\n \nd\n", "y.txt": "e\na\n"})
	cfg := in(dir, Config{Task: "mlm", MaxLength: 10, Documents: BlankLines, Inputs: []Input{{Train, "x.txt"}, {Train, "y.txt"}}})
	mustRun(t, cfg)
	if got, want := fmt.Sprint(lines(t, cfg, Train)), "[a b c | d | e a]"; got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
}

// A maximum length of which special tokens leave nothing is refused.
func TestLengthOfSpecials(t *testing.T) {
	special := func(id string) string { return `{"SpecialToken": {"id": "` + id + `", "type_id": 0}}` }
	frame := strings.Repeat(special("<s>")+", ", 2) + `{"Sequence": {"id": "A", "type_id": 0}}, ` + special("<s>")
	dir := write(t, map[string]string{"x.txt": "a a\n", "t.json": `{"added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "<mask>", "special": true}],
		"post_processor": {"type": "TemplateProcessing", "single": [` + frame + `], "pair": [` + frame + `, {"Sequence": {"id": "B", "type_id": 0}}],
		"special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}, "pre_tokenizer": {"type": "WhitespaceSplit"},
		"model": {"type": "WordPiece", "unk_token": "<s>", "vocab": {"a": 0, "<s>": 1, "<mask>": 2}, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}}`})
	for _, blocks := range []Blocks{JoinDocuments, KeepDocuments, GroupDocuments} {
		cfg := in(dir, Config{Task: "mlm", MaxLength: 3, Blocks: blocks, Vocab: "t.json", Overwrite: true, Inputs: []Input{{Train, "x.txt"}}})
		cfg.Vocab = filepath.Join(dir, "t.json")
		_, err := Run(t.Context(), cfg, quiet)
		if want := "the maximum length is 3, and the tokenizer"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "expected at least 4") {
			t.Errorf("%q: got %v, expected %s", blocks, err, want)
		}
		cfg.MaxLength = 4
		mustRun(t, cfg)
	}
}

func TestBlockSettings(t *testing.T) {
	for want, cfg := range map[string]Config{
		`documents are "pages"; expected texts, blank-lines or headings`: {Task: "mlm", Documents: "pages"},
		`blocks are "cut"; expected join, keep or group`:                 {Task: "mlm", Blocks: "cut"},
		"which would be torn apart":                                      {Task: "mlm", Documents: Headings, SplitByHash: "text"},
		"documents or blocks is given; it is only for tasks mlm and lm":  {TextColumn: "t", Documents: Headings},
		"documents or blocks is given; it is only for tasks mlm":         {TextColumn: "t", Blocks: KeepDocuments},
		"blocks are group, which is for task mlm; expected join":         {Task: "lm", Blocks: GroupDocuments},
	} {
		cfg.Inputs = []Input{{Train, "x.txt"}}
		cfg = in(t.TempDir(), cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}
