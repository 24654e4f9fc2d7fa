package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

func newPredict(g *globals) *cobra.Command {
	var r runFlags
	var a asked
	cmd := &cobra.Command{
		Use:   "predict --run FOLDER (--text TEXT | --file FILE | --split SPLIT) [flags]",
		Short: "Predict with a run's checkpoint",
		Long: `Answers texts, or other examples, with a checkpoint of a run. The texts come from --text
(with one --text-pair for each if the task has pairs), from a file, or from a split of
the run's data. Answers are printed in the order of the texts, or written to --out.

A .tsv or .csv file, which may be compressed (.gz, .zst), has a header, and
--text-column and --pair-column name its columns (with --no-header by number, starting
at 1); the default are the columns that the run's data was made of. Its columns are
kept, and the answer's follow: label, score, probability_LABEL for each label, and
truncated. A .jsonl file has objects with text and text_pair, or with the fields that
these flags name. Any other file has one text per line, or two with a tab between
them.

A model that takes no texts answers the records of a split or of a .tfrecord file, or the
rows of a table, whose columns are those that the run's data was made of. Without
columns in the data, they have the names of the graph's features, and several values
in a cell stand with spaces between them or, in .jsonl, in an array.

With --tpu the model runs on a Cloud TPU. That ends whatever runs there.`,
		Example: `  gorbit predict --run runs/mrpc --text "He left." --text-pair "He went away."
  gorbit predict --run runs/reviews --file reviews.txt --format json
  gorbit predict --run runs/reviews --file reviews.csv --text-column review --out out.csv
  gorbit predict --run runs/mrpc --split test --format tsv > answers.tsv`,
		Args: noArgs,
	}
	r.add(cmd, params.BestOrLatest)
	f := cmd.Flags()
	a.add(f)
	r.onTPU(cmd)
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
		if task := run.Export.Contract.Task; f.Changed("top-k") && task != string(convert.MaskedLM) {
			return usagef("--top-k is given, and the model's task is %s; leave it out: it is for mlm", task)
		}
		run.TopK = a.topK
		var skipped skippedRows
		if a.skipBad {
			run.Skip = skipped.add(env.Log)
		}
		err = a.predict(cmd, run, env.Log)
		if skipped > 0 {
			env.Log.Warn("skipped bad rows", "file", a.file, "skipped", int(skipped))
		}
		if is[*predict.LineError](err) && !a.skipBad {
			err = fmt.Errorf("%w; correct the row, or leave such rows out with --skip-bad-rows", err)
		}
		return err
	}
	return cmd
}

// asked holds the flags that say what to predict.
type asked struct {
	texts, pairs                    []string
	file, split, vocab, format, out string
	lowercase, lowercaseGiven       bool
	overwrite, skipBad              bool
	topK                            int
	columns                         predict.Columns
}

// add adds the flags.
func (a *asked) add(f *pflag.FlagSet) {
	f.StringArrayVar(&a.texts, "text", nil, "text to classify; may be repeated")
	f.StringArrayVar(&a.pairs, "text-pair", nil, "second `TEXT` of the pair; once for each --text")
	f.StringVar(&a.file, "file", "", "file of texts; - is standard input")
	f.StringVar(&a.columns.Text, "text-column", "", "column of the text in the file")
	f.StringVar(&a.columns.Pair, "pair-column", "", "column of the second text of a pair")
	f.StringVar(&a.columns.ID, "id-column", "", "the only column to keep beside the answers (default: all)")
	f.BoolVar(&a.columns.NoHeader, "no-header", false, "the file has no header row")
	f.StringVar(&a.columns.Format, "input-format", "", "format of the file: lines, tsv (no quoting), csv, jsonl or json (an array of objects) (default: by its name)")
	f.StringVar(&a.columns.Delimiter, "delimiter", "", "`CHARACTER` between the columns of tsv and csv, such as ; or tab (default: a tab, a comma)")
	f.StringVar(&a.columns.Charset, "encoding", "", "encoding of a file with columns: utf-8, latin-1 or windows-1252 (default: utf-8)")
	f.BoolVar(&a.skipBad, "skip-bad-rows", false, "leave out the rows of the file that cannot be answered, such as empty texts, and count them")
	f.StringVar(&a.split, "split", "", "classify this split of the run's data")
	f.StringVar(&a.vocab, "vocab", "", "vocabulary `FILE` (default: the run's)")
	f.BoolVar(&a.lowercase, "lowercase", true, "whether the vocabulary is uncased (default: as in the run's data)")
	f.Lookup("lowercase").DefValue = "" // the help text states the default
	f.StringVar(&a.format, "format", "", "format of the answers: text, tsv, csv or json (default: by the name of --out, else text, or that of a file with columns)")
	f.IntVar(&a.topK, "top-k", predict.DefaultTopK, "task mlm: how many tokens to propose for each [MASK]")
	f.StringVar(&a.out, "out", "", "`FILE` for the answers; may end in .gz or .zst (default: standard output)")
	f.BoolVar(&a.overwrite, "overwrite", false, "replace the file for the answers")
	help.Group(f, "What to answer", "text", "text-pair", "file", "split")
	help.Group(f, "The file", "text-column", "pair-column", "id-column", "no-header", "input-format", "delimiter", "encoding", "skip-bad-rows")
	help.Group(f, "The vocabulary", "vocab", "lowercase")
	help.Group(f, "Output", "out", "overwrite", "format", "top-k")
}

