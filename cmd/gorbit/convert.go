package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/progress"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

func newConvert(g *globals) *cobra.Command {
	c := convert.Config{}
	var flags convertFlags
	cmd := &cobra.Command{
		Use:   "convert (--task TASK --tokenizer PATH | --schema FILE) --train FILE [--dev FILE] --out FOLDER [flags]",
		Short: "Convert texts, tables and images to TFRecords",
		Long: `Tokenizes labelled texts and writes them as TFRecord shards, together with the
vocabulary and a manifest (label names, lengths, checksums). The same input, flags
and seed produce the same bytes.

Tasks: ` + strings.Join(convert.Tasks(), ", ") + `. The task "text" reads any tab-separated, CSV
or JSON file (also .gz and .zst); --text-column, --pair-column and --label-column name its columns
(with --no-header by number, starting at 1). So do "regression", whose label column has numbers,
and "multilabel", whose label column has several labels. "tokens" reads sentences of words with
labels, in CoNLL columns, as word/label (--format brown) or from JSON; "mlm" reads texts without
labels, one per line unless --text-column names a column, and cuts them into blocks, and so does
"lm", whose models say what follows. "qa" reads questions with contexts and answers: SQuAD's
files, or objects with question, context and answers. "choices" reads texts with several texts each,
in columns or a list, of which one goes with it. "images" reads folders of PNG and JPEG files
by class: DIR/CLASS/FILE, or Parquet files with images and their classes.

With --schema, a YAML file says which features to make of which columns: numbers,
categories, texts, images by path, weights and ids. See docs/guide/convert.md.`,
		Example: `  gorbit convert --task mrpc --vocab vocab.txt --train train.tsv --dev dev.tsv --out data/mrpc
  gorbit convert --task mlm --tokenizer roberta/ --train texts.txt --out data/texts
  gorbit convert --task images --train photos/train --dev photos/validation --out data/photos
  gorbit convert --schema schema.yaml --train train.csv --dev dev.csv --out data/iris
  gorbit convert --vocab vocab.txt --train reviews.csv --text-column review \
      --label-column stars --split-by-hash id --out data/reviews`,
		Args: noArgs,
	}
	f := cmd.Flags()
	flags.add(f, &c)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.resolve(&c, f); err != nil {
			return err
		}
		if err := c.Validate(); err != nil {
			// Errors are joined by newlines; report only the first.
			first, _, _ := strings.Cut(err.Error(), "\n")
			return usagef("%s", first)
		}
		env, err := g.env(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		end := func() {}
		if bar, ok := env.Observer.(*progress.Bar); ok {
			c.Progress = func(p convert.Progress) { bar.Read("convert", p.Bytes, p.Total, p.Rows) }
			end = bar.End
		}
		var m *convert.Manifest
		to := c.Out
		err = publish(cmd.Context(), to, convert.ManifestName, made.Dataset, c.Overwrite, env.Log, func(local string) error {
			c.Out = local
			m, err = convert.Run(cmd.Context(), c, env.Log)
			return err
		})
		end()
		var exists *convert.ExistsError
		if errors.As(err, &exists) {
			return usagef("%s already exists; choose another folder with --out, or add --overwrite to replace it", exists.Path)
		}
		if errors.Is(err, fs.ErrExist) && vfs.Scheme(to) != "" {
			return usagef("%s already has a dataset; choose another folder with --out, or add --overwrite to replace it", to)
		}
		if err != nil {
			return err
		}
		return printManifest(cmd, to, m)
	}
	return cmd
}

// convertFlags holds the flags that a convert.Config has in another form.
type convertFlags struct {
	train, dev, test, extra      []string
	format, charset, compression string
	delimiter                    string
	documents, blocks            string
	threshold                    float64
	imageShape                   []int
	cased                        bool
}

