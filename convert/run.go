package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/table"
	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// The features of a record.
const (
	InputIDs   = "input_ids"   // with [CLS] and [SEP], unpadded
	SegmentIDs = "segment_ids" // one per id: 1 for the second text and its [SEP], else 0
	LabelIDs   = "label_ids"   // one number, absent if the row has no label
	ExampleID  = "example_id"  // one number: the row's number in its file, from 0
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
	c := &conversion{cfg: cfg, task: cfg.task(), log: log, writers: map[string]*splitWriter{}}
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
	task      task
	log       *slog.Logger
	vocab     []byte
	tokenizer *text.Tokenizer
	out       *output
	labels    *labels
	splitter  *splitter
	writers   map[string]*splitWriter
	manifest  *Manifest
	progress  Progress
	rows      map[string]int64 // rows of a split's files before the current one
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
	if c.vocab, err = vfs.ReadBounded(cfg.Vocab, text.MaxVocabBytes); err != nil {
		return fmt.Errorf("convert: vocabulary: %w", err)
	}
	v, err := text.ParseVocab(c.vocab, cfg.Vocab)
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	if c.tokenizer, err = text.NewTokenizer(v, cfg.Tokenizer); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	for _, in := range cfg.Inputs {
		info, err := os.Stat(in.Path)
		if err != nil {
			return fmt.Errorf("convert: %w", err)
		}
		if info.IsDir() {
			return fault.Usagef("convert: %s is a folder; expected a file", in.Path)
		}
		if _, err := cfg.formatOf(in.Path); err != nil {
			return err
		}
		c.progress.Total += info.Size()
	}
	if err := c.out.refuseVocab(c.vocab); err != nil {
		return err
	}
	if c.labels, err = newLabels(ctx, cfg, guess); err != nil {
		return err
	}
	if c.splitter, err = newSplitter(ctx, cfg); err != nil {
		return err
	}
	for _, name := range cfg.splits() {
		if c.writers[name], err = newSplitWriter(c.out, name, cfg, len(c.labels.names)); err != nil {
			delete(c.writers, name)
			return err
		}
	}
	if len(c.labels.names) == 1 {
		c.log.Warn("all rows have the same label, so there is nothing to learn from them", "label", c.labels.names[0])
	}
	c.rows = map[string]int64{}
	c.manifest = c.newManifest(v)
	return nil
}

func (c *conversion) newManifest(v *text.Vocab) *Manifest {
	t := c.task
	sum := sha256.Sum256(c.vocab)
	set := c.cfg.Tokenizer
	m := &Manifest{
		Format:         ManifestFormat,
		Version:        ManifestVersion,
		Task:           c.cfg.taskName(),
		Columns:        Columns{t.text, t.pair, t.label},
		Labels:         append([]string{}, c.labels.names...),
		LabelThreshold: c.cfg.LabelThreshold,
		Vocab: Vocab{
			File:            vocabName,
			Size:            v.Size(),
			SHA256:          hex.EncodeToString(sum[:]),
			Lowercase:       set.Lowercase,
			StripAccents:    set.Accents == text.StripAccents || set.Accents == text.AccentsByCase && set.Lowercase,
			LiteralSpecials: set.LiteralSpecials,
			Unclean:         set.Unclean,
			JoinIdeographs:  set.JoinIdeographs,
			MaxWordChars:    set.MaxWordChars,
		},
		MaxLength: c.cfg.MaxLength,
		Splits:    map[string]*Split{},
	}
	if m.Vocab.MaxWordChars == 0 {
		m.Vocab.MaxWordChars = text.DefaultMaxWordChars
	}
	return m
}

