package convert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/text"
)

// The features of a record.
const (
	InputIDs   = "input_ids"   // with [CLS] and [SEP], unpadded
	SegmentIDs = "segment_ids" // one per id: 1 for the second text and its [SEP], else 0
	LabelIDs   = "label_ids"   // numbers of labels, see Kind; absent if the row has none
	Label      = "label"       // one float, for Regression; absent if the row has none
	// TokenWeights are floats, one per id: 1 for what follows a text, and 0 for the text, which is not to
	// be learned; only for LanguageModel with a pair column.
	TokenWeights = "token_weights"
	TargetIDs    = "target_ids"  // with the tokens around it, the end token last; only for Seq2Seq
	WordStarts   = "word_starts" // one per id: 1 if it begins a word, else 0; only for MaskedLM
	// ChoiceStarts are the numbers of the first tokens of the choices, each of which is with the text; only
	// for Choices.
	ChoiceStarts = "choice_starts"
	ExampleID    = "example_id" // one number: the row's number in its file, from 0

	// Of QuestionAnswering: the first and last token of the answer, 0 where there is none in the record;
	// the number of the question in the file of the split's questions; and the characters of the
	// context that each token's word has: where it starts, and after its end, both 0 outside of the
	// context.
	StartPositions = "start_positions"
	EndPositions   = "end_positions"
	QuestionID     = "question"
	TokenStarts    = "token_starts"
	TokenEnds      = "token_ends"
)

// warnRows is how many bad rows of a file are logged one by one.
const warnRows = 10

// Run converts the files named by cfg and returns the manifest of the new dataset. After
// an error nothing has been written, and a dataset that was to be replaced is unchanged,
// unless the new one could not be moved into place: then there is no manifest.
//
// The error is a [*RowError] if a row cannot be used, and an [*ExistsError] if there
// already is a dataset.
func Run(ctx context.Context, cfg Config, log *slog.Logger) (*Manifest, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxLength == 0 {
		cfg.MaxLength = DefaultMaxLength
		if cfg.task().kind == QuestionAnswering {
			cfg.MaxLength = qa.DefaultMaxLength
		}
	}
	if cfg.DocStride == 0 && cfg.task().kind == QuestionAnswering {
		cfg.DocStride = qa.DefaultStride
	}
	if cfg.task().kind == Seq2Seq {
		cfg.MaxTargetLength = cmp.Or(cfg.MaxTargetLength, DefaultMaxLength)
	}
	if cfg.Workers == 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	m, err := run(ctx, &cfg, log, true)
	if errors.Is(err, errNewLabel) {
		log.Info("a label is not among those of the first rows; starting again with the labels of all rows")
		return run(ctx, &cfg, log, false)
	}
	return m, err
}

// run converts the files. If it may guess the labels, it may return errNewLabel.
func run(ctx context.Context, cfg *Config, log *slog.Logger, guess bool) (*Manifest, error) {
	c := &conversion{cfg: cfg, log: log, writers: map[string]*splitWriter{}}
	defer c.abandon()
	if err := c.prepare(ctx, guess); err != nil {
		return nil, err
	}
	for _, in := range cfg.Inputs {
		if err := c.convert(ctx, in); err != nil {
			return nil, err
		}
	}
	return c.finish(ctx)
}

// conversion is one call of Run.
type conversion struct {
	cfg       *Config
	log       *slog.Logger
	schema    *schema          // nil without one
	vocab     *tokenizers.File // nil if there are no texts
	tokenizer *text.Tokenizer
	out       *output
	maker     maker
	splitter  *splitter
	writers   map[string]*splitWriter
	manifest  *Manifest
	twice     *twice // nil with a single split
	progress  Progress
	rows      map[string]int64 // rows of a split's files before the current one
}

// maker makes the records of a conversion.
type maker interface {
	// columns returns the columns of a file that records are made of.
	columns(in Input) []table.Column
	// chunkRows is how many rows are worked on at a time.
	chunkRows() int
	// worker returns a function for one goroutine. It appends the framed record of a row to the
	// chunk's data, or sets the row's error. fields are those of columns, and then others.
	worker(f *inputFile) func(k *chunk, r *row, fields []table.Field)
	// count adds the record of a row, which is not bad, to the description of its split.
	count(s *Split, k *chunk, r *row)
	// finish completes the description of a split.
	finish(s *Split)
}

