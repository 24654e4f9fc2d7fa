package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestPredict trains a run for a step, and asks the program that is built from here.
func TestPredict(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log := slog.New(slog.DiscardHandler)
	words := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film"}
	data := filepath.Join(dir, "data")
	_, err := convert.Run(t.Context(), convert.Config{
		Vocab: put("vocab.txt", strings.Join(words, "\n")+"\n"), Tokenizer: text.Uncased(), Out: data,
		TextColumn: "text", LabelColumn: "label",
		Inputs: []convert.Input{{Split: convert.Train, Path: put("x.tsv", "text\tlabel\n"+strings.Repeat("good film\tfresh\nbad film\trotten\n", 20))}},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	p := params.Defaults()
	p.Graph = testkit.Export(t, fmt.Sprintf(`{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 64, "vocab_size": %d, "max_position_embeddings": 24}`, len(words)), "--pooling", "mean")
	p.Data.Dir, p.Data.RowLength = data, 16
	p.Train.Steps, p.Train.BatchSize, p.Train.EvalInterval = 1, 8, -2
	run := filepath.Join(dir, "run")
	if _, err := train.Train(t.Context(), p, run, train.Env{Out: os.Stderr, Log: log}); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "predict")
	if out, err := testkit.Command(t, "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := testkit.Command(t, binary, run, "A good film", "bad").Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, asked := range []string{"A good film", "bad"} {
		if !regexp.MustCompile(`^(fresh|rotten) \([0-9.]+ %\)\t` + asked + `$`).MatchString(lines[i]) {
			t.Errorf("the answer on %q is %q", asked, lines[i])
		}
	}
}
