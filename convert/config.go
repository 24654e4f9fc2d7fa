package convert

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// The names of the splits with a special meaning.
const (
	Train = "train"
	Dev   = "dev"
	Test  = "test"
)

// Format is how an input file is laid out.
type Format string

// The formats. Auto derives the format from the name of the file, which may end in .gz or .zst after
// that: such a file is decompressed, with any format.
const (
	Auto  Format = ""
	TSV   Format = "tsv"   // tab-separated, no quoting: .tsv, .txt
	CSV   Format = "csv"   // comma-separated, quoted as in RFC 4180: .csv
	JSONL Format = "jsonl" // one JSON object per line: .jsonl, .ndjson
	JSON  Format = "json"  // an array of JSON objects: .json
	NPZ   Format = "npz"   // arrays of numpy.savez, a row for each index: .npz

	// TFRecord is records of tf.train.Example of other programs: .tfrecord, .tfrecords.
	TFRecord Format = "tfrecord"

	// Parquet is columns by row groups, as the Hub has data sets: .parquet. Null is null of JSON.
	Parquet Format = "parquet"

	// PlainLines is one text per line, in the column TextField. It is the default for MaskedLM and LanguageModel if no
	// column is named.
	PlainLines Format = "lines"
	// CoNLL and Brown are sentences of tagged words, for Tokens: see docs/guide/texttasks.md. CoNLL is
	// the default for names that show TSV.
	CoNLL Format = "conll"
	Brown Format = "brown"
	// SQuAD is the form of the SQuAD data set, or an array of objects: the default for names that show
	// JSON, for QuestionAnswering.
	SQuAD Format = "squad"
)

// Charset is the encoding of an input file's text.
type Charset string

// The encodings. The zero value means UTF8.
const (
	UTF8        Charset = "utf-8"
	Latin1      Charset = "latin-1"
	Windows1252 Charset = "windows-1252"
)

// Limits of the settings.
const (
	DefaultMaxLength   = 128
	DefaultDevFraction = 0.1

	maxShards    = 512     // files written to at once
	maxMaxLength = 1 << 20 // maximum number of ids of a record
	maxLabels    = 10000
)

// Input is one file of a split.
type Input struct {
	Split string // such as train, dev or test: letters, digits and _
	Path  string // or a folder with the split's shards, such as train-00000-of-00002.parquet
}

