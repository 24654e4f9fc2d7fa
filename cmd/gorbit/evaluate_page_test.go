package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// TestEvaluatePage runs the commands of docs/guide/evaluate.md on a small run, and compares what they
// print with the page, numbers aside. Then it runs what is refused.
func TestEvaluatePage(t *testing.T) {
	t.Parallel()
	const page = "docs/guide/evaluate.md"
	u := newUser(t)
	words := strings.Fields("[PAD] [UNK] [CLS] [SEP] [MASK] good bad the film is not and plot ##s")
	for len(words) < 40 { // those of exportSmall
		words = append(words, fmt.Sprint("w", len(words)))
	}
	labelled, plain := "text\tlabel\n", "text\n"
	for i := range 24 {
		text := []string{"The film is good and w20", "the plot is bad"}[i%2] + fmt.Sprint(" w", 20+i%15)
		labelled += text + "\t" + []string{"positive", "negative"}[i%2] + "\n"
		plain += text + "\n"
	}
	for name, content := range map[string]string{"vocab.txt": strings.Join(words, "\n") + "\n", "train.tsv": labelled, "test.tsv": plain} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	u.run("gorbit", "convert", "--vocab", "vocab.txt", "--train", "train.tsv", "--dev", "train.tsv", "--text-column", "text", "--label-column", "label",
		"--max-length", "16", "--out", "data")
	u.run("gorbit", "convert", "--vocab", "vocab.txt", "--test", "test.tsv", "--text-column", "text", "--max-length", "16", "--out", "unlabelled")
	u.run("gorbit", "train", "--graph", exportSmall(t), "--data", "data", "--run", "runs/reviews", "--steps", "10", "--batch-size", "8",
		"--eval-interval", "-2", "--learning-rate", "1e-3")
	turns := transcript(t, page)
	if len(turns) < 3 {
		t.Fatalf("%s has %d commands behind a prompt; expected 3 or more", page, len(turns))
	}
	bash := func(command string) (out, stderr string, code int) {
		cmd := u.command("/bin/bash", "-c", "set -o pipefail; "+command)
		cmd.Env = append(cmd.Env, "PATH="+u.bin+":"+os.Getenv("PATH"), "TF_CPP_MIN_LOG_LEVEL=2")
		var b, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &b, &e
		_ = cmd.Run() // the code says it
		return b.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	for _, turn := range turns {
		out, stderr, code := bash(turn.command)
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", turn.command, code, out, stderr)
		}
		printed := map[string]bool{}
		for line := range strings.Lines(out) {
			printed[aside(line)] = true
		}
		for _, line := range turn.output {
			if line != "..." && !printed[aside(line)] {
				t.Errorf("%s does not print\n%s\nbut\n%s", turn.command, line, out)
			}
		}
	}
	kept, err := evaluation.List(filepath.Join(u.dir, "runs/reviews"))
	if err != nil || len(kept) != 1 || len(kept[0].Worst) != 3 || !strings.HasPrefix(kept[0].Worst[0].Source(), "train.tsv:") {
		t.Errorf("the run has the evaluations %v, %v; expected one, with 3 rows of train.tsv", kept, err)
	}
	const evaluate = "gorbit evaluate --run runs/reviews "
	for _, c := range []struct {
		flags string
		code  int
		want  string
	}{
		{"--worst 0 --json", 0, `{"outputs":{"accuracy":`},
		{"--worst 1000", 0, "train.tsv:25"},
		{"--worst 24", 0, "  The film is good and w20 w"},
		{"--worst 24 --sources data", 0, "  the film is good and w20 w"},
		{"--sources data", fault.ExitUsage, "--sources is given without --worst or --predictions"},
		{"--worst -1", fault.ExitUsage, "--worst is -1; expected 0 or more"},
		{"--predictions dev.jsonl", fault.ExitUsage, "dev.jsonl already exists; choose another name, or add --overwrite to replace it"},
		{"--predictions none/dev.jsonl", fault.ExitUsage, "there is no folder none; create it with mkdir -p none"},
		{"--predictions dev.jsonl.gz && gzip -dc dev.jsonl.gz | cmp - dev.jsonl && echo the same", 0, "the same\n"},
		{"--overwrite", fault.ExitUsage, "--overwrite is given without --predictions"},
		{"--follow --worst 3", fault.ExitUsage, "leave out --predictions and --worst"},
		{"--set data.dir=unlabelled --split test --worst 3", fault.ExitUsage, "24 of the 24 examples of split test have no label"},
	} {
		out, stderr, code := bash(evaluate + c.flags)
		if code != c.code || !strings.Contains(out+stderr, c.want) {
			t.Errorf("%s: exit code %d, expected %d and %q\n%s%s", c.flags, code, c.code, c.want, out, stderr)
		}
	}
}
