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
		Short: "Answer with a run's checkpoint",
		Long: `Classifies texts with a checkpoint of a run: those of --text (each with the
--text-pair of the same place, if the task has pairs), the lines of a file (a tab
between the two texts of a pair; objects with text and text_pair in a .jsonl file),
or a split of the run's data. Answers come in the
order of the predict.`,
		Example: `  gorbit predict --run runs/mrpc --text "He left." --text-pair "He went away."
  gorbit predict --run runs/reviews --file reviews.txt --format json
  gorbit predict --run runs/mrpc --split test --format tsv > answers.tsv`,
		Args: noArgs,
	}
	r.add(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&texts, "text", nil, "text to classify; may be given several times")
	f.StringArrayVar(&pairs, "text-pair", nil, "second text of the pair, one per --text")
	f.StringVar(&file, "file", "", "file of texts, one per line; - is standard input")
	f.StringVar(&split, "split", "", "split of the run's data")
	f.StringVar(&vocab, "vocab", "", "vocabulary file (default: the run's)")
	f.BoolVar(&lowercase, "lowercase", true, "whether the vocabulary is uncased (default: as the run's data)")
	f.Lookup("lowercase").DefValue = "" // help has said so
	f.StringVar(&format, "format", "text", "text, tsv (label, score) or json (one object per line)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := 0
		for _, name := range []string{"text", "file", "split"} {
			if f.Changed(name) {
				given++
			}
		}
		if given != 1 {
			return usagef("give one of --text, --file and --split")
		}
		for name, value := range map[string]string{"file": file, "split": split} {
			if f.Changed(name) && value == "" {
				return usagef("--%s is empty", name)
			}
		}
		if len(pairs) > 0 && len(pairs) != len(texts) {
			return usagef("%d --text and %d --text-pair: give one --text-pair per --text, or none", len(texts), len(pairs))
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