// add defines the flags in f. Those that a convert.Config has in the same form set c.
func (v *convertFlags) add(f *pflag.FlagSet, c *convert.Config) {
	f.StringVar(&c.Task, "task", convert.TextTask, "`TASK` of the input files: "+strings.Join(convert.Tasks(), ", "))
	f.StringVar(&c.Schema, "schema", "", "YAML `FILE` that says which features to make of which columns, instead of a task")
	addTokenizer(f, &c.Vocab, "(required for texts)")
	f.StringArrayVar(&v.train, "train", nil, "`FILE` of the training split, or folder of its shards; may be repeated")
	f.StringArrayVar(&v.dev, "dev", nil, "`FILE` of the dev split")
	f.StringArrayVar(&v.test, "test", nil, "`FILE` of the test split")
	f.StringArrayVar(&v.extra, "split", nil, "file of another split, as `NAME=FILE`")
	f.StringVar(&c.Out, "out", "", "`FOLDER` to write (required)")
	f.BoolVar(&c.Overwrite, "overwrite", false, "replace an existing dataset")
	f.BoolVar(&v.cased, "cased", false, "keep case and accents, for cased vocabularies; other tokenizers say themselves what is kept")
	f.BoolVar(&c.Tokenizer.LiteralSpecials, "literal-specials", false, "treat [SEP] and other special tokens in a text as plain characters")
	f.IntVar(&c.MaxLength, "max-length", convert.DefaultMaxLength, "maximum tokens of a record, including [CLS] and [SEP]; task qa: 384 if not given")
	f.IntVar(&c.MaxTargetLength, "max-target-length", convert.DefaultMaxLength, "task seq2seq: maximum tokens of a target, including the end token")
	f.IntVar(&c.DocStride, "doc-stride", 128, "task qa: tokens that neighbouring windows of a long context share")
	f.StringVar(&v.format, "format", "auto", "format of the files: tsv (no quoting), csv, jsonl, json (an array of objects), parquet, npz (NumPy's arrays) or tfrecord, conll or brown for task tokens, lines for tasks mlm and lm, squad for task qa; auto goes by the file name")
	f.StringVar(&v.delimiter, "delimiter", "", "`CHARACTER` between the columns of tsv and csv, such as ; or tab (default: a tab, a comma)")
	f.StringVar(&v.charset, "encoding", string(convert.UTF8), "utf-8, latin-1 or windows-1252")
	f.BoolVar(&c.NoHeader, "no-header", false, "the files have no header row")
	f.StringVar(&c.TextColumn, "text-column", "", "column of the text")
	f.StringVar(&c.PairColumn, "pair-column", "", "column of the second text of a pair; task lm: of what follows the text, which alone is learned")
	f.StringVar(&c.ChatColumn, "chat-column", "", "task lm: `COLUMN` of JSON with conversations, lists of messages, which the tokenizer's chat template renders; what the assistant says is learned")
	f.StringVar(&c.SourceColumn, "source-column", "", "task seq2seq: column of the text of which another is made")
	f.StringVar(&c.TargetColumn, "target-column", "", "task seq2seq: column of the text that is made, which alone is learned")
	f.StringVar(&c.Prefix, "prefix", "", "task seq2seq: `TEXT` before each source, such as \"translate English to German: \"")
	f.StringVar(&c.NegativeColumn, "negative-column", "", "task embed: column of a third text, which is not like the first")
	f.Float64Var(&c.ScoreMax, "score-max", 0, "task embed: `NUMBER` that scores are divided by, that of texts which mean the same, such as 5 (default: 1)")
	f.Lookup("score-max").DefValue = "" // the help text states the default
	f.StringSliceVar(&c.ChoiceColumns, "choice-columns", nil, "task choices: `COLUMNS` of the choices, in their order, or the one with a list of them; --pair-column is what stands before each")
	f.StringVar(&c.ImageColumn, "image-column", "", "task images: `COLUMN` of Parquet files with the images (default: the one that is said to be, or the only one with bytes)")
	f.StringVar(&c.LabelColumn, "label-column", "", "column of the label; task images: of classes in Parquet files; task embed: of the score of two texts; task choices: of the number of the right one")
	f.StringVar(&c.LabelSeparator, "label-separator", "", "task multilabel: `CHARACTERS` that separate labels (default: a comma); in JSON they may be an array")
	f.IntSliceVar(&v.imageShape, "image-shape", nil, "task images: `HEIGHT,WIDTH,CHANNELS` that images are scaled to, as Keras does (default: that of the first, which all must have)")
	f.BoolVar(&c.AllPieces, "all-pieces", false, "task tokens: all tokens of a word get its label, not only the first")
	f.BoolVar(&c.WordStarts, "word-starts", false, "task mlm: record where words start, so that whole words can be masked")
	f.StringVar(&v.documents, "documents", "texts", "tasks mlm and lm: what is a document `texts|blank-lines|headings`: each text by itself, the texts up to an empty line, or those from a WikiText heading (= Title =) to the next")
	f.StringVar(&v.blocks, "blocks", "join", "tasks mlm and lm: how blocks are cut `join|keep|group`: across documents with a token between them, never across documents, or as Hugging Face's group_texts (mlm)")
	f.StringSliceVar(&c.Labels, "labels", nil, "labels, in the order of their indices (default: sorted)")
	f.Float64Var(&v.threshold, "label-threshold", 0, "the label column holds scores: those below this value get the first label (negative), the others the second (positive)")
	f.StringVar(&c.SplitByHash, "split-by-hash", "", "move rows of train to dev by the hash of this `COLUMN`")
	f.Float64Var(&c.DevFraction, "dev-fraction", convert.DefaultDevFraction, "with --split-by-hash: the share of rows that goes to dev")
	f.StringVar(&c.DevIDs, "dev-ids", "", "`FILE` of ids, such as GLUE's dev_ids.tsv, whose rows of train go to dev")
	f.IntVar(&c.Shards, "shards", 1, "files per split")
	f.StringVar(&v.compression, "compression", "none", "compression of the records `none|gzip|zlib`")
	f.BoolVar(&c.Shuffle, "shuffle", false, "shuffle the records of each split, seeded by --seed")
	f.Uint64Var(&c.Seed, "seed", 0, "seed of --shuffle")
	f.BoolVar(&c.SkipBadRows, "skip-bad-rows", false, "skip and count rows that cannot be used")
	f.IntVar(&c.Workers, "workers", 0, "rows to tokenize at the same time (0: one per core)")
	help.Group(f, "What to convert", "task", "schema", "tokenizer", "vocab", "train", "dev", "test", "split")
	help.Group(f, "The files", "format", "delimiter", "encoding", "no-header", "skip-bad-rows")
	help.Group(f, "Columns and labels", "text-column", "pair-column", "chat-column", "source-column", "target-column", "prefix", "negative-column", "choice-columns", "label-column", "score-max", "labels", "label-separator", "label-threshold", "image-column", "image-shape")
	help.Group(f, "Tokens", "cased", "literal-specials", "max-length", "max-target-length", "doc-stride", "all-pieces", "word-starts", "documents", "blocks")
	help.Group(f, "Splits", "split-by-hash", "dev-fraction", "dev-ids", "shuffle", "seed")
	help.Group(f, "Output", "out", "overwrite", "shards", "compression", "workers")
}