// joiner is a maker whose records are not those of single rows.
type joiner interface {
	// join takes a row, which is not bad, after the one before it in the split.
	join(w *splitWriter, k *chunk, r *row) error
	// end writes what is left of a split's rows.
	end(w *splitWriter) error
}

// newMaker returns the maker for the conversion's task.
func newMaker(ctx context.Context, c *conversion, guess bool) (maker, error) {
	switch kind := c.cfg.task().kind; {
	case c.schema != nil:
		return newSchemaRows(ctx, c)
	case kind == Tokens:
		return newTagged(ctx, c)
	case kind == LanguageModel && c.cfg.PairColumn != "":
		return newPrompts(c), nil
	case c.cfg.ChatColumn != "":
		return newChats(c)
	case kind.texts():
		return newBlocks(c)
	case kind == QuestionAnswering:
		return newQuestions(c), nil
	case kind == Seq2Seq:
		return newSides(c)
	case kind == Embed:
		return newEmbeds(c), nil
	case kind == Choices:
		return newChoices(ctx, c, guess)
	}
	return newTexts(ctx, c, guess)
}

// splits returns the names of the splits to write, in order.
func (c *Config) splits() []string {
	var names []string
	for _, in := range c.Inputs {
		if !slices.Contains(names, in.Split) {
			names = append(names, in.Split)
		}
	}
	if c.SplitByHash != "" || c.DevIDs != "" {
		names = append(names, Dev)
	}
	return names
}

// prepare reads and opens everything that rows need.
func (c *conversion) prepare(ctx context.Context, guess bool) error {
	cfg := c.cfg
	var err error
	// First, so that no work is wasted if there already is a dataset.
	if c.out, err = openOutput(cfg); err != nil {
		return err
	}
	c.manifest = &Manifest{Format: ManifestFormat, Version: ManifestVersion, Task: cfg.taskName(), Labels: []string{}, Splits: map[string]*Split{}}
	if err := c.readSchema(ctx); err != nil {
		return err
	}
	if cfg.Vocab != "" {
		if err := c.readVocab(); err != nil {
			return err
		}
	}
	if err := cfg.expand(); err != nil {
		return err
	}
	for _, in := range cfg.Inputs {
		info, err := vfs.Stat(in.Path)
		if err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		format, err := cfg.formatOf(in.Path)
		if err != nil {
			return err
		}
		if rows, ok := cfg.folders[in.Path]; ok {
			c.progress.Total += int64(len(rows))
			continue
		}
		if cfg.NoHeader && table.Format(format).Objects() {
			return fault.Usagef("convert: %s is %s, whose fields have names; leave out --no-header", in.Path, format)
		}
		c.progress.Total += info.Size()
	}
	if err := c.out.refuseVocab(c.vocab); err != nil {
		return err
	}
	if c.maker, err = newMaker(ctx, c, guess); err != nil {
		return err
	}
	if c.splitter, err = newSplitter(ctx, cfg); err != nil {
		return err
	}
	for i, name := range cfg.splits() {
		if c.writers[name], err = newSplitWriter(c.out, name, cfg); err != nil {
			delete(c.writers, name)
			return err
		}
		c.writers[name].number = i
	}
	if splits := cfg.splits(); len(splits) > 1 {
		c.twice = newTwice(len(splits), mostContents)
	}
	c.rows = map[string]int64{}
	return nil
}

// readSchema reads the schema, if there is one.
func (c *conversion) readSchema(ctx context.Context) error {
	var err error
	if c.cfg.images() {
		if err := c.cfg.expand(); err != nil {
			return err
		}
		if c.schema, err = c.readImages(ctx); err != nil {
			return inputError(err)
		}
		return nil
	}
	if c.cfg.Schema == "" {
		return nil
	}
	if c.schema, err = readSchema(c.cfg.Schema); err != nil {
		return err
	}
	f := c.schema.text()
	if f != nil && c.cfg.Vocab == "" {
		return c.schema.errorf(f.at("kind"), "feature %q has kind text and there is no vocabulary; name one with --vocab", f.name)
	}
	if f == nil && c.cfg.Vocab != "" {
		return fault.Usagef("convert: a vocabulary is given, and no feature of %s has kind text; leave out --vocab", c.schema.path)
	}
	return nil
}

