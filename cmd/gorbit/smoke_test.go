package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// user runs the installed programs in a folder, as a user does.
type user struct {
	t   *testing.T
	dir string
	bin string
}

// newUser returns a user with an empty folder. The programs are built once.
func newUser(t *testing.T) *user {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the built programs")
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return &user{t: t, dir: t.TempDir(), bin: bin}
}

// build builds the programs and returns their folder, which TestMain removes.
var build = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binaries+string(filepath.Separator), "./cmd/gorbit", "./cmd/gorbit-predict")
	cmd.Dir = testkit.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binaries, nil
})

func (u *user) command(program string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(program) {
		program = filepath.Join(u.bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = u.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TF_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "CI=true", "CUDA_VISIBLE_DEVICES=-1")
	return cmd
}

// run runs a program to its end and returns what it wrote to standard output.
func (u *user) run(program string, args ...string) string {
	u.t.Helper()
	cmd := u.command(program, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &stderr, time.Second
	if err := cmd.Run(); err != nil {
		u.t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, &out, &stderr)
	}
	if strings.Contains(stderr.String(), "tensorflow/") {
		u.t.Errorf("%s %s: TensorFlow's log is on standard error:\n%s", program, args[0], &stderr)
	}
	return out.String()
}

// runAndKill starts a program and kills it with SIGKILL as soon as a file exists.
func (u *user) runAndKill(file, program string, args ...string) {
	u.t.Helper()
	cmd := u.command(program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			u.t.Fatalf("%s %s ended (%v) before it was killed:\n%s", program, args[0], err, &output)
		case <-time.After(time.Millisecond):
		}
		if _, err := os.Stat(filepath.Join(u.dir, file)); err == nil {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		u.t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != -1 {
		u.t.Fatalf("%s %s was not killed: %v", program, args[0], err)
	}
}

// write writes reviews that a small model learns in a few steps, and a vocabulary.
func (u *user) write(records int) (vocabSize int) {
	u.t.Helper()
	good, bad := strings.Fields("good great fine gripping lovely"), strings.Fields("bad awful dull boring poor")
	fill := strings.Fields("the a film plot cast story was is and it with some music . ,")
	vocab := append(append(append(strings.Fields("[PAD] [UNK] [CLS] [SEP]"), fill...), good...), bad...)
	rng := rand.New(rand.NewPCG(1, 2))
	var rows strings.Builder
	for i := range records {
		words := make([]string, 4+rng.IntN(12))
		for j := range words {
			words[j] = fill[rng.IntN(len(fill))]
		}
		set, label := good, "good"
		if i%2 == 1 {
			set, label = bad, "bad"
		}
		words[rng.IntN(len(words))] = set[rng.IntN(len(set))]
		fmt.Fprintf(&rows, "%d\t%s\t%s\n", i, label, strings.Join(words, " "))
	}
	for name, content := range map[string]string{
		"vocab.txt":   strings.Join(vocab, "\n") + "\n",
		"reviews.tsv": "id\tlabel\ttext\n" + rows.String(),
	} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o666); err != nil {
			u.t.Fatal(err)
		}
	}
	return len(vocab)
}

