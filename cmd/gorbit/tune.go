package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/report"
	"github.com/gorbit-ml/gorbit/internal/app/study"
	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// tuning is what the flags of gorbit tune say.
type tuning struct {
	g        *globals
	folder   string
	file     string // the study file
	params   []string
	settings []string
	search   []string

	objective, direction string
	trials               int
	sampler, pruner      string
	seed                 uint64
	rates                string // LOW:HIGH of --lr-range
	parallel             int
	grace                time.Duration

	flags *pflag.FlagSet
	short func() []string
}

func newTune(g *globals) *cobra.Command {
	t := &tuning{g: g}
	cmd := &cobra.Command{
		Use:   "tune --study FOLDER [--config STUDY.YAML] [flags]",
		Short: "Search over the params of gorbit train",
		Long: `Trains with different params, one run after the other or side by side, to find those with the
best evaluation. The graph is not exported again.

STUDY.YAML says what all trials have (params), what is searched over (search), the metric
(objective, by default the graph's), and how: sampler grid, random or tpe; pruner none,
median or asha, which stop trials early. Flags of gorbit train change what all trials have.

Each trial is an ordinary run, FOLDER/trials/0007. However the study was stopped, the same
command continues it, and gorbit tune --study FOLDER does. A trial that fails is noted, and
the study continues; if the first three fail, it ends with exit code 1. A trial that the
machine stops, as by a full disk or a signal, makes the exit code 1, too, and the same
command continues it. FOLDER/journal.log is a journal of Optuna's: Python's optuna opens
and continues it.`,
		Example: `  gorbit tune --study studies/mrpc --config study.yaml
  gorbit tune --study studies/lr --params mrpc.yaml --search optimizer.learning_rate=1e-5:5e-4:log
  gorbit tune --study studies/mrpc --trials 40    # continues, with more trials`,
		Args: noArgs,
	}
	f := cmd.Flags()
	t.flags = f
	f.StringVar(&t.folder, "study", "", "`FOLDER` of the study (required)")
	f.StringVar(&t.file, "config", "", "YAML `FILE` of the study")
	f.StringArrayVar(&t.search, "search", nil, "a param to search over, `NAME=LOW:HIGH`, with :log or :STEP after it, or NAME=CHOICE,CHOICE; may be repeated")
	f.IntVar(&t.trials, "trials", 0, "number of trials (default 20; a grid has no more than its combinations)")
	help.Group(f, "The study", "study", "config", "search", "trials")
	f.StringVar(&t.objective, "objective", "", "`METRIC` of the evaluations (default: the graph's)")
	f.StringVar(&t.direction, "direction", "", "`max|min` of the metric is best (default: as the graph says)")
	help.Group(f, "What is best", "objective", "direction")
	f.StringVar(&t.sampler, "sampler", "", "`grid|random|tpe` chooses the params of a trial (default tpe)")
	f.Uint64Var(&t.seed, "sampler-seed", 0, "seed of the sampler")
	f.StringVar(&t.pruner, "pruner", "", "`none|median|asha` ends trials early (default none)")
	help.Group(f, "How to search", "sampler", "sampler-seed", "pruner")
	f.StringVar(&t.rates, "lr-range", "", "instead of a search, train once while the learning rate rises from `LOW:HIGH`, and suggest one")
	help.Group(f, "The learning rate", "lr-range")
	f.IntVar(&t.parallel, "parallel", 1, "trials side by side; each gets an equal share of the cores")
	f.DurationVar(&t.grace, "grace", time.Minute, "how long a trial may take to save and stop before it is killed")
	help.Group(f, "Processes", "parallel", "grace")
	f.StringArrayVar(&t.params, "params", nil, "YAML `FILE` of params of all trials; may be repeated, later files win")
	f.StringArrayVar(&t.settings, "set", nil, "one param of all trials, as `SECTION.NAME=VALUE`; may be repeated")
	help.Group(f, "What all trials have", "params", "set")
	t.short = addParams(f, trainGroups...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case t.folder == "":
			return usagef("--study is missing; expected the folder of the study")
		case t.parallel < 1:
			return usagef("--parallel is %d; expected 1 or more", t.parallel)
		case f.Changed("trials") && t.trials < 1:
			return usagef("--trials is %d; expected 1 or more", t.trials)
		}
		if err := localFolder(t.folder, "give --study one, where the trials run"); err != nil {
			return err
		}
		if err := t.room(); err != nil {
			return err
		}
		t.settings = append(t.settings, t.short()...)
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		if f.Changed("lr-range") {
			return t.rateRange(cmd.Context(), env)
		}
		return t.run(cmd.Context(), env)
	}
	return cmd
}

