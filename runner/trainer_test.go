package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
)

// scriptedModel answers each step with the next of its results.
type scriptedModel struct {
	results []StepResult
	hypers  []Hyper
	err     error
}

func (m *scriptedModel) Step(_ context.Context, _ string, h Hyper) (StepResult, error) {
	m.hypers = append(m.hypers, h)
	if m.err != nil {
		return StepResult{}, m.err
	}
	r := m.results[0]
	m.results = m.results[1:]
	return r, nil
}

// listSource gives a list of batches, then err, or io.EOF.
type listSource struct {
	batches []Batch[string]
	err     error
	seeks   []string
}

func (s *listSource) Next(context.Context) (Batch[string], error) {
	if len(s.batches) == 0 {
		if s.err != nil {
			return Batch[string]{}, s.err
		}
		return Batch[string]{}, io.EOF
	}
	b := s.batches[0]
	s.batches = s.batches[1:]
	return b, nil
}

func (s *listSource) Seek(position json.RawMessage) error {
	s.seeks = append(s.seeks, string(position))
	if string(position) == `"bad"` {
		return errors.New("no such place")
	}
	return nil
}

func good(step int64) StepResult {
	return StepResult{Sums: Sums{LossSum: {1}, WeightSum: {2}}, GradientNorm: 3, Step: step, Applied: true}
}

