package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/questions"
	"github.com/gorbit-ml/gorbit/runner"
)

// trained is a run that the tests of this file answer with.
var trained struct {
	sync.Once
	folder string
}

func openTrained(t *testing.T, env Env, settings ...string) *Run {
	t.Helper()
	p := testParams(t)
	trained.Do(func() {
		p.Train.Steps = 1
		folder := filepath.Join(shared.dir, "run")
		if _, err := Train(t.Context(), p, folder, quiet()); err != nil {
			t.Fatal(err)
		}
		trained.folder = folder
	})
	if trained.folder == "" {
		t.Fatal("no run")
	}
	r, err := OpenRun(t.Context(), trained.folder, settings, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := r.Load(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return r
}

// randomExamples have all lengths, in no order.
func randomExamples(n int) []dataset.Example {
	r := rand.New(rand.NewPCG(5, 0))
	out := make([]dataset.Example, n)
	for i := range out {
		ids := make([]int32, 1+r.IntN(rowLength))
		for j := range ids {
			ids[j] = r.Int32N(vocabSize)
		}
		out[i].IDs = ids
	}
	return out
}

// windowsOf gives examples in windows of the given sizes, and then an error if
// there is one.
func windowsOf(examples []dataset.Example, last error, sizes ...int) iter.Seq2[[]dataset.Example, error] {
	return func(yield func([]dataset.Example, error) bool) {
		for _, n := range sizes {
			if !yield(examples[:n], nil) {
				return
			}
			examples = examples[n:]
		}
		if last != nil {
			yield(nil, last)
		}
	}
}

// TestAnswersComeInOrder compares with each example answered on alone.
func TestAnswersComeInOrder(t *testing.T) {
	r := openTrained(t, quiet())
	examples := randomExamples(200)
	want := make([]Prediction, len(examples))
	for i, e := range examples {
		batch, err := dataset.FromExamples(dataset.Config{RowLength: rowLength, Labels: dataset.LabelsNone}, []dataset.Example{e})
		if err != nil {
			t.Fatal(err)
		}
		alone, err := r.predictBatch(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = alone[0]
	}
	var got []Prediction
	keep := func(p Prediction) error { got = append(got, p); return nil }
	if err := r.answer(t.Context(), windowsOf(examples, nil, 1, 120, 7, 72), keep); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d answers on %d examples", len(got), len(want))
	}
	for i := range want {
		for j := range want[i].Logits {
			if math.Abs(got[i].Logits[j]-want[i].Logits[j]) > 1e-5 {
				t.Fatalf("answer %d is %v, alone it is %v", i, got[i], want[i])
			}
		}
	}
}

// TestReplicasAnswerAsOne evaluates and predicts on several replicas, with a last batch
// that is smaller than the others. What one device says of every example, and of all, is
// what they must say.
func TestReplicasAnswerAsOne(t *testing.T) {
	type answers struct {
		outputs     runner.Outputs
		sums        runner.Sums
		batches     []string
		predictions []Prediction
	}
	ask := func(t *testing.T, setting string) (a answers) {
		t.Helper()
		seen := new(steps)
		env := quiet()
		env.Observer = seen
		r := openTrained(t, env, setting, "eval.batch_size=16")
		var err error
		if a.outputs, err = r.Evaluate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		a.batches = seen.all
		open, _, err := (&setup{params: r.Params, export: r.Export, data: &data{dir: r.Params.Data.Dir}, env: quiet()}).evaluations(t.Context(), r.Params.Data.Eval)
		if err != nil {
			t.Fatal(err)
		}
		evaluator := runner.NewStandardEvaluator(NewModel(r.strategy, nil, nil), open, runner.EvaluatorConfig{InFlight: r.strategy.Runtime().InFlight, Metrics: func(s runner.Sums) (runner.Outputs, error) {
			a.sums = s
			return nil, nil
		}})
		if _, err := evaluator.Evaluate(t.Context(), runner.UntilEnd); err != nil {
			t.Fatal(err)
		}
		if err := r.PredictSplit(t.Context(), "train", func(p Prediction) error { a.predictions = append(a.predictions, p); return nil }); err != nil {
			t.Fatal(err)
		}
		return a
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(1, math.Abs(b)) }
	want := ask(t, "strategy.devices=cpu:1")
	if n := len(want.batches); n != 4 || !strings.Contains(want.batches[n-1], ": 2 examples") || len(want.predictions) != 173 {
		t.Fatalf("%d predictions, and evaluated\n%s\nexpected 173, and 3 batches of 16 and one of 2", len(want.predictions), strings.Join(want.batches, "\n"))
	}
	for i, p := range want.predictions[1:] {
		if near(p.Logits[0], want.predictions[i].Logits[0]) {
			t.Fatalf("predictions %d and %d are too much alike to tell their order", i, i+1)
		}
	}
	for name, setting := range map[string]string{
		"3 devices": "strategy.devices=cpu:3",
		"2 workers": "strategy.workers='" + startWorkers(t, "cpu:1", "", "") + "'",
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, setting)
			if !slices.Equal(got.batches, want.batches) {
				t.Errorf("evaluated\n%s\nexpected\n%s", strings.Join(got.batches, "\n"), strings.Join(want.batches, "\n"))
			}
			for name, w := range want.outputs {
				if !near(got.outputs[name], w) {
					t.Errorf("%s is %v, expected %v", name, got.outputs[name], w)
				}
			}
			for name, w := range want.sums {
				if !slices.EqualFunc(got.sums[name], w, near) {
					t.Errorf("the sums of %s are %v, expected %v", name, got.sums[name], w)
				}
			}
			if weight := got.sums[runner.WeightSum]; len(weight) != 1 || weight[0] != 50 {
				t.Errorf("the weights' sum is %v, expected 50", weight)
			}
			if len(got.predictions) != len(want.predictions) {
				t.Fatalf("%d predictions, expected %d", len(got.predictions), len(want.predictions))
			}
			for i, w := range want.predictions {
				if g := got.predictions[i]; g.Label != w.Label || !slices.EqualFunc(g.Logits, w.Logits, near) || !slices.EqualFunc(g.Probabilities, w.Probabilities, near) {
					t.Fatalf("prediction %d is %+v, expected %+v", i, g, w)
				}
			}
		})
	}
}