// Config says what to convert, and how.
type Config struct {
	// Task is one of Tasks; "" means TextTask.
	Task string
	// Schema is the file that says which features records have and of which columns they are made,
	// in place of Task and of all columns. docs/guide/convert.md describes it.
	Schema string
	// ImageShape is the shape that images of ImagesTask are scaled to, [HEIGHT, WIDTH, CHANNELS]; nil is that
	// of the first image, which all must have.
	ImageShape Shape
	// ImageColumn is the column of ImagesTask that has the images in Parquet files, and LabelColumn that of their
	// classes. "" is the one that Hugging Face's metadata call so, or the only one that may be it.
	ImageColumn string
	// Inputs are the files, in order. A split may have several.
	Inputs []Input
	// Out is the folder of the dataset. It is created if necessary.
	Out string
	// Overwrite replaces an existing dataset.
	Overwrite bool

	// Vocab is the file of the vocabulary: a vocab.txt, a tokenizer.json, a .model of SentencePiece or a GGUF, or a
	// folder with one of them. A schema without text needs none. Tokenizer says how text is prepared for a vocab.txt.
	Vocab     string
	Tokenizer text.Config
	// MaxLength is the maximum number of ids of a record, including special tokens; 0
	// means DefaultMaxLength, or 384 for QuestionAnswering.
	MaxLength int
	// NegativeColumn names the column of texts that are not like that of TextColumn, of Embed.
	NegativeColumn string
	// ScoreMax is what the scores of Embed are divided by, the score of texts that mean the same; 0 is 1.
	ScoreMax float64
	// SourceColumn and TargetColumn name the columns of Seq2Seq, Prefix stands before each source, and
	// MaxTargetLength is the maximum number of ids of a target, with its end token; 0 means
	// DefaultMaxLength.
	SourceColumn, TargetColumn, Prefix string
	MaxTargetLength                    int
	// DocStride is the number of tokens that two windows of a long context share that follow each other,
	// for QuestionAnswering; 0 means 128.
	DocStride int

	// Format and Charset describe the inputs.
	Format  Format
	Charset Charset
	// Delimiter is the ASCII character that separates the columns of TSV and CSV; 0 means a tab
	// and a comma. If the name of a file shows TSV, the format must be given, too.
	Delimiter byte
	// NoHeader says that the files start with a data row. Columns are then named by
	// their numbers, from 1. It applies only to TSV and CSV.
	NoHeader bool
	// TextColumn, PairColumn and LabelColumn name the columns of TextTask. If
	// PairColumn or LabelColumn is "", there is no second text or no label.
	TextColumn, PairColumn, LabelColumn string
	// ChoiceColumns name the columns of the choices of Choices, in their order, or the one of JSON that has
	// a list of them. TextColumn is what all go with, and PairColumn, if there is one, what stands before
	// each choice, with a space after it.
	ChoiceColumns []string
	// ChatColumn names the column of JSON with conversations, for LanguageModel. Each is rendered by the chat
	// template of the tokenizer, and what the assistant says is learned.
	ChatColumn string
	// Labels lists the labels in the order of their ids. The default is the labels of
	// the training split (of all splits, if there is no training split): in numeric
	// order if all are integers, and otherwise sorted by bytes.
	Labels []string
	// LabelThreshold says that the label column has scores: a score below the
	// threshold means the first of the two Labels (by default negative), any other
	// score the second (positive).
	LabelThreshold *float64
	// LabelSeparator separates the labels of MultiLabel in a field; "" means
	// DefaultLabelSeparator. In JSON they may be an array.
	LabelSeparator string
	// AllPieces labels every token of a word with the word's label, for Tokens. Otherwise only
	// the first is labelled, and the others are not counted.
	AllPieces bool
	// WordStarts records which tokens begin a word, for MaskedLM, so that whole words can be masked.
	WordStarts bool
	// Documents says which texts make a document, and Blocks how documents are cut, for MaskedLM and
	// LanguageModel.
	Documents Documents
	Blocks    Blocks

	// SplitByHash names a column. By its hash, a DevFraction (0 means
	// DefaultDevFraction) of the rows of the training split goes to the dev split, if
	// the inputs have no dev split. Rows with the same value in the column stay
	// together.
	SplitByHash string
	DevFraction float64
	// DevIDs is a file of tab-separated ids, such as GLUE's dev_ids.tsv for MRPC. The
	// rows of the training split with those ids go to the dev split.
	DevIDs string

	// Shards is the number of files of each split; 0 means 1. A split with fewer
	// records has one file per record.
	Shards int
	// Compression is the compression of the files.
	Compression tfrecord.Compression
	// Shuffle shuffles the records of each split with Seed. Otherwise they are in the
	// order of the rows.
	Shuffle bool
	Seed    uint64

	// SkipBadRows skips and counts rows that cannot be used. Otherwise such a row is a
	// RowError.
	SkipBadRows bool
	// Workers is the number of goroutines that tokenize; 0 means one per core.
	Workers int
	// Progress, if set, is called with the progress of Run, by one goroutine at a time.
	Progress func(Progress)

	folders map[string][]byte // rows of the folders of ImagesTask
}

// Progress is the progress of Run. It starts again from 0 when Run does, after it has
// found a label that is not among the first rows.
type Progress struct {
	Path  string // the file being read
	Rows  int64  // rows read of all files
	Bytes int64  // bytes read of all files, out of Total
	Total int64
}

// Validate returns an error if the settings are invalid. It does not read any file.
func (c *Config) Validate() error {
	return errors.Join(c.validateInputs(), c.validateColumns(), c.validateSplitting(), c.validateOutput())
}

