package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// fillCase is a text with masks, and the most probable tokens of each by transformers' pipeline
// fill-mask.
type fillCase struct {
	Text   string
	Tokens [][]string
	Scores [][]float64
}

// TestFillMask puts the tokens in place of masks that transformers does, by byte pair encodings and by
// Unigram, whatever stands before the mask, and says in a sentence where there is none, or where a text is
// too long to reach it.
func TestFillMask(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs commands in processes of their own")
	}
	goldens := filepath.Join(testkit.Root(), "tools/tests/goldens")
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(goldens, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	var cases map[string][]fillCase
	if err := json.Unmarshal(read("fill/cases.json"), &cases); err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	for name, content := range map[string][]byte{
		"release/model.safetensors": read("families/roberta-mlm.safetensors"), "release/config.json": read("families/roberta-mlm.json"), "texts.txt": []byte("good bad\nbad good\n"),
		"bpe/tokenizer.json": read("fill/bpe.json"), "unigram/tokenizer.json": read("fill/unigram.json"),
	} {
		path := filepath.Join(u.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	graph := testkit.Made(t, fmt.Sprintf("import sys\nfrom gorbit_export.__main__ import main\nmain(%q.split() + ['--out', sys.argv[1] + '/mlm'])",
		"bert --task mlm --config "+filepath.Join(goldens, "families/roberta-mlm.json")+" --tokenizer "+filepath.Join(goldens, "fill/bpe.json")))
	for _, kind := range []string{"bpe", "unigram"} {
		u.run("gorbit", "convert", "--task", "mlm", "--tokenizer", kind, "--train", "texts.txt", "--dev", "texts.txt", "--max-length", "16", "--out", "data-"+kind)
		run := "run-" + kind
		u.run("gorbit", "train", "--graph", filepath.Join(graph, "mlm"), "--data", "data-"+kind, "--init", "release", "--strict", "--run", run, "--steps", "1", "--batch-size", "1",
			"--learning-rate", "1e-30", "--set", "optimizer.weight_decay=0", "--eval-interval", "-2")
		asked := []string{"predict", "--run", run, "--log-level", "error", "--format", "json"}
		for _, c := range cases[kind] {
			asked = append(asked, "--text", c.Text)
		}
		lines := json.NewDecoder(strings.NewReader(u.run("gorbit", asked...)))
		for _, c := range cases[kind] {
			var got struct {
				Masks []struct {
					Tokens []string
					Scores []float64
				}
			}
			if err := lines.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if len(got.Masks) != len(c.Scores) {
				t.Fatalf("%s, %q: %d masks, expected %d", kind, c.Text, len(got.Masks), len(c.Scores))
			}
			for i, m := range got.Masks {
				if !slices.EqualFunc(m.Scores, c.Scores[i], func(a, b float64) bool { return math.Abs(a-b) < 1e-5 }) {
					t.Errorf("%s, %q: scores %v, expected %v", kind, c.Text, m.Scores, c.Scores[i])
				}
				if !slices.Equal(m.Tokens, c.Tokens[i]) {
					t.Errorf("%s, %q: tokens %q, expected %q", kind, c.Text, m.Tokens, c.Tokens[i])
				}
			}
		}
		without := u.run("gorbit", "predict", "--run", run, "--log-level", "error", "--text", "good bad", "--text", strings.Repeat("good ", 20)+"<mask>")
		if without != "no <mask>\nno <mask>, truncated\n" {
			t.Errorf("without a mask, and a long text: %s", without)
		}
	}
}
