package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/ctxio"
	"github.com/gorbit-ml/gorbit/train/predict"
)

func newPredict(g *globals) *cobra.Command {
	var r runFlags
	var texts, pairs []string
	var file, split, vocab, format string
	var lowercase bool
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
	f.StringArrayVar(&texts, "text", nil, "text to classify; may be repeated")
	f.StringArrayVar(&pairs, "text-pair", nil, "second text of the pair; once for each --text")
	f.StringVar(&file, "file", "", "file of texts, one per line; - is standard input")
	f.StringVar(&split, "split", "", "classify this split of the run's data")
	f.StringVar(&vocab, "vocab", "", "vocabulary file (default: the run's)")
	f.BoolVar(&lowercase, "lowercase", true, "whether the vocabulary is uncased (default: as in the run's data)")
	f.Lookup("lowercase").DefValue = "" // the help text states the default
	f.StringVar(&format, "format", "text", "format of the answers: text, tsv (label, score) or json (one object per line)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := 0
		for _, name := range []string{"text", "file", "split"} {
			if f.Changed(name) {
				given++
			}
		}
		if given != 1 {
			return usagef("%d of --text, --file and --split given; expected one", given)
		}
		for name, value := range map[string]string{"file": file, "split": split} {
			if f.Changed(name) && value == "" {
				return usagef("--%s is empty; expected a name", name)
			}
		}
		if len(pairs) > 0 && len(pairs) != len(texts) {
			return usagef("%d --text and %d --text-pair given; expected one --text-pair for each --text, or none", len(texts), len(pairs))
		}
		if err := predict.Format(format).Validate(); err != nil {
			return usagef("--format: %w", err)
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
		each := func(a predict.Answer) error { return predict.Format(format).Write(w, a) }
		if split != "" {
			err = run.PredictSplit(cmd.Context(), split, each)
		} else {
			var lower *bool
			if f.Changed("lowercase") {
				lower = &lowercase
			}
			source := predict.Source(&predict.List{Texts: texts, Pairs: pairs})
			if file != "" {
				in := ctxio.NewReader(cmd.Context(), cmd.InOrStdin())
				if file != "-" {
					opened, err := ctxio.Open(cmd.Context(), file)
					if err != nil {
						return err
					}
					defer opened.Close()
					in = opened
				}
				source = predict.NewLines(in, file, predict.ParserOf(file))
			}
			tokenizer, failed := run.Tokenizer(vocab, lower)
			if failed != nil {
				return failed
			}
			err = run.PredictTexts(cmd.Context(), tokenizer, source, each)
		}
		return errors.Join(err, w.Flush())
	}
	return cmd
}
