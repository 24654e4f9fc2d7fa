package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/job"
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
between the two texts of a pair), or a split of the run's data. Answers come in the
order of the questions.`,
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
		if format != "text" && format != "tsv" && format != "json" {
			return usagef("--format %q is not text, tsv or json", format)
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
		each := func(p job.Prediction) error { return printPrediction(w, format, p) }
		if split != "" {
			err = run.PredictSplit(cmd.Context(), split, each)
		} else {
			var lower *bool
			if f.Changed("lowercase") {
				lower = &lowercase
			}
			next := textsOf(texts, pairs)
			if file != "" {
				var in io.Reader = cmd.InOrStdin()
				if file != "-" {
					opened, err := os.Open(file)
					if err != nil {
						return err
					}
					defer opened.Close()
					in = opened
				}
				next = linesOf(file, in)
			}
			err = predictTexts(cmd.Context(), run, vocab, lower, next, each)
		}
		return errors.Join(err, w.Flush())
	}
	return cmd
}

// textsOf gives the texts of the command line.
func textsOf(texts, pairs []string) func() (job.TextPair, error) {
	i := -1
	return func() (job.TextPair, error) {
		if i++; i >= len(texts) {
			return job.TextPair{}, io.EOF
		}
		t := job.TextPair{First: texts[i]}
		if len(pairs) > 0 {
			t.Second = pairs[i]
		}
		return t, nil
	}
}

// maxLine bounds a line of a file of texts: far more than a model reads.
const maxLine = 16 << 20

// linesOf gives the lines of a file, a tab between the texts of a pair.
func linesOf(name string, r io.Reader) func() (job.TextPair, error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	line := 0
	bad := func(line int, format string, args ...any) error {
		return &convert.RowError{Path: name, Line: int64(line), Reason: fmt.Sprintf(format, args...)}
	}
	return func() (job.TextPair, error) {
		if !scanner.Scan() {
			switch err := scanner.Err(); {
			case errors.Is(err, bufio.ErrTooLong):
				return job.TextPair{}, bad(line+1, "a line of more than %d bytes", maxLine)
			case err != nil:
				return job.TextPair{}, fmt.Errorf("%s:%d: %w", name, line+1, err)
			}
			return job.TextPair{}, io.EOF
		}
		line++
		if !utf8.Valid(scanner.Bytes()) {
			return job.TextPair{}, bad(line, "not valid UTF-8")
		}
		first, second, _ := strings.Cut(strings.TrimSuffix(scanner.Text(), "\r"), "\t")
		if strings.Contains(second, "\t") {
			return job.TextPair{}, bad(line, "more than one tab; a line is a text, or two with a tab between them")
		}
		return job.TextPair{First: first, Second: second}, nil
	}
}

// predictTexts answers as the texts come, some hundred at a time.
func predictTexts(ctx context.Context, run *job.Run, vocab string, lowercase *bool, next func() (job.TextPair, error), each func(job.Prediction) error) error {
	tokenizer, err := run.Tokenizer(vocab, lowercase)
	if err != nil {
		return err
	}
	for end := false; !end; {
		var texts []job.TextPair
		for len(texts) < 512 && !end {
			t, err := next()
			switch {
			case err == io.EOF:
				end = true
			case err != nil:
				return err
			default:
				texts = append(texts, t)
			}
		}
		answers, err := run.PredictTexts(ctx, tokenizer, texts)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if err := each(a); err != nil {
				return err
			}
		}
	}
	return nil
}

func printPrediction(w io.Writer, format string, p job.Prediction) error {
	switch format {
	case "json":
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", line)
		return err
	case "tsv":
		_, err := fmt.Fprintf(w, "%s\t%.6f\n", p.Label, p.Score)
		return err
	}
	_, err := fmt.Fprintf(w, "%s (%.1f %%)\n", p.Label, 100*p.Score)
	return err
}
