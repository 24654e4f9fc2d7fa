package params

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/text/scores"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

func (p Params) StrategyConfig(functions strategy.Functions) strategy.Config {
	offload := ""
	if p.Strategy.Offload == OffloadAll || p.Strategy.Offload != "" && functions == strategy.FunctionsTrain { // others have no slots
		offload = "." // until the folder of the run is known
	}
	return strategy.Config{Offload: offload, OffloadAll: offload != "" && p.Strategy.Offload == OffloadAll, StepsPerCall: p.stepsPerCall(), IntraOpThreads: p.Runtime.IntraOpThreads, InterOpThreads: p.Runtime.InterOpThreads, Functions: functions, Generate: p.Eval.Generate.Metrics != "",
		StandardOps: p.Runtime.Kernels == "off", ShardOptimizer: p.Strategy.ShardOptimizer, BucketBytes: int64(p.Strategy.BucketMB * (1 << 20))}
}

// stepsPerCall returns the number of steps in a call; 0 means the strategy's best. No call is longer
// than a loop.
func (p Params) stepsPerCall() int {
	if p.Strategy.Input == InputLocal {
		return 1
	}
	if p.Train.StepsPerLoop < 1 { // which is not resolved yet
		return p.Train.StepsPerCall
	}
	return int(min(int64(p.Train.StepsPerCall), p.Train.StepsPerLoop.Steps()))
}

// Dataset returns the configuration of the data: for training, endless shuffled passes; for
// evaluation, one pass in order.
func (p Params) Dataset(files []string, train bool, layout dataset.Layout) dataset.Config {
	policy, _ := tfrecord.ParsePolicy(p.Data.OnCorrupt)
	c := dataset.Config{
		Files:     files,
		BatchSize: p.Eval.BatchSize,
		Epochs:    1,
		Shuffle:   dataset.ShuffleNone,
		Layout:    layout,
		OnCorrupt: policy,
		Readers:   p.Data.Readers,
		Take:      dataset.Take{Records: p.Eval.Examples, Seed: uint64(p.Seed)},
	}
	if train {
		c.BatchSize, c.Epochs = p.Train.BatchSize, 0
		c.Take.Records = p.Data.TrainExamples
		c.Growth, _ = p.Train.growth() // checked by Validate
		c.Shuffle, c.Buffer, c.Seed = dataset.Shuffle(p.Data.Shuffle), p.Data.Buffer, uint64(p.Seed)
		c.DropRemainder = p.Data.DropRemainder
	} else if rows, ok := layout.(packed.Config); ok && rows.Rows > 0 {
		c.BatchSize = rows.Shape(1).Examples
	} else if stacked, ok := layout.(dense.Config); ok && stacked.Examples > 0 {
		c.BatchSize = stacked.Examples
	}
	return c
}

// UsualScores are the eval.generate.metrics of an evaluation that is asked for texts and not told which scores.
const UsualScores = "bleu,chrf,rougeL,exact_match"

// Scores returns the metrics of eval.generate.metrics.
func (g Generate) Scores() ([]scores.Metric, error) {
	if g.Metrics == "" {
		return nil, nil
	}
	var out []scores.Metric
	for name := range strings.SplitSeq(g.Metrics, ",") {
		m, err := scores.Named(strings.TrimSpace(name))
		if err != nil {
			return nil, Errorf("eval.generate.metrics", "is %q: %w%s", g.Metrics, err, words.DidYouMean(name, scores.Names()))
		}
		if slices.ContainsFunc(out, func(o scores.Metric) bool { return o.Name == m.Name }) {
			return nil, Errorf("eval.generate.metrics", "is %q, which has %s twice; expected it once", g.Metrics, m.Name)
		}
		out = append(out, m)
	}
	return out, nil
}

// BucketLengths returns the lengths of data.buckets.
func (d Data) BucketLengths() ([]int, error) {
	if d.Buckets == "" {
		return nil, nil
	}
	var out []int
	for word := range strings.SplitSeq(d.Buckets, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, Errorf("data.buckets", "is %q; expected lengths of rows, such as 32,64", d.Buckets)
		}
		out = append(out, n)
	}
	return out, nil
}

// Packed returns how the examples of a batch are laid into rows.
func (p Params) Packed() packed.Config {
	buckets, _ := p.Data.BucketLengths() // checked by Validate
	return packed.Config{Packing: packed.Packing(p.Data.Packing), RowLength: p.Data.RowLength, Rows: p.Data.Rows, RowExamples: p.Data.RowExamples, Buckets: buckets, Truncate: p.Data.Truncate}
}

func (p Params) ScheduleConfig(steps int64) runner.ScheduleConfig {
	o := p.Optimizer
	points, _ := o.points(steps) // checked by Validate
	c := runner.ScheduleConfig{Name: o.Schedule, PeakLearningRate: o.LearningRate, EndLearningRate: o.EndLearningRate,
		WarmupSteps: o.WarmupSteps, WarmupRatio: o.WarmupRatio, TotalSteps: steps, Power: o.Power, Cycles: o.Cycles, Timescale: o.Timescale, Points: points}
	if o.Schedule == runner.WSD {
		c.DecaySteps, c.DecayRatio, c.DecayShape = o.DecaySteps, o.DecayRatio, o.DecayShape
	}
	return c
}