func (c *Config) validateInputs() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("convert: "+format, args...)) }
	if len(c.Inputs) == 0 {
		fail("no input files are given")
	}
	for _, in := range c.Inputs {
		if !validSplit(in.Split) {
			fail("split is %q; expected a name of letters, digits and _", in.Split)
		}
		if in.Path == "" {
			fail("the %s split has a file without a name", in.Split)
		}
	}
	if !slices.Contains([]Format{Auto, TSV, CSV, JSONL, JSON, NPZ, TFRecord, Parquet, PlainLines, CoNLL, Brown, SQuAD}, c.Format) {
		fail("format is %q; expected tsv, csv, jsonl, json, parquet, npz, tfrecord, lines, conll, brown or squad", c.Format)
	}
	if c.Delimiter != 0 {
		if _, err := table.ParseDelimiter(string(rune(c.Delimiter))); err != nil {
			fail("%w", err)
		}
	}
	if !slices.Contains([]Charset{"", UTF8, Latin1, Windows1252}, c.Charset) {
		fail("encoding is %q; expected utf-8, latin-1 or windows-1252", c.Charset)
	}
	if c.Vocab == "" && c.Schema == "" && !c.images() {
		fail("no vocabulary is given; expected a tokenizer.json, a .model of SentencePiece, or a BERT vocab.txt with one token per line (--tokenizer)")
	}
	if err := c.Tokenizer.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.MaxLength != 0 && (c.MaxLength < 3 || c.MaxLength > maxMaxLength) {
		fail("maximum length is %d; expected 3 to %d", c.MaxLength, maxMaxLength)
	}
	if c.DocStride < 0 {
		fail("stride of windows is %d; expected 1 or more", c.DocStride)
	}
	return errors.Join(errs...)
}

func (c *Config) validateColumns() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("convert: "+format, args...)) }
	c.validateSides(fail)
	c.validateChoices(fail)
	if c.validateImages(fail); c.images() {
		return errors.Join(errs...)
	}
	if c.Schema != "" {
		if c.Task != "" || c.TextColumn != "" || c.PairColumn != "" || c.LabelColumn != "" || len(c.Labels) > 0 || c.LabelThreshold != nil {
			fail("a schema is given, which has the columns; leave out the task, columns and labels")
		}
		return errors.Join(errs...)
	}
	if !slices.Contains(Tasks(), c.taskName()) {
		fail("task is %q; %s", c.Task, words.OneOf(c.Task, Tasks()))
	} else if c.free() {
		c.validateNames(fail)
		c.validateKind(fail)
		if c.LabelColumn == "" && c.task().kind != Tokens && (len(c.Labels) > 0 || c.LabelThreshold != nil) {
			fail("labels are given, but no label column")
		}
	} else {
		if c.TextColumn != "" || c.PairColumn != "" || c.LabelColumn != "" || c.NoHeader {
			fail("task %s has fixed columns; name columns only with task %s", c.Task, TextTask)
		}
		if len(c.Labels) > 0 || c.LabelThreshold != nil {
			fail("task %s has fixed labels; name labels only with task %s", c.Task, TextTask)
		}
		if c.Format != Auto && c.Format != TSV {
			fail("task %s is published as tsv; use task %s for %s", c.Task, TextTask, c.Format)
		}
	}
	for i, l := range c.Labels {
		if l == "" || strings.TrimSpace(l) != l || slices.Contains(c.Labels[:i], l) {
			fail("label %q is repeated, empty or surrounded by spaces; expected different labels", l)
		}
	}
	if t := c.LabelThreshold; t != nil {
		if math.IsNaN(*t) || math.IsInf(*t, 0) {
			fail("label threshold is %v; expected a number", *t)
		}
		if len(c.Labels) != 0 && len(c.Labels) != 2 {
			fail("%d labels are given with a label threshold; expected 2", len(c.Labels))
		}
	}
	return errors.Join(errs...)
}

// validateNames refuses a column that is named for two things.
func (c *Config) validateNames(fail func(format string, args ...any)) {
	type named struct{ column, what string }
	all := []named{{c.TextColumn, "text column"}, {c.PairColumn, "pair column"}, {c.NegativeColumn, "negative column"}, {c.LabelColumn, "label column"},
		{c.SourceColumn, "source column"}, {c.TargetColumn, "target column"}}
	for i, name := range c.ChoiceColumns {
		all = append(all, named{name, fmt.Sprintf("column of choice %d", i+1)})
	}
	for i, b := range all {
		for _, a := range all[:i] {
			if b.column != "" && a.column == b.column {
				fail("column %q is both the %s and the %s; expected different columns", b.column, a.what, b.what)
				break
			}
		}
	}
}

