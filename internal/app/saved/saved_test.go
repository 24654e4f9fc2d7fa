package saved

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/app/servable"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// open writes the model of package servable's tests and loads it. It returns the examples of
// TensorFlow's own answers, and these.
func open(t *testing.T, with ...func(*servable.Options)) (m *Model, examples []text.Encoding, want [][]float64) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(testkit.Root(), "internal/app/servable/testdata/golden.py"))
	if err != nil {
		t.Fatal(err)
	}
	dir := testkit.Made(t, string(script))
	var golden struct {
		IDs           [][]int32   `json:"input_ids"`
		Types         [][]int32   `json:"token_type_ids"`
		Mask          [][]int32   `json:"attention_mask"`
		Probabilities [][]float64 `json:"probabilities"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, mask := range golden.Mask {
		var e text.Encoding
		for k, one := range mask {
			if one != 0 {
				e.IDs, e.TypeIDs = append(e.IDs, golden.IDs[i][k]), append(e.TypeIDs, golden.Types[i][k])
			}
		}
		examples = append(examples, e)
	}
	export, err := graphs.Open(filepath.Join(dir, "graph"))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := checkpoint.OpenBundle(filepath.Join(dir, "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	variables := make(map[string]*tf.Tensor)
	for _, v := range export.Contract.Variables {
		values, err := bundle.Read(t.Context(), "root/"+v.Name)
		if err != nil {
			t.Fatal(err)
		}
		variables[v.Name] = values["root/"+v.Name]
	}
	out := filepath.Join(t.TempDir(), "model[1]") // a pattern, for TensorFlow
	o := servable.Options{Export: export, Variables: variables, Vocab: filepath.Join(dir, "vocab.txt"),
		Labels: []string{"bad", "fair", "good"}, Tokenizer: text.Uncased(), MaxLength: 16, Out: out}
	for _, change := range with {
		change(&o)
	}
	if err = servable.Write(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if m, err = Open(out, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, examples, golden.Probabilities
}

// same reports whether two results are equal but for rounding.
func same(got, want predict.Result) bool {
	for k := range want {
		for i, v := range want[k].Data {
			if math.Abs(got[k].Data[i]-v) > 1e-6*max(1, math.Abs(v)) {
				return false
			}
		}
	}
	return len(got) == len(want)
}

// TestAnswersAsTensorFlow compares the answers in packed rows, and in padded ones, with TensorFlow's.
func TestAnswersAsTensorFlow(t *testing.T) {
	m, examples, want := open(t)
	if m.Packed == nil {
		t.Fatal("the model has no signature for packed rows")
	}
	p := slices.IndexFunc(m.Answers, func(a layout.Answer) bool { return a.Name == layout.Probabilities })
	if m.Longest == 0 {
		t.Error("the kernel of attention does not replace its function")
	}
	var graph bytes.Buffer
	if _, err := m.graph.WriteTo(&graph); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"GorbitDensePack", "GorbitDenseBias", "GorbitDenseGelu"} {
		if !bytes.Contains(graph.Bytes(), []byte(name)) {
			t.Errorf("the graph has no %s", name)
		}
	}
	for _, way := range []string{"one row", "short rows", "padded"} {
		switch way {
		case "short rows":
			m.Longest = 0
		case "padded":
			m.Packed = nil
		}
		results, err := m.Predict(t.Context(), examples)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if !same(r[p:p+1], predict.Result{{Data: want[i]}}) {
				t.Errorf("%s: answer %d is %v, expected %v", way, i, r[p].Data, want[i])
			}
		}
	}
}

// TestAnswersLaws holds that an answer does not depend on the other texts of its call.
func TestAnswersLaws(t *testing.T) {
	m, examples, _ := open(t)
	vocab := m.Tokenizer.Vocab().Size()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		var e text.Encoding
		for range 1 + rng.IntN(16) {
			e.IDs, e.TypeIDs = append(e.IDs, rng.Int32N(int32(vocab))), append(e.TypeIDs, rng.Int32N(2))
		}
		examples = append(examples, e)
	}
	alone := make([]predict.Result, len(examples))
	for i, e := range examples {
		r, err := m.Predict(t.Context(), []text.Encoding{e})
		if err != nil {
			t.Fatal(err)
		}
		alone[i] = r[0]
	}
	for range 20 {
		rng.Shuffle(len(examples), func(i, j int) {
			examples[i], examples[j], alone[i], alone[j] = examples[j], examples[i], alone[j], alone[i]
		})
		n := 1 + rng.IntN(len(examples))
		results, err := m.Predict(t.Context(), examples[:n])
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if !same(r, alone[i]) {
				t.Errorf("among %d texts: %v, alone %v", n, r, alone[i])
			}
		}
	}
}

// TestDamaged removes what a model needs.
func TestDamaged(t *testing.T) {
	m, _, _ := open(t)
	for _, name := range []string{layout.VariablesPrefix + ".data-00000-of-00001", layout.VariablesPrefix + ".index", layout.ModelFile} {
		if err := os.Remove(filepath.Join(m.Dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(m.Dir, nil); err == nil || !strings.Contains(err.Error(), m.Dir) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
