package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// prompted is a user with data of prompts and answers.
func prompted(t *testing.T) *user {
	t.Helper()
	u := newUser(t)
	for name, content := range map[string]string{
		"vocab.txt": strings.ReplaceAll("[PAD] [UNK] [CLS] [SEP] [MASK] good bad film plot ##s ann rome in .\n", " ", "\n"),
		"pairs.tsv": "a\tb\n" + strings.Repeat("ann good\tfilm\nrome bad\tplot\nrome good\tfilm\nann bad\tplot\n", 8),
	} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	u.run("gorbit", "convert", "--task", "lm", "--vocab", "vocab.txt", "--train", "pairs.tsv", "--dev", "pairs.tsv", "--text-column", "a", "--pair-column", "b", "--max-length", "12", "--out", "data")
	return u
}

// TestKilledWhileGenerating kills a command that continues the texts of a file. What it wrote has no name then,
// and the same command writes all answers.
func TestKilledWhileGenerating(t *testing.T) {
	t.Parallel()
	u := prompted(t)
	u.run("gorbit", "train", "--graph", filepath.Join(testkit.Made(t, exportTasks), "lm"), "--data", "data", "--run", "run", "--steps", "1", "--batch-size", "4", "--eval-interval", "-2")
	in := filepath.Join(u.dir, "in.txt")
	if err := syscall.Mkfifo(in, 0o600); err != nil {
		t.Fatal(err)
	}
	ask := []string{"predict", "--run", "run", "--file", "in.txt", "--out", "out.jsonl", "--max-new-tokens", "3"}
	killed := u.start(t, ask...)
	w, err := os.OpenFile(in, os.O_WRONLY, 0) // once it is opened for reading
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// This is more than a pipe and a reader hold: once it is written, most texts are answered.
	line := strings.Repeat("ann good ", 12) + "\n"
	if _, err := io.WriteString(w, strings.Repeat(line, 3000)); err != nil {
		t.Fatal(err)
	}
	killed.Process.Kill()
	killed.wait()
	left := func() []string {
		all, err := os.ReadDir(u.dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range all {
			if strings.Contains(e.Name(), "out") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if names := left(); slices.Contains(names, "out.jsonl") {
		t.Errorf("a command that was killed left %v; expected no out.jsonl", names)
	}
	if err := os.Remove(in); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in, []byte(strings.Repeat(line, 50)), 0o666); err != nil {
		t.Fatal(err)
	}
	u.run("gorbit", ask...)
	out, err := os.ReadFile(filepath.Join(u.dir, "out.jsonl"))
	if err != nil || strings.Count(string(out), "\n") != 50 {
		t.Errorf("%d answers, %v; expected 50", strings.Count(string(out), "\n"), err)
	}
	if names := left(); len(names) != 1 {
		t.Errorf("there are %v; expected out.jsonl alone", names)
	}
}

// TestCausalOnTPU trains a causal language model on the emulator of a TPU, to the numbers of as many CPU devices.
// Texts are continued elsewhere.
func TestCausalOnTPU(t *testing.T) {
	t.Parallel()
	o := &onTPU{user: prompted(t)}
	t.Cleanup(func() { gone(t, "") })
	graph := filepath.Join(testkit.Made(t, exportTasks), "lm")
	train := func(run string, more ...string) *running {
		return o.start(t, append([]string{"train", "--graph", graph, "--data", "data", "--run", run, "--batch-size", "8", "--set", "data.rows=8", "--learning-rate", "1e-3",
			"--schedule", "constant", "--warmup-ratio", "0", "--steps-per-loop", "5", "--eval-interval", "10", "--set", "optimizer.hyperparameters={hidden_dropout: 0, attention_dropout: 0}"}, more...)...)
	}
	_, at := o.emulator(t)
	tpu := []string{"--tpu", "grpc://" + at}
	train("cpus", "--devices", "cpu:2", "--set", "runtime.kernels=off", "--steps", fmt.Sprint(tpuSteps)).exits(fault.ExitDone)
	o.want, o.metrics = o.result(t, "cpus")
	train("run", append(tpu, "--steps", fmt.Sprint(tpuSteps), "--steps-per-call", "5")...).exits(fault.ExitDone)
	o.near(t, "run")

	for _, refused := range []struct {
		r    *running
		want string
	}{
		{train("no", append(tpu, "--steps", "2", "--set", "eval.generate.metrics=wer")...), "eval.generate.metrics is set, which is not for a TPU; leave it out"},
		{o.start(t, append([]string{"predict", "--run", "run", "--text", "ann"}, tpu...)...), "texts are not continued on a TPU; leave out --tpu"},
	} {
		refused.r.exits(fault.ExitUsage)
		if !strings.Contains(refused.r.out.String(), refused.want) {
			t.Errorf("said %s; expected %s", &refused.r.out, refused.want)
		}
	}
	if got := o.run("gorbit", "predict", "--run", "run", "--text", "ann", "--max-new-tokens", "2"); got == "" {
		t.Error("a run of a TPU continues no text on CPUs")
	}
}
