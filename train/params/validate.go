package params

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// rule is what the number of a param must fulfil by itself.
type rule struct {
	expected string
	ok       func(v float64) bool
}

func atLeast(low float64, expected string) rule {
	return rule{expected, func(v float64) bool { return v >= low }}
}

func finite(low float64, expected string) rule {
	return rule{expected, func(v float64) bool { return v >= low && !math.IsInf(v, 0) }}
}

func within(low, high float64, expected string) rule {
	return rule{expected, func(v float64) bool { return v >= low && v <= high }}
}

func between(low, high float64, expected string) rule {
	return rule{expected, func(v float64) bool { return v > low && v < high }}
}

// valid returns an error if the value of the param is invalid by itself.
func (p Param) valid(value reflect.Value) error {
	var number float64
	switch kind := value.Kind(); {
	case kind == reflect.String:
		if v := value.String(); p.Choices != nil && !slices.Contains(p.Choices, v) && !(p.Empty && v == "") {
			return Errorf(p.Name, "is %q; %s", v, words.OneOf(v, p.Choices))
		}
		return nil
	case value.CanInt():
		number = float64(value.Int())
	case value.CanFloat():
		number = value.Float()
	}
	if p.check.ok != nil && !p.check.ok(number) {
		return Errorf(p.Name, "is %v; expected %s", value, p.check.expected)
	}
	return nil
}

// Validate returns an *Error of the first invalid param.
func (p Params) Validate() error {
	fields := p.byName()
	for _, row := range table {
		if err := row.valid(fields[row.Name]); err != nil {
			return err
		}
	}
	for _, check := range []func() error{p.checkPaths, p.checkLoop, p.checkInside, p.checkPlateau, p.Strategy.together, p.checkTPU, p.checkRuntime, p.checkData, p.Optimizer.together} {
		if err := check(); err != nil {
			return err
		}
	}
	return p.CheckSchedule(math.MaxInt32) // the number of steps is not known yet; any will do
}

// checkPaths checks that there are a graph and data.
func (p Params) checkPaths() error {
	switch {
	case p.Graph == "":
		return Errorf("graph", "is empty; expected the folder of an export, made with python -m gorbit_export")
	case p.Data.Dir == "":
		return Errorf("data.dir", "is empty; expected the folder that gorbit convert wrote")
	}
	return nil
}

// checkInside checks what looks inside a training.
func (p Params) checkInside() error {
	n := p.Summary.HistogramInterval
	if _, _, err := p.Train.ProfiledSteps(); err != nil {
		return err
	}
	switch {
	case n > 0 && !p.Summary.Enabled:
		return Errorf("summary.histogram_interval", "is %d and summary.enabled is false; expected 0, or summary.enabled=true", n).And("summary.enabled")
	case p.Train.DebugNumerics && p.Strategy.Input == InputLocal:
		return Errorf("train.debug_numerics", "is true and strategy.input is local; expected false, because the workers keep only the next batch").And("strategy.input")
	case n > 0 && p.Strategy.Input == InputLocal:
		return Errorf("summary.histogram_interval", "is %d and strategy.input is local; expected 0, because the workers keep only the next batch", n).And("strategy.input")
	}
	return nil
}

// mostProfiled is how many steps are traced at most: each has some thousand operations, or more.
const mostProfiled = 100

// ProfiledSteps returns the first and the last step of train.profile, counted from 1; 0 for none.
func (t Train) ProfiledSteps() (first, last int64, err error) {
	if t.Profile == "" {
		return 0, 0, nil
	}
	from, to, _ := strings.Cut(t.Profile, "-")
	first, err = strconv.ParseInt(strings.TrimSpace(from), 10, 64)
	last, bad := strconv.ParseInt(strings.TrimSpace(to), 10, 64)
	if err != nil || bad != nil || first < 1 || last < first || last-first >= mostProfiled {
		return 0, 0, Errorf("train.profile", "is %q; expected the first and the last step, at most %d of them, such as 100-105", t.Profile, mostProfiled)
	}
	return first, last, nil
}

