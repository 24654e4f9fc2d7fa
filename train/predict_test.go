package train

import (
	"bytes"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/predict"
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
		mustTrain(t, p, folder)
		trained.folder = folder
	})
	if trained.folder == "" {
		t.Fatal("no run")
	}
	return loaded(t, trained.folder, env, settings...)
}

// randomExamples have all lengths, in no order.
func randomExamples(n int) []text.Encoding {
	r := rand.New(rand.NewPCG(5, 0))
	out := make([]text.Encoding, n)
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
func windowsOf(examples []text.Encoding, last error, sizes ...int) iter.Seq2[[]text.Encoding, error] {
	return func(yield func([]text.Encoding, error) bool) {
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
	p, err := r.Predictor(nil)
	if err != nil {
		t.Fatal(err)
	}
	examples := randomExamples(200)
	want := make([]predict.Label, len(examples))
	for i, e := range examples {
		if _, err := p.EachEncoded(t.Context(), windowsOf([]text.Encoding{e}, nil, 1), func(a predict.Answer) error { want[i] = a.(predict.Label); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	var got []predict.Label
	keep := func(p predict.Answer) error { got = append(got, p.(predict.Label)); return nil }
	if _, err := p.EachEncoded(t.Context(), windowsOf(examples, nil, 1, 120, 7, 72), keep); err != nil {
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
		predictions []predict.Label
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
		of, err := (&prepare.Setup{Params: r.Params, Export: r.Export, Data: &prepare.Data{Dir: r.Params.Data.Dir}, Env: quiet().prepare()}).Evaluations(t.Context(), r.Params.Data.Eval.First())
		if err != nil {
			t.Fatal(err)
		}
		evaluator := runner.NewStandardEvaluator(loop.NewModel(r.on.Strategy, nil, nil), of.Open, runner.EvaluatorConfig{InFlight: r.on.Runtime().InFlight, Metrics: func(s runner.Sums) (runner.Outputs, error) {
			a.sums = s
			return nil, nil
		}})
		if _, err := evaluator.Evaluate(t.Context(), runner.UntilEnd); err != nil {
			t.Fatal(err)
		}
		if err := r.PredictSplit(t.Context(), "train", func(p predict.Answer) error { a.predictions = append(a.predictions, p.(predict.Label)); return nil }); err != nil {
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

// TestCallsArePacked makes batches as calls have them, of like lengths.
func TestCallsArePacked(t *testing.T) {
	r := openTrained(t, quiet())
	examples := randomExamples(3000)
	slices.SortStableFunc(examples, func(a, b text.Encoding) int { return len(b.IDs) - len(a.IDs) })
	tokens, cells := 0, 0
	for len(examples) > 0 {
		n := min(len(examples), callCells/len(examples[0].IDs))
		batch, err := predictModel{run: r}.batch(examples[:n])
		if err != nil {
			t.Fatal(err)
		}
		if got := batch.Rows * batch.RowLength; got > callCells || batch.RowLength != len(examples[0].IDs) {
			t.Errorf("%d rows of %d, expected rows of %d and at most %d positions", batch.Rows, batch.RowLength, len(examples[0].IDs), callCells)
		}
		tokens, cells, examples = tokens+batch.Tokens, cells+batch.Rows*batch.RowLength, examples[n:]
	}
	if density := float64(tokens) / float64(cells); density < 0.97 {
		t.Errorf("%.3f of the positions hold tokens, want 0.97 or more", density)
	}
}

// TestLongTextsAreTold cuts texts that are longer than the run takes: their answers are
// marked and their number is logged.
func TestLongTextsAreTold(t *testing.T) {
	var log bytes.Buffer
	env := quiet()
	env.Log = slog.New(slog.NewTextHandler(&log, nil))
	r := openTrained(t, env)
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n"), "vocab")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	words := func(n int) string { return strings.Repeat("a ", n) }
	most := r.MaxLength() - 2
	var cut []bool
	err = r.PredictTexts(t.Context(), tokenizer, &predict.List{Texts: []string{words(most), words(most + 1), "a"}}, func(a predict.Answer) error {
		cut = append(cut, a.Cut())
		return nil
	})
	if err != nil || !slices.Equal(cut, []bool{false, true, false}) {
		t.Errorf("truncated %v, error %v", cut, err)
	}
	if want := fmt.Sprintf("texts=1 of=3 tokens=%d", r.MaxLength()); strings.Count(log.String(), "were cut") != 1 || !strings.Contains(log.String(), want) {
		t.Errorf("log %q, want %s", log.String(), want)
	}
}

// TestTruncateShortensRecords does what data.truncate says: without it a record longer than
// a row is refused, with it its answer is on what fits, and that is told.
func TestTruncateShortensRecords(t *testing.T) {
	var log bytes.Buffer
	env := quiet()
	env.Log = slog.New(slog.NewTextHandler(&log, nil))
	count := func(settings ...string) (answers, cut int, err error) {
		r := openTrained(t, env, settings...)
		err = r.PredictSplit(t.Context(), "train", func(a predict.Answer) error {
			answers++
			if a.Cut() {
				cut++
			}
			return nil
		})
		return answers, cut, err
	}
	if _, _, err := count("data.row_length=4"); err == nil || !strings.Contains(err.Error(), "more than the row length of 4") {
		t.Errorf("without data.truncate: %v", err)
	}
	answers, cut, err := count("data.row_length=4", "data.truncate=true")
	if err != nil || cut == 0 {
		t.Errorf("%d of %d answers on cut records, error %v", cut, answers, err)
	}
	if want := fmt.Sprintf("records=%d of=%d row_length=4", cut, answers); !strings.Contains(log.String(), want) {
		t.Errorf("log %q, want %s", log.String(), want)
	}
}

func TestUnpack(t *testing.T) {
	examples := randomExamples(40)
	for i := range examples {
		examples[i].TypeIDs = make([]int32, len(examples[i].IDs))
		examples[i].TypeIDs[len(examples[i].IDs)-1] = 1
	}
	records := make([]packed.Example, len(examples))
	for i, e := range examples {
		records[i] = packed.Example{IDs: e.IDs, TypeIDs: e.TypeIDs}
	}
	batch, err := packed.FromExamples(packed.Config{Packing: packed.PackNone, RowLength: rowLength, Labels: packed.LabelsNone}, records)
	if err != nil {
		t.Fatal(err)
	}
	got := unpack(batch)
	if fmt.Sprint(got) != fmt.Sprint(examples) {
		t.Errorf("%v\nwant\n%v", got, examples)
	}
}
