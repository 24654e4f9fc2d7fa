package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/task"
)

// evaluatedRows holds the flags of gorbit evaluate that ask for single examples.
type evaluatedRows struct {
	predictions string
	overwrite   bool
	worst       int
	sources     string
}

func (r *evaluatedRows) add(f *pflag.FlagSet) {
	f.StringVar(&r.predictions, "predictions", "", "`FILE` for the predictions, a line of JSON for each example; may end in .gz or .zst")
	f.BoolVar(&r.overwrite, "overwrite", false, "replace the file for the predictions")
	f.IntVar(&r.worst, "worst", 0, "how many of the examples of the highest loss to list")
	f.StringVar(&r.sources, "sources", "", "`FOLDER` with the files that the data were made of, for their texts (default: beside the data, or here)")
	help.Group(f, "Single examples", "predictions", "overwrite", "worst", "sources")
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
