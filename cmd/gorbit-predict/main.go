// Command gorbit-predict classifies texts with a model that gorbit export wrote.
//
// It is a thin command line over packages train/predict and train/predict/served. They load the
// model with github.com/galeone/tfgo, the usual SavedModel loader for Go, so the program contains
// none of gorbit's training code.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/internal/ctxio"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/version"
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
	format    string
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

Texts come from --text (and --text-pair), which may be repeated, or from a file. A
file whose name ends in .jsonl holds one JSON object per line, with a field "text"
and an optional field "text_pair". Any other file, and standard input, holds one text
per line, optionally followed by a tab and the second text.

Each answer is one line, in the order of the texts: the label and its probability
(text, tsv), or an object with label, index, score, probabilities and logits (json).
Texts that are longer than the model's limit are cut. Their answers are marked
"truncated" (text, json), and their number is printed at the end.

A model is a program. A model whose operations reach files, processes, the network or
Python is refused before it is loaded, unless --allow-op names these operations.

Exit codes: 0 done, 1 failed, 2 usage (flags), 3 the model or the texts are damaged.`,
		Example: `  gorbit-predict --model served/reviews --text "A gripping, beautifully shot film."
  gorbit-predict --model served/mrpc --text "He said so." --text-pair "So he said."
  gorbit-predict --model served/reviews --file reviews.txt --format json
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
			return answer(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fault.Usagef("%w", err) })
	cmd.CompletionOptions.DisableDefaultCmd = true
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.model, "model", "", "`folder` that gorbit export wrote")
	flags.StringArrayVar(&o.texts, "text", nil, "`text` to classify; may be repeated")
	flags.StringArrayVar(&o.pairs, "text-pair", nil, "second `text` of a pair; once for each --text")
	flags.StringVar(&o.file, "file", "", "`file` of texts; - is standard input")
	flags.StringVar(&o.format, "format", "text", "format of the answers: text, tsv (label, score) or json")
	flags.IntVar(&o.batchSize, "batch-size", 32, "number of texts in one call of the model")
	flags.StringSliceVar(&o.allowOps, "allow-op", nil, "allow the model to use this `operation` although it reaches files, processes or Python")
	return cmd
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
	if err := predict.Format(o.format).Validate(); err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	return nil
}

// answer classifies all texts, and prints how many were cut because they were too long.
func answer(ctx context.Context, o options, stdin io.Reader, stdout, stderr io.Writer) error {
	in := predict.Source(&predict.List{Texts: o.texts, Pairs: o.pairs})
	switch o.file {
	case "":
	case "-":
		in = predict.NewLines(stdin, "standard input", predict.ParseTSV)
		// On a terminal, answer each line as it is typed.
		if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			o.batchSize = 1
		}
	default:
		f, err := ctxio.Open(ctx, o.file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = predict.NewLines(f, o.file, predict.ParserOf(o.file))
	}
	model, err := served.Open(o.model, o.allowOps...)
	if err != nil {
		return err
	}
	predictor, err := model.Predictor(o.batchSize)
	if err != nil {
		return err
	}
	if model.Pairs != nil {
		in = predict.CheckPairs(in, *model.Pairs, func(number int, message string) {
			fmt.Fprintf(stderr, "gorbit-predict: text %d: %s\n", number, message)
		})
	}
	w, written := bufio.NewWriter(stdout), 0
	done, err := predictor.Each(ctx, in, func(a predict.Answer) error {
		if err := predict.Format(o.format).Write(w, a); err != nil {
			return err
		}
		if written++; written%o.batchSize != 0 {
			return nil
		}
		return w.Flush()
	})
	if done.Truncated > 0 {
		fmt.Fprintf(stderr, "gorbit-predict: %d of %d texts have more than %d tokens and were cut; their answers use only their beginning\n", done.Truncated, done.Answers, model.MaxLength)
	}
	return errors.Join(err, w.Flush())
}