// room refuses the folder of something else than a study, and what the study would replace at its end.
func (t *tuning) room() error {
	if err := made.Room(t.folder, made.Study, false); err != nil {
		return err
	}
	page := filepath.Join(t.folder, study.ReportFile)
	if _, err := made.Replaceable(page, isPage, false); err != nil {
		return usagef("%s is no page of a study, which would replace it; move it away, or choose another folder with --study", page)
	}
	return nil
}

// lock makes the folder of the study, if there is none, and keeps other processes out of it.
func (t *tuning) lock() (unlock func() error, err error) {
	if err := vfs.MkdirAll(t.folder, 0o755); err != nil {
		return nil, err
	}
	return checkpoint.Lock(t.folder)
}

// run begins or continues the study.
func (t *tuning) run(ctx context.Context, env train.Env) error {
	journal, err := study.OpenJournal(ctx, t.folder, env.Log)
	if err != nil {
		return err
	}
	var config tune.Config
	var continued bool
	journal.View(func(s *tune.Study) { config, continued = s.Config() })
	if config, err = t.config(ctx, config, continued, env); err != nil {
		return err
	}
	if err := t.sameMeaning(ctx, journal, config, env); err != nil {
		return err
	}
	slots, err := t.slots(config)
	if err != nil {
		return err
	}
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := journal.Update(ctx, func(s *tune.Study) ([]tune.Op, error) { return s.Begin(config) }); err != nil {
		if wrong := (*tune.ConfigError)(nil); errors.As(err, &wrong) {
			return usagef("study %s: %w; leave it out to continue the study, or choose another folder with --study", t.folder, err)
		}
		return err
	}
	if err := study.WriteBase(t.folder, config.Base); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	d := &study.Driver{Folder: t.folder, Journal: journal, Slots: slots, Value: study.Setting, Grace: t.grace, Poll: 200 * time.Millisecond,
		Out: env.Out, Log: env.Log, Now: time.Now, Start: t.starter(program)}
	ran := d.Run(ctx)
	if ctx.Err() != nil {
		fmt.Fprintf(env.Out, "the study is stopped; the same command continues it\n")
		return ran
	}
	return errors.Join(ran, t.results(ctx, journal, env))
}

// sameMeaning refuses to continue with a study whose data were converted again with other labels or
// categories than those that its trials learned.
func (t *tuning) sameMeaning(ctx context.Context, journal *study.Journal, c tune.Config, env train.Env) error {
	run := ""
	journal.View(func(s *tune.Study) {
		for _, trial := range s.Trials() {
			folder := filepath.Join(t.folder, filepath.FromSlash(trial.Run))
			if _, err := os.Stat(filepath.Join(folder, runfolder.Data)); trial.Own() && err == nil {
				run = folder
			}
		}
		if s.Done() && c.Trials <= s.Most() {
			run = "" // nothing will be trained
		}
	})
	if run == "" {
		return nil
	}
	base := params.Defaults()
	if err := base.LoadYAML("params of the study", []byte(c.Base)); err != nil {
		return err
	}
	return train.SameMeaning(ctx, base, run, env)
}

// starter returns the function that starts the training of a trial.
func (t *tuning) starter(program string) func(study.Job) (study.Process, error) {
	return func(j study.Job) (study.Process, error) {
		args := t.command(program, filepath.Join(t.folder, study.BaseFile))
		for _, s := range j.Settings {
			args = append(args, "--set", s)
		}
		c := launch.Command{Name: fmt.Sprintf("trial %d", j.Number), Local: true, Args: append(args, "--run", j.Folder), Cores: j.Cores}
		return launch.Start(c, append(os.Environ(), trialVariable+"=1"), j.Log, j.Log)
	}
}

// command returns the command line of a training with params of a file, but for its run.
func (t *tuning) command(program, params string) []string {
	args := []string{program, "train", "--progress", "off", "--log-level", t.g.logLevel}
	for _, op := range t.g.allowOps {
		args = append(args, "--allow-op", op)
	}
	return append(args, "--params", params)
}

