package train

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/params"
)

// childGenerates, set in the environment of a process that trains, makes it kill itself when it generates texts
// for an evaluation, so many milliseconds after it began to.
const childGenerates = "GORBIT_TEST_KILL_GENERATING"

// killGenerating kills the process while it generates.
func killGenerating(after time.Duration) {
	stacks := make([]byte, 1<<20)
	for {
		if strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "generated.Continuations.Generate(") {
			time.Sleep(after)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// generatingParams is a run of a small Llama or an encoder-decoder model, of data that are converted, whose
// evaluations generate texts.
func generatingParams(t *testing.T, task string) params.Params {
	t.Helper()
	dir := t.TempDir()
	kind, _, _ := strings.Cut(task, "-")
	// The models' sizes, and the numbers of their special tokens.
	special, letters := "[PAD] [UNK] [CLS] [SEP] [MASK]", "a b c d e f g h i j k l m n o"
	switch task {
	case "lm":
		letters += " p q r s t u v w x y"
	case "seq2seq-t5":
		special = "[PAD] [SEP] [CLS] [UNK] [MASK]"
	case "seq2seq-bart":
		special = "[CLS] [PAD] [SEP] [UNK] [MASK]"
	}
	writeFile(t, filepath.Join(dir, "vocab.txt"), strings.ReplaceAll(special+" "+letters, " ", "\n")+"\n")
	rows := "x\ty\n"
	for i := range 64 {
		first, second := string(rune('a'+i%7)), string(rune('a'+i/7%7))
		rows += fmt.Sprintf("%s %s\t%s %s%s\n", first, second, second, first, strings.Repeat(" "+first, i%3))
	}
	writeFile(t, filepath.Join(dir, "x.tsv"), rows)
	p := params.Defaults()
	p.Graph, p.Data.Dir = filepath.Join(testkit.Made(t, textTasks), task), filepath.Join(dir, "data")
	c := convert.Config{Task: kind, Inputs: []convert.Input{{Split: convert.Train, Path: filepath.Join(dir, "x.tsv")}, {Split: convert.Dev, Path: filepath.Join(dir, "x.tsv")}},
		Out: p.Data.Dir, Vocab: filepath.Join(dir, "vocab.txt"), Tokenizer: text.Uncased(), MaxLength: 16, Shards: 1}
	if kind == "lm" {
		c.TextColumn, c.PairColumn = "x", "y"
	} else {
		c.SourceColumn, c.TargetColumn, c.MaxTargetLength = "x", "y", 16
	}
	if _, err := convert.Run(t.Context(), c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	p.Train.BatchSize, p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval = 8, 120, 2, 12
	p.Checkpoint.Interval, p.Checkpoint.MaxToKeep, p.Optimizer.LearningRate, p.Data.RowLength = 6, 2, 1e-2, 16
	p.Eval.Generate.Metrics, p.Eval.Generate.Examples, p.Eval.Generate.MaxNewTokens = "bleu_none,wer", 20, 6
	return p
}

// TestGeneratingRunsKilled kills runs of models that generate, at checkpoints and while their evaluations
// generate. They end as another one, bit for bit.
func TestGeneratingRunsKilled(t *testing.T) {
	long(t)
	for _, task := range []string{"lm", "seq2seq-t5", "seq2seq-bart"} {
		t.Run(task, func(t *testing.T) {
			p := generatingParams(t, task)
			if task == "seq2seq-bart" {
				p.Eval.Generate.NumBeams = 3
			}
			k := newKiller(t, p)
			t.Run("at checkpoints", func(t *testing.T) {
				k.endsAsAnother(t, func(files []string, kills int) bool { return len(files) > 2*kills })
			})
			t.Run("while generating", func(t *testing.T) {
				run := filepath.Join(t.TempDir(), "run")
				for kills := range 3 {
					cmd := k.child(t, run)
					cmd.Env = append(cmd.Env, childGenerates+"="+strconv.Itoa(7*kills))
					if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
						t.Fatalf("the run was not killed while it generates: %v: %s", err, cmd.Stderr)
					}
				}
				if cmd := k.child(t, run); cmd.Run() != nil {
					t.Fatalf("the run failed: %s", cmd.Stderr)
				}
				sameRuns(t, run, k.whole)
			})
		})
	}
}