func newTrainer(t *testing.T, model *scriptedModel, source *listSource, change func(*TrainerConfig)) *StandardTrainer[string] {
	t.Helper()
	cfg := TrainerConfig{Schedule: ScheduleConfig{Name: Linear, PeakLearningRate: 1, TotalSteps: 4}, Seed: 42}
	if change != nil {
		change(&cfg)
	}
	tr, err := NewStandardTrainer[string](model, source, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func batches(n int) []Batch[string] {
	b := make([]Batch[string], n)
	for i := range b {
		b[i] = Batch[string]{Payload: fmt.Sprint("batch ", i), Examples: 10, Tokens: 100, Epoch: int64(i / 2), Position: i}
	}
	return b
}

func TestTrainerStepsAndHyperparameters(t *testing.T) {
	model := &scriptedModel{results: []StepResult{good(1), good(2), good(3)}}
	tr := newTrainer(t, model, &listSource{batches: batches(3)}, nil)
	loop, err := tr.Train(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if loop.Steps != 2 || loop.Examples != 20 || loop.Tokens != 200 || tr.Step() != 2 {
		t.Errorf("loop is %+v at step %d", loop, tr.Step())
	}
	if got, want := loop.Outputs.String(), "{'gradient_norm': 3.0, 'learning_rate': 0.75, 'loss': 0.5}"; got != want {
		t.Errorf("outputs are %s, want %s", got, want)
	}
	want := []Hyper{{0, 1, 42, 0}, {1, 0.75, 42, 0}}
	if fmt.Sprint(model.hypers) != fmt.Sprint(want) {
		t.Errorf("hyperparameters are %v, want %v", model.hypers, want)
	}
	loop, err = tr.Train(context.Background(), 5)
	if !errors.Is(err, ErrEndOfData) || loop.Steps != 1 || loop.Outputs["loss"] != 0.5 {
		t.Errorf("at the end of the data: %+v, %v", loop, err)
	}
	loop, err = tr.Train(context.Background(), 5)
	if !errors.Is(err, ErrEndOfData) || loop.Steps != 0 || loop.Outputs != nil {
		t.Errorf("behind the end of the data: %+v, %v", loop, err)
	}
}

func TestTrainerMaxEpochs(t *testing.T) {
	tr := newTrainer(t, &scriptedModel{results: []StepResult{good(1), good(2), good(3)}}, &listSource{batches: batches(4)},
		func(c *TrainerConfig) { c.MaxEpochs = 1 })
	loop, err := tr.Train(context.Background(), 4)
	if !errors.Is(err, ErrEndOfData) || loop.Steps != 2 {
		t.Errorf("one epoch of two batches gave %+v, %v", loop, err)
	}
	state, err := tr.State()
	if err != nil || !strings.Contains(string(state), `"position":1,`) {
		t.Errorf("state %s, %v: want the position of the last batch used", state, err)
	}
}

func TestTrainerErrors(t *testing.T) {
	nan := math.NaN()
	records := func(n int) []Batch[string] {
		b := batches(1)
		b[0].Records = func() []string {
			var r []string
			for i := range n {
				r = append(r, fmt.Sprintf("f:%d", i))
			}
			return r
		}
		return b
	}
	change := func(f func(*StepResult)) *scriptedModel {
		r := good(1)
		f(&r)
		return &scriptedModel{results: []StepResult{r}}
	}
	skip := func(c *TrainerConfig) { c.MaxSkipped = 5 }
	for _, c := range []struct {
		name   string
		model  *scriptedModel
		source *listSource
		cfg    func(*TrainerConfig)
		want   string
	}{
		{"step", &scriptedModel{err: errors.New("out of memory")}, &listSource{batches: records(2)}, nil,
			"step 1 on records f:0, f:1: out of memory"},
		{"step of unknown records", &scriptedModel{err: errors.New("out of memory")}, &listSource{batches: batches(1)}, nil,
			"step 1 on a batch of unknown records: out of memory"},
		{"not counted", change(func(r *StepResult) { r.Step = 0 }), &listSource{batches: batches(1)}, nil,
			"step 1: the graph's counter of updates is 0; expected 1"},
		{"counted without being applied", change(func(r *StepResult) { r.Applied, r.Sums[LossSum][0] = false, nan }), &listSource{batches: batches(1)}, skip,
			"the graph's counter of updates is 1; expected 0"},
		{"no loss", change(func(r *StepResult) { delete(r.Sums, LossSum) }), &listSource{batches: batches(1)}, nil,
			`step 1: output "loss_sum" is missing; the outputs are [weight_sum]`},
		{"no weight", change(func(r *StepResult) { delete(r.Sums, WeightSum) }), &listSource{batches: batches(1)}, nil,
			`step 1: output "weight_sum" is missing; the outputs are [loss_sum]`},
		{"loss", change(func(r *StepResult) { r.Sums[LossSum][0] = nan }), &listSource{batches: records(1)}, nil,
			"step 1: loss is nan on record f:0"},
		{"gradient", change(func(r *StepResult) { r.GradientNorm = math.Inf(1) }), &listSource{batches: records(10)}, nil,
			"step 1: gradient norm is inf on records f:0, f:1, f:2, f:3, f:4, f:5, f:6, f:7 and 2 more"},
		{"declined", change(func(r *StepResult) { r.Applied, r.Step = false, 0 }), &listSource{batches: records(1)}, nil,
			"step 1: the graph did not apply the update on record f:0"},
		{"cannot be skipped", change(func(r *StepResult) { r.Sums[LossSum][0] = nan }), &listSource{batches: records(1)}, skip,
			"the graph applied the update anyway"},
		{"input", &scriptedModel{}, &listSource{err: io.ErrUnexpectedEOF}, nil, "input after step 0: unexpected EOF"},
		{"wrapped end", &scriptedModel{}, &listSource{err: fmt.Errorf("cut off: %w", io.EOF)}, nil, "input after step 0: cut off: EOF"},
		{"metrics", &scriptedModel{results: []StepResult{good(1)}}, &listSource{batches: batches(1)},
			func(c *TrainerConfig) { c.Metrics = func(Sums) (Outputs, error) { return nil, errors.New("no") } }, "metrics of step 1: no"},
		{"metrics at the end", &scriptedModel{results: []StepResult{good(1)}}, &listSource{batches: batches(1)},
			func(c *TrainerConfig) { c.Metrics = func(Sums) (Outputs, error) { return nil, errors.New("no") } }, "metrics of step 1: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := int64(1)
			if c.name == "metrics at the end" {
				steps = 2
			}
			_, err := newTrainer(t, c.model, c.source, c.cfg).Train(context.Background(), steps)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrEndOfData) {
				t.Errorf("error is %v, want %s", err, c.want)
			}
			var input *InputError
			if errors.As(err, &input) != strings.HasPrefix(c.want, "input") {
				t.Errorf("%v is an InputError: %v", err, errors.As(err, &input))
			}
		})
	}
	changed := good(2)
	changed.Sums = Sums{LossSum: {1}, WeightSum: {1}, "confusion": {1}}
	first := good(1)
	first.Sums["confusion"] = []float64{1, 0, 0, 1}
	_, err := newTrainer(t, &scriptedModel{results: []StepResult{first, changed}}, &listSource{batches: batches(2)}, nil).
		Train(context.Background(), 2)
	if err == nil || !strings.Contains(err.Error(), `step 2: output "confusion" has 1 elements; expected 4, as before`) {
		t.Errorf("error is %v", err)
	}
}

// A batch of no weight is no error where the graph copes with it: it adds
// nothing.
func TestTrainerBatchWithoutWeight(t *testing.T) {
	empty := good(1)
	empty.Sums = Sums{LossSum: {0}, WeightSum: {0}}
	tr := newTrainer(t, &scriptedModel{results: []StepResult{empty, good(2)}}, &listSource{batches: batches(2)}, nil)
	loop, err := tr.Train(context.Background(), 2)
	if err != nil || loop.Outputs["loss"] != 0.5 {
		t.Errorf("%+v, %v", loop, err)
	}
}

func TestTrainerRestore(t *testing.T) {
	source := &listSource{batches: batches(9)}
	tr := newTrainer(t, &scriptedModel{results: []StepResult{good(8)}}, source, nil)
	if err := tr.Restore(7, json.RawMessage(`{"position":{"at":3},"epoch":1,"seed":42,"schedule":{"name":"linear","peak_learning_rate":1,"total_steps":4},
		"open_loop":{"steps":1,"sums":{"loss_sum":[9],"weight_sum":[2]},"learning_rate":0.1,"gradient_norm":1}}`), false); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(source.seeks, " "); got != `{"at":3}` {
		t.Errorf("seeks are %s", got)
	}
	loop, err := tr.Train(context.Background(), 1)
	if err != nil || loop.Steps != 1 || loop.Outputs["loss"] != 2.5 {
		t.Errorf("the open loop went on as %+v, %v", loop, err)
	}
	// Back to the beginning, where there is no state.
	if err := tr.Restore(5, nil, false); err != nil || tr.Step() != 5 || source.seeks[1] != "" {
		t.Errorf("without a state: step %d, seeks %q, %v", tr.Step(), source.seeks, err)
	}
	state, err := tr.State()
	if err != nil || strings.Contains(string(state), "open_loop") || strings.Contains(string(state), "position") {
		t.Errorf("state is %s, %v", state, err)
	}
	// The input stays where it is.
	if err := tr.Restore(3, json.RawMessage(`{"position":{"at":1}}`), true); err != nil || len(source.seeks) != 2 {
		t.Errorf("seeks %q, %v", source.seeks, err)
	}
	for _, bad := range []string{`{`, `{"position":"bad"}`, `{"epoch":"one"}`} {
		if err := tr.Restore(3, json.RawMessage(bad), false); err == nil {
			t.Errorf("state %s gave no error", bad)
		}
	}
}

func TestTrainerTellsOfChanges(t *testing.T) {
	var log strings.Builder
	tr := newTrainer(t, &scriptedModel{}, &listSource{}, func(c *TrainerConfig) { c.Out = &log })
	if err := tr.Restore(3, json.RawMessage(`{"seed":1,"schedule":{"name":"constant","peak_learning_rate":2}}`), false); err != nil {
		t.Fatal(err)
	}
	want := "train | step:      3 | the seed was 1 and is now 42\n" +
		"train | step:      3 | the learning-rate schedule was constant(peak=2) and is now linear(peak=1, total_steps=4)\n"
	if log.String() != want {
		t.Errorf("log is\n%swant\n%s", log.String(), want)
	}
}

func TestTrainerWithoutMetrics(t *testing.T) {
	tr := newTrainer(t, &scriptedModel{results: []StepResult{good(1)}}, &listSource{batches: batches(1)},
		func(c *TrainerConfig) { c.Metrics = func(Sums) (Outputs, error) { return nil, nil } })
	loop, err := tr.Train(context.Background(), 1)
	if err != nil || loop.Outputs.String() != "{'gradient_norm': 3.0, 'learning_rate': 1.0}" {
		t.Errorf("%v, %v", loop.Outputs, err)
	}
}

func TestTrainerConfigValidate(t *testing.T) {
	ok := ScheduleConfig{Name: Constant}
	for _, c := range []TrainerConfig{{}, {Schedule: ok, MaxSkipped: -1}, {Schedule: ok, MaxEpochs: -1}} {
		if _, err := NewStandardTrainer[string](&scriptedModel{}, &listSource{}, c); err == nil {
			t.Errorf("%+v gave no error", c)
		}
	}
}

// waitingSource has nothing to give until its context is done.
type waitingSource struct{ listSource }

func (s *waitingSource) Next(ctx context.Context) (Batch[string], error) {
	<-ctx.Done()
	return Batch[string]{}, fmt.Errorf("waiting for a batch: %w", ctx.Err())
}

// A stop does not wait for data that does not come.
func TestTrainerStopsWhileWaitingForData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		tr, err := NewStandardTrainer[string](&scriptedModel{}, &waitingSource{}, TrainerConfig{Schedule: ScheduleConfig{Name: Constant}})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := tr.Train(ctx, 1)
			done <- err
		}()
		synctest.Wait()
		cancel(errors.New("terminated"))
		if err := <-done; !errors.Is(err, ErrStopped) || err.Error() != "stopped: terminated" {
			t.Errorf("error is %v", err)
		}
	})
}

