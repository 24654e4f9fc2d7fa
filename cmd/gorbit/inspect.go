package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/app/inspect"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// looked holds the flags of gorbit inspect.
type looked struct {
	dot              string
	asJSON, verify   bool
	diff             bool
	overwrite        bool
	batch            int64
	examples         int
	settings         []string
	global           *globals
	batchGiven, sets bool
}

func newInspect(g *globals) *cobra.Command {
	l := looked{global: g}
	cmd := &cobra.Command{
		Use:   "inspect PATH [flags]",
		Short: "Show what an export, a model, a run, a checkpoint or records contain",
		Long: `Shows what a file or folder contains; what it is is seen by its content. Nothing in a
graph is run.

A training export is checked against the contract; its functions, variables, number of
parameters, floating-point operations per token, hyperparameters and operations are
listed, with those that reach files, processes or Python. Any other SavedModel: its
signatures, variables and operations. A checkpoint of TensorFlow, or a file of
safetensors or GGUF: names, types, shapes and sizes, with checksums verified where there
are any. A run folder: its checkpoints, the best one, and its params. A dataset's folder
or a TFRecord file: its features with their kinds and lengths, and the first examples.

--diff compares the weights of two of them, in any mix; names are mapped as for
gorbit train --init. --batch shows the batch of a step of a run as the model sees it.`,
		Example: `  gorbit inspect exports/mrpc
  gorbit inspect exports/mrpc --dot model.dot && dot -Tsvg model.dot > model.svg
  gorbit inspect data/mrpc --examples 1
  gorbit inspect --diff runs/mrpc model.safetensors
  gorbit inspect --batch 17 runs/mrpc`,
	}
	f := cmd.Flags()
	f.StringVar(&l.dot, "dot", "", "write a Graphviz drawing of an export's model to this `FILE`; - is standard output")
	f.BoolVar(&l.overwrite, "overwrite", false, "replace the file of --dot even if it is no such drawing")
	f.BoolVar(&l.asJSON, "json", false, "print the report as JSON")
	f.BoolVar(&l.verify, "verify", false, "verify the checksums of a checkpoint of any size (default: up to 512 MiB)")
	f.BoolVar(&l.diff, "diff", false, "compare the weights of two paths")
	f.Int64Var(&l.batch, "batch", 0, "show the batch of this `STEP` of a run")
	f.IntVar(&l.examples, "examples", 3, "records to show of each split")
	f.StringArrayVar(&l.settings, "set", nil, "with --batch: one param of the run, as `SECTION.NAME=VALUE`")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		l.batchGiven, l.sets = f.Changed("batch"), f.Changed("set")
		return l.check(f, cmd.CommandPath(), args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		switch {
		case l.diff:
			return l.showDiff(cmd.Context(), out, args[0], args[1])
		case l.batchGiven:
			return l.showBatch(cmd.Context(), out, args[0])
		}
		return l.show(cmd.Context(), out, args[0])
	}
	return cmd
}

// check returns an error if flags and arguments do not go together.
func (l *looked) check(f *pflag.FlagSet, command string, args []string) error {
	want, what := 1, "expected one"
	if l.diff {
		want, what = 2, "expected two, to compare"
	}
	given := 0
	for _, name := range []string{"dot", "diff", "batch"} {
		if f.Changed(name) {
			given++
		}
	}
	switch {
	case len(args) != want:
		return usagef("%d paths given; %s; see %s --help", len(args), what, command)
	case given > 1:
		return usagef("%d of --dot, --diff and --batch given; expected at most one", given)
	case l.batchGiven && l.batch < 1:
		return usagef("--batch is %d; expected a step, 1 or more", l.batch)
	case l.overwrite && l.dot == "":
		return usagef("--overwrite is given without --dot; expected both, or neither")
	case l.sets && !l.batchGiven:
		return usagef("--set is given without --batch; expected both, or neither")
	case l.examples < 0:
		return usagef("--examples is %d; expected 0 or more", l.examples)
	}
	return nil
}

// written is a report that can be printed.
type written interface{ Write(io.Writer) error }

// print prints a report in the form that was asked for.
func (l *looked) print(out io.Writer, report written) error {
	if l.asJSON {
		return writeJSON(out, report)
	}
	return report.Write(out)
}

// locate returns what a path is, of which a bucket's files are copied.
func locate(ctx context.Context, path string) (inspect.Found, error) {
	if vfs.Scheme(path) != "" {
		if _, err := vfs.Stat(vfs.Join(path, "params.yaml")); err == nil {
			local, err := runfolder.LocalRun(ctx, path, params.Latest)
			return inspect.Found{Kind: inspect.Run, Path: local}, err
		}
	}
	local, err := vfs.Localize(ctx, path, nil)
	if err != nil {
		return inspect.Found{}, err
	}
	return inspect.Recognise(local)
}