// convert reads one file and writes its records.
func (c *conversion) convert(ctx context.Context, in Input) error {
	columns, extra := c.columns(in)
	file := &inputFile{in, c.rows[in.Split], needsLabels(in.Split), extra}
	sum := sha256.New()
	t, err := openTable(ctx, c.cfg, in.Path, columns, sum)
	if err != nil {
		return err
	}
	defer t.Close()
	source := Source{Split: in.Split, Name: filepath.Base(in.Path)}
	before := c.progress
	newWorker := func() func(*chunk, *row, []table.Field) {
		var e encoder
		return func(k *chunk, r *row, fields []table.Field) { c.encode(&e, k, r, fields, file) }
	}
	err = each(ctx, t, c.cfg.Workers, newWorker, func(k *chunk) error {
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
		return fmt.Errorf("convert: %s has no rows", in.Path)
	}
	if source.Skipped > 0 {
		c.log.Warn("skipped bad rows", "file", in.Path, "skipped", source.Skipped, "rows", source.Rows)
	}
	source.Bytes, source.SHA256 = t.Bytes(), hex.EncodeToString(sum.Sum(nil))
	c.manifest.Sources = append(c.manifest.Sources, source)
	c.rows[in.Split] += source.Rows
	return nil
}

// columns returns the columns to read from a file: text, second text, label, and from
// extra on those of the splitter. Unused ones have no name and are in no file.
func (c *conversion) columns(in Input) (columns []table.Column, extra int) {
	t := c.task
	columns = []table.Column{
		{Name: t.text, Words: true, Flag: c.cfg.flagOf("--text-column")},
		{Name: t.pair, Words: true, Optional: t.pair == "", Flag: c.cfg.flagOf("--pair-column")},
		{Name: t.label, Optional: t.label == "" || !needsLabels(in.Split), Flag: c.cfg.flagOf("--label-column")},
	}
	extra = len(columns)
	if in.Split == Train {
		columns = append(columns, c.splitter.columns(c.cfg)...)
	}
	return columns, extra
}

// inputFile is a file whose rows are converted to records.
type inputFile struct {
	Input
	number   int64 // number of its first row
	labelled bool  // whether each row must have a label
	extra    int   // index of the first of the splitter's columns
}

// encoder is the working space of a goroutine that makes records.
type encoder struct {
	encoding text.Encoding
	recorder recorder
}

// encode encodes a row as a record and appends it to the chunk's data.
func (c *conversion) encode(e *encoder, k *chunk, r *row, fields []table.Field, f *inputFile) {
	fail := func(format string, args ...any) {
		r.bad = &RowError{f.Path, r.line, fmt.Sprintf(format, args...)}
	}
	a, b, label := fields[0], fields[1], fields[2]
	c.tokenizer.EncodeInto(&e.encoding, a.Text, b.Text, c.cfg.MaxLength)
	first, second := e.lengths()
	// With a very low limit, nothing may remain of a text that is not empty.
	if first == 0 && len(c.tokenizer.AppendIDs(nil, a.Text)) == 0 {
		fail("column %q has no text", c.task.text)
		return
	}
	if c.task.pair != "" && second <= 1 && len(c.tokenizer.AppendIDs(nil, b.Text)) == 0 {
		fail("column %q has no text", c.task.pair)
		return
	}
	r.label = -1
	if c.task.label != "" && (label.OK || f.labelled) {
		id, reason := c.labels.id(label.Text)
		if reason != "" {
			fail("%s", reason)
			r.newLabel = c.labels.guessed && strings.TrimSpace(label.Text) != ""
			return
		}
		r.label = id
	}
	ids := e.encoding.IDs
	k.data = tfrecord.AppendRecord(k.data, e.recorder.example(f.number+r.number, r.label, ids, second))
	r.length, r.truncated = len(ids), e.encoding.Truncated
	r.dev = f.Split == Train && c.splitter.inDev(fields[f.extra:])
}

// lengths returns the number of tokens of the first text, and of the second segment
// including its [SEP].
func (e *encoder) lengths() (first, second int) {
	types := e.encoding.TypeIDs
	for second < len(types) && types[len(types)-1-second] == 1 {
		second++
	}
	return len(types) - second - 2, second
}

// write writes a chunk's records, up to the first bad row unless bad rows are skipped.
func (c *conversion) write(k *chunk, in Input, source *Source) error {
	w, start := c.writers[in.Split], 0
	for i := range k.rows {
		r := &k.rows[i]
		framed := k.data[start:r.record]
		start = r.record
		source.Rows++
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
		if err := to.add(framed, r.length, r.label, r.truncated); err != nil {
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
	names := []string{vocabName}
	for _, name := range splits {
		w := c.writers[name]
		if err := w.finish(ctx, c.cfg.Seed, c.log); err != nil {
			return nil, err
		}
		c.manifest.Splits[name] = &w.info
		for _, f := range w.info.Files {
			names = append(names, f.Name)
		}
	}
	if err := c.out.writeFile(vocabName, c.vocab); err != nil {
		return nil, err
	}
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
		c.log.Info("split written", "split", name, "records", s.Records, "files", len(s.Files),
			"tokens", s.Tokens, "longest", s.Lengths.Max, "truncated", s.Truncated)
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
	if c.out == nil {
		return
	}
	if err := c.out.close(); err != nil {
		c.log.Warn("cannot remove temporary files; the next conversion to the folder removes them", "folder", c.cfg.Out, "error", err)
	}
}