// resolve sets the fields of c that the flags stand for. f has parsed the flags.
func (v *convertFlags) resolve(c *convert.Config, f *pflag.FlagSet) error {
	// A fixed order, so that the manifest is the same every time.
	for _, split := range []struct {
		name  string
		files []string
	}{{convert.Train, v.train}, {convert.Dev, v.dev}, {convert.Test, v.test}} {
		for _, file := range split.files {
			c.Inputs = append(c.Inputs, convert.Input{Split: split.name, Path: file})
		}
	}
	for _, s := range v.extra {
		name, file, ok := strings.Cut(s, "=")
		if !ok {
			return usagef("--split is %q; expected name=file", s)
		}
		c.Inputs = append(c.Inputs, convert.Input{Split: name, Path: file})
	}
	if c.Schema != "" && !f.Changed("task") {
		c.Task = "" // not the default
	}
	if c.Task == string(convert.QuestionAnswering) && !f.Changed("max-length") {
		c.MaxLength = 0 // the task's own
	}
	if !f.Changed("max-target-length") {
		c.MaxTargetLength = 0 // the default of the task that has it
	}
	switch {
	case f.Changed("doc-stride") && c.DocStride < 1:
		return usagef("--doc-stride is %d; expected 1 or more", c.DocStride)
	case !f.Changed("doc-stride"):
		c.DocStride = 0 // the task's own
	}
	if err := oneTokenizer(f); err != nil {
		return err
	}
	if v.cased && tokenizers.SaysCase(c.Vocab) {
		return usagef("--cased is given, and %s says itself whether case is kept; leave it out", c.Vocab)
	}
	literal := c.Tokenizer.LiteralSpecials
	c.Tokenizer = text.Uncased()
	if v.cased {
		c.Tokenizer = text.Config{}
	}
	c.Tokenizer.LiteralSpecials = literal
	if v.format != "auto" {
		c.Format = convert.Format(v.format)
	}
	c.Charset = convert.Charset(v.charset)
	if v.documents != "texts" {
		c.Documents = convert.Documents(v.documents)
	}
	if v.blocks != "join" {
		c.Blocks = convert.Blocks(v.blocks)
	}
	if f.Changed("label-threshold") {
		c.LabelThreshold = &v.threshold
	}
	for _, n := range v.imageShape {
		c.ImageShape = append(c.ImageShape, int64(n))
	}
	var err error
	if c.Delimiter, err = table.ParseDelimiter(v.delimiter); err != nil {
		return usagef("--delimiter: %w", err)
	}
	if c.SplitByHash == "" && !f.Changed("dev-fraction") {
		c.DevFraction = 0
	}
	if c.Compression, err = tfrecord.ParseCompression(v.compression); err != nil {
		return usagef("--compression: %w", err)
	}
	return nil
}