// closingReader counts Close.
type closingReader struct {
	listSource
	closed   int
	closeErr error
}

func (r *closingReader) Close() error {
	r.closed++
	return r.closeErr
}

type evalFunc func(string) (Sums, error)

func (f evalFunc) Evaluate(_ context.Context, b string) (Sums, error) { return f(b) }

func TestEvaluator(t *testing.T) {
	sums := func(string) (Sums, error) { return Sums{LossSum: {1}, WeightSum: {2}}, nil }
	zero := func(string) (Sums, error) { return Sums{LossSum: {0}, WeightSum: {0}}, nil }
	fail := func(string) (Sums, error) { return nil, errors.New("bad feature") }
	bad := batches(1)
	bad[0].Records = func() []string { return []string{"dev:3"} }
	for _, c := range []struct {
		name   string
		model  evalFunc
		reader *closingReader
		steps  int64
		want   string // outputs, or the error
		read   int    // batches left
	}{
		{"all", sums, &closingReader{listSource: listSource{batches: batches(3)}}, UntilEnd, "{'loss': 0.5}", 0},
		{"some", sums, &closingReader{listSource: listSource{batches: batches(3)}}, 2, "{'loss': 0.5}", 1},
		{"more than there are", sums, &closingReader{listSource: listSource{batches: batches(3)}}, 9, "{'loss': 0.5}", 0},
		{"none", sums, &closingReader{}, UntilEnd, "evaluation data has no batches; expected at least one", 0},
		{"no weight", zero, &closingReader{listSource: listSource{batches: batches(3)}}, UntilEnd, "evaluation data has no example with a weight above 0", 0},
		{"model", fail, &closingReader{listSource: listSource{batches: bad}}, UntilEnd, "evaluation batch 1 on record dev:3: bad feature", 0},
		{"data", sums, &closingReader{listSource: listSource{err: errors.New("bad record")}}, UntilEnd, "evaluation data: bad record", 0},
		{"close", sums, &closingReader{listSource: listSource{batches: batches(3)}, closeErr: errors.New("not closed")}, UntilEnd, "not closed", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := NewStandardEvaluator[string](c.model, func(context.Context) (BatchReader[string], error) { return c.reader, nil }, EvaluatorConfig{})
			out, err := e.Evaluate(context.Background(), c.steps)
			got := out.String()
			if err != nil {
				got = err.Error()
			}
			if got != c.want || len(c.reader.batches) != c.read || c.reader.closed != 1 {
				t.Errorf("%s, %d batches left, closed %d times; want %s, %d, once", got, len(c.reader.batches), c.reader.closed, c.want, c.read)
			}
		})
	}
	e := NewStandardEvaluator[string](evalFunc(sums), func(context.Context) (BatchReader[string], error) { return nil, errors.New("no dev set") }, EvaluatorConfig{})
	if _, err := e.Evaluate(context.Background(), UntilEnd); err == nil || err.Error() != "evaluation data: no dev set" {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e = NewStandardEvaluator[string](evalFunc(sums), func(context.Context) (BatchReader[string], error) {
		return &listSource{batches: batches(3)}, nil
	}, EvaluatorConfig{})
	if _, err := e.Evaluate(ctx, UntilEnd); !errors.Is(err, ErrStopped) {
		t.Errorf("error is %v", err)
	}
}

