// Command gorbit-predict answers with a model that gorbit export wrote.
//
// It is a shell around packages train/predict and train/predict/served, which stand on
// github.com/galeone/tfgo, the usual way to load a SavedModel in Go: no part of gorbit
// that trains is in it.
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

	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/version"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/predict/served"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program, less the process.
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
		Short: "Answer with a trained model",
		Long: `Answers with a model that gorbit export wrote: the most probable label of each
text or pair of texts, and the probabilities.

Texts come from --text (and --text-pair), each as often as there are examples, or
from a file. A file whose name ends in .jsonl holds one object a line, with a field
"text" and maybe a field "text_pair". Any other file, and standard input, holds one
text a line, and maybe a tab and the second text after it.

Each answer is one line, in the order of the texts: the label and its probability
(text, tsv), or an object with label, index, score, probabilities and logits (json).
A text that is longer than the model takes is cut; its answer says so in text and json
("truncated"), and how many there were is said at the end.

A model is a program. One whose operations reach files, processes, the network or
Python is refused before it is loaded, unless --allow-op names them.

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
				return fault.Usagef("unexpected argument %q: texts are given with --text", args[0])
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
	flags.StringArrayVar(&o.texts, "text", nil, "`text` to answer about; may be repeated")
	flags.StringArrayVar(&o.pairs, "text-pair", nil, "second `text` of a pair; as often as --text")
	flags.StringVar(&o.file, "file", "", "`file` of texts, - for standard input")
	flags.StringVar(&o.format, "format", "text", "of the answers: text, tsv (label, score) or json")
	flags.IntVar(&o.batchSize, "batch-size", 32, "examples that the model sees at once")
	flags.StringSliceVar(&o.allowOps, "allow-op", nil, "let the model use this `operation`, which reaches files, processes or Python")
	return cmd
}

func (o options) validate() error {
	switch {
	case o.model == "":
		return errors.New("--model is missing")
	case len(o.texts) == 0 && o.file == "":
		return errors.New("there is nothing to answer: give --text or --file")
	case len(o.texts) > 0 && o.file != "":
		return errors.New("--text and --file exclude each other")
	case len(o.pairs) > 0 && len(o.pairs) != len(o.texts):
		return fmt.Errorf("--text-pair is given %d times and --text %d times", len(o.pairs), len(o.texts))
	case o.batchSize < 1:
		return fmt.Errorf("--batch-size %d is less than 1", o.batchSize)
	}
	if err := predict.Format(o.format).Validate(); err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	return nil
}

// answer answers on all texts and tells of those that were too long.
func answer(ctx context.Context, o options, stdin io.Reader, stdout, stderr io.Writer) error {
	in := predict.Source(&predict.List{Texts: o.texts, Pairs: o.pairs})
	switch o.file {
	case "":
	case "-":
		in = predict.NewLines(stdin, "standard input", predict.ParseTSV)
		// Whoever types waits for an answer to each line.
		if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			o.batchSize = 1
		}
	default:
		f, err := os.Open(o.file)
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
		fmt.Fprintf(stderr, "gorbit-predict: %d of %d texts have more than %d tokens and were cut: the answers on them are on their beginning\n", done.Truncated, done.Answers, model.MaxLength)
	}
	return errors.Join(err, w.Flush())
}
