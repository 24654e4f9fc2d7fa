package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/task"
)

// runFlags holds the flags of the commands that read a run.
type runFlags struct {
	run        string
	checkpoint string
	settings   []string
	// flags are the other flags that set params; nil for none.
	flags func() []string
	// weights are a model without a run.
	weights train.Weights
	changed func(flag string) bool // of the command
}

// add adds the flags. checkpoint is the default of --checkpoint.
func (r *runFlags) add(cmd *cobra.Command, checkpoint string) {
	f := cmd.Flags()
	f.StringVar(&r.run, "run", "", "`FOLDER` of the run (required, or --graph)")
	what := "latest, best, or a step"
	if checkpoint == params.BestOrLatest {
		what += ", or best-or-latest: the best if the run kept one"
	}
	f.StringVar(&r.checkpoint, "checkpoint", checkpoint, what)
	f.StringArrayVar(&r.settings, "set", nil, "one param of the run, as `SECTION.NAME=VALUE`")
	help.Group(f, "The run", "run", "checkpoint", "set")
	r.addWeights(f)
}

// addWeights adds the flags of a model without a run.
func (r *runFlags) addWeights(f *pflag.FlagSet) {
	r.changed = f.Changed
	f.StringVar(&r.weights.Graph, "graph", "", "`FOLDER` of an export, to use without a run, with the weights of --init")
	f.StringVar(&r.weights.Init, "init", "", "with --graph: `WEIGHTS`, as of gorbit train; without them, the export's own values")
	f.StringVar(&r.weights.Data, "data", "", "with --graph: `FOLDER` of the data, with tokenizer and labels")
	f.BoolVar(&r.weights.Untrained, "allow-untrained", false, "with --graph: accept weights that lack variables of the graph, such as its head, which then have random values")
	help.Group(f, "A model without a run", "graph", "init", "data", "allow-untrained")
}

// given reports whether a run, or a graph with weights, is named.
func (r *runFlags) given() bool { return r.run != "" || r.weights.Graph != "" }

// check returns an error if the flags that name a run, or a graph with weights, do not go together.
func (r *runFlags) check() error {
	switch {
	case !r.given():
		if err := r.lacksGraph(); err != nil {
			return err
		}
		return usagef("--run is missing; expected the folder of a run, or --graph EXPORT --init WEIGHTS for a model without one")
	case r.run == "" && r.changed("checkpoint"):
		return usagef("--checkpoint is given with --graph; leave it out: only a run has checkpoints")
	case r.run == "":
		return nil
	}
	for _, name := range []string{"graph", "init", "data", "allow-untrained"} {
		if r.changed != nil && r.changed(name) {
			return usagef("--run and --%s are given; expected --run, or --graph for a model without a run", name)
		}
	}
	return nil
}

// lacksGraph returns an error if a flag of --graph is given without it.
func (r *runFlags) lacksGraph() error {
	for _, name := range []string{"init", "data", "allow-untrained"} {
		if r.weights.Graph == "" && r.changed != nil && r.changed(name) {
			return usagef("--%s is given without --graph; expected the folder of an export", name)
		}
	}
	return nil
}

// words are the flags that name the model, for a command to type.
func (r *runFlags) words() string {
	if r.run != "" {
		return "--run " + launch.Quote(r.run) + " --checkpoint " + launch.Quote(r.checkpoint)
	}
	out := "--graph " + launch.Quote(r.weights.Graph)
	if r.weights.Init != "" {
		out += " --init " + launch.Quote(r.weights.Init)
	}
	if r.weights.Data != "" {
		out += " --data " + launch.Quote(r.weights.Data)
	}
	if r.weights.Untrained {
		out += " --allow-untrained"
	}
	return out
}

// version says which values of the model's variables are used, of a checkpoint of a step.
func (r *runFlags) version(step int64) string {
	if r.run == "" {
		return "weights"
	}
	return fmt.Sprintf("step %d", step)
}

