package tokenizers

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
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

// TestWrongFolders checks that what a folder says is done or refused, in one sentence of class Usage.
func TestWrongFolders(t *testing.T) {
	const byteLevel = `{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1, "Ġa": 2}, "merges": ["Ġ a"]}}`
	const prepends = `{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
		"model": {"type": "BPE", "vocab": {"a": 0, "▁": 1, "▁a": 2}, "merges": ["▁ a"]}}`
	const bert = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nA\n"
	_, _, folders := goldens(t)
	models := map[string]golden{}
	for dir, g := range folders {
		models[filepath.Base(dir)] = g
	}
	json := func(name, find, put string) map[string][]byte {
		files := map[string][]byte{}
		for file, content := range models[name].Files {
			files[file] = []byte(strings.ReplaceAll(string(content), find, put))
		}
		return files
	}
	with := func(config string, files map[string][]byte) map[string][]byte {
		files["tokenizer_config.json"] = []byte(config)
		return files
	}
	vocab := func(config string) map[string][]byte {
		return with(config, map[string][]byte{Vocab: []byte(bert)})
	}
	cut := json("t5few", "", "")
	cut["spiece.model"] = cut["spiece.model"][:300]
	both := json("t5few", "", "")
	both[JSON] = []byte(`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}`)
	for i, tt := range []struct {
		files map[string][]byte
		want  string
	}{
		{vocab(`{"do_basic_tokenize": false}`), "do_basic_tokenize is false, which is not done here; expected true"},
		{vocab(`{"odd": 1}`), "odd is 1, and what that changes is not known here; name the file"},
		{vocab(`{"tokenizer_class": "GPT2Tokenizer"}`), "that the tokenizer is a GPT2Tokenizer, whose vocab.txt is not read as BERT's"},
		{vocab(`{"mask_token": "<mask>"}`), `mask_token "<mask>", which vocab.txt has not`},
		{vocab(`{"added_tokens_decoder": {"7": {"content": "a"}}}`), `added_tokens_decoder "a" with the id 7; in vocab.txt it has 5`},
		{vocab(`{"added_tokens_decoder": {"5": {"content": "a", "lstrip": false}}}`), `of token "a" other single_word, lstrip, rstrip or normalized than vocab.txt`},
		{vocab(`{"do_lower_case": "false"}`), `do_lower_case is "false"; expected true or false`},
		{vocab(`{"odd_token": true}`), "odd_token is true; expected a string or an object"},
		{vocab(`{"extra_ids": 1e9}`), "extra_ids is 1e+09; expected a number from 0 to 65536"},
		{map[string][]byte{Vocab: []byte(bert), "added_tokens.json": []byte(`{"<x>": 7}`)}, `added_tokens.json "<x>", which vocab.txt has not`},
		{map[string][]byte{Vocab: []byte(bert), "added_tokens.json": []byte(`{"A": 7}`)}, `added_tokens.json "A" with the id 7; in vocab.txt it has 6`},
		{map[string][]byte{Vocab: []byte(bert), "added_tokens.json": []byte(`{"A": 6}`)}, ""},
		{with(`{"add_prefix_space": false}`, map[string][]byte{JSON: []byte(byteLevel)}), "that add_prefix_space is false, and tokenizer.json does not do so"},
		{with(`{"add_prefix_space": true}`, map[string][]byte{JSON: []byte(byteLevel)}), ""},
		{with(`{"add_prefix_space": true}`, map[string][]byte{JSON: []byte(prepends)}), ""},
		{with(`{"add_prefix_space": true}`, map[string][]byte{JSON: []byte(strings.Replace(byteLevel, "true", "false", 1))}), "that add_prefix_space is true, and"},
		{map[string][]byte{JSON: []byte(byteLevel), Vocab: []byte("a\n\u0120\n\u0120a\n")}, ""}, // it has no [UNK]
		{map[string][]byte{JSON: []byte(byteLevel), Vocab: []byte("\u0120\n\u0120\n\u0120a\n"), "other.model": []byte("PK")}, ""},
		{map[string][]byte{JSON: []byte(byteLevel), Vocab: []byte("a\n\u0120\n\u0120a\na\n")}, "token 3 of"},
		{map[string][]byte{JSON: []byte(byteLevel), Vocab: []byte("\u0120a\na\n")}, "a folder has two tokenizers that differ"},
		{vocab(`[`), "tokenizer_config.json is not a JSON object"},
		{with(`{"tokenizer_class": "BigBirdTokenizer"}`, json("t5few", "", "")), "says BigBirdTokenizer, whose special tokens are not known here; expected albert, xlm-roberta, camembert, deberta-v2, t5, llama, mistral, gemma"},
		{with(`{"tokenizer_class": "LlamaTokenizer"}`, json("t5few", "", "")), "it is not of the type bpe, as those of llama are"},
		{with(`{"tokenizer_class": "T5Tokenizer"}`, json("llama", "", "")), "it is not of the type unigram without pieces for bytes, as those of t5 are"},
		{with(`{"tokenizer_class": "LlamaTokenizer"}`, json("llama", "", "")), "does not say whether texts begin with <s>, and releases of transformers differ in it; expected add_bos_token there, true as a rule"},
		{with(`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": null}`, json("llama", "", "")), "tokenizer_config.json has no bos_token; expected one, such as <s>"},
		{with(`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "eos_token": "<end>"}`, json("llama", "", "")), "it has no piece <end>, as those of llama have"},
		{with(`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "legacy": "no"}`, json("llama", "", "")), `legacy is "no"; expected true or false`},
		{with(`{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "added_tokens_decoder": {"365": {"content": "<new>"}}}`, json("llama", "", "")), `added_tokens_decoder "<new>", which tokenizer.model has not`},
		{with(`{"tokenizer_class": "GemmaTokenizer", "add_bos_token": true}`, json("mistral", "", "")), `says GemmaTokenizer, whose special tokens are not known here`},
		{with(`{"tokenizer_class": "AlbertTokenizer"}`, json("t5few", "", "")), "it has no piece [CLS], as those of albert have"},
		{with(`{"tokenizer_class": "T5Tokenizer", "eos_token": "<end>"}`, json("t5few", "", "")), `that eos_token is "<end>"; expected "</s>"`},
		{json("albertcased_saved", `"do_lower_case": false`, `"do_lower_case": true`), ""}, // its table changes letters
		{json("t5few_saved", `"eos_token": "</s>"`, `"eos_token": "</s>", "add_eos_token": false`), "that add_eos_token is false, and tokenizer.json does not do so"},
		{cut, "it cannot be read as a SentencePiece model"},
		{both, "a folder has two tokenizers that differ"},
		{map[string][]byte{"a.model": []byte("\x08\x01")}, "it has no pieces; expected a SentencePiece model"},
		{map[string][]byte{"readme": nil}, "has no tokenizer; expected a tokenizer.json, a .model of SentencePiece or a vocab.txt in it"},
	} {
		dir := filepath.Join(t.TempDir(), "folder")
		write(t, dir, tt.files)
		_, err := Open(dir, text.Uncased())
		if tt.want == "" && err == nil {
			continue
		}
		if err = Usage(err); err == nil || tt.want == "" || !strings.Contains(err.Error(), tt.want) || fault.Of(err) != fault.Usage {
			t.Errorf("%d: got %v, expected %s", i, err, tt.want)
		}
	}
}