// checkLoop checks how long to train, and when to stop.
func (p Params) checkLoop() error {
	t := p.Train
	if _, err := p.Eval.Generate.Scores(); err != nil {
		return err
	}
	switch {
	case t.Steps == 0 && !(t.Epochs > 0 && t.Epochs < 1e9):
		return Errorf("train.epochs", "is %v; expected more than 0 and less than 1e9", t.Epochs)
	case t.StepsPerCall > 1 && p.Strategy.Input == InputLocal:
		return Errorf("train.steps_per_call", "is %d and strategy.input is local; expected 1, because the workers keep only the next batch", t.StepsPerCall).And("strategy.input")
	case t.Patience > 0 && p.Checkpoint.Best == "":
		return Errorf("train.patience", "is %d and checkpoint.best is empty; expected the name of a metric", t.Patience).And("checkpoint.best")
	case p.Eval.AtStart && t.EvalInterval == NoEval:
		return Errorf("eval.at_start", "is true and train.eval_interval is -2 (no evaluation); expected evaluations, such as train.eval_interval=0").And("train.eval_interval")
	case p.Eval.Generate.Metrics != "" && t.EvalInterval == NoEval:
		return Errorf("eval.generate.metrics", "is %q and train.eval_interval is -2 (no evaluation); expected evaluations, such as train.eval_interval=0", p.Eval.Generate.Metrics).And("train.eval_interval")
	case t.Patience > 0 && t.EvalInterval == NoEval:
		return Errorf("train.patience", "is %d and train.eval_interval is -2 (no evaluation); expected evaluations, such as train.eval_interval=0", t.Patience).And("train.eval_interval")
	case t.MinDelta > 0 && t.Patience == 0:
		return Errorf("train.min_delta", "is %v and train.patience is 0; expected the number of evaluations to wait, such as train.patience=3", t.MinDelta).And("train.patience")
	}
	return nil
}

// checkPlateau checks that the schedule plateau has evaluations and a metric.
func (p Params) checkPlateau() error {
	const name = "optimizer.plateau.metric"
	o := p.Optimizer
	switch on := o.Schedule == runner.OnPlateau; {
	case !on && o.Plateau.Metric != "":
		return Errorf(name, "is %q and optimizer.schedule is %s; expected the schedule plateau, or no metric for it", o.Plateau.Metric, o.Schedule).And("optimizer.schedule")
	case on && p.PlateauMetric() == "":
		return Errorf(name, "and checkpoint.best are empty and optimizer.schedule is plateau; expected the name of a metric").And("checkpoint.best", "optimizer.schedule")
	case on && p.Train.EvalInterval < 0:
		return Errorf("optimizer.schedule", "is plateau and train.eval_interval is %v; expected evaluations during the training, such as train.eval_interval=0", p.Train.EvalInterval).And("train.eval_interval")
	}
	return nil
}

// checkRuntime checks what the strategy leaves to TensorFlow.
func (p Params) checkRuntime() error {
	if kind := p.Strategy.Kind(); p.Runtime.Device != "" && (kind == devices.Mirrored || kind == devices.MultiWorker || p.Strategy.Devices != "") {
		return Errorf("runtime.device", "is %q, which is only for strategy one; name devices with strategy.devices", p.Runtime.Device).And("strategy.devices", "strategy.name")
	}
	if err := p.StrategyConfig(strategy.FunctionsTrain).Validate(); err != nil { // the rest of it is checked by now
		return Errorf("train.steps_per_call", ": %w", err)
	}
	return nil
}

// checkLengthWarmup checks what goes with train.length_warmup.
func (p Params) checkLengthWarmup() error {
	if _, err := stages("train.length_warmup", p.Train.LengthWarmup); err != nil || p.Train.LengthWarmup == "" {
		return err
	}
	const param = "train.length_warmup"
	switch {
	case p.Strategy.Input == InputLocal:
		return Errorf(param, "is given and strategy.input is local; expected strategy.input=chief, because workers that read batches themselves do not know the step").And("strategy.input")
	case p.Strategy.Kind() == devices.TPU:
		return Errorf(param, "is given, and a TPU's programs are for rows of one length; leave it out, or train on data of short blocks first")
	case p.Train.StepsPerCall > 1:
		return Errorf(param, "is given and train.steps_per_call is %d; expected 1, because the rows of the steps of a call have one length", p.Train.StepsPerCall).And("train.steps_per_call")
	}
	return nil
}