// title is a name for the model.
func (r *runFlags) title() string {
	return filepath.Base(filepath.Clean(cmp.Or(r.run, r.weights.Graph)))
}

// onTPU adds the flags of a TPU.
func (r *runFlags) onTPU(cmd *cobra.Command) {
	r.flags = addParams(cmd.Flags(), params.CloudTPU)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if f := cmd.Flags().Lookup("tpu"); f.Changed && f.Value.String() == "" {
			return emptyTPU("--set strategy.name=tpu")
		}
		return nil
	}
}

// open opens the run, or makes one of a graph with weights. If load is set, it also loads the checkpoint and
// returns its step.
func (r *runFlags) open(ctx context.Context, env train.Env, load bool) (_ *train.Run, step int64, err error) {
	if err := r.check(); err != nil {
		return nil, 0, err
	}
	if r.flags != nil {
		r.settings = append(r.settings, r.flags()...)
	}
	folder, remote := r.run, ""
	if vfs.Scheme(r.run) != "" {
		remote = r.run
	}
	if r.run == "" {
		if folder, err = r.stage(ctx, env); err != nil {
			return nil, 0, err
		}
		defer func() {
			if err != nil {
				os.RemoveAll(folder)
			}
		}()
	}
	if folder, err = runfolder.LocalRun(ctx, folder, r.checkpoint); err != nil {
		return nil, 0, err
	}
	// Errors in the params are ignored here because OpenRun reports them.
	if p, err := params.Read(filepath.Join(folder, "params.yaml")); err == nil && p.Load(nil, r.settings) == nil {
		if err := setProcess(p); err != nil {
			return nil, 0, err
		}
	}
	if err := keysForWorkers(r.settings, &env); err != nil {
		return nil, 0, err
	}
	run, err := train.OpenRun(ctx, folder, r.settings, env)
	if err != nil {
		return nil, 0, err
	}
	run.Temporary = r.run == ""
	if run.Remote = remote; !load {
		return run, 0, nil
	}
	if step, err = run.Load(ctx, r.checkpoint); err != nil {
		run.Close()
		return nil, 0, err
	}
	return run, step, nil
}

// stage makes a run of the graph with weights in a temporary folder.
func (r *runFlags) stage(ctx context.Context, env train.Env) (folder string, err error) {
	p := params.Defaults()
	if p.Load(nil, r.settings) == nil { // Stage reports errors
		if err := setProcess(p); err != nil {
			return "", err
		}
	}
	if folder, err = os.MkdirTemp("", "gorbit-weights-"); err != nil {
		return "", err
	}
	if err := r.weights.Stage(ctx, folder, r.settings, env); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}

