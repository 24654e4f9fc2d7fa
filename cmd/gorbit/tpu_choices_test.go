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

// TestChoicesOnTPU trains a model of choices, of which an example has several sequences, on the emulator of a
// TPU. Steps, evaluations and answers must be those of as many CPU devices. The gradient of the classifier's bias
// is nothing but rounding, which a smaller epsilon of AdamW would make large.
func TestChoicesOnTPU(t *testing.T) {
	t.Parallel()
	o := &onTPU{user: newUser(t)}
	t.Cleanup(func() { gone(t, "") })
	graph := filepath.Join(testkit.Made(t, exportTasks), "choices")
	rows := "context,stem,a,b,c,right\n"
	for i, text := range []string{"good film", "bad film", "ann in rome .", "plots ."} {
		for right := range 3 {
			choices := []string{"plot", "rome", "bad"}
			choices[right] = "good"
			rows += fmt.Sprintf("%s,in%s,%s,%d\n", text, strings.Repeat(" film", i), strings.Join(choices, ","), right)
		}
	}
	for name, content := range map[string]string{
		"vocab.txt": strings.ReplaceAll("[PAD] [UNK] [CLS] [SEP] [MASK] good bad film plot ##s ann rome in .\n", " ", "\n"),
		"rows.csv":  rows,
	} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o.run("gorbit", "convert", "--task", "choices", "--vocab", "vocab.txt", "--train", "rows.csv", "--dev", "rows.csv", "--text-column", "context", "--pair-column", "stem",
		"--choice-columns", "a,b,c", "--label-column", "right", "--max-length", "12", "--out", "data")
	train := func(run string, more ...string) {
		o.start(t, append([]string{"train", "--graph", graph, "--data", "data", "--run", run, "--batch-size", "8", "--set", "data.rows=8",
			"--learning-rate", "1e-3", "--schedule", "constant", "--warmup-ratio", "0", "--steps-per-loop", "5", "--eval-interval", "10",
			"--set", "optimizer.hyperparameters={hidden_dropout: 0, attention_dropout: 0, classifier_dropout: 0, epsilon: 0.001}"}, more...)...).exits(fault.ExitDone)
	}
	_, at := o.emulator(t)
	tpu := []string{"--tpu", "grpc://" + at}
	train("cpus", "--devices", "cpu:2", "--set", "runtime.kernels=off", "--steps", fmt.Sprint(tpuSteps))
	o.want, o.metrics = o.result(t, "cpus")
	train("run", append(tpu, "--steps", fmt.Sprint(tpuSteps), "--steps-per-call", "5")...)
	o.near(t, "run")

	asked := []string{"predict", "--run", "run", "--log-level", "error", "--file", "rows.csv", "--format", "json"}
	got, want := o.run("gorbit", append(asked, tpu...)...), o.run("gorbit", asked...)
	if chosen := regexp.MustCompile(`"choice":"[^"]*"`); len(chosen.FindAllString(want, -1)) != 12 || !slices.Equal(chosen.FindAllString(got, -1), chosen.FindAllString(want, -1)) {
		t.Errorf("answers %s, on CPUs %s", got, want)
	}
	for _, asked := range [][]string{{"predict", "--split", "dev"}, {"evaluate", "--predictions", "p.jsonl"}} {
		split := o.start(t, append(append(asked, "--run", "run"), tpu...)...)
		split.exits(fault.ExitUsage)
		if !strings.Contains(split.out.String(), "the choices of the records of a split are not answered on a TPU; leave out --tpu") {
			t.Errorf("%s: %s", asked, &split.out)
		}
	}
}
