// Command gorbit-predict classifies texts with a model that gorbit export wrote.
//
// It is a thin command line over packages train/predict and train/predict/served. They load the
// model with github.com/galeone/tfgo, the usual SavedModel loader for Go, so the program contains
// none of gorbit's training code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	_ "github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"   // paths that begin with gs://
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess" // keeps TensorFlow's log off the terminal
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/predict/served"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return fault.ExitDone
	}
	hint := ""
	if errors.Is(err, fault.Usage) {
		hint = " (see gorbit-predict --help)"
	}
	fmt.Fprintf(stderr, "gorbit-predict: %v%s\n", err, hint)
	return fault.ExitCode(err)
}

type options struct {
	model     string
	texts     []string
	pairs     []string
	file      string
	columns   predict.Columns
	format    string
	out       string
	overwrite bool
	skipBad   bool
	skipped   int
	batchSize int
	allowOps  []string
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "gorbit-predict --model FOLDER (--text TEXT ... | --file FILE)",
		Short: "Classify texts with a trained model",
		Long: `Classifies texts, or pairs of texts, with a model that gorbit export wrote. Prints the
most probable label of each text and its probability.

Texts come from --text (and --text-pair), which may be repeated, or from a file.
A .tsv or .csv file, which may be compressed (.gz, .zst), has a header, and
--text-column and --pair-column name its columns; with --no-header they are numbers,
starting at 1. Its columns are kept, and the answer's follow: label, score,
probability_LABEL for each label, truncated. A .jsonl file holds one JSON object per
line, with a field "text" and an optional field "text_pair", or the fields that
--text-column and --pair-column name. Any other file, and standard input, holds one
text per line, optionally followed by a tab and the second text.

A model that takes no texts answers the records of a .tfrecord file, or the rows of a
table, whose columns are those that its training data were made of.

The answers come in the order of the texts. Without columns, each is one line: the
label and its probability (text, tsv), or an object with label, index, score,
probabilities and logits (json).
Texts that are longer than the model's limit are cut. Their answers are marked
"truncated" (text, json), and their number is printed at the end.

A model is a program. A model whose operations reach files, processes, the network or
Python is refused before it is loaded, unless --allow-op names these operations.

Exit codes: 0 done, 1 failed, 2 usage (flags), 3 the model or the texts are damaged.`,
		Example: `  gorbit-predict --model served/reviews --text "A gripping, beautifully shot film."
  gorbit-predict --model served/mrpc --text "He said so." --text-pair "So he said."
  gorbit-predict --model served/reviews --file reviews.txt --format json
  gorbit-predict --model served/reviews --file reviews.csv --text-column review --out answers.csv
  cat reviews.txt | gorbit-predict --model served/reviews --file -`,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fault.Usagef("unexpected argument %q; pass texts with --text", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return fault.Usagef("%w", err)
			}
			err := answer(cmd.Context(), &o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			if o.skipped > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "gorbit-predict: skipped %d bad rows of %s\n", o.skipped, o.file)
			}
			if errors.As(err, new(*predict.LineError)) && !o.skipBad {
				err = fmt.Errorf("%w; correct the row, or leave such rows out with --skip-bad-rows", err)
			}
			return err
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fault.Usagef("%w", err) })
	cmd.CompletionOptions.DisableDefaultCmd = true
	o.add(cmd.Flags())
	return cmd
}

// add adds the flags.
func (o *options) add(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&o.model, "model", "", "`folder` that gorbit export wrote")
	flags.StringArrayVar(&o.texts, "text", nil, "`text` to classify; may be repeated")
	flags.StringArrayVar(&o.pairs, "text-pair", nil, "second `text` of a pair; once for each --text")
	flags.StringVar(&o.file, "file", "", "`file` of texts; - is standard input")
	flags.StringVar(&o.columns.Text, "text-column", "", "`column` of the text in the file")
	flags.StringVar(&o.columns.Pair, "pair-column", "", "`column` of the second text of a pair")
	flags.StringVar(&o.columns.ID, "id-column", "", "the only `column` to keep beside the answers (default: all)")
	flags.BoolVar(&o.columns.NoHeader, "no-header", false, "the file has no header row")
	flags.StringVar(&o.columns.Format, "input-format", "", "format of the file: lines, tsv (no quoting), csv, jsonl or json (an array of objects) (default: by its name)")
	flags.StringVar(&o.columns.Delimiter, "delimiter", "", "character between the columns of tsv and csv, such as ; or tab (default: a tab, a comma)")
	flags.StringVar(&o.columns.Charset, "encoding", "", "encoding of a file with columns: utf-8, latin-1 or windows-1252 (default: utf-8)")
	flags.BoolVar(&o.skipBad, "skip-bad-rows", false, "leave out the rows of the file that cannot be answered, such as empty texts, and count them")
	flags.StringVar(&o.format, "format", "", "format of the answers: text, tsv, csv or json (default: by the name of --out, else text, or that of a file with columns)")
	flags.StringVar(&o.out, "out", "", "`file` for the answers; may end in .gz or .zst (default: standard output)")
	flags.BoolVar(&o.overwrite, "overwrite", false, "replace the file for the answers")
	flags.IntVar(&o.batchSize, "batch-size", 32, "number of texts in one call of the model")
	flags.StringSliceVar(&o.allowOps, "allow-op", nil, "allow the model to use this `operation` although it reaches files, processes or Python")
}