func newEvaluate(g *globals) *cobra.Command {
	var r runFlags
	var split string
	var rows evaluatedRows
	var follow, asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "evaluate --run FOLDER [flags]",
		Aliases: []string{"eval"},
		Short:   "Evaluate a run's checkpoint",
		Long: `Evaluates a checkpoint of a run on a split of its data. With --follow every new
checkpoint is evaluated when a training process writes it, until no new one appears
within --timeout; the run need not have started yet. With --follow, results are also
written to TensorBoard files, in the folder eval-SPLIT of the run, unless it is in a bucket.

The result is kept in the run's folder evaluations. --predictions writes each example
with its label, prediction, probabilities and loss; --worst lists the examples of the
highest loss, which may have a wrong label.

With --tpu the model runs on a Cloud TPU. That ends whatever runs there, such as a
training.`,
		Example: `  gorbit evaluate --run runs/mrpc --checkpoint best
  gorbit evaluate --run runs/mrpc --worst 50 --predictions dev.jsonl
  gorbit evaluate --run runs/mrpc --follow --timeout 30m`,
		Args: noArgs,
	}
	r.add(cmd, params.Latest)
	f := cmd.Flags()
	f.StringVar(&split, "split", "", "split of the data (default: the first of the run's data.eval)")
	f.BoolVar(&follow, "follow", false, "evaluate every new checkpoint")
	f.DurationVar(&timeout, "timeout", 10*time.Minute, "with --follow: how long to wait for the run and for each checkpoint; 0 means no limit")
	f.BoolVar(&asJSON, "json", false, "print only the results, one line of JSON each")
	help.Group(f, "What to evaluate, and when", "split", "follow", "timeout", "json")
	rows.add(f)
	r.onTPU(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmp.Or(checkFollow(f, follow, timeout), rows.validate(f)); err != nil {
			return err
		}
		out := &checkedWriter{w: cmd.OutOrStdout()}
		var lines io.Writer = out
		if asJSON {
			lines = cmd.ErrOrStderr()
		}
		env, err := g.env(lines)
		if err != nil {
			return err
		}
		if err := r.check(); err != nil {
			return err
		}
		switch {
		case follow && r.run == "":
			return usagef("--follow is given with --graph; leave it out: only a run has new checkpoints")
		case r.run == "" && r.weights.Data == "":
			return usagef("--data is missing; expected the folder of the data to evaluate on")
		}
		if follow {
			if err := train.AwaitRun(cmd.Context(), r.run, timeout, env); err != nil {
				return err
			}
		}
		run, _, err := r.open(cmd.Context(), env, !follow)
		if err != nil {
			return err
		}
		defer run.Close()
		run.GenerateTexts = rows.texts
		report := reporter(env, run, out, asJSON)
		if follow {
			return cmp.Or(run.EvaluateContinuously(cmd.Context(), split, timeout, report), out.err)
		}
		e, err := rows.evaluate(cmd.Context(), run, split)
		if err == nil {
			err = cmp.Or(e.WriteTable(env.Out, columnsOf(asJSON)), report(e), nextAfterEvaluation(out, r, asJSON))
		}
		return cmp.Or(r.unlabelled(err), out.err)
	}
	return cmd
}

// unlabelled lets the error of records without labels name the model in the command that it proposes.
func (r *runFlags) unlabelled(err error) error {
	if lacks := (*prepare.UnlabelledError)(nil); errors.As(err, &lacks) {
		lacks.Model = r.words()
	}
	return err
}

// reporter returns what keeps an evaluation in the run, and prints it as a line of JSON if it is wanted so.
func reporter(env train.Env, run *train.Run, out io.Writer, asJSON bool) func(*evaluation.Evaluation) error {
	return func(e *evaluation.Evaluation) error {
		keepEvaluation(env, run, e)
		if !asJSON {
			return nil
		}
		line, err := json.Marshal(map[string]any{"step": e.Step, "outputs": e.Metrics})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", line)
		return err
	}
}

// nextAfterEvaluation prints what to type after an evaluation of a model.
func nextAfterEvaluation(out io.Writer, r runFlags, asJSON bool) error {
	if asJSON {
		return nil
	}
	_, err := fmt.Fprintf(out, "next: gorbit export %s --out %s\n", r.words(), launch.Quote("served/"+r.title()))
	return err
}