// readVocab reads the vocabulary and describes it in the manifest.
func (c *conversion) readVocab() error {
	var err error
	if c.vocab, err = tokenizers.Open(c.cfg.Vocab, c.cfg.Tokenizer); err != nil {
		return fmt.Errorf("convert: %w", tokenizers.Usage(err))
	}
	c.tokenizer = c.vocab.Tokenizer
	if c.schema == nil {
		c.manifest.MaxLength = c.cfg.MaxLength
	}
	if most, length := c.vocab.MaxLength, max(c.cfg.MaxLength, c.cfg.MaxTargetLength); most > 0 && length > most {
		return fault.Usagef("convert: the maximum length is %d, and the tokenizer of %s is for at most %d tokens (model_max_length); expected at most that", length, c.cfg.Vocab, most)
	}
	sum := sha256.Sum256(c.vocab.Content)
	c.manifest.Vocab = Vocab{File: c.vocab.Name, Size: c.tokenizer.Vocab().Size(), SHA256: hex.EncodeToString(sum[:])}
	if c.vocab.Name == tokenizers.Vocab {
		c.manifest.Vocab.set(c.vocab.Config)
	} else if err := c.checkTokenizer(c.tokenizer, c.vocab.Path); err != nil {
		return err
	} else {
		c.manifest.Vocab.Special, c.manifest.Vocab.Mask = c.tokenizer.Roles(), c.tokenizer.MaskToken()
		frame := c.tokenizer.Template().Single
		c.manifest.Vocab.NoFirst, c.manifest.Vocab.NoLast = len(frame.Before) == 0, len(frame.After) == 0
	}
	if c.cfg.task().kind == LanguageModel {
		if c.manifest.Chat = c.vocab.Chat; c.vocab.ChatErr != nil {
			c.manifest.Chat = nil
			if c.cfg.ChatColumn == "" {
				c.log.Warn("the data have no chat template", "reason", c.vocab.ChatErr)
			}
		}
	}
	return c.checkLength()
}

// checkLength refuses a maximum length that the special tokens around a text leave nothing of.
func (c *conversion) checkLength() error {
	refuse := func(frame text.Frame, most, texts int) error {
		if least := frame.Specials() + texts; most < least {
			return fault.Usagef("convert: the maximum length is %d, and the tokenizer %s puts %d special tokens around a text; expected at least %d", most, c.vocab.Path, frame.Specials(), least)
		}
		return nil
	}
	template, kind := c.tokenizer.Template(), c.cfg.task().kind
	switch {
	case c.schema != nil:
		for _, f := range c.schema.features {
			frame := template.Single
			if len(f.columns) > 1 {
				frame = template.Pair
			}
			if f.kind == KindText && !f.bare {
				if err := refuse(frame, cmp.Or(f.maxLength, c.cfg.MaxLength), 1); err != nil {
					return err
				}
			}
		}
		return nil
	case kind == LanguageModel: // blocks have none of their own
		return nil
	case kind == QuestionAnswering:
		return refuse(template.Pair, c.cfg.MaxLength, 2)
	case c.pairs():
		return refuse(template.Pair, c.cfg.MaxLength, 1)
	case kind == Seq2Seq:
		if err := refuse(template.Single, c.cfg.MaxTargetLength, 1); err != nil {
			return err
		}
	}
	return refuse(template.Single, c.cfg.MaxLength, 1)
}

