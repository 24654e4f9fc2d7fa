package dataset

import (
	"fmt"
	"path/filepath"
)

// The names of a batch's features, in the order in which it holds them. R is
// the number of rows, S their length and B the number of examples.
const (
	InputIDs       = "input_ids"       // int32 [R, S]: token ids, 0 in padding
	TypeIDs        = "type_ids"        // int32 [R, S]: segment of the token, 0 in padding
	SequenceIDs    = "sequence_ids"    // int32 [R, S]: number of the example in its row, from 1; 0 is padding
	PositionIDs    = "position_ids"    // int32 [R, S]: position in the example, from 0; 0 in padding
	ClsPositions   = "cls_positions"   // int32 [B]: index of the example's first token in the flattened rows
	LabelIDs       = "labels"          // int32 [B]: class number, 0 if there is none
	ExampleWeights = "example_weights" // float32 [B]: 1
)

// Feature is a named tensor. Exactly one of the two slices is set; it is flat,
// in row-major order.
type Feature struct {
	Name    string
	Shape   []int
	Int32   []int32
	Float32 []float32
}

// Batch is the input of one step. It belongs to the receiver: it shares no memory
// with other batches until it is released.
type Batch struct {
	Features []Feature

	Examples  int // number of examples
	Labeled   int // examples that have a label
	Truncated int // examples that were cut to the row length
	Tokens    int // tokens without padding
	Rows      int
	RowLength int

	Records []RecordID // where each example came from, in example order
	Epoch   int64      // epoch of all its examples, from 0
	State   State      // position after the batch; restoring it continues with the next batch

	// Parts are the micro-batches of the batch if the Dataset divides batches
	// (Dataset.Divide), and nil otherwise.
	Parts []*Batch

	files []string
	lease *lease
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

// Density returns the share of cells in the rows that hold tokens.
func (b *Batch) Density() float64 {
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