// skippedRows counts rows that are left out.
type skippedRows int

// add returns a function that counts a row, and logs the first ones.
func (s *skippedRows) add(log *slog.Logger) func(error) {
	const most = 10 // as gorbit convert
	return func(err error) {
		if *s++; *s <= most {
			log.Warn("bad row", "error", err)
		}
	}
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
	if a.file == "" && a.skipBad {
		return usagef("--skip-bad-rows is given without --file; expected both, or neither")
	}
	if a.file == "" && a.columns != (predict.Columns{}) {
		return usagef("columns, or a format of the input, are given without --file; expected them only with --file")
	}
	if a.topK < 1 {
		return usagef("--top-k is %d; expected 1 or more", a.topK)
	}
	if f.Changed("out") && a.out == "" {
		return usagef("--out is empty; expected a name")
	}
	if a.overwrite && a.out == "" {
		return usagef("--overwrite is given without --out; expected both, or neither")
	}
	if err := a.columns.Validate(); err != nil {
		return usagef("%w", err)
	}
	if err := predict.Format(a.format).Validate(); err != nil {
		return usagef("--format: %w", err)
	}
	return nil
}

// predict writes the answers to everything that was asked.
func (a *asked) predict(cmd *cobra.Command, run *train.Run, log *slog.Logger) error {
	if !run.TakesTexts() {
		return a.predictRecords(cmd, run, log)
	}
	source, closeFile, err := a.source(cmd, run, log)
	if err != nil {
		return err
	}
	defer closeFile()
	renderer, err := run.Renderer()
	if err != nil {
		return err
	}
	out, write, err := predict.Answers(cmd.OutOrStdout(), a.out, a.overwrite, source, predict.Format(a.format), renderer)
	if err != nil {
		return err
	}
	defer out.Discard()
	if a.split != "" {
		return out.End(cmd.Context(), run.PredictSplit(cmd.Context(), a.split, write))
	}
	var lower *bool // nil: as the run's data says
	if a.lowercaseGiven {
		lower = &a.lowercase
	}
	tokenizer, err := run.Tokenizer(a.vocab, lower)
	if err != nil {
		return err
	}
	return out.End(cmd.Context(), run.PredictTexts(cmd.Context(), tokenizer, source, write))
}

// predictRecords writes the answers of a model that takes no texts: to the records of a split or of a
// TFRecord file, or to the rows of a table.
func (a *asked) predictRecords(cmd *cobra.Command, run *train.Run, log *slog.Logger) error {
	if len(a.texts) > 0 {
		return usagef("--text is given, and the graph of the run takes no texts; expected records, with --split, or values in columns, with --file")
	}
	ctx := cmd.Context()
	renderer, err := run.Renderer()
	if err != nil {
		return err
	}
	var in predict.Source
	var rows *predict.Rows
	records := predict.IsRecords(a.file)
	if a.file != "" && !records {
		if rows, err = run.OpenRows(ctx, a.file, cmd.InOrStdin(), a.columns); err != nil {
			return err
		}
		defer rows.Close()
		in = rows.Table
	}
	out, write, err := predict.Answers(cmd.OutOrStdout(), a.out, a.overwrite, in, predict.Format(a.format), renderer)
	if err != nil {
		return err
	}
	defer out.Discard()
	switch {
	case rows != nil:
		err = run.PredictBatches(ctx, rows, write)
		if n := rows.Cut(); n > 0 {
			log.Warn("texts that were too long were cut; their answers use only their beginning", "texts", n)
		}
	case records:
		err = run.PredictRecords(ctx, []string{a.file}, write)
	default:
		err = run.PredictSplit(ctx, a.split, write)
	}
	return out.End(ctx, err)
}

// source returns the texts of --text or --file, and a function that closes the file.
func (a *asked) source(cmd *cobra.Command, run *train.Run, log *slog.Logger) (predict.Source, func() error, error) {
	if a.file == "" {
		return &predict.List{Texts: a.texts, Pairs: a.pairs}, func() error { return nil }, nil
	}
	columns := a.columns
	if m := run.Manifest; m != nil {
		columns.Trained = predict.TrainedColumns{Text: m.Columns.Text, Pair: m.Columns.Pair}
	}
	in, closeFile, err := predict.Open(cmd.Context(), a.file, cmd.InOrStdin(), columns)
	if t, ok := in.(*predict.Table); ok && columns.Text == "" {
		first, second := t.TextColumns()
		log.Info("columns as in the run's data", "file", a.file, "text", first, "pair", second)
	}
	return in, closeFile, err
}
