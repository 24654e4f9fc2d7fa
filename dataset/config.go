package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

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

// Defaults of the numbers in Config.
const (
	DefaultBuffer  = 65536
	DefaultReaders = 2
)

const (
	// aheadExamples is the default number of examples in a reader's job.
	aheadExamples = 512
	// aheadBytes is the most memory that batches made ahead take by default, as far as it is known:
	// more than two batches for each reader are made only within it.
	aheadBytes = 64 << 20
)

const maxBatchSize = 1 << 24

// Config says what a Dataset reads and how it makes batches. The zero value of a
// field means its default. The Layout has none.
type Config struct {
	// Files are TFRecord files, folders, patterns or bases of shard names, as
	// tfrecord.Glob accepts them. Their order is the order of the records.
	Files []string
	// BatchSize is the number of records drawn for a batch. It does not depend on
	// the packing. If the layout fixes the size of batches, it is the most that one takes.
	BatchSize int
	// Growth are the sizes of the first batches, which grow to BatchSize; nil for batches of that size
	// from the beginning.
	Growth Growth `json:",omitempty"`
	// Take restricts the set to some of the records.
	Take Take `json:",omitzero"`
	// Epochs is how often the whole set is drawn; 0 means forever.
	Epochs int64
	// DropRemainder drops the last batch of an epoch if it has fewer than
	// BatchSize records or, if the layout fixes the size of batches, if it is not full.
	DropRemainder bool

	// Shuffle is ShuffleFull by default.
	Shuffle Shuffle
	// Seed determines the permutations.
	Seed uint64
	// Buffer is the number of records that ShuffleBuffer shuffles at a time,
	// DefaultBuffer by default.
	Buffer int

	// Layout says what a record holds and how a batch is laid out, such as packed.Config.
	Layout Layout `json:"-"`

	// Sampling draws the records of an epoch with replacement, by their class; nil draws each once. It
	// needs ShuffleFull.
	Sampling *Sampling `json:",omitempty"`
	// ClassWeights multiply the weights of examples; nil leaves them as they are.
	ClassWeights *ClassWeights `json:",omitempty"`

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
	// examples per reader, as long as they take no more than 64 MB, but at least 2 batches per
	// reader. Small batches are
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

// maxReaders bounds the goroutines, each of which holds a batch of its own.
const maxReaders = 1024

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case len(c.Files) == 0:
		return errors.New("no record files are given")
	case c.BatchSize < 1 || c.BatchSize > maxBatchSize:
		return fmt.Errorf("batch size is %d; expected 1 to %d", c.BatchSize, maxBatchSize)
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
	case c.Readers < 1 || c.Readers > maxReaders:
		return fmt.Errorf("number of readers is %d; expected 1 to %d", c.Readers, maxReaders)
	case c.Prefetch < 1:
		return fmt.Errorf("number of prefetched batches is %d; expected 1 or more", c.Prefetch)
	case c.Layout == nil:
		return errors.New("layout is not set; expected one, such as packed.Config")
	}
	if err := errors.Join(c.Growth.validate(c.BatchSize), c.Take.validate()); err != nil {
		return err
	}
	if c.fit() != nil && c.Part != (Part{}) {
		return errors.New("parts of batches with a fixed number of rows cannot be read; expected every process to read all of a batch, or rows that are not fixed")
	}
	if c.Sampling != nil {
		if err := c.Sampling.validate(c.Shuffle); err != nil {
			return err
		}
	}
	if c.ClassWeights != nil {
		if err := c.ClassWeights.validate(); err != nil {
			return err
		}
	}
	return c.Layout.Validate(c.BatchSize)
}

// fit returns how batches of a fixed size are filled, or nil if their size is not fixed.
func (c *Config) fit() *Fit {
	if l, ok := c.Layout.(FittedLayout); ok {
		return l.Fit(c.BatchSize)
	}
	return nil
}

// ahead returns the default of Prefetch.
func (c *Config) ahead() int {
	n := 2 * c.Readers * max(1, aheadExamples/max(c.BatchSize, 1))
	if l, ok := c.Layout.(SizedLayout); ok {
		if bytes := l.ExampleBytes() * max(c.BatchSize, 1); bytes > 0 {
			n = min(n, max(2*c.Readers, aheadBytes/bytes))
		}
	}
	return n
}

// withDefaults returns the configuration with zeros replaced by defaults.
func (c Config) withDefaults() Config {
	c.Shuffle = cmp.Or(c.Shuffle, ShuffleFull)
	c.Buffer = cmp.Or(c.Buffer, DefaultBuffer)
	c.Readers = cmp.Or(c.Readers, DefaultReaders)
	c.Prefetch = cmp.Or(c.Prefetch, c.ahead())
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