// checkData checks the data and their batches.
func (p Params) checkData() error {
	d := p.Data
	if d.Rows > p.Train.BatchSize {
		return Errorf("data.rows", "is %d and train.batch_size is %d; expected at most one row for each example; lower data.rows, or set train.batch_size to the most examples of a step", d.Rows, p.Train.BatchSize).And("train.batch_size")
	}
	if _, err := p.Train.growth(); err != nil {
		return err
	}
	if err := p.checkLengthWarmup(); err != nil {
		return err
	}
	if d.Rows != 0 && d.Packing == string(packed.PackFirstFit) {
		return Errorf("data.packing", "is %q, which does not fix the number of rows, and data.rows is %d; expected %s or %s", d.Packing, d.Rows, packed.PackBestFit, packed.PackNone).And("data.rows")
	}
	if d.Rows != 0 && p.Strategy.Input == InputLocal {
		return Errorf("strategy.input", "is local and data.rows is %d; expected 0, because workers that read their own parts cannot fill rows together; use strategy.input=chief, or leave out data.rows", d.Rows).And("data.rows")
	}
	if err := d.Eval.validate("data.eval"); err != nil {
		return err
	}
	if err := d.ClassWeights.validate("data.class_weights", ClassesNone, ClassesBalanced); err != nil {
		return err
	}
	if err := d.Sampling.validate("data.sampling", ClassesUniform, ClassesBalanced); err != nil {
		return err
	}
	if d.Sampling.Rule != ClassesUniform && d.Shuffle != string(dataset.ShuffleFull) {
		return Errorf("data.shuffle", "is %s and data.sampling is not uniform; expected full; leave out data.shuffle", d.Shuffle).And("data.sampling")
	}
	layout := p.Packed()
	buckets, err := d.BucketLengths()
	switch {
	case err != nil:
		return err
	case len(buckets) == 0:
	case d.Rows == 0:
		layout.Buckets = nil // without rows, or these are chosen once the data has been opened
	case d.RowLength == 0:
		layout.RowLength = slices.Max(buckets) + 1 // it may be as long
	}
	for _, train := range []bool{true, false} {
		if err := p.Dataset([]string{"."}, train, layout).Validate(); err != nil {
			return &Error{Err: fmt.Errorf("data: %w", err)} // of several params together
		}
	}
	return nil
}

// together checks the groups of variables, and the decay of layers.
func (o Optimizer) together() error {
	for i, g := range o.Groups {
		if err := g.Validate(); err != nil {
			return GroupErrorf(i, "%w", err)
		}
	}
	if err := CheckLayerDecay(o.LayerDecay); err != nil {
		return err
	}
	if o.EMA > 0 && o.SWA > 0 {
		return Errorf("optimizer.swa", "is %d and optimizer.ema is %v; expected one of them to be 0: evaluations use one average", o.SWA, o.EMA).And("optimizer.ema")
	}
	return nil
}

// CheckSchedule checks the schedule of the learning rate, and where averages begin, for a number of steps.
func (p Params) CheckSchedule(steps int64) error {
	if p.Optimizer.SWA > steps {
		return Errorf("optimizer.swa", "is %d and the run has %d steps; expected one of them", p.Optimizer.SWA, steps)
	}
	if _, err := p.Optimizer.points(steps); err != nil {
		return err
	}
	schedule := p.ScheduleConfig(steps)
	err := schedule.Validate()
	if err == nil {
		return nil
	}
	of := "optimizer.end_learning_rate" // against the peak
	switch {
	case schedule.WarmupSteps > steps:
		of = "optimizer.warmup_steps"
	case schedule.Name == runner.WSD && schedule.Warmup()+schedule.Decay() > steps:
		of = "optimizer.decay_steps"
	case schedule.Name == runner.CosineWithRestarts && schedule.Cycles != math.Trunc(schedule.Cycles):
		of = "optimizer.cycles"
	}
	return &Error{Params: []string{of, "optimizer.learning_rate", "optimizer.schedule"}, Err: fmt.Errorf("optimizer: %w", err)}
}
