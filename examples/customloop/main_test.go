package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// trained returns the variables of the last checkpoint, their bytes by name.
func trained(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	m, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: folder, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Restore(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for name, value := range r.Tensors {
		if name == checkpoint.StateVariable || name == checkpoint.CounterVariable {
			continue
		}
		var b bytes.Buffer
		if _, err := value.WriteContentsTo(&b); err != nil {
			t.Fatal(err)
		}
		out[name] = b.Bytes()
	}
	return out
}

// TestLoop trains at once, and in two parts, the second of which continues from the checkpoint of
// the first: both end in the same variables.
func TestLoop(t *testing.T) {
	data := t.TempDir()
	records.Write(t, filepath.Join(data, "train-00000-of-00001.tfrecord"), 1, 200)
	records.Write(t, filepath.Join(data, "dev-00000-of-00001.tfrecord"), 2, 50)
	config := fmt.Sprintf(`{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 64, "vocab_size": %d, "max_position_embeddings": 24}`, records.VocabSize)
	graph := testkit.Export(t, config, "--pooling", "mean")

	var log strings.Builder
	once := options{graph: graph, data: data, out: filepath.Join(t.TempDir(), "once"), steps: 30}
	if err := once.run(t.Context(), &log); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "step 20: {'accuracy': ") || !strings.HasPrefix(lines[1], "step 30: {'accuracy': ") {
		t.Errorf("it said\n%s", &log)
	}

	twice := once
	twice.out = filepath.Join(t.TempDir(), "twice")
	for _, steps := range []int64{13, 30} {
		twice.steps = steps
		if err := twice.run(context.Background(), new(strings.Builder)); err != nil {
			t.Fatal(err)
		}
	}
	want, got := trained(t, once.out), trained(t, twice.out)
	if len(got) != len(want) || len(want) < 39 {
		t.Errorf("%d variables, and %d in one go", len(got), len(want))
	}
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s differs", name)
		}
	}

	initialized := once
	initialized.out, initialized.init, initialized.steps = filepath.Join(t.TempDir(), "initialized"), once.out, 1
	if err := initialized.run(t.Context(), new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(trained(t, initialized.out)["model/classifier/kernel"], want["model/classifier/kernel"]) {
		t.Error("a step from given weights changed nothing")
	}
}

// TestAnyModel trains a model of another kind, which knows no texts, by the same program.
func TestAnyModel(t *testing.T) {
	data := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for _, split := range []string{"train", "dev"} {
		records.WriteFile(t, filepath.Join(data, split+"-00000-of-00001.tfrecord"), 60, func(int) []byte {
			a, b := r.Float32(), r.Float32()
			rained := int64(0)
			if a > b {
				rained = 1
			}
			record, err := tfrecord.AppendExample(nil, tfrecord.FloatFeature("measures", 5+a, b-3),
				tfrecord.Int64Feature("rained", rained), tfrecord.FloatFeature("degrees", a-b))
			if err != nil {
				t.Fatal(err)
			}
			return record
		})
	}
	var log strings.Builder
	o := options{graph: filepath.Join(testkit.Models(t), "weather"), data: data, out: filepath.Join(t.TempDir(), "weather"), steps: 40}
	if err := o.run(t.Context(), &log); err != nil {
		t.Fatal(err)
	}
	var before, after float64
	if n, err := fmt.Sscanf(log.String(), "step 20: {'loss': %g, 'warmth_error': %g}\nstep 40: {'loss': %g, 'warmth_error': %g}\n",
		new(float64), &before, new(float64), &after); n != 4 || err != nil || after >= before {
		t.Errorf("it said\n%s%v; expected a smaller error of warmth at the end", &log, err)
	}
}

// TestLoopIsShort holds the loop to what its length promises.
func TestLoopIsShort(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, loop, _ := strings.Cut(string(source), "func (l *training) run(")
	loop, _, _ = strings.Cut(loop, "\n}\n")
	if lines := strings.Count(loop, "\n") + 1; lines < 10 || lines >= 30 {
		t.Errorf("the loop has %d lines, expected fewer than 30", lines)
	}
}
