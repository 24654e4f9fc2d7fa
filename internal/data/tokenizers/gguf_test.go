package tokenizers

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

// The ids are those of llama.cpp, with the tokens that it puts before a text. It does not normalize, and
// these texts have nothing to normalize.
func TestGGUF(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "gguf", "ids.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string][]struct {
		Text string
		IDs  []int32
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden) != 4 {
		t.Fatalf("%d tokenizers; expected 4", len(golden))
	}
	for pre, texts := range golden {
		path := filepath.Join("testdata", "gguf", pre+".gguf")
		f, err := Open(path, text.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Name != JSON || f.Path != path || !SaysCase(path) {
			t.Errorf("%s is %s of %s", pre, f.Name, f.Path)
		}
		for _, one := range texts {
			if got := f.Tokenizer.Encode(one.Text, "", 1000).IDs; !slices.Equal(got, one.IDs) {
				t.Errorf("%s: %q is %v; expected %v", pre, one.Text, got, one.IDs)
			}
		}
	}
}

func TestGGUFRefused(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "gguf", "qwen2.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, now, want string }{
		{"\x00gpt2", "\x00bert", `tokenizer.ggml.model is "bert"; expected "gpt2"`},
		{"\x00qwen2", "\x00other", `tokenizer.ggml.pre is "other"; expected one of gpt-2, gpt2, llama-bpe, qwen2, smollm`},
		{"ggml.token_type", "ggml.token_tape", "kinds of them; expected as many of both"},
		{"ggml.bos_token_id", "ggml.bas_token_id", "tokenizer.ggml.bos_token_id is <nil>; expected a token"},
		{"<|begin|>", "<|begin :", "expected a token without spaces"},
		{"<|begin|>", "<|beg\xffn|>", "UTF-8"},
		{"<tool>", "<|end>", ""},
	} {
		changed := strings.Replace(string(data), tt.old, tt.now, 1)
		if changed == string(data) {
			t.Fatalf("%q is not in the file", tt.old)
		}
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path, text.Config{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || fault.Of(Usage(err)) == fault.Failed) {
			t.Errorf("%q for %q: error %v; expected %q", tt.now, tt.old, err, tt.want)
		}
	}
}