func (c *Config) validateSplitting() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("convert: "+format, args...)) }
	if c.SplitByHash == "" && c.DevFraction != 0 {
		fail("a dev fraction is given, but no column to split by")
	}
	if !(c.DevFraction >= 0 && c.DevFraction < 1) {
		fail("dev fraction is %v; expected more than 0 and less than 1", c.DevFraction)
	}
	if c.SplitByHash != "" && c.DevIDs != "" {
		fail("the dev split is given both by hash and by ids; give one of them")
	}
	if c.DevIDs != "" && len(tasks[c.taskName()].ids) == 0 {
		fail("task %s has no ids to split by", c.taskName())
	}
	if c.SplitByHash != "" || c.DevIDs != "" {
		if c.has(Dev) {
			fail("the dev split has a file of its own; expected none, because it is taken from the train split")
		}
		if !c.has(Train) {
			fail("there is no train split to take the dev split from")
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateOutput() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("convert: "+format, args...)) }
	if c.Out == "" {
		fail("no output folder is given")
	}
	if c.Shards < 0 || c.Shards > maxShards {
		fail("number of shards is %d; expected 1 to %d", c.Shards, maxShards)
	}
	if c.Compression > tfrecord.Zlib {
		fail("compression is %d; expected none, gzip or zlib", c.Compression)
	}
	if c.Workers < 0 {
		fail("number of workers is %d; expected 0 or more", c.Workers)
	}
	return errors.Join(errs...)
}

func (c *Config) taskName() string {
	switch {
	case c.Schema != "" || c.images():
		return SchemaTask
	case c.Task == "":
		return TextTask
	}
	return c.Task
}

// task returns the columns and labels of the task.
func (c *Config) task() task {
	if t, ok := tasks[c.taskName()]; ok {
		if t.names == nil {
			t.names = t.values
		}
		t.kind = cmp.Or(t.kind, Classification)
		return t
	}
	t := task{kind: free[c.taskName()], text: c.TextColumn, pair: c.PairColumn, label: c.LabelColumn, values: c.Labels}
	if t.kind == Tokens {
		t.text, t.label = cmp.Or(t.text, wordsColumn), cmp.Or(t.label, tagsColumn)
	}
	if t.kind == QuestionAnswering {
		t.text, t.pair, t.label = cmp.Or(t.text, questionColumn), cmp.Or(t.pair, contextColumn), cmp.Or(t.label, answersColumn)
	}
	if t.kind == Seq2Seq {
		t.text = c.SourceColumn
	}
	if c.LabelThreshold != nil && t.values == nil {
		t.values = []string{"negative", "positive"}
	}
	t.names = t.values
	return t
}

// flagOf returns the flag with which a user chooses a column, or "" if the task has fixed columns.
func (c *Config) flagOf(flag string) string {
	if !c.free() {
		return ""
	}
	return flag
}

func (c *Config) has(split string) bool {
	return slices.ContainsFunc(c.Inputs, func(in Input) bool { return in.Split == split })
}

func (c *Config) formatOf(path string) (Format, error) {
	if c.images() {
		if _, ok := c.folders[path]; ok {
			return JSONL, nil
		}
		return Parquet, nil
	}
	f := c.Format
	if f == Auto {
		f = Format(table.FormatOf(path))
	}
	if f == Auto && !c.free() && c.Schema == "" {
		f = TSV
	}
	if c.Format == Auto {
		f = c.formatOfKind(path, f)
	}
	if f == Auto {
		return Auto, fault.Usagef("convert: the name of %s does not show its format; name it with --format %s", path, c.task().kind.formats())
	}
	if f == PlainLines && c.Format == Auto && table.FormatOf(path) == table.Parquet {
		return Auto, fault.Usagef("convert: %s has columns, and no text column is given; name it with --text-column", path)
	}
	if err := table.CheckDelimiter(path, table.Format(f), c.Format != Auto, c.Delimiter, "--format"); err != nil {
		return Auto, fmt.Errorf("convert: %w", err)
	}
	return f, nil
}

// needsLabels reports whether each row of a split must have a label, as for training and
// evaluation.
func needsLabels(split string) bool {
	return split == Train || strings.HasPrefix(split, Dev) || strings.HasPrefix(split, "val")
}

func validSplit(s string) bool {
	ok := func(r rune) bool {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool { return !ok(r) })
}