func TestCutBoundsCalls(t *testing.T) {
	r := openTrained(t, quiet())
	examples := randomExamples(3000)
	calls, err := r.cut(examples)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]bool, len(examples))
	tokens, cells := 0, 0
	for i, c := range calls {
		tokens += c.batch.Tokens
		cells += c.batch.Rows * c.batch.RowLength
		if n := c.batch.Rows * c.batch.RowLength; n > callCells || n < callCells/2 && i < len(calls)-1 {
			t.Errorf("call %d has %d positions, want about %d", i, n, callCells)
		}
		for _, place := range c.places {
			if seen[place] {
				t.Fatalf("example %d is answered on twice", place)
			}
			seen[place] = true
		}
	}
	for i := range seen {
		if !seen[i] {
			t.Fatalf("example %d is not answered on", i)
		}
	}
	if density := float64(tokens) / float64(cells); density < 0.97 {
		t.Errorf("%.3f of the positions hold tokens, want 0.97 or more", density)
	}
}

// TestExamplesLongerThanACall are answered on one by one.
func TestExamplesLongerThanACall(t *testing.T) {
	r := openTrained(t, quiet())
	calls, err := r.cut([]dataset.Example{{IDs: make([]int32, 2*callCells)}, {IDs: make([]int32, 3*callCells)}})
	if err != nil || len(calls) != 2 || calls[0].places[0] != 1 {
		t.Errorf("calls %+v, error %v", calls, err)
	}
}

// TestAnswersEndWithTheError hands over the answers on all that came before.
func TestAnswersEndWithTheError(t *testing.T) {
	r := openTrained(t, quiet())
	examples := randomExamples(30)
	bad := errors.New("a bad line")
	n := 0
	err := r.answer(t.Context(), windowsOf(examples, bad, 10, 15), func(Prediction) error { n++; return nil })
	if !errors.Is(err, bad) || n != 25 {
		t.Errorf("%d answers and error %v, want 25 and %v", n, err, bad)
	}

	full := errors.New("disk full")
	n = 0
	err = r.answer(t.Context(), windowsOf(examples, nil, 10, 10, 10), func(Prediction) error {
		if n++; n == 12 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || n != 12 {
		t.Errorf("%d answers and error %v, want 12 and %v", n, err, full)
	}

	ctx, cancel := context.WithCancel(t.Context())
	hanging := func(yield func([]dataset.Example, error) bool) {
		yield(examples, nil)
		select {} // as standard input may
	}
	err = r.answer(ctx, hanging, func(Prediction) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

func TestUnpack(t *testing.T) {
	examples := randomExamples(40)
	for i := range examples {
		examples[i].TypeIDs = make([]int32, len(examples[i].IDs))
		examples[i].TypeIDs[len(examples[i].IDs)-1] = 1
	}
	batch, err := dataset.FromExamples(dataset.Config{Packing: dataset.PackNone, RowLength: rowLength, Labels: dataset.LabelsNone}, examples)
	if err != nil {
		t.Fatal(err)
	}
	got := unpack(batch)
	if fmt.Sprint(got) != fmt.Sprint(examples) {
		t.Errorf("%v\nwant\n%v", got, examples)
	}
}

// TestWarnsOfPairs warns once, whichever way texts differ from the run's data.
func TestWarnsOfPairs(t *testing.T) {
	for _, test := range []struct {
		column string // of second texts in the run's data
		texts  string
		want   string
	}{
		{"", "a\nb\tc\nd\te\n", "learned from single texts: its answers on pairs mean little\" first=2"},
		{"b", "a\tb\nb\nd\n", "learned from pairs of texts: its answers on single ones mean little\" first=2"},
		{"b", "a\tb\n", ""},
		{"", "a\nb\n", ""},
	} {
		var log bytes.Buffer
		r := &Run{env: Env{Log: slog.New(slog.NewTextHandler(&log, nil))}, Manifest: &convert.Manifest{Columns: convert.Columns{Pair: test.column}}}
		in := questions.NewLines(iotest.OneByteReader(strings.NewReader(test.texts)), "texts", questions.ParseTSV)
		for n := 1; ; n++ {
			e, err := in.Next()
			if err == io.EOF {
				break
			}
			if r.warnOfPair(n, e.Pair != "") {
				break
			}
		}
		if !strings.Contains(log.String(), test.want) || test.want == "" && log.Len() > 0 {
			t.Errorf("%q: log %q, want %q", test.texts, log.String(), test.want)
		}
	}
}
