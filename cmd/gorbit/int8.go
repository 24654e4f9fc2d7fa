package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/saved"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/train"
)

// Values of gorbit export's --precision.
const (
	precisionAsTrained = "trained"
	precisionInt8      = "int8"
)

// rounding are the flags of gorbit export that are about int8.
type rounding struct {
	precision, split string
	limit            float64
	unmeasured       bool
}

// add adds the flags.
func (r *rounding) add(f *pflag.FlagSet) {
	f.StringVar(&r.precision, "precision", precisionAsTrained, "what dense layers compute in: as the graph was trained, or int8, of models that take texts `trained|int8`")
	f.StringVar(&r.split, "measure-on", "", "with --precision int8: split of the run's data, with labels, on which the model is held against that in float32 (default: the run's data.eval)")
	f.Float64Var(&r.limit, "max-lost", r.limit, "with --precision int8: most points of accuracy that the model may lose, or percent by which the loss may grow of one that predicts numbers")
	f.BoolVar(&r.unmeasured, "unmeasured", false, "with --precision int8: write the model although nothing says what it loses")
	help.Group(f, "Whole numbers of 8 bits", "precision", "measure-on", "max-lost", "unmeasured")
}

// check checks the flags.
func (r *rounding) check(f *pflag.FlagSet) error {
	switch {
	case r.precision != precisionAsTrained && r.precision != precisionInt8:
		return usagef("--precision is %q; expected %s or %s", r.precision, precisionAsTrained, precisionInt8)
	case math.IsNaN(r.limit) || r.limit < 0:
		return usagef("--max-lost is %v; expected 0 or more", r.limit)
	case r.unmeasured && (f.Changed("measure-on") || f.Changed("max-lost")):
		return usagef("--unmeasured is given with --measure-on or --max-lost; expected one of them")
	}
	for _, name := range []string{"measure-on", "max-lost", "unmeasured"} {
		if r.precision != precisionInt8 && f.Changed(name) {
			return usagef("--%s is given without --precision int8; leave it out", name)
		}
	}
	return nil
}

// measure returns what measures the written model, or an error if the run's model cannot compute in int8.
func (r *rounding) measure(run *train.Run, env train.Env) (func(context.Context, string) (*layout.Quality, error), error) {
	c := run.Export.Contract
	switch {
	case !run.TakesTexts() || c.Generation != nil || c.HasTargets():
		return nil, usagef("--precision int8 is given, and the model of task %s does not answer texts as an encoder does; expected an encoder, such as a classifier of texts; leave it out", c.Task)
	case c.Precision != graphs.Float32:
		return nil, usagef("--precision int8 is given, and the graph computes in %s; expected one in float32; take the run's variables by --set graph=GRAPH", c.Precision)
	case r.unmeasured:
		return nil, nil
	}
	return func(ctx context.Context, dir string) (*layout.Quality, error) {
		model, err := saved.Open(dir, env.AllowOps)
		if err != nil {
			return nil, err
		}
		defer closeQuietly(model, env.Log)
		c, err := run.Compare(ctx, r.split, model)
		if err != nil {
			return nil, fmt.Errorf("measure what int8 loses (--unmeasured writes the model without): %w", err)
		}
		q := &layout.Quality{Split: c.Split, Examples: c.Examples, Metric: c.Metric, Float32: c.Own, Int8: c.Other, Different: c.Different}
		env.Log.Info("in int8", "split", q.Split, "examples", q.Examples, q.Metric, q.Int8, "in_float32", q.Float32, "answers_differ", q.Different)
		if lost := q.Lost(); lost > r.limit || math.IsNaN(lost) {
			unit := "points of accuracy"
			if q.Metric == layout.MetricLoss {
				unit = "percent of the loss"
			}
			return nil, fmt.Errorf("the model loses %.2f %s in int8 on the %d examples of split %s (%.4f against %.4f in float32); expected at most %v; export it in float32, or allow more by --max-lost", lost, unit, q.Examples, q.Split, q.Int8, q.Float32, r.limit)
		}
		return q, nil
	}, nil
}
