package dataset

import (
	"fmt"
	"path/filepath"
)

// Batch is the input of one step. It belongs to the receiver: it shares no memory
// with other batches until it is released.
type Batch struct {
	Features []Feature

	Examples  int // number of examples
	Labeled   int // examples that have a label
	Truncated int // examples that were cut to the row length
	// Tokens are the examples' tokens, or values on the open axis of a dense layout, without padding.
	// They, Pairs and RowLength are 0 where examples have no such axis.
	Tokens int
	// Pairs is the sum of the squares of the examples' tokens: the pairs of positions of which
	// attention has values.
	Pairs int64
	// TargetTokens are the tokens of targets, and TargetPairs the pairs of which their attention has values: of
	// each with those of its example's target and source. They are 0 where examples have no targets.
	TargetTokens int
	TargetPairs  int64

	Rows      int // rows of the features with a value for each token; of a dense layout, places for examples
	RowLength int // tokens and padding of a row

	// Lengths are the examples' lengths on the open axis of a dense layout; nil without one.
	Lengths []int

	Records []RecordID // where each example came from, in example order
	Epoch   int64      // epoch of all its examples, from 0
	State   State      // position after the batch; restoring it continues with the next batch

	// Parts are the micro-batches of the batch if the Dataset divides batches
	// (Dataset.Divide), and nil otherwise.
	Parts []*Batch

	// Lease is what Release gives back, nil for nothing. The layout sets it.
	Lease Lease

	files []string
}

// Lease is memory that is lent to a batch.
type Lease interface {
	// Release gives the memory back. Copies of a batch share its lease: only the first call
	// does something.
	Release()
}

// PartOf says that the batch was made of examples of another one: it has the other's epoch, state
// and names of records.
func (b *Batch) PartOf(whole *Batch) {
	b.Epoch, b.State, b.files = whole.Epoch, whole.State, whole.files
}

// Feature returns the feature called name, or nil.
func (b *Batch) Feature(name string) *Feature {
	for i := range b.Features {
		if b.Features[i].Name == name {
			return &b.Features[i]
		}
	}
	return nil
}

// Release returns the memory of the batch's features for use by later batches. It is
// optional, for loops that draw thousands of batches per second. Afterwards the batch
// has no Features, and slices taken from them must not be used. It may be called more
// than once, but not while the features are in use.
func (b *Batch) Release() {
	b.Features = nil
	if b.Lease != nil {
		b.Lease.Release()
	}
}

// Density returns the share of cells in the rows that hold tokens, for callers who report
// how well examples are packed; 1 if there are no rows.
func (b *Batch) Density() float64 {
	if b.Rows*b.RowLength == 0 {
		return 1
	}
	return float64(b.Tokens) / float64(b.Rows*b.RowLength)
}

// Describe names the record of example i, such as
// "train-00000-of-00002.tfrecord:17".
func (b *Batch) Describe(i int) string { return describe(b.files, b.Records[i]) }

// RecordID is the place of a record in a Dataset.
type RecordID struct {
	File   int   // number of the file
	Record int64 // number of the record in the file, from 0
}

func describe(files []string, id RecordID) string {
	if id.File < 0 || id.File >= len(files) {
		return fmt.Sprintf("example %d", id.Record)
	}
	return fmt.Sprintf("%s:%d", filepath.Base(files[id.File]), id.Record)
}
