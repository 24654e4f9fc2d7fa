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
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/app/asked"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	_ "github.com/gorbit-ml/gorbit/internal/base/vfs/gcs" // paths that begin with gs://
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
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
	stderr = shown.Writer(stderr)
	cmd.SetOut(shown.Writer(stdout))
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
	asked.Flags
	generation asked.Generation

	model     string
	batchSize int
	allowOps  []string
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "gorbit-predict --model FOLDER (--text TEXT ... | --file FILE)",
		Short: "Classify texts, or make texts, with a trained model",
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

A model that generates continues each text or, an encoder-decoder model, makes a text of
it, such as a translation. The flags for that are those of gorbit predict.

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
			vfs.Register(hubfs.Scheme, func() vfs.ReadFS { return hubfs.New(hubfs.Config{Context: cmd.Context()}) })
			err := answer(cmd.Context(), &o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			if o.Skipped > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "gorbit-predict: skipped %d bad rows of %s\n", o.Skipped, o.File)
			}
			return o.Explain(err)
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
	flags.StringVar(&o.model, "model", "", "`folder` that gorbit export wrote, also in a bucket (gs://) or a model hub (hub:OWNER/NAME)")
	o.Add(flags)
	flags.IntVar(&o.batchSize, "batch-size", 32, "most texts in one call of the model; 1 answers each before the next is read")
	flags.StringSliceVar(&o.allowOps, "allow-op", nil, "allow the model to use this `operation` although it reaches files, processes or Python")
	o.generation.Add(flags)
}

func (o options) validate() error {
	switch {
	case o.model == "":
		return errors.New("--model is missing; expected the folder that gorbit export wrote")
	case len(o.Texts) == 0 && o.File == "":
		return errors.New("no texts given; expected --text or --file")
	case len(o.Texts) > 0 && o.File != "":
		return errors.New("both --text and --file given; expected one of them")
	case o.batchSize < 1:
		return fmt.Errorf("--batch-size is %d; expected 1 or more", o.batchSize)
	}
	return o.Validate()
}

// tell returns a function that prints a row which is left out.
func tell(stderr io.Writer) func(error) {
	return func(err error) { fmt.Fprintf(stderr, "gorbit-predict: bad row: %v\n", err) }
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
	if name := o.generation.Given(); name != "" && model.Maker == nil {
		return fault.Usagef("--%s is given, and the model makes no texts; leave it out", name)
	}
	switch {
	case !model.TakesTexts():
		return answerRecords(ctx, o, model, stdin, stdout, stderr)
	case model.Maker != nil:
		return makeTexts(ctx, o, model, stdin, stdout, stderr)
	}
	return answerTexts(ctx, o, model, stdin, stdout, stderr)
}

// answerRecords answers the rows of a table, or the records of a file.
func answerRecords(ctx context.Context, o *options, model *served.Model, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(o.Texts) > 0 {
		return fault.Usagef("--text is given, and the model takes no texts; expected values in the columns of a file, with --file")
	}
	var in predict.Source
	var batches predict.BatchReader
	if predict.IsRecords(o.File) {
		set, err := dataset.Open(ctx, dataset.Config{Files: []string{o.File}, BatchSize: o.batchSize, Epochs: 1, Shuffle: dataset.ShuffleNone, Layout: model.Layout()})
		if err != nil {
			return err
		}
		defer set.Close()
		batches = set
	} else {
		rows, err := model.OpenRows(ctx, o.File, stdin, o.Columns, o.batchSize)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Skip = o.Skip(tell(stderr))
		in, batches = rows.Table, rows
	}
	out, write, err := predict.Answers(shown.Data(stdout), o.Out, o.Overwrite, in, predict.Format(o.Format), model.Renderer)
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

// makeTexts writes a text for each that was asked.
func makeTexts(ctx context.Context, o *options, model *served.Model, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(o.Pairs) > 0 {
		return fault.Usagef("--text-pair is given, and the model continues one text; leave it out")
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
	g, err := o.generation.Of(*model.Maker, model.Tokenizer, log)
	if err != nil {
		return err
	}
	g.Skip = o.Skip(tell(stderr))
	in, closeFile, err := source(ctx, o, stdin)
	if err != nil {
		return err
	}
	defer closeFile()
	out, write, err := predict.Answers(shown.Data(stdout), o.Out, o.Overwrite, in, predict.Format(o.Format), g.Renderer())
	if err != nil {
		return err
	}
	defer out.Discard()
	next, err := model.Generator(ctx, g.Limits)
	if err != nil {
		return err
	}
	cut, answers := 0, 0
	err = g.Each(ctx, next, in, func(a predict.Answer) error {
		if answers++; a.Cut() {
			cut++
		}
		return write(a)
	})
	if cut > 0 {
		fmt.Fprintf(stderr, "gorbit-predict: %d of %d texts have more than %d tokens and were cut; their answers use only their beginning\n", cut, answers, g.Limits.SourceLength)
	}
	return out.End(ctx, err)
}

// withoutTime leaves out the time of a line of the log.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// source returns the texts of --text or --file, and a function that closes the file.
func source(ctx context.Context, o *options, stdin io.Reader) (predict.Source, func() error, error) {
	if o.File == "" {
		return &predict.List{Texts: o.Texts, Pairs: o.Pairs}, func() error { return nil }, nil
	}
	return predict.Open(ctx, o.File, stdin, o.Columns)
}

// answerTexts answers all texts, and prints how many were cut because they were too long.
func answerTexts(ctx context.Context, o *options, model *served.Model, stdin io.Reader, stdout, stderr io.Writer) error {
	if o.File != "" {
		o.Columns.Choices = predict.Chooses(model.Renderer)
	}
	in, closeFile, err := source(ctx, o, stdin)
	if err != nil {
		return err
	}
	defer closeFile()
	// On a terminal, answer each line as it is typed.
	if f, ok := stdin.(*os.File); ok && o.File == "-" && term.IsTerminal(int(f.Fd())) {
		o.batchSize = 1
	}
	predictor, err := model.Predictor(o.batchSize)
	if err != nil {
		return err
	}
	predictor.Skip = o.Skip(tell(stderr))
	out, write, err := predict.Answers(shown.Data(stdout), o.Out, o.Overwrite, in, predict.Format(o.Format), model.Renderer)
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
