package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestMaskedOnTPU pretrains on the emulator of a TPU, whose batches have places for a fixed number of
// masked tokens. Steps, evaluations and answers must be those of as many CPU devices.
func TestMaskedOnTPU(t *testing.T) {
	t.Parallel()
	o := &onTPU{user: newUser(t)}
	t.Cleanup(func() { gone(t, "") })
	graph := filepath.Join(testkit.Made(t, exportTasks), "mlm")
	for name, content := range map[string]string{
		"vocab.txt": strings.ReplaceAll("[PAD] [UNK] [CLS] [SEP] [MASK] good bad film plot ##s ann rome in .\n", " ", "\n"),
		"texts.txt": strings.Repeat("ann in rome . good film . bad plots . films in rome .\n", 60),
	} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o.run("gorbit", "convert", "--task", "mlm", "--vocab", "vocab.txt", "--train", "texts.txt", "--dev", "texts.txt", "--max-length", "16", "--out", "data")
	train := func(run string, more ...string) {
		o.start(t, append([]string{"train", "--graph", graph, "--data", "data", "--run", run, "--batch-size", "8", "--set", "data.rows=8", "--set", "train.batch_warmup=0:3,5:8",
			"--learning-rate", "1e-3", "--schedule", "constant", "--warmup-ratio", "0", "--steps-per-loop", "5", "--eval-interval", "10", "--set", "optimizer.hyperparameters={hidden_dropout: 0, attention_dropout: 0}"}, more...)...).exits(fault.ExitDone)
	}
	_, at := o.emulator(t)
	tpu := []string{"--tpu", "grpc://" + at}
	cpus := []string{"--devices", "cpu:2", "--set", "runtime.kernels=off"}
	train("cpus", append(cpus, "--steps", fmt.Sprint(tpuSteps))...)
	o.want, o.metrics = o.result(t, "cpus")
	train("run", append(tpu, "--steps", fmt.Sprint(tpuSteps), "--steps-per-call", "5")...)
	o.near(t, "run")

	asked := []string{"predict", "--run", "run", "--log-level", "error", "--top-k", "1", "--format", "json", "--text", "ann in [MASK] [MASK] .", "--text", "a film"}
	got, want := o.run("gorbit", append(asked, tpu...)...), o.run("gorbit", asked...)
	if tokens := regexp.MustCompile(`"tokens":\["[^"]*"\]`); len(tokens.FindAllString(want, -1)) != 2 || !slices.Equal(tokens.FindAllString(got, -1), tokens.FindAllString(want, -1)) {
		t.Errorf("answers %s, on CPUs %s", got, want)
	}
	many := o.start(t, append([]string{"predict", "--run", "run", "--text", strings.Repeat("[MASK] ", 14), "--set", "data.rows=2"}, tpu...)...)
	many.exits(fault.ExitFailed)
	if !strings.Contains(many.out.String(), "14 tokens are masked; expected at most") {
		t.Errorf("too many masks: %s", &many.out)
	}
}
