package dataset

// Layout says what a record holds and how the examples of a batch are laid out in tensors. Packages
// dataset/packed and dataset/dense have layouts.
type Layout interface {
	// Validate returns an error that names the first setting that makes no sense in batches of
	// so many examples.
	Validate(examples int) error
	// Settings lists what a batch depends on, always in the same order.
	Settings() []Setting
	// Assemblers returns a function that makes assemblers. The assemblers may share memory. Each
	// is used by one goroutine.
	Assemblers() func() Assembler
	// Divide makes n micro-batches of a batch. Their rows may have up to longRows tokens where
	// that makes them fewer and the settings allow it.
	Divide(b *Batch, n, longRows int) ([]*Batch, error)
}

// Assembler makes batches of records, one batch at a time.
type Assembler interface {
	// Reset drops the examples that were added since the last batch.
	Reset()
	// Add adds the example of a record. The data is not used after the call. Where the record is
	// not as expected, Add returns what is wrong with it, without file and number, and adds
	// nothing. A record that only fills up a batch is left out.
	Add(id RecordID, data []byte) *RecordError
	// Batch returns the examples that were added, as a batch that shares no memory with any
	// other. Without examples, the batch has features all the same, of an example that changes
	// no sum: its Examples are 0.
	Batch() *Batch
}

// SizedLayout is a Layout that knows how much memory an example takes, so that no more large ones are
// made ahead than fit.
type SizedLayout interface {
	Layout
	// ExampleBytes returns the bytes of an example in a batch, or 0 if it is not known.
	ExampleBytes() int
}

// EpochAssembler is an Assembler of batches that depend on the epoch, because something is drawn again
// in each.
type EpochAssembler interface {
	Assembler
	// Begin says the epoch of the examples that are added next. It follows Reset.
	Begin(epoch int64)
}

// Setting is one setting of a Layout.
type Setting struct {
	Key   string // in the JSON of Settings
	Name  string // in messages, such as "the row length"
	Value any    // a string, a number or a bool
	// Padding says that only padding depends on it, so that a position is valid with any value.
	Padding bool
}