func (o options) validate() error {
	switch {
	case o.model == "":
		return errors.New("--model is missing; expected the folder that gorbit export wrote")
	case len(o.texts) == 0 && o.file == "":
		return errors.New("no texts given; expected --text or --file")
	case len(o.texts) > 0 && o.file != "":
		return errors.New("both --text and --file given; expected one of them")
	case len(o.pairs) > 0 && len(o.pairs) != len(o.texts):
		return fmt.Errorf("%d --text and %d --text-pair given; expected one --text-pair for each --text, or none", len(o.texts), len(o.pairs))
	case o.batchSize < 1:
		return fmt.Errorf("--batch-size is %d; expected 1 or more", o.batchSize)
	}
	if o.file == "" && o.skipBad {
		return errors.New("--skip-bad-rows is given without --file; expected both, or neither")
	}
	if o.file == "" && o.columns != (predict.Columns{}) {
		return errors.New("columns, or a format of the input, are given without --file; expected them only with --file")
	}
	if o.overwrite && o.out == "" {
		return errors.New("--overwrite is given without --out; expected both, or neither")
	}
	if err := o.columns.Validate(); err != nil {
		return err
	}
	if err := predict.Format(o.format).Validate(); err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	return nil
}

// skip returns a function that counts a row which is left out, and prints the first ones; nil if such
// rows are not left out.
func (o *options) skip(stderr io.Writer) func(error) {
	if !o.skipBad {
		return nil
	}
	const most = 10
	return func(err error) {
		if o.skipped++; o.skipped <= most {
			fmt.Fprintf(stderr, "gorbit-predict: bad row: %v\n", err)
		}
	}
}

// answer loads the model and answers everything that was asked.
func answer(ctx context.Context, o *options, stdin io.Reader, stdout, stderr io.Writer) error {
	folder, err := vfs.Localize(ctx, o.model, nil)
	if err != nil {
		return err
	}
	model, err := served.Open(folder, o.allowOps...)
	if err != nil {
		return err
	}
	if !model.TakesTexts() {
		return answerRecords(ctx, o, model, stdin, stdout, stderr)
	}
	return answerTexts(ctx, o, model, stdin, stdout, stderr)
}

// answerRecords answers the rows of a table, or the records of a file.
func answerRecords(ctx context.Context, o *options, model *served.Model, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(o.texts) > 0 {
		return fault.Usagef("--text is given, and the model takes no texts; expected values in the columns of a file, with --file")
	}
	var in predict.Source
	var batches predict.BatchReader
	if predict.IsRecords(o.file) {
		set, err := dataset.Open(ctx, dataset.Config{Files: []string{o.file}, BatchSize: o.batchSize, Epochs: 1, Shuffle: dataset.ShuffleNone, Layout: model.Layout()})
		if err != nil {
			return err
		}
		defer set.Close()
		batches = set
	} else {
		rows, err := model.OpenRows(ctx, o.file, stdin, o.columns, o.batchSize)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Skip = o.skip(stderr)
		in, batches = rows.Table, rows
	}
	out, write, err := predict.Answers(stdout, o.out, o.overwrite, in, predict.Format(o.format), model.Renderer)
	if err != nil {
		return err
	}
	defer out.Discard()
	_, err = predict.Batches(ctx, model, model.Renderer, predict.ReadBatches(ctx, batches), write)
	if rows, ok := batches.(*predict.Rows); ok && rows.Cut() > 0 {
		fmt.Fprintf(stderr, "gorbit-predict: %d texts were too long and were cut; their answers use only their beginning\n", rows.Cut())
	}
	return out.End(ctx, err)
}

// answerTexts answers all texts, and prints how many were cut because they were too long.
func answerTexts(ctx context.Context, o *options, model *served.Model, stdin io.Reader, stdout, stderr io.Writer) error {
	in := predict.Source(&predict.List{Texts: o.texts, Pairs: o.pairs})
	if o.file != "" {
		opened, closeFile, err := predict.Open(ctx, o.file, stdin, o.columns)
		if err != nil {
			return err
		}
		defer closeFile()
		in = opened
		// On a terminal, answer each line as it is typed.
		if f, ok := stdin.(*os.File); ok && o.file == "-" && term.IsTerminal(int(f.Fd())) {
			o.batchSize = 1
		}
	}
	predictor, err := model.Predictor(o.batchSize)
	if err != nil {
		return err
	}
	predictor.Skip = o.skip(stderr)
	out, write, err := predict.Answers(stdout, o.out, o.overwrite, in, predict.Format(o.format), model.Renderer)
	if err != nil {
		return err
	}
	defer out.Discard()
	if model.Pairs != nil {
		in = predict.CheckPairs(in, *model.Pairs, func(number int, message string) {
			fmt.Fprintf(stderr, "gorbit-predict: text %d: %s\n", number, message)
		})
	}
	written := 0
	done, err := predictor.Each(ctx, in, func(a predict.Answer) error {
		if err := write(a); err != nil {
			return err
		}
		if written++; written%o.batchSize != 0 {
			return nil
		}
		return out.Flush()
	})
	if done.Truncated > 0 {
		fmt.Fprintf(stderr, "gorbit-predict: %d of %d texts have more than %d tokens and were cut; their answers use only their beginning\n", done.Truncated, done.Answers, model.MaxLength)
	}
	return out.End(ctx, err)
}