// config returns the configuration of the study: that of the journal, which flags may only repeat but
// for the number of trials, or a new one.
func (t *tuning) config(ctx context.Context, before tune.Config, continued bool, env train.Env) (tune.Config, error) {
	given := t.file != "" || len(t.params)+len(t.settings)+len(t.search) > 0
	c := before
	switch {
	case !continued && !given:
		return c, usagef("there is no study in %s; expected one that was begun, or --config, --params or --search to begin one", t.folder)
	case continued && !given:
		c.Objective, c.Direction = cmp.Or(t.objective, c.Objective), cmp.Or(t.direction, c.Direction)
	default:
		var err error
		if c, err = t.newConfig(ctx, env); err != nil {
			return c, err
		}
	}
	t.override(&c.Sampler, &c.Pruner)
	switch {
	case t.trials > 0:
		c.Trials = t.trials
	case continued && t.file == "":
		c.Trials = before.Trials
	}
	if err := c.Validate(); err != nil {
		return c, usagef("%w", err)
	}
	if !continued || !given {
		return c, nil
	}
	name, err := differingParam(before.Base, c.Base)
	if err != nil {
		return c, err
	}
	if name != "" {
		return c, usagef("study %s: %s; leave it out to continue the study, or choose another folder with --study", t.folder, name)
	}
	c.Base = before.Base
	return c, nil
}

// override applies the flags of the sampler and the pruner.
func (t *tuning) override(s *tune.SamplerConfig, p *tune.PrunerConfig) {
	s.Name, p.Name = cmp.Or(t.sampler, s.Name), cmp.Or(t.pruner, p.Name)
	if t.flags.Changed("sampler-seed") {
		s.Seed = t.seed
	}
}

// base reads the study file, and the params of all trials.
func (t *tuning) base(ctx context.Context, env train.Env) (study.File, params.Params, error) {
	file := study.Defaults()
	if t.file != "" {
		var err error
		if file, err = study.ReadFile(t.file); err != nil {
			return file, params.Params{}, err
		}
	}
	base, own, err := train.LoadParams(ctx, "", func(base *params.Params) error {
		if file.Params != nil {
			if err := base.LoadYAML(t.file+": params", file.Params); err != nil {
				return err
			}
		}
		return base.Load(t.params, t.settings)
	})
	tellOwn(env.Log, base, own)
	return file, base, err
}

// newConfig returns the configuration that the study file and the flags describe.
func (t *tuning) newConfig(ctx context.Context, env train.Env) (tune.Config, error) {
	file, base, err := t.base(ctx, env)
	c := tune.Config{Trials: file.Trials, Sampler: file.Sampler, Pruner: file.Pruner}
	if err != nil {
		return c, err
	}
	t.override(&c.Sampler, &c.Pruner)
	// What trials are compared by is what a run keeps its best checkpoint by.
	if objective := cmp.Or(t.objective, file.Objective); objective != "" {
		base.Checkpoint.Best = objective
	}
	if direction := cmp.Or(t.direction, file.Direction); direction != "" {
		base.Checkpoint.BestMode = direction
	}
	if err := base.Absolute(); err != nil {
		return c, err
	}
	for _, text := range t.search {
		r, err := study.ParseRange(text)
		if err != nil {
			return c, err
		}
		file.Search = slices.DeleteFunc(file.Search, func(o study.Range) bool { return o.Name == r.Name })
		file.Search = append(file.Search, r)
	}
	var variants []params.Params
	for _, r := range file.Search {
		p, some, err := searched(base, r)
		if err != nil {
			return c, err
		}
		c.Space, variants = append(c.Space, p), append(variants, some...)
	}
	if c.Objective, c.Direction, err = train.Objective(ctx, base, variants, env); err != nil {
		return c, err
	}
	if e := base.Train; c.Pruner.Name != tune.NoPruner && (e.EvalInterval < 0 || e.EvalInterval == 0 && e.Steps == 0 && e.Epochs <= 1) {
		return c, usagef("pruner is %s, and a trial has only one evaluation; expected several, as with --eval-interval 50, or pruner none", c.Pruner.Name)
	}
	text, err := base.YAML()
	c.Base = string(text)
	return c, err
}

