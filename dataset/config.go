package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Shuffle is how the records of an epoch are ordered.
type Shuffle string

// The ways to shuffle.
const (
	// ShuffleFull draws the records in a permutation of the whole set, a different
	// one in each epoch. It is the default.
	ShuffleFull Shuffle = "full"
	// ShuffleBuffer draws blocks of neighbouring records in a permutation of
	// all blocks, and shuffles the records of as many blocks as the buffer
	// holds. It is for sets that do not fit in memory, on disks where random
	// reads are slow.
	ShuffleBuffer Shuffle = "buffer"
	// ShuffleNone draws the records in the order of the files.
	ShuffleNone Shuffle = "none"
)

// Packing is how examples are laid into rows.
type Packing string

// The ways to pack.
const (
	// PackBestFit searches for the number and the length of rows that hold the
	// examples of a batch in the fewest cells. It is the default.
	PackBestFit Packing = "best-fit"
	// PackFirstFit puts each example of a batch, in the order drawn, into the
	// first row that has room for it.
	PackFirstFit Packing = "first-fit"
	// PackNone gives every example a row of its own, as long as the longest
	// example of the batch.
	PackNone Packing = "none"
)

// Labels says whether records must have a label.
type Labels string

// The requirements for labels.
const (
	LabelsRequired Labels = "required" // a record without a label is an error; the default
	LabelsOptional Labels = "optional" // a record without a label has label 0 and does not count in Batch.Labeled
	LabelsNone     Labels = "none"     // labels are not read
)

// FeatureNames lists the names under which the features of a record are looked
// up. If a record has several of them, the first in the list is used. A nil list
// means the default; an empty list that is not nil means that the feature is not
// read.
type FeatureNames struct {
	InputIDs []string // token ids
	TypeIDs  []string // segment of each token; all 0 if not read
	Mask     []string // 1 for a token, 0 for padding, which is dropped; may be absent from a record
	Label    []string // class number
	Real     []string // 0 in records that only fill up a batch, which are dropped; may be absent from a record
}

// DefaultFeatureNames returns the default names: first those of gorbit convert, then
// those of the tools of BERT, the Model Garden and Hugging Face.
func DefaultFeatureNames() FeatureNames {
	return FeatureNames{
		InputIDs: []string{"input_ids", "input_word_ids"},
		TypeIDs:  []string{"segment_ids", "token_type_ids", "input_type_ids", "type_ids"},
		Mask:     []string{"input_mask", "attention_mask"},
		Label:    []string{"label_ids", "label", "labels"},
		Real:     []string{"is_real_example"},
	}
}

// Defaults of the numbers in Config.
const (
	DefaultRowLength = 128
	DefaultBuffer    = 65536
	DefaultReaders   = 2
)

// aheadExamples is the default number of examples in a reader's job.
const aheadExamples = 512

const (
	maxRowLength = 1 << 16
	maxBatchSize = 1 << 24
)

// Config says what a Dataset reads and how it makes batches. The zero value of a
// field means its default.
type Config struct {
	// Files are TFRecord files, folders, patterns or bases of shard names, as
	// tfrecord.Glob accepts them. Their order is the order of the records.
	Files []string
	// BatchSize is the number of records drawn for a batch. It does not depend on
	// the packing.
	BatchSize int
	// Epochs is how often the whole set is drawn; 0 means forever.
	Epochs int64
	// DropRemainder drops the last batch of an epoch if it has fewer than
	// BatchSize records.
	DropRemainder bool

	// Shuffle is ShuffleFull by default.
	Shuffle Shuffle
	// Seed determines the permutations.
	Seed uint64
	// Buffer is the number of records that ShuffleBuffer shuffles at a time,
	// DefaultBuffer by default.
	Buffer int

	// Packing is PackBestFit by default.
	Packing Packing
	// RowLength is the maximum length of a row, and so of an example, in tokens;
	// DefaultRowLength by default.
	RowLength int
	// MaxTokens is the maximum length of an example if it is less than that of a
	// row, for instance because the model has fewer positions; 0 means RowLength.
	MaxTokens int
	// FixedRowLength makes all rows RowLength long. Otherwise the rows of a
	// batch are no longer than they need to be.
	FixedRowLength bool
	// Truncate shortens an example that is longer than RowLength or MaxTokens: it
	// keeps the first tokens and the last one, which is the final [SEP]. Without
	// Truncate such an example is an error.
	Truncate bool

	// Features are the names of features in the records.
	Features FeatureNames
	// Labels is LabelsRequired by default.
	Labels Labels
	// NumLabels, VocabSize and NumTypes are exclusive upper limits of the labels, the
	// token ids and the type ids, which start at 0. 0 means no limit.
	NumLabels, VocabSize, NumTypes int

	// Part restricts reading to a part of the records of each batch, so that several
	// hosts can draw the same batches together. The zero value reads everything.
	Part Part

	// OnCorrupt says what happens if a record is damaged or is not a
	// tf.train.Example: an error, or a batch with one example less. A record with
	// unexpected features is always an error.
	OnCorrupt tfrecord.Policy

	// Readers is the number of goroutines that read and pack, DefaultReaders by
	// default. One goroutine makes hundreds of thousands of examples per second,
	// and the batches made ahead make up for a slow disk. The batches do not depend
	// on it.
	Readers int
	// Prefetch is the number of batches made ahead. The default is enough for 1,024
	// examples per reader, but at least 2 batches per reader. Small batches are
	// handed over several at a time, so that a reader can work on half of them.
	Prefetch int
	// Logger receives a warning for each batch from which damaged records were
	// dropped; nil logs nothing.
	Logger *slog.Logger `json:"-"`
}

