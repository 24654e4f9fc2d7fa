package train

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// TestLora trains adapters: the encoder stays as the export has it, and the kernels of the exported
// model have the adapters in them.
func TestLora(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Graph = testkit.Export(t, bertConfig, "--lora-rank", "3", "--lora-alpha", "6", "--lora-targets", "query,feed_forward")
	p.Train.Steps, p.Optimizer.LearningRate, p.Checkpoint.Interval = 8, 0.01, 4
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	// The model without adapters has slots that these checkpoints lack.
	plain := p
	plain.Graph, plain.Train.Steps = testkit.Export(t, bertConfig, "--pooling", "first"), 12
	if _, err := trainFrom(t, plain, run, from("6")); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "not a checkpoint of this model") {
		t.Errorf("going back with another graph: %v", err)
	}
	if prepare.Exists(filepath.Join(run, runfolder.SetAside)) {
		t.Error("a refused command changed the run")
	}
	sameFrozenFile(t, filepath.Join(run, runfolder.Checkpoints))
	r := loaded(t, run, quiet())
	values, err := r.Variables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := checkpoint.OpenBundle(filepath.Join(p.Graph, "variables", "variables"))
	if err != nil {
		t.Fatal(err)
	}
	merged := make(map[string]bool)
	for _, name := range r.Export.Contract.Merge {
		merged[name] = true
	}
	if len(merged) != 2 {
		t.Errorf("merged are %v, expected two kernels of the layer", r.Export.Contract.Merge)
	}
	for _, s := range r.Export.Contract.States {
		initial, err := bundle.Read(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := flatten(t, initial[s.Name])
		if merged[s.Name] {
			layer := strings.TrimSuffix(s.Name, "kernel")
			down, up := values[layer+"lora_down"], values[layer+"lora_up"]
			added := addProduct(want, flatten(t, down), flatten(t, up), 3, 6.0/3)
			if added < 1e-4 {
				t.Errorf("%s: the adapter adds at most %v", s.Name, added)
			}
		}
		for i, v := range flatten(t, values[s.Name]) {
			if math.Abs(float64(v-want[i])) > 1e-6 {
				t.Errorf("%s[%d] is %v, expected %v", s.Name, i, v, want[i])
				break
			}
		}
	}
}

// TestAdaptersNotTaken says so where initial weights have adapters that the graph lacks, and nothing
// where only their slots are left over.
func TestAdaptersNotTaken(t *testing.T) {
	for name, want := range map[string]bool{
		"model/encoder/layers/0/attention/query/lora_down/.ATTRIBUTES/VARIABLE_VALUE":             true,
		"base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight":                true,
		"optimizer/m/model/encoder/layers/0/attention/query/lora_down/.ATTRIBUTES/VARIABLE_VALUE": false,
		"model/classifier/kernel/.ATTRIBUTES/VARIABLE_VALUE":                                      false,
	} {
		var out strings.Builder
		report := &checkpoint.LoadReport{Unused: []checkpoint.Entry{{Name: name}}}
		if err := loop.ReportInit(report, filepath.Join(t.TempDir(), runfolder.Init), &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "the source has adapters (LoRA), which the graph lacks"); got != want {
			t.Errorf("%s: printed %s", name, &out)
		}
	}
}

// sameFrozenFile fails unless a folder has several checkpoints whose frozen variables are one file.
func sameFrozenFile(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "ckpt-*.data-00001-of-00002"))
	if err != nil || len(files) < 2 {
		t.Fatalf("files of frozen variables are %q, %v", files, err)
	}
	var first os.FileInfo
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
		}
		changing, err := os.Stat(strings.Replace(file, "00001-of", "00000-of", 1))
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(first, info) || changing.Size() >= info.Size() {
			t.Errorf("%s: %d bytes change, %d are frozen, in a file of its own: %v", file, changing.Size(), info.Size(), !os.SameFile(first, info))
		}
	}
}

// addProduct adds scale times down [n, rank] times up [rank, m] to kernel [n, m], and returns the
// largest number that it added.
func addProduct(kernel, down, up []float32, rank int, scale float32) float64 {
	largest, columns := 0.0, len(up)/rank
	for i := range len(down) / rank {
		for j := range columns {
			sum := float32(0)
			for k := range rank {
				sum += down[i*rank+k] * up[k*columns+j]
			}
			kernel[i*columns+j] += scale * sum
			largest = max(largest, math.Abs(float64(scale*sum)))
		}
	}
	return largest
}

// flatten returns the numbers of a float32 tensor.
func flatten(t *testing.T, value *tf.Tensor) []float32 {
	t.Helper()
	n := int64(1)
	for _, d := range value.Shape() {
		n *= d
	}
	if err := value.Reshape([]int64{n}); err != nil {
		t.Fatal(err)
	}
	return value.Value().([]float32)
}