// searched returns a param that is searched over, and params of trials at the ends of its range.
func searched(base params.Params, r study.Range) (tune.Param, []params.Params, error) {
	of, known := params.Lookup(r.Name)
	value, is := base.Flat()[r.Name]
	switch {
	case !known:
		return tune.Param{}, nil, usagef("search.%s: %w", r.Name, params.Unknown(r.Name))
	case of.Compared:
		return tune.Param{}, nil, usagef("search.%s: trials with different values could not be compared; expected another param; make a study for each value", r.Name)
	case !is && of.Name == "optimizer.hyperparameters" && r.Name != of.Name:
		value = 0.0
	case !is:
		return tune.Param{}, nil, usagef("search.%s: the param has no single value to search over; expected another one", r.Name)
	}
	p, err := r.Param(value)
	if err != nil {
		return p, nil, err
	}
	ends := []float64{p.Distribution.Low, p.Distribution.High}
	if p.Distribution.Kind == tune.Categorical {
		ends = nil
		for i := range p.Distribution.Choices {
			ends = append(ends, float64(i))
		}
	}
	var variants []params.Params
	for _, v := range ends {
		one, err := clone(base)
		if err == nil {
			err = one.Set(r.Name + "=" + study.Setting(p.Distribution, v))
		}
		if err != nil {
			return p, nil, usagef("search.%s: %w", r.Name, err)
		}
		variants = append(variants, one)
	}
	return p, variants, nil
}

// clone returns params that share nothing with others.
func clone(p params.Params) (params.Params, error) {
	text, err := p.YAML()
	if err != nil {
		return p, err
	}
	out := params.Defaults()
	return out, out.LoadYAML("params", text)
}

// differingParam returns what the first param is that is not the same in two files of params, or "".
// Params that one of them lacks have their defaults.
func differingParam(before, now string) (string, error) {
	var flat [2]map[string]any
	for i, text := range []string{before, now} {
		p := params.Defaults()
		if err := p.LoadYAML("params of the study", []byte(text)); err != nil {
			return "", err
		}
		flat[i] = p.Flat()
	}
	names := maps.Clone(flat[0])
	maps.Copy(names, flat[1])
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a, b := fmt.Sprint(flat[0][name]), fmt.Sprint(flat[1][name]); a != b {
			return fmt.Sprintf("%s was %s when the study began and is %s", name, a, b), nil
		}
	}
	return "", nil
}

// slots divides the cores among the trials that run side by side.
func (t *tuning) slots(c tune.Config) ([][]int, error) {
	if t.parallel == 1 {
		return make([][]int, 1), nil
	}
	var base params.Params
	if err := base.LoadYAML("params of the study", []byte(c.Base)); err != nil {
		return nil, err
	}
	if s := base.Strategy; s.Workers != "" || s.TPU != "" {
		return nil, usagef("--parallel is %d and the trials train on workers or a TPU, which only one of them can use; expected 1", t.parallel)
	}
	cores, err := launch.Cores()
	if err != nil {
		return nil, err
	}
	each := len(cores) / t.parallel
	if each == 0 {
		return nil, usagef("--parallel is %d; expected at most %d, the number of cores", t.parallel, len(cores))
	}
	slots := make([][]int, t.parallel)
	for i := range slots {
		slots[i] = cores[i*each : (i+1)*each]
	}
	return slots, nil
}

// results prints the table of the trials, and writes the params of the best one and a page of the best.
func (t *tuning) results(ctx context.Context, journal *study.Journal, env train.Env) error {
	out := env.Out
	r, err := journal.ReadResults(t.folder)
	if err != nil {
		return err
	}
	if len(r.Trials) == 0 {
		return nil
	}
	if err := r.Print(out); err != nil {
		return err
	}
	best := r.Best()
	if best == nil {
		return fmt.Errorf("study %s: no trial is complete", t.folder)
	}
	path, err := r.WriteBest()
	if err != nil {
		return err
	}
	page, err := readPage(ctx, r.Folders(report.MaxRuns))
	if err != nil {
		return err
	}
	if err := writePage(ctx, page, filepath.Join(t.folder, study.ReportFile), false); err != nil {
		return err
	}
	if first := r.Trials[0]; !first.Own() {
		fmt.Fprintf(out, "trial %d is better, but was not run by gorbit\n", first.Number)
	}
	run := r.RunFolder(best.Trial)
	ask, err := train.ToAsk(run, env.Log)
	if err != nil {
		ask = "..." // the run was moved away; everything else is as it was
	}
	_, err = fmt.Fprintf(out, `best: trial %d, %s %.4g; its run is %s
to use it:         gorbit predict --run %s %s
to train it again: gorbit train --params %s --run RUN
to look at them:   %s, in a browser
`, best.Number, r.Config.Objective, best.Value, run, launch.Quote(run), ask, launch.Quote(path), filepath.Join(t.folder, study.ReportFile))
	return err
}