// show shows what is at a path.
func (l *looked) show(ctx context.Context, out io.Writer, path string) error {
	found, err := locate(ctx, path)
	if err != nil {
		return err
	}
	if l.dot != "" && found.Kind != inspect.Export {
		return usagef("--dot is given, and %s is a %s; expected a training export", path, found.Kind)
	}
	if found.Note != "" && !l.asJSON && (found.Kind == inspect.Export || found.Kind == inspect.Run || found.Kind == inspect.Served || found.Kind == inspect.SavedModel) {
		fmt.Fprintf(out, "%s: %s\n", found.Path, found.Note)
	}
	var report written
	switch found.Kind {
	case inspect.Export:
		return l.showExport(ctx, out, found.Path)
	case inspect.Served, inspect.SavedModel:
		report, err = describeModel(found)
	case inspect.Run:
		var run *train.RunReport
		if run, err = train.DescribeRun(ctx, found.Path); err == nil {
			run.Path = path
		}
		report = run
	case inspect.Checkpoint, inspect.Safetensors, inspect.GGUF:
		report, err = inspect.DescribeWeights(ctx, found, l.verify)
	default:
		sets, damage := inspect.DescribeRecords(ctx, found, l.examples)
		if sets == nil {
			return damage
		}
		return errors.Join(l.print(out, sets), damage) // what is damaged, after what is not
	}
	if err != nil {
		return err
	}
	return l.print(out, report)
}

// showExport shows a training export.
func (l *looked) showExport(ctx context.Context, out io.Writer, path string) error {
	export, err := graphs.Open(path)
	if err != nil {
		return err
	}
	if l.dot == "-" {
		return export.Dot(shown.Data(out))
	}
	if l.dot != "" {
		f, err := made.Create(l.dot, isDrawing, l.overwrite)
		if err != nil {
			return err
		}
		defer f.Discard()
		if err := export.Dot(f); err != nil {
			return err
		}
		return f.End(ctx)
	}
	return l.print(out, graphs.Inspect(export))
}

// isDrawing reports whether a file with this beginning is a drawing of an export.
func isDrawing(head []byte) bool { return bytes.HasPrefix(head, []byte(graphs.DotBegins)) }

// servedReport is a SavedModel with the description of a served model.
type servedReport struct {
	*graphs.ModelReport
	Serving *layout.Description `json:"serving,omitempty"`
}

// Write implements written.
func (s servedReport) Write(out io.Writer) error {
	if d := s.Serving; d != nil {
		fmt.Fprintf(out, "  served model for gorbit-predict: task %s, labels %q, at most %d tokens\n", d.Task, d.Labels, d.MaxLength)
		if d.Int8 != nil {
			fmt.Fprintf(out, "  dense layers in int8: %s\n", d.Int8)
		}
	}
	return s.ModelReport.Write(out)
}

// describeModel describes a SavedModel that is no training export.
func describeModel(found inspect.Found) (written, error) {
	model, err := graphs.Describe(found.Path)
	if err != nil {
		return nil, err
	}
	s := servedReport{ModelReport: model}
	if found.Kind == inspect.Served {
		if s.Serving, err = layout.Read(found.Path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// showDiff compares the weights at two paths.
func (l *looked) showDiff(ctx context.Context, out io.Writer, a, b string) error {
	left, err := sideOf(ctx, a)
	if err != nil {
		return err
	}
	right, err := sideOf(ctx, b)
	if err != nil {
		return err
	}
	d, err := inspect.Diff(ctx, left, right)
	if err != nil {
		return err
	}
	return l.print(out, d)
}

// sideOf returns the weights at a path: of a run, its latest checkpoint.
func sideOf(ctx context.Context, path string) (inspect.Side, error) {
	found, err := locate(ctx, path)
	if err != nil {
		return inspect.Side{}, err
	}
	s := inspect.Side{Path: found.Path}
	switch found.Kind {
	case inspect.Checkpoint, inspect.Safetensors, inspect.GGUF:
		return s, nil
	case inspect.Run, inspect.Export:
		if s.Wanted, err = train.WantedOf(found.Path); err != nil {
			return s, err
		}
	case inspect.Served, inspect.SavedModel:
	default:
		return s, usagef("%s is a %s, which has no weights; expected a checkpoint, safetensors, GGUF, a run, an export or a served model", path, found.Kind)
	}
	s.Path = filepath.Join(found.Path, "variables", "variables")
	if found.Kind == inspect.Run {
		newest, err := inspect.Recognise(filepath.Join(found.Path, "checkpoints"))
		if err != nil {
			return s, fmt.Errorf("run %s has no checkpoint yet: %w", path, err)
		}
		s.Path = newest.Path
	}
	if _, err := os.Stat(checkpoint.IndexPath(s.Path)); err != nil {
		return s, usagef("%s has no variables; expected the export itself, a run or a checkpoint", path)
	}
	return s, nil
}

// showBatch shows the batch of a step of a run.
func (l *looked) showBatch(ctx context.Context, out io.Writer, run string) error {
	env, err := l.global.env(io.Discard)
	if err != nil {
		return err
	}
	drawn, err := train.DrawBatch(ctx, run, l.batch, l.settings, env)
	if err != nil {
		return err
	}
	return l.print(out, drawn)
}
