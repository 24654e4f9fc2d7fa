package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/app/asked"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

func newPredict(g *globals) *cobra.Command {
	var r runFlags
	var a question
	cmd := &cobra.Command{
		Use:   "predict (--run FOLDER | --model FOLDER) (--text TEXT | --file FILE | --split SPLIT) [flags]",
		Short: "Predict with a run's checkpoint or an exported model",
		Long: `Answers texts, or other examples, with a checkpoint of a run. The texts come from --text
(with one --text-pair for each if the task has pairs), from a file, or from a split of
the run's data. Answers are printed in the order of the texts, or written to --out.

A .tsv or .csv file, which may be compressed (.gz, .zst), has a header, and
--text-column and --pair-column name its columns (with --no-header by number, starting
at 1); the default are the columns that the run's data was made of. Its columns are
kept, and the answer's follow: label, score, probability_LABEL for each label,
truncated, and of choices the one that was chosen. A .jsonl file has objects with text and
text_pair, or with the fields that these flags name. Any other file has one text per line,
or two with a tab between them.

A model that takes no texts answers the records of a split or of a .tfrecord file, or the
rows of a table, whose columns are those that the run's data was made of. Without
columns in the data, they have the names of the graph's features, and several values
in a cell stand with spaces between them or, in .jsonl, in an array.

A causal language model (task lm) continues texts, one token after the other: by the
likeliest one, by samples (--temperature, --top-k, --top-p, --min-p, --typical-p, --seed), or
by a beam search (--num-beams). An encoder-decoder model (task seq2seq) makes a text of each,
such as a translation, in the same ways. The flags mean what they mean in Hugging Face's transformers.

With --model a model of texts that gorbit export wrote is asked, such as one in int8.

With --tpu the model runs on a Cloud TPU. That ends whatever runs there.`,
		Example: `  gorbit predict --run runs/mrpc --text "He left." --text-pair "He went away."
  gorbit predict --run runs/reviews --file reviews.txt --format json
  gorbit predict --run runs/reviews --file reviews.csv --text-column review --out out.csv
  gorbit predict --run runs/mrpc --split test --format tsv > answers.tsv
  gorbit predict --run runs/stories --text "Once upon a time" --max-new-tokens 40 --top-p 0.9`,
		Args: noArgs,
	}
	r.add(cmd, params.BestOrLatest)
	f := cmd.Flags()
	a.add(f)
	model := f.String("model", "", "`FOLDER` of a model that gorbit export wrote, to ask instead of a run; of texts")
	help.Group(f, "An exported model", "model")
	r.onTPU(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.lowercaseGiven = f.Changed("lowercase")
		if err := a.validate(f); err != nil {
			return err
		}
		if f.Changed("model") && (r.given() || f.Changed("tpu") || len(r.settings) > 0 || f.Changed("checkpoint")) {
			return usagef("--model is given with flags of a run; expected --model alone, or --run or --graph")
		}
		if !f.Changed("model") {
			if err := r.check(); err != nil {
				return err
			}
			if a.split != "" && r.run == "" && r.weights.Data == "" {
				return usagef("--split is given without --data; expected the folder of the data that has the split")
			}
		}
		env, err := g.env(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if f.Changed("model") {
			return a.predictModel(cmd, *model, env)
		}
		return a.predictRun(cmd, &r, env)
	}
	return cmd
}

// predictRun writes the answers of a run, or of the weights that stand for one.
func (a *question) predictRun(cmd *cobra.Command, r *runFlags, env train.Env) error {
	run, _, err := r.open(cmd.Context(), env, false)
	if err != nil {
		return err
	}
	defer run.Close()
	if run.Generates() && a.split == "" && run.Params.Strategy.Kind() == devices.TPU {
		return usagef("texts are not continued on a TPU; leave out --tpu") // before it is started
	}
	if _, err := run.Load(cmd.Context(), r.checkpoint); err != nil {
		return err
	}
	if task := run.Export.Contract.Task; cmd.Flags().Changed("top-k") && task != string(convert.MaskedLM) && !run.Generates() {
		return usagef("--top-k is given, and the model's task is %s; leave it out: it is for mlm, lm and seq2seq", task)
	}
	if name := a.generation.Given(); name != "" && (!run.Generates() || a.split != "") {
		return usagef("--%s is given, and no text is continued; leave it out: it is for --text and --file of a run whose graph generates", name)
	}
	if a.topK == 0 && !run.Generates() {
		return usagef("--top-k is 0; expected 1 or more")
	}
	run.TopK = a.topK
	run.Skip = a.Skip(func(err error) { env.Log.Warn("bad row", "error", err) })
	err = a.predict(cmd, run, env.Log)
	if a.Skipped > 0 {
		env.Log.Warn("skipped bad rows", "file", a.File, "skipped", a.Skipped)
	}
	return a.Explain(err)
}

// question holds the flags that say what to predict.
type question struct {
	asked.Flags
	split, vocab              string
	lowercase, lowercaseGiven bool
	topK                      int
	generation                asked.Generation
}

// add adds the flags.
func (a *question) add(f *pflag.FlagSet) {
	a.Add(f)
	f.StringVar(&a.split, "split", "", "classify this split of the run's data")
	addTokenizer(f, &a.vocab, "(default: the run's)")
	f.BoolVar(&a.lowercase, "lowercase", true, "whether the vocabulary is uncased (default: as in the run's data)")
	f.Lookup("lowercase").DefValue = "" // the help text states the default
	f.IntVar(&a.topK, "top-k", predict.DefaultTopK, "task mlm: how many tokens to propose for each hidden one, such as [MASK]; task lm: sample of so many of the likeliest tokens (default 50; 0 is all)")
	help.Group(f, "What to answer", "text", "text-pair", "file", "split")
	help.Group(f, "The file", "text-column", "pair-column", "id-column", "no-header", "input-format", "delimiter", "encoding", "skip-bad-rows")
	help.Group(f, "The vocabulary", "tokenizer", "vocab", "lowercase")
	help.Group(f, "Output", "out", "overwrite", "format", "escape-formulas", "top-k")
	a.generation.Add(f)
}

// validate checks the flags, which f has parsed.
func (a *question) validate(f *pflag.FlagSet) error {
	given := 0
	for _, name := range []string{"text", "file", "split"} {
		if f.Changed(name) {
			given++
		}
	}
	if given != 1 {
		return usagef("%d of --text, --file and --split given; expected one", given)
	}
	for name, value := range map[string]string{"file": a.File, "split": a.split} {
		if f.Changed(name) && value == "" {
			return usagef("--%s is empty; expected a name", name)
		}
	}
	if err := oneTokenizer(f); err != nil {
		return err
	}
	if a.topK < 0 {
		return usagef("--top-k is %d; expected 1 or more, or 0 (all) for task lm", a.topK)
	}
	if f.Changed("out") && a.Out == "" {
		return usagef("--out is empty; expected a name")
	}
	return a.Validate()
}

// predict writes the answers to everything that was asked.
func (a *question) predict(cmd *cobra.Command, run *train.Run, log *slog.Logger) error {
	if !run.TakesTexts() {
		return a.predictRecords(cmd, run, log)
	}
	if run.Generates() && a.split == "" {
		return a.generate(cmd, run, log)
	}
	if run.Export.Contract.HasTargets() {
		return usagef("--split is given, and the run's model makes texts of sources; expected texts, with --text or --file, or gorbit evaluate --run RUN --generate --predictions FILE, which makes those of a split")
	}
	renderer, err := run.Renderer()
	if err != nil {
		return err
	}
	a.Columns.Choices = predict.Chooses(renderer)
	source, closeFile, err := a.source(cmd, run, log)
	if err != nil {
		return err
	}
	defer closeFile()
	out, write, err := predict.Answers(shown.Data(cmd.OutOrStdout()), a.Out, a.Overwrite, source, predict.Format(a.Format), renderer)
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
func (a *question) predictRecords(cmd *cobra.Command, run *train.Run, log *slog.Logger) error {
	if len(a.Texts) > 0 {
		return usagef("--text is given, and the graph of the run takes no texts; expected records, with --split, or values in columns, with --file")
	}
	ctx := cmd.Context()
	renderer, err := run.Renderer()
	if err != nil {
		return err
	}
	var in predict.Source
	var rows *predict.Rows
	records := predict.IsRecords(a.File)
	if a.File != "" && !records {
		if rows, err = run.OpenRows(ctx, a.File, cmd.InOrStdin(), a.Columns); err != nil {
			return err
		}
		defer rows.Close()
		in = rows.Table
	}
	out, write, err := predict.Answers(shown.Data(cmd.OutOrStdout()), a.Out, a.Overwrite, in, predict.Format(a.Format), renderer)
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
		err = run.PredictRecords(ctx, []string{a.File}, write)
	default:
		err = run.PredictSplit(ctx, a.split, write)
	}
	return out.End(ctx, err)
}

// source returns the texts of --text or --file, and a function that closes the file.
func (a *question) source(cmd *cobra.Command, run *train.Run, log *slog.Logger) (predict.Source, func() error, error) {
	if a.File == "" {
		return &predict.List{Texts: a.Texts, Pairs: a.Pairs}, func() error { return nil }, nil
	}
	columns := a.Columns
	if m := run.Manifest; m != nil {
		columns.Trained = &predict.TrainedColumns{Text: m.Columns.Text, Choices: m.Columns.Choices, Stem: m.Columns.Stem}
		if m.Kind() != convert.Embed { // of which the model sees one text at a time
			columns.Trained.Pair = m.Columns.Pair
		}
	}
	in, closeFile, err := predict.Open(cmd.Context(), a.File, cmd.InOrStdin(), columns)
	if t, ok := in.(*predict.Table); ok && columns.Text == "" {
		from := t.TextColumns()
		line := []any{"file", a.File, "text", from.Text, "pair", from.Pair}
		if len(from.Choices) > 0 {
			line = append(line, "choices", strings.Join(from.Choices, ","))
		}
		if from.Stem != "" {
			line = append(line, "before_each", from.Stem)
		}
		log.Info("columns as in the run's data", line...)
	}
	return in, closeFile, err
}

// generate writes the continuations of everything that was asked.
func (a *question) generate(cmd *cobra.Command, run *train.Run, log *slog.Logger) error {
	if len(a.Pairs) > 0 {
		return usagef("--text-pair is given, and the run's model continues one text; leave it out")
	}
	var lower *bool
	if a.lowercaseGiven {
		lower = &a.lowercase
	}
	tokenizer, err := run.Tokenizer(a.vocab, lower)
	if err != nil {
		return err
	}
	g, err := a.generation.Of(run.Maker(), tokenizer, log)
	if err != nil {
		return err
	}
	source, closeFile, err := a.source(cmd, run, log)
	if err != nil {
		return err
	}
	defer closeFile()
	out, write, err := predict.Answers(shown.Data(cmd.OutOrStdout()), a.Out, a.Overwrite, source, predict.Format(a.Format), g.Renderer())
	if err != nil {
		return err
	}
	defer out.Discard()
	return out.End(cmd.Context(), run.Generate(cmd.Context(), g, source, write))
}