// columnsOf returns the width of the terminal that tables are written to, standard output or, if
// that has the results alone, standard error; 0 if it is none.
func columnsOf(alone bool) int {
	f := os.Stdout
	if alone {
		f = os.Stderr
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// keepEvaluation writes the result of an evaluation into the run. A run that cannot be written to can
// be evaluated, too.
func keepEvaluation(env train.Env, run *train.Run, e *evaluation.Evaluation) {
	if run.Temporary {
		return // what is printed is all
	}
	if run.Remote != "" { // whose files belong to the process that trains it
		env.Log.Info("the result is not kept in the run, because that is in a bucket; keep what is printed")
		return
	}
	path, err := evaluation.Write(run.Folder, e)
	if err != nil {
		env.Log.Warn("the result was not kept in the run", "error", err)
		return
	}
	env.Log.Info("the result is kept", "file", path)
}

// checkFollow returns an error if flags of gorbit evaluate do not go together.
func checkFollow(f *pflag.FlagSet, follow bool, timeout time.Duration) error {
	switch {
	case follow && f.Changed("checkpoint"):
		return usagef("--follow evaluates every new checkpoint; leave out --checkpoint")
	case follow && (f.Changed("predictions") || f.Changed("worst")):
		return usagef("--follow evaluates many checkpoints; leave out --predictions and --worst, or --follow")
	case f.Changed("timeout") && !follow:
		return usagef("--timeout is given without --follow; expected both, or neither: only --follow waits")
	case timeout < 0:
		return usagef("--timeout is %v; expected 0 (no limit) or more", timeout)
	}
	return nil
}

// checkedWriter keeps the first error of its writer. The lines are the result of an evaluation, so
// a line that cannot be written is a failure.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.err = cmp.Or(c.err, err)
	return n, err
}

// evaluatedRows holds the flags of gorbit evaluate that ask for single examples.
type evaluatedRows struct {
	texts       bool // whether texts are generated for them
	predictions string
	overwrite   bool
	worst       int
	sources     string
}

func (r *evaluatedRows) add(f *pflag.FlagSet) {
	f.BoolVar(&r.texts, "generate", false, "also generate texts for the prompts of the examples, and score them as the params eval.generate say")
	f.StringVar(&r.predictions, "predictions", "", "`FILE` for the predictions, a line of JSON for each example; may end in .gz or .zst")
	f.BoolVar(&r.overwrite, "overwrite", false, "replace the file for the predictions")
	f.IntVar(&r.worst, "worst", 0, "how many of the examples of the highest loss to list")
	f.StringVar(&r.sources, "sources", "", "`FOLDER` with the files that the data were made of, for their texts (default: next to the data, or here)")
	help.Group(f, "Single examples", "generate", "predictions", "overwrite", "worst", "sources")
}

// validate checks the flags, which f has parsed.
func (r *evaluatedRows) validate(f *pflag.FlagSet) error {
	name := r.predictions
	switch {
	case f.Changed("sources") && name == "" && r.worst <= 0:
		return usagef("--sources is given without --worst or --predictions; expected one of them: only they have texts")
	case r.worst < 0:
		return usagef("--worst is %d; expected 0 or more", r.worst)
	case name == "" && f.Changed("predictions"):
		return usagef("--predictions is empty; expected the name of a file")
	case name == "" && r.overwrite:
		return usagef("--overwrite is given without --predictions; expected both, or neither")
	case name == "":
		return nil
	}
	if remote, err := vfs.RemoteOf(name); err != nil || remote != nil {
		if err != nil {
			return usagef("--predictions: %w", err)
		}
		return nil
	}
	folder := filepath.Dir(name)
	if info, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return usagef("--predictions %s: there is no folder %s; create it with mkdir -p %[2]s", name, folder)
	}
	return nil
}

// evaluate evaluates a run and its single examples, if they are asked for or, of regressions, to tell
// how the errors are spread.
func (r *evaluatedRows) evaluate(ctx context.Context, run *train.Run, split string) (*evaluation.Evaluation, error) {
	single := r.predictions != "" || r.worst > 0 || run.Export.Contract.Task == task.Regression
	if !single {
		return run.Evaluation(ctx, split)
	}
	run.Sources = r.sources
	write := func(evaluation.Row) error { return nil }
	var out *predict.Output
	if r.predictions != "" {
		var err error
		// Before the evaluation, which may take long.
		if out, err = predict.NewOutput(nil, r.predictions, r.overwrite); err != nil {
			return nil, err
		}
		defer out.Discard()
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)
		write = func(row evaluation.Row) error { return lines.Encode(row) }
	}
	e, err := run.Evaluation(ctx, split)
	if err != nil {
		return nil, err
	}
	kept := evaluation.Examples{Worst: r.worst}
	err = run.EvaluateExamples(ctx, split, func(row evaluation.Row) error {
		kept.Add(row)
		return write(row)
	})
	if out != nil {
		err = out.End(ctx, err)
	}
	kept.End(e)
	if err == nil {
		err = run.DescribeInputs(ctx, split, e.Worst)
	}
	return e, err
}