// TestSettings checks that the settings of BERT are applied to a vocab.txt of a folder, and of no file.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{
		Vocab: []byte("[UNK]\n[CLS]\n[SEP]\na\nA\n"), "tokenizer_config.json": []byte(`{"do_lower_case": false, "model_max_length": 64}`),
	})
	for path, want := range map[string]int32{dir: 4, filepath.Join(dir, Vocab): 3} {
		f, err := Open(path, text.Uncased())
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Tokenizer.AppendIDs(nil, "A"); !slices.Equal(got, []int32{want}) || (f.MaxLength == 64) != (want == 4) {
			t.Errorf("%s: got %v and at most %d tokens, expected %d", path, got, f.MaxLength, want)
		}
	}
	if _, err := Open(dir, text.Config{}); err != nil {
		t.Errorf("case is kept: %v", err)
	}
	write(t, dir, map[string][]byte{"tokenizer_config.json": []byte(`{}`)})
	if _, err := Open(dir, text.Config{}); err == nil || !strings.Contains(err.Error(), "case is lowered") {
		t.Errorf("got %v, expected that BERT lowers case", err)
	}
}

// TestLargeFile checks that a file that is too large is refused before it is read.
func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), JSON)
	if err := os.WriteFile(path, []byte(`{"model": {`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Open(path, text.Config{})
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err == nil || fault.Of(err) != fault.Usage || taken > 1<<20 {
		t.Errorf("got %v after %d bytes; expected an error of what is too large", err, taken)
	}
}

// FuzzSettings checks that no settings of a folder do harm to its tokenizer.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"do_lower_case": false, "mask_token": {"content": "[MASK]", "lstrip": true}}`,
		`{"added_tokens_decoder": {"1": {"content": "[UNK]"}, "x": 1}, "model_max_length": 1e30}`,
		`{"tokenizer_class": "T5TokenizerFast", "extra_ids": -1}`, `{"extra_special_tokens": [null], "add_bos_token": true}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{Vocab: []byte("[UNK]\n[CLS]\n[SEP]\na\n"), configFile: data} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		file, err := Open(dir, text.Uncased())
		if err == nil && (file.Tokenizer == nil || file.MaxLength < 0 || len(file.Tokenizer.AppendIDs(nil, "a b")) != 2) {
			t.Fatalf("%q gives %v", data, file)
		}
	})
}
