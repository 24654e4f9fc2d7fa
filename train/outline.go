package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Outline is what a training has to do, before it is known how long that takes.
type Outline struct {
	// Steps is the number of steps of the whole run, and Done is how many of them the folder's newest
	// checkpoint has.
	Steps         int64 `json:"run_steps"`
	Done          int64 `json:"done_steps"`
	StepsPerEpoch int64 `json:"steps_per_epoch"`
	// Examples is the number of examples of an epoch, and MeanTokens that of the tokens of an example
	// of packed rows, its target included; 0 if it is not known, or if the batches are the same size anyway.
	Examples   int64   `json:"examples"`
	MeanTokens float64 `json:"mean_tokens"`
	// EvalExamples and EvalBatches are those of an evaluation.
	EvalExamples int64 `json:"eval_examples"`
	EvalBatches  int64 `json:"eval_batches"`
	// Evaluations and Saves are what is left to do of them.
	Evaluations  int64  `json:"evaluations"`
	Saves        int64  `json:"saves"`
	Parameters   int64  `json:"parameters"`
	Architecture string `json:"model"`
}

// NewOutline reads what a training with the params in a folder would have to do. It changes nothing in
// the folder, which may be "" for a new one.
func NewOutline(ctx context.Context, p params.Params, folder string, env Env) (Outline, error) {
	env = env.withDefaults()
	if err := p.Absolute(); err != nil {
		return Outline{}, err
	}
	graph := p.Graph
	if folder != "" && vfs.Scheme(folder) == "" {
		p.Keep(vfs.Join(folder, runfolder.Params))
		var err error
		if graph, err = runfolder.GraphToTrain(p, folder, env.Log); err != nil {
			return Outline{}, err
		}
	}
	if err := p.Validate(); err != nil {
		return Outline{}, err
	}
	s, err := prepare.Of(ctx, p, graph, env.prepare())
	if err != nil {
		return Outline{}, err
	}
	t, err := newTraining(ctx, s, folder, env)
	if err != nil {
		return Outline{}, err
	}
	defer t.examples.Close()
	o := Outline{Steps: t.steps, StepsPerEpoch: t.examples.BatchesPerEpoch(), Examples: t.examples.NumExamples(),
		Parameters: s.Export.Contract.Parameters(), Architecture: s.Export.Contract.Model.Architecture}
	if before := readPast(folder, s.Export.Contract); folder != "" && before != nil {
		o.Done = min(before.state.Step, o.Steps)
	}
	if m := s.Data.Manifest; m != nil && prepare.TakesTokens(s.Export.Contract) && t.Params.Data.Rows == 0 && !s.Export.Contract.XLA {
		if split := m.Splits[p.Data.Train]; split != nil {
			o.MeanTokens = split.Lengths.Mean + split.TargetLengths.Mean
		}
	}
	every := t.Params.Train.EvalInterval.Steps()
	for _, e := range t.evaluations {
		examples, batches := e.Records, e.Batches
		if n := p.Eval.Steps; n > 0 && n < batches {
			examples, batches = examples*n/batches, n
		}
		o.EvalExamples += examples
		o.EvalBatches += batches
	}
	if t.evaluations != nil {
		o.Evaluations = due(o.Done, o.Steps, every, 0)
	}
	start := t.evaluations != nil && p.Eval.AtStart && o.Done == 0
	if start {
		o.Evaluations++
	}
	if t.evaluations == nil || t.Params.Checkpoint.Best == "" {
		every = 0
	}
	o.Saves = due(o.Done, o.Steps, t.Params.Checkpoint.Interval.Steps(), every)
	if start && t.Params.Checkpoint.Best != "" {
		o.Saves++
	}
	return o, nil
}

// due returns how many steps after one and up to the last are the last, or a multiple of an interval
// above 0.
func due(after, last, a, b int64) (n int64) {
	if last <= after {
		return 0
	}
	up := func(to int64) (n int64) {
		if a > 0 {
			n += to / a
		}
		if b > 0 {
			n += to / b
		}
		if a > 0 && b > 0 {
			n -= to / (a / gcd(a, b) * b)
		}
		return n
	}
	if n = up(last) - up(after); !(a > 0 && last%a == 0 || b > 0 && last%b == 0) {
		n++
	}
	return n
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