// checkTokenizer refuses a tokenizer that lacks what the task needs.
func (c *conversion) checkTokenizer(t *text.Tokenizer, path string) error {
	task := c.cfg.task()
	if c.cfg.Tokenizer.LiteralSpecials {
		return fault.Usagef("convert: special tokens of texts are plain characters with a vocab.txt only, and not with %s; leave out --literal-specials", path)
	}
	template := t.Template()
	switch mask := t.Roles().Mask; {
	case (task.kind == LanguageModel || task.kind == Seq2Seq || task.kind == Embed) && twoSegments(template.Single):
		return nil
	case !twoSegments(template.Single) || !twoSegments(template.Pair):
		return fault.Usagef("convert: tokenizer %s gives tokens types other than 0 and, at the end, 1; expected a template such as BERT's or RoBERTa's", path)
	case task.kind == MaskedLM && mask < 0:
		return fault.Usagef("convert: tokenizer %s has no token to hide others by, such as <mask>, which task %s needs", path, c.cfg.taskName())
	case task.kind == MaskedLM && !slices.Contains(t.AppendIDs(nil, t.MaskToken()), mask):
		return fault.Usagef("convert: tokenizer %s does not take %s in a text for its token, as a control symbol of SentencePiece, so that none could be filled in; expected a user-defined symbol", path, t.MaskToken())
	case c.pairs() && template.Pair.TypeA == template.Pair.TypeB && len(template.Pair.Between) == 0:
		return fault.Usagef("convert: tokenizer %s puts nothing between two texts, so that a model could not tell where the second begins; expected a post-processor with a token between them", path)
	}
	return nil
}

// pairs reports whether there may be second texts.
func (c *conversion) pairs() bool {
	if c.schema != nil {
		return slices.ContainsFunc(c.schema.features, func(f *featureSchema) bool { return f.kind == KindText && len(f.columns) > 1 })
	}
	t := c.cfg.task()
	return t.pair != "" && t.kind != Embed || t.kind == QuestionAnswering || t.kind == Choices
}

// twoSegments reports whether a template gives tokens the type 0, and from one on 1.
func twoSegments(f text.Frame) bool {
	var types []int32
	for _, part := range [][]text.Special{f.Before, {{Type: f.TypeA}}, f.Between, {{Type: f.TypeB}}, f.After} {
		for _, s := range part {
			types = append(types, s.Type)
		}
	}
	return slices.IsSorted(types) && types[0] >= 0 && types[len(types)-1] <= 1
}

