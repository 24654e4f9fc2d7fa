package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/gorbit-ml/gorbit/runner"
)

// line is a model y = w x, trained by gradient descent.
type line struct {
	w     float64
	steps int64
}

type point struct{ x, y float64 }

func (l *line) Step(_ context.Context, p point, h runner.Hyper) (runner.StepResult, error) {
	d := l.w*p.x - p.y
	gradient := 2 * d * p.x
	l.w -= h.LearningRate * gradient
	l.steps++
	return runner.StepResult{
		Sums:         runner.Sums{runner.LossSum: {d * d}, runner.WeightSum: {1}},
		GradientNorm: math.Abs(gradient),
		Step:         l.steps,
		Applied:      true,
	}, nil
}

func (l *line) Evaluate(_ context.Context, p point) (runner.Sums, error) {
	d := l.w*p.x - p.y
	return runner.Sums{runner.LossSum: {d * d}, runner.WeightSum: {1}}, nil
}

// points are points of y = 3 x.
type points struct{ next, n int }

func (s *points) Next(context.Context) (runner.Batch[point], error) {
	if s.next == s.n {
		return runner.Batch[point]{}, io.EOF
	}
	s.next++
	x := float64(s.next%4) + 1
	return runner.Batch[point]{Payload: point{x, 3 * x}, Examples: 1, Position: s.next}, nil
}

func (s *points) Seek(position json.RawMessage) error {
	s.next = 0
	if position == nil {
		return nil
	}
	return json.Unmarshal(position, &s.next)
}

func Example() {
	model := &line{}
	trainer, err := runner.NewStandardTrainer[point](model, &points{n: 100}, runner.TrainerConfig{
		Schedule: runner.ScheduleConfig{Name: runner.Linear, PeakLearningRate: 0.05, WarmupRatio: 0.1, TotalSteps: 60},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	evaluator := runner.NewStandardEvaluator[point](model, func(context.Context) (runner.BatchReader[point], error) {
		return &points{n: 4}, nil
	}, runner.EvaluatorConfig{})
	best := runner.NewBest("loss", runner.LowerIsBetter)
	controller, err := runner.NewController(runner.Config{
		Trainer:      trainer,
		Evaluator:    evaluator,
		StepsPerLoop: 10,
		EvalActions: []runner.Action{runner.When(best.Test, func(_ context.Context, step int64, out runner.Outputs) error {
			fmt.Printf("best so far at step %d: loss below 1: %v\n", step, out["loss"] < 1)
			return nil
		}, best.Commit)},
		Persist: map[string]runner.Persistent{"best": best},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := controller.TrainAndEvaluate(context.Background(), 60, runner.UntilEnd, 30)
	fmt.Printf("w = %.3f, loss %.3f, error %v\n", model.w, out["loss"], err)
	// Output:
	// best so far at step 30: loss below 1: true
	// best so far at step 60: loss below 1: true
	// w = 3.000, loss 0.000, error <nil>
}
