package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/ctxio"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/predict"
)

func newPredict(g *globals) *cobra.Command {
	var r runFlags
	var a asked
	cmd := &cobra.Command{
		Use:   "predict --run FOLDER (--text TEXT | --file FILE | --split SPLIT) [flags]",
		Short: "Classify texts with a run's checkpoint",
		Long: `Classifies texts with a checkpoint of a run. The texts come from --text (with one
--text-pair for each if the task has pairs), from the lines of a file (a tab between
the two texts of a pair; objects with text and text_pair in a .jsonl file), or from a
split of the run's data. Answers are printed in the order of the texts.`,
		Example: `  gorbit predict --run runs/mrpc --text "He left." --text-pair "He went away."
  gorbit predict --run runs/reviews --file reviews.txt --format json
  gorbit predict --run runs/mrpc --split test --format tsv > answers.tsv`,
		Args: noArgs,
	}
	r.add(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&a.texts, "text", nil, "text to classify; may be repeated")
	f.StringArrayVar(&a.pairs, "text-pair", nil, "second text of the pair; once for each --text")
	f.StringVar(&a.file, "file", "", "file of texts, one per line; - is standard input")
	f.StringVar(&a.split, "split", "", "classify this split of the run's data")
	f.StringVar(&a.vocab, "vocab", "", "vocabulary file (default: the run's)")
	f.BoolVar(&a.lowercase, "lowercase", true, "whether the vocabulary is uncased (default: as in the run's data)")
	f.Lookup("lowercase").DefValue = "" // the help text states the default
	f.StringVar(&a.format, "format", "text", "format of the answers: text, tsv (label, score) or json (one object per line)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.lowercaseGiven = f.Changed("lowercase")
		if err := a.validate(f); err != nil {
			return err
		}
		env, err := g.env(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		run, _, err := r.open(cmd.Context(), env, true)
		if err != nil {
			return err
		}
		defer run.Close()
		w := bufio.NewWriter(cmd.OutOrStdout())
		each := func(answer predict.Answer) error { return predict.Format(a.format).Write(w, answer) }
		if a.split != "" {
			err = run.PredictSplit(cmd.Context(), a.split, each)
		} else {
			err = a.predictTexts(cmd, run, each)
		}
		return errors.Join(err, w.Flush())
	}
	return cmd
}

// asked holds the flags that say what to predict.
type asked struct {
	texts, pairs               []string
	file, split, vocab, format string
	lowercase, lowercaseGiven  bool
}

// validate checks the flags, which f has parsed.
func (a *asked) validate(f *pflag.FlagSet) error {
	given := 0
	for _, name := range []string{"text", "file", "split"} {
		if f.Changed(name) {
			given++
		}
	}
	if given != 1 {
		return usagef("%d of --text, --file and --split given; expected one", given)
	}
	for name, value := range map[string]string{"file": a.file, "split": a.split} {
		if f.Changed(name) && value == "" {
			return usagef("--%s is empty; expected a name", name)
		}
	}
	if len(a.pairs) > 0 && len(a.pairs) != len(a.texts) {
		return usagef("%d --text and %d --text-pair given; expected one --text-pair for each --text, or none", len(a.texts), len(a.pairs))
	}
	if err := predict.Format(a.format).Validate(); err != nil {
		return usagef("--format: %w", err)
	}
	return nil
}

// predictTexts calls each with the answer to every text of --text or --file.
func (a *asked) predictTexts(cmd *cobra.Command, run *train.Run, each func(predict.Answer) error) error {
	source := predict.Source(&predict.List{Texts: a.texts, Pairs: a.pairs})
	if a.file != "" {
		in := ctxio.NewReader(cmd.Context(), cmd.InOrStdin())
		if a.file != "-" {
			opened, err := ctxio.Open(cmd.Context(), a.file)
			if err != nil {
				return err
			}
			defer opened.Close()
			in = opened
		}
		source = predict.NewLines(in, a.file, predict.ParserOf(a.file))
	}
	var lower *bool // nil: as the run's data says
	if a.lowercaseGiven {
		lower = &a.lowercase
	}
	tokenizer, err := run.Tokenizer(a.vocab, lower)
	if err != nil {
		return err
	}
	return run.PredictTexts(cmd.Context(), tokenizer, source, each)
}