// Part is a part of the draws of each batch: of B draws, those from B·From/Of up to
// B·To/Of, rounded down. Adjacent parts cover each draw once, and parts of the same
// width differ by at most one draw. A position in the data does not depend on the part.
type Part struct{ From, To, Of int }

// of returns the part of the draws from start to end.
func (p Part) of(start, end int64) (int64, int64) {
	if p.Of == 0 {
		return start, end
	}
	n := end - start
	return start + n*int64(p.From)/int64(p.Of), start + n*int64(p.To)/int64(p.Of)
}

// maxParts keeps the arithmetic of parts within 64 bits.
const maxParts = 1 << 20

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case len(c.Files) == 0:
		return errors.New("no record files are given")
	case c.BatchSize < 1 || c.BatchSize > maxBatchSize:
		return fmt.Errorf("batch size is %d; expected 1 to %d", c.BatchSize, maxBatchSize)
	case int64(c.BatchSize)*int64(c.RowLength) > math.MaxInt32:
		return fmt.Errorf("a batch of %d examples in rows of %d tokens is too large: positions must be below 2^31", c.BatchSize, c.RowLength)
	case c.Epochs < 0:
		return fmt.Errorf("number of epochs is %d; expected 0 (no limit) or more", c.Epochs)
	case c.Shuffle != ShuffleFull && c.Shuffle != ShuffleBuffer && c.Shuffle != ShuffleNone:
		return fmt.Errorf("shuffle is %q; expected %q, %q or %q", c.Shuffle, ShuffleFull, ShuffleBuffer, ShuffleNone)
	case c.Buffer < 1:
		return fmt.Errorf("shuffle buffer is %d records; expected 1 or more", c.Buffer)
	case c.Part != Part{} && (c.Part.From < 0 || c.Part.To <= c.Part.From || c.Part.Of < c.Part.To || c.Part.Of > maxParts):
		return fmt.Errorf("part is %d to %d of %d; expected 0 <= from < to <= of <= %d", c.Part.From, c.Part.To, c.Part.Of, maxParts)
	case c.OnCorrupt != tfrecord.Fail && c.OnCorrupt != tfrecord.Skip:
		return fmt.Errorf("policy for corrupt records is %d; expected tfrecord.Fail or tfrecord.Skip", c.OnCorrupt)
	case c.Readers < 1:
		return fmt.Errorf("number of readers is %d; expected 1 or more", c.Readers)
	case c.Prefetch < 1:
		return fmt.Errorf("number of prefetched batches is %d; expected 1 or more", c.Prefetch)
	case len(c.Features.InputIDs) == 0:
		return errors.New("no feature name is given for token ids")
	case len(c.Features.Label) == 0 && c.Labels == LabelsRequired:
		return errors.New("labels are required, but no feature name is given for them")
	}
	return c.validateRows()
}

// validateRows checks the part of the configuration that FromExamples uses.
func (c Config) validateRows() error {
	switch {
	case c.Packing != PackBestFit && c.Packing != PackFirstFit && c.Packing != PackNone:
		return fmt.Errorf("packing is %q; expected %q, %q or %q", c.Packing, PackBestFit, PackFirstFit, PackNone)
	case c.RowLength < 1 || c.RowLength > maxRowLength:
		return fmt.Errorf("row length is %d tokens; expected 1 to %d", c.RowLength, maxRowLength)
	case c.MaxTokens < 0:
		return fmt.Errorf("maximum tokens of an example is %d; expected 0 (the row length) or more", c.MaxTokens)
	case c.Labels != LabelsRequired && c.Labels != LabelsOptional && c.Labels != LabelsNone:
		return fmt.Errorf("labels are %q; expected %q, %q or %q", c.Labels, LabelsRequired, LabelsOptional, LabelsNone)
	case c.NumLabels < 0 || c.VocabSize < 0 || c.NumTypes < 0:
		return fmt.Errorf("numbers of labels, tokens and types are %d, %d and %d; expected 0 (no limit) or more", c.NumLabels, c.VocabSize, c.NumTypes)
	}
	return nil
}

// withDefaults returns the configuration with zeros replaced by defaults.
func (c Config) withDefaults() Config {
	c.Shuffle = cmp.Or(c.Shuffle, ShuffleFull)
	c.Buffer = cmp.Or(c.Buffer, DefaultBuffer)
	c.Packing = cmp.Or(c.Packing, PackBestFit)
	c.RowLength = cmp.Or(c.RowLength, DefaultRowLength)
	c.Labels = cmp.Or(c.Labels, LabelsRequired)
	c.Readers = cmp.Or(c.Readers, DefaultReaders)
	c.Prefetch = cmp.Or(c.Prefetch, 2*c.Readers*max(1, aheadExamples/max(c.BatchSize, 1)))
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	d := DefaultFeatureNames()
	for _, f := range []struct{ names, defaults *[]string }{
		{&c.Features.InputIDs, &d.InputIDs},
		{&c.Features.TypeIDs, &d.TypeIDs},
		{&c.Features.Mask, &d.Mask},
		{&c.Features.Label, &d.Label},
		{&c.Features.Real, &d.Real},
	} {
		if *f.names == nil {
			*f.names = *f.defaults
		}
	}
	return c
}