// losses returns the training losses of a log, in order.
func losses(t *testing.T, log string) []float64 {
	t.Helper()
	var out []float64
	for _, m := range regexp.MustCompile(`(?m)^ *train \| step: .*'loss': ([0-9.e+-]+)`).FindAllStringSubmatch(log, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// state returns the tensors of a run's checkpoint, without those that name folders or count saves,
// and the lines of its metrics.
func (u *user) state(run string, step int) (tensors map[string]string, metrics string) {
	u.t.Helper()
	tensors, metrics, err := stateOf(filepath.Join(u.dir, run), step)
	if err != nil {
		u.t.Fatal(err)
	}
	return tensors, metrics
}

// stateOf returns what user.state does of a run's folder.
func stateOf(run string, step int) (tensors map[string]string, metrics string, err error) {
	bundle, err := checkpoint.OpenBundle(filepath.Join(run, "checkpoints", fmt.Sprintf("ckpt-%d", step)))
	if err != nil {
		return nil, "", err
	}
	values, err := bundle.Read(context.Background())
	if err != nil {
		return nil, "", err
	}
	tensors = make(map[string]string)
	for name, value := range values {
		if strings.HasPrefix(name, "runner_state") || strings.HasPrefix(name, "save_counter") || name == checkpoint.ObjectGraphKey {
			continue
		}
		var content bytes.Buffer
		if _, err := value.WriteContentsTo(&content); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		tensors[name] = content.String()
	}
	data, err := os.ReadFile(filepath.Join(run, "metrics.jsonl"))
	return tensors, string(data), err
}

type prediction struct {
	Label         string
	Probabilities []float64
}

func predictions(t *testing.T, lines string) []prediction {
	t.Helper()
	var out []prediction
	for line := range strings.Lines(lines) {
		var p prediction
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, p)
	}
	return out
}

// TestSmoke runs the whole workflow with the tiny configuration: convert, export the graph, train,
// kill and resume, evaluate, predict, export the model, and classify with gorbit-predict.
func TestSmoke(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	vocabSize := u.write(400)
	u.run("gorbit", "convert", "--vocab", "vocab.txt", "--train", "reviews.tsv", "--text-column", "text",
		"--label-column", "label", "--labels", "bad,good", "--split-by-hash", "id", "--max-length", "24", "--out", "data")
	graph := testkit.Export(t, "tiny", "--vocab-size", fmt.Sprint(vocabSize), "--pooling", "mean")

	const steps = 60
	train := func(run string) []string {
		return []string{"train", "--graph", graph, "--data", "data", "--run", run, "--steps", fmt.Sprint(steps),
			"--batch-size", "16", "--learning-rate", "1e-3", "--steps-per-loop", "5", "--checkpoint-interval", "10", "--eval-interval", "20"}
	}
	log := u.run("gorbit", train("whole")...)
	falling := losses(t, log)
	if len(falling) != steps/5 {
		t.Fatalf("%d losses in the log, want %d:\n%s", len(falling), steps/5, log)
	}
	if first, last := falling[0], falling[len(falling)-1]; !(last < first/2) {
		t.Errorf("the loss went from %v to %v in %d steps", first, last, steps)
	}

	u.runAndKill("killed/checkpoints/ckpt-20.index", "gorbit", train("killed")...)
	resumed := u.run("gorbit", train("killed")...)
	if !strings.Contains(resumed, "restored from checkpoint: ") {
		t.Errorf("the run did not continue from a checkpoint:\n%s", resumed)
	}
	wantTensors, wantMetrics := u.state("whole", steps)
	if len(wantTensors) < 3*30 {
		t.Errorf("%d tensors, want three a variable", len(wantTensors))
	}
	u.alike(t, "killed", steps, wantTensors, wantMetrics)

	var evaluation struct{ Outputs map[string]float64 }
	if err := json.Unmarshal([]byte(u.run("gorbit", "evaluate", "--run", "killed", "--json")), &evaluation); err != nil {
		t.Fatal(err)
	}
	if accuracy := evaluation.Outputs["accuracy"]; accuracy < 0.95 {
		t.Errorf("accuracy is %v; expected 0.95 or more", accuracy)
	}

	u.run("gorbit", "export", "--run", "killed", "--out", "served")
	texts := []string{"--format", "json", "--text", "the story was great", "--text", "it is a dull film, and it was awful .", "--text", "unseen"}
	direct := predictions(t, u.run("gorbit", append([]string{"predict", "--run", "killed"}, texts...)...))
	served := predictions(t, u.run("gorbit-predict", append([]string{"--model", "served"}, texts...)...))
	if len(direct) != 3 || len(served) != 3 {
		t.Fatalf("%d and %d answers, want 3", len(direct), len(served))
	}
	if direct[0].Label != "good" || direct[1].Label != "bad" {
		t.Errorf("the answers are %v", direct)
	}
	for i := range direct {
		if served[i].Label != direct[i].Label {
			t.Errorf("answer %d is %s, served %s", i, direct[i].Label, served[i].Label)
		}
		for j, p := range direct[i].Probabilities {
			if math.Abs(served[i].Probabilities[j]-p) > 1e-5 {
				t.Errorf("answer %d: probabilities %v, served %v", i, direct[i].Probabilities, served[i].Probabilities)
			}
		}
	}
}

// TestSmokeEmbed kills a training whose loss compares the examples of a batch, and resumes it: bit for bit.
func TestSmokeEmbed(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	var rows strings.Builder
	words := strings.Fields("good bad film plot ann rome in .")
	rng := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		a, b := words[rng.IntN(len(words))], words[rng.IntN(len(words))]
		fmt.Fprintf(&rows, "%s %s\t%s %s %s\n", a, b, b, a, words[rng.IntN(len(words))])
	}
	if err := os.WriteFile(filepath.Join(u.dir, "pairs.tsv"), []byte("a\tb\n"+rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	graphs := testkit.Made(t, exportTasks)
	u.run("gorbit", "convert", "--task", "embed", "--vocab", filepath.Join(graphs, "data-mlm/vocab.txt"), "--train", "pairs.tsv", "--dev", "pairs.tsv",
		"--text-column", "a", "--pair-column", "b", "--max-length", "8", "--out", "data")
	const steps = 40
	train := func(run string) []string {
		return []string{"train", "--graph", filepath.Join(graphs, "embed"), "--data", "data", "--run", run, "--steps", fmt.Sprint(steps),
			"--batch-size", "16", "--learning-rate", "1e-3", "--steps-per-loop", "5", "--checkpoint-interval", "10", "--eval-interval", "20"}
	}
	u.run("gorbit", train("whole")...)
	u.runAndKill("killed/checkpoints/ckpt-10.index", "gorbit", train("killed")...)
	if resumed := u.run("gorbit", train("killed")...); !strings.Contains(resumed, "restored from checkpoint: ") {
		t.Errorf("the run did not continue from a checkpoint:\n%s", resumed)
	}
	tensors, metrics := u.state("whole", steps)
	if !strings.Contains(metrics, "ndcg_10") {
		t.Errorf("no evaluation has ndcg_10: %s", metrics)
	}
	u.alike(t, "killed", steps, tensors, metrics)
}