// recorder is an Observer that writes down what it is told.
type recorder struct{ strings.Builder }

func (r *recorder) Begin(phase string, step, total int64) {
	fmt.Fprintf(r, "%s %d/%d(", phase, step, total)
}
func (r *recorder) Step(s StepInfo) { fmt.Fprintf(r, " %d:%v", s.Step, s.Loss) }
func (r *recorder) End()            { fmt.Fprint(r, " )") }

func TestObserver(t *testing.T) {
	var watched recorder
	results := []StepResult{good(1), good(2), good(3)}
	results[1].Sums[LossSum][0] = 3
	tr := newTrainer(t, &scriptedModel{results: results}, &listSource{batches: batches(3)}, func(c *TrainerConfig) { c.Observer = &watched })
	model := func(string) (Sums, error) { return Sums{LossSum: {1}, WeightSum: {2}}, nil }
	e := NewStandardEvaluator[string](evalFunc(model), func(context.Context) (BatchReader[string], error) {
		return &listSource{batches: batches(2)}, nil
	}, EvaluatorConfig{Batches: 2, Observer: &watched})
	c, err := NewController(Config{Trainer: tr, Evaluator: e, StepsPerLoop: 2, Observer: &watched})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.TrainAndEvaluate(context.Background(), 3, UntilEnd, 2); err != nil {
		t.Fatal(err)
	}
	want := "train 0/3( 1:0.5 2:1eval 0/2( 1:0.5 2:0.5 ) 3:0.5eval 0/2( 1:0.5 2:0.5 ) )"
	if watched.String() != want {
		t.Errorf("watched %s, want %s", watched.String(), want)
	}
}