// convert reads one file and writes its records.
func (c *conversion) convert(ctx context.Context, in Input) error {
	columns := c.maker.columns(in)
	extra := len(columns)
	if in.Split == Train {
		columns = append(columns, c.splitter.columns(c.cfg)...)
	}
	file := &inputFile{in, c.rows[in.Split], needsLabels(in.Split)}
	sum := sha256.New()
	t, err := openTable(ctx, c.cfg, in.Path, columns, sum)
	if err != nil {
		return err
	}
	defer t.Close()
	source := Source{Split: in.Split, Name: filepath.Base(in.Path)}
	before := c.progress
	newWorker := func() func(*chunk, *row, []table.Field) {
		do := c.maker.worker(file)
		return func(k *chunk, r *row, fields []table.Field) {
			do(k, r, fields)
			r.dev = in.Split == Train && c.splitter.inDev(fields[extra:])
		}
	}
	err = each(ctx, t, c.cfg.Workers, c.maker.chunkRows(), newWorker, func(k *chunk) error {
		if err := c.write(k, in, &source); err != nil {
			return err
		}
		c.progress = Progress{in.Path, before.Rows + source.Rows, before.Bytes + k.bytes, before.Total}
		if c.cfg.Progress != nil {
			c.cfg.Progress(c.progress)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if source.Rows == source.Skipped {
		return fault.Damagedf("convert: %s has no rows", in.Path)
	}
	if source.Skipped > 0 {
		c.log.Warn("skipped bad rows", "file", in.Path, "skipped", source.Skipped, "rows", source.Rows)
	}
	source.endLines()
	source.Bytes, source.SHA256 = t.Bytes(), hex.EncodeToString(sum.Sum(nil))
	c.manifest.Sources = append(c.manifest.Sources, source)
	c.rows[in.Split] += source.Rows
	return nil
}

// inputFile is a file whose rows are converted to records.
type inputFile struct {
	Input
	number   int64 // number of its first row
	labelled bool  // whether each row must have a label
}

// write writes a chunk's records, up to the first bad row unless bad rows are skipped.
func (c *conversion) write(k *chunk, in Input, source *Source) error {
	w, start := c.writers[in.Split], 0
	joiner, _ := c.maker.(joiner)
	for i := range k.rows {
		r := &k.rows[i]
		framed := k.data[start:r.record]
		start = r.record
		source.Rows++
		source.noteLine(r.number, r.line)
		if r.newLabel {
			return errNewLabel
		}
		if r.bad != nil {
			if !c.cfg.SkipBadRows {
				return r.bad
			}
			if source.Skipped++; source.Skipped <= warnRows {
				c.log.Warn("bad row", "error", r.bad)
			}
			continue
		}
		to := w
		if r.dev {
			to = c.writers[Dev]
		}
		if joiner != nil {
			if err := joiner.join(to, k, r); err != nil {
				return err
			}
			continue
		}
		to.info.Records++
		c.maker.count(&to.info, k, r)
		if c.twice != nil {
			c.twice.add(to.number, r.content)
		}
		if err := to.add(framed); err != nil {
			return err
		}
	}
	if k.err != io.EOF {
		return k.err
	}
	return nil
}

// finish completes the files and moves them into place.
func (c *conversion) finish(ctx context.Context) (*Manifest, error) {
	if err := c.checkDev(); err != nil {
		return nil, err
	}
	splits := c.cfg.splits()
	var names []string
	if c.vocab != nil {
		names = append(names, c.vocab.Name)
	}
	for _, name := range splits {
		w := c.writers[name]
		if joiner, ok := c.maker.(joiner); ok {
			if err := joiner.end(w); err != nil {
				return nil, err
			}
		}
		c.maker.finish(&w.info)
		if err := w.finish(ctx, c.cfg.Seed, c.log); err != nil {
			return nil, err
		}
		c.manifest.Splits[name] = &w.info
		for _, f := range w.info.Files {
			names = append(names, f.Name)
		}
		if w.info.Questions != nil {
			names = append(names, w.info.Questions.Name)
		}
	}
	if c.vocab != nil {
		if err := c.out.writeFile(c.vocab.Name, c.vocab.Content); err != nil {
			return nil, err
		}
	}
	c.warnings(splits)
	data, err := c.manifest.encode()
	if err != nil {
		return nil, err
	}
	if err := c.out.writeFile(ManifestName, data); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.out.publish(names, splits, c.vocab); err != nil {
		return nil, err
	}
	for _, name := range splits {
		s := c.manifest.Splits[name]
		about := []any{"split", name, "records", s.Records, "files", len(s.Files)}
		if c.manifest.HasVocab() {
			about = append(about, "tokens", s.Tokens, "longest", s.Lengths.Max, "truncated", s.Truncated)
		}
		c.log.Info("split written", about...)
	}
	return c.manifest, nil
}

// checkDev checks a dev split that was taken from the training file.
func (c *conversion) checkDev() error {
	if c.splitter.devIDs == nil && c.splitter.below == 0 {
		return nil
	}
	train, dev := c.writers[Train].info.Records, c.writers[Dev].info.Records
	if dev == 0 || train == 0 {
		return fmt.Errorf("convert: %d rows of the training file go to the dev split and %d stay; expected 1 or more of each", dev, train)
	}
	if n := int64(len(c.splitter.devIDs)); n > dev {
		c.log.Warn("no row has some of the ids for the dev split", "file", c.cfg.DevIDs, "ids", n, "rows", dev)
	}
	return nil
}

// abandon closes everything, and removes files that have not been moved into place.
func (c *conversion) abandon() {
	for _, w := range c.writers {
		w.abandon()
	}
	if q, ok := c.maker.(*questions); ok {
		q.abandon()
	}
	if c.out == nil {
		return
	}
	if err := c.out.close(); err != nil {
		c.log.Warn("cannot remove temporary files; the next conversion to the folder removes them", "folder", c.cfg.Out, "error", err)
	}
}
