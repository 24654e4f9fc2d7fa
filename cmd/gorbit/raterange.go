package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/app/chart"
	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

const (
	// rateRun is the run of gorbit tune --lr-range in the folder of a study. rateParams are its params,
	// and rateResult is what it found.
	rateRun    = "lr-range"
	rateParams = "lr-range.yaml"
	rateResult = "lr-range.json"
	// rateSteps is its number of steps unless --steps says another one, and leastRateSteps the least.
	rateSteps, leastRateSteps = 100, 30
)

// rateRange trains once while the learning rate rises, and says where the loss falls fastest.
func (t *tuning) rateRange(ctx context.Context, env train.Env) error {
	if len(t.search) > 0 {
		return usagef("both --lr-range and --search are given; expected one of them")
	}
	p, err := t.rateParams(ctx, env)
	if err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	text, err := p.YAML()
	if err != nil {
		return err
	}
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(t.folder, rateParams)
	before, err := vfs.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !bytes.Equal(before, text) {
		return usagef("%s was begun with other params; expected the same ones to continue it; give another folder with --study", path)
	}
	if err := vfs.ReplaceFile(path, text); err != nil {
		return err
	}
	failed, err := t.trainRates(ctx, path)
	if err != nil {
		return err
	}
	log := runfolder.NewLog()
	if err := log.Follow(filepath.Join(t.folder, rateRun)); err != nil {
		return err
	}
	if damage := log.Problem(); damage != "" {
		return fault.Damagedf("%s: %s", filepath.Join(t.folder, rateRun), damage)
	}
	rates, losses := log.Train["learning_rate"], log.Train["loss"]
	if n := losses.Len(); n < leastRateSteps || rates.Len() != n {
		return fmt.Errorf("the training ended after %d steps, too few to tell; see %s: %s", n, filepath.Join(t.folder, rateRun+".log"), failed)
	}
	found := tune.FindRate(rates.Values, losses.Values)
	var out bytes.Buffer
	if err := writeJSON(&out, found); err != nil {
		return err
	}
	result := filepath.Join(t.folder, rateResult)
	if err := vfs.ReplaceFile(result, out.Bytes()); err != nil {
		return err
	}
	return printRates(env.Out, found, result)
}

// rateParams returns the params of the training.
func (t *tuning) rateParams(ctx context.Context, env train.Env) (params.Params, error) {
	_, p, err := t.base(ctx, env)
	if err != nil {
		return p, err
	}
	low, high, ok := strings.Cut(t.rates, ":")
	from, errFrom := strconv.ParseFloat(low, 64)
	to, errTo := strconv.ParseFloat(high, 64)
	if !ok || errors.Join(errFrom, errTo) != nil || !(from > 0 && to > from) {
		return p, usagef("--lr-range is %q; expected LOW:HIGH, two learning rates, such as 1e-6:1", t.rates)
	}
	if !t.flags.Changed("steps") {
		p.Train.Steps = rateSteps
	}
	if p.Train.Steps < leastRateSteps {
		return p, usagef("--steps is %d; expected %d or more with --lr-range", p.Train.Steps, leastRateSteps)
	}
	p.Optimizer.Schedule, p.Optimizer.LearningRate, p.Optimizer.EndLearningRate = runner.Exponential, from, to
	p.Optimizer.WarmupRatio, p.Optimizer.WarmupSteps = 0, 0
	p.Train.StepsPerLoop, p.Train.EvalInterval, p.Train.Patience = 1, -2, 0
	p.Checkpoint.Best, p.Checkpoint.Interval, p.Summary.Enabled, p.Optimizer.Plateau.Metric = "", 0, false, ""
	return p, p.Absolute()
}

// trainRates runs the training, or continues it. It returns what the training said if it failed, as it
// does where the loss is no number any more.
func (t *tuning) trainRates(ctx context.Context, params string) (failed string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(filepath.Join(t.folder, rateRun+".log"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o666)
	if err != nil {
		return "", err
	}
	defer log.Close()
	args := append(t.command(program, params), "--run", filepath.Join(t.folder, rateRun))
	p, err := launch.Start(launch.Command{Name: "the training", Local: true, Args: args}, nil, log, log)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Terminate(t.grace)
		return "", context.Cause(ctx)
	}
	switch p.Code() {
	case fault.ExitDone:
		return "", nil
	case fault.ExitStopped:
		return "", &fault.Error{Class: fault.Stopped, Err: errors.New("the training was stopped by a signal")}
	}
	return "the training ended with " + p.How(), nil
}

// printRates draws the loss by the learning rate, and suggests one.
func printRates(out io.Writer, r tune.RateRange, result string) error {
	steps := make([]int64, len(r.Smoothed))
	for i := range steps {
		steps[i] = int64(i)
	}
	const columns, height = 72, 8
	lines := chart.Terminal(chart.Points{Steps: steps, Values: r.Smoothed}, chart.Points{}, 1, columns, height)
	// The steps are even on a logarithmic scale of the rates, whose ends stand below in their place.
	if n := len(r.Rates); n > 0 {
		low, high := chart.Value(r.Rates[0]), chart.Value(r.Rates[n-1])
		lines[len(lines)-1] = fmt.Sprintf("%*s%*s", 8+len(low), low, columns-8-len(low), high)
	}
	if _, err := fmt.Fprintf(out, "smoothed loss by learning rate\n%s\n", strings.Join(lines, "\n")); err != nil {
		return err
	}
	if r.Steepest == 0 {
		_, err := fmt.Fprintf(out, "the loss does not fall, so that no rate is suggested; try another range, or more --steps; all values: %s\n", result)
		return err
	}
	_, err := fmt.Fprintf(out, "the loss falls fastest at %s and is lowest at %s\nsuggested: --learning-rate %s; all values: %s\n",
		chart.Value(r.Steepest), chart.Value(r.Lowest), strconv.FormatFloat(r.Steepest, 'g', 2, 64), result)
	return err
}
