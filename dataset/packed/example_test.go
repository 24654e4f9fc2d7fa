package packed_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/dataset/packed"
)

// Three examples are packed into one row, and then divided into two micro-batches.
func Example() {
	rows := packed.Config{RowLength: 16, VocabSize: 1000}
	batch, err := packed.FromExamples(rows, []packed.Example{
		{IDs: []int32{101, 7, 8, 102}, Label: 1, Labeled: true},
		{IDs: []int32{101, 9, 102}, Label: 0, Labeled: true},
		{IDs: []int32{101, 5, 6, 102}, Label: 1, Labeled: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(batch.Feature(packed.InputIDs).Int32)
	fmt.Println(batch.Feature(packed.SequenceIDs).Int32)
	parts, err := rows.Split(batch, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range parts {
		fmt.Println("examples:", p.Examples, "rows:", p.Feature(packed.InputIDs).Shape)
	}
	// Output:
	// [101 7 8 102 101 5 6 102 101 9 102]
	// [1 1 1 1 2 2 2 2 3 3 3]
	// examples: 2 rows: [1 7]
	// examples: 1 rows: [1 4]
}