// mostLabels is how many labels a line of the table of splits names.
const mostLabels = 12

// labelCounts returns "label: count" for each label. Of more than mostLabels it returns the most
// frequent, and how many others there are; the manifest has them all.
func labelCounts(labels []string, counts []int64) []string {
	order := make([]int, len(counts))
	for i := range order {
		order[i] = i
	}
	others := 0
	if len(order) > mostLabels {
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(counts[j], counts[i]) })
		others = len(order) - (mostLabels - 1)
		order = order[:mostLabels-1]
	}
	var parts []string
	for _, i := range order {
		parts = append(parts, fmt.Sprintf("%s: %d", labels[i], counts[i]))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("and %d other labels", others))
	}
	return parts
}

// printManifest prints a table of the splits.
func printManifest(cmd *cobra.Command, out string, m *convert.Manifest) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	if m.HasVocab() {
		fmt.Fprintf(w, "split\trecords\tfiles\ttokens\tlength min/mean/max\tshortened\tlabels\n")
	} else {
		fmt.Fprintf(w, "split\trecords\tfiles\tlabels\n")
	}
	for _, name := range sortedSplits(m) {
		s := m.Splits[name]
		labels := labelCounts(m.Labels, s.LabelCounts)
		if t := s.TargetLengths; m.Kind() == convert.Seq2Seq {
			labels = append(labels, fmt.Sprintf("targets of %d/%.1f/%d tokens", t.Min, t.Mean, t.Max))
			if s.TruncatedTargets > 0 {
				labels = append(labels, fmt.Sprintf("%s shortened to --max-target-length %d", words.Count(s.TruncatedTargets, "target"), m.MaxTargetLength))
			}
		}
		if q := s.Questions; q != nil {
			labels = append(labels, fmt.Sprintf("%d questions", q.Records), fmt.Sprintf("%d without an answer", q.Impossible))
		}
		if !m.HasVocab() {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", name, s.Records, len(s.Files), strings.Join(labels, ", "))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d/%.1f/%d\t%d\t%s\n", name, s.Records, len(s.Files), s.Tokens,
			s.Lengths.Min, s.Lengths.Mean, s.Lengths.Max, s.Truncated, strings.Join(labels, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range m.Sources {
		if s.Skipped > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: skipped %d of %d rows that could not be used\n", s.Name, s.Skipped, s.Rows)
		}
	}
	init := " --init WEIGHTS" // of a release, as of the encoder of exportFor
	if m.Task == convert.SchemaTask {
		init = ""
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\nnext: %s\n      gorbit train --graph EXPORT --data %s%s --run RUN\n", out, exportFor(out, m), launch.Quote(out), init)
	return err
}

// exportFor returns the command that exports a graph for data.
func exportFor(out string, m *convert.Manifest) string {
	if m.Task == convert.SchemaTask {
		return "python -m gorbit_export keras MODEL.py --out EXPORT"
	}
	if m.Kind() == convert.LanguageModel {
		return fmt.Sprintf("python -m gorbit_export causal --data %s --config config.json --out EXPORT", launch.Quote(out))
	}
	if m.Kind() == convert.Seq2Seq {
		return fmt.Sprintf("python -m gorbit_export seq2seq --data %s --config config.json --out EXPORT", launch.Quote(out))
	}
	return fmt.Sprintf("python -m gorbit_export bert --task %s --data %s --config minilm --out EXPORT", m.Kind(), launch.Quote(out))
}

func sortedSplits(m *convert.Manifest) []string { return slices.Sorted(maps.Keys(m.Splits)) }
