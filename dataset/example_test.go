package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// writeExamples writes n labelled examples of 4 to 8 tokens.
func writeExamples(path string, n int) error {
	w, err := tfrecord.Create(path)
	if err != nil {
		return err
	}
	for i := range n {
		ids := make([]int64, 4+i%5)
		for j := range ids {
			ids[j] = int64(100 + i)
		}
		record, err := tfrecord.AppendExample(nil,
			tfrecord.Int64Feature("input_ids", ids...),
			tfrecord.Int64Feature("segment_ids", make([]int64, len(ids))...),
			tfrecord.Int64Feature("label_ids", int64(i%2)))
		if err != nil {
			return err
		}
		if err := w.Write(record); err != nil {
			return err
		}
	}
	return w.Close()
}

// Ten examples are drawn in batches of four, each laid into rows of at most 16 tokens. A second
// Dataset continues from the state of the first.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "train.tfrecord")
	if err := writeExamples(path, 10); err != nil {
		fmt.Println(err)
		return
	}
	config := dataset.Config{Files: []string{path}, BatchSize: 4, Epochs: 1, Layout: packed.Config{RowLength: 16}, Seed: 42}

	ctx := context.Background()
	set, err := dataset.Open(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	batch, err := set.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids := batch.Feature("input_ids")
	fmt.Printf("%d examples, %d tokens in rows %v\n", batch.Examples, batch.Tokens, ids.Shape)
	state := set.State()
	fmt.Println("drawn:", state.Position)

	again, err := dataset.Open(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer again.Close()
	if err := again.Restore(state); err != nil {
		fmt.Println(err)
		return
	}
	for {
		batch, err := again.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d examples, %.0f%% text\n", batch.Examples, 100*batch.Density())
	}
	// Output:
	// 4 examples, 21 tokens in rows [2 12]
	// drawn: 4
	// 4 examples, 100% text
	// 2 examples, 100% text
}
