package packed

import (
	"errors"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
)

var packings = []Packing{PackBestFit, PackFirstFit, PackNone}

// sample returns an example of the made-up set.
func sample(n int) Example { return Example(rowtest.Sample(n)) }

// unpack returns the examples of a batch, which it checks.
func unpack(t testing.TB, b *dataset.Batch) []Example {
	t.Helper()
	var examples []Example
	for _, e := range rowtest.Unpack(t, b) {
		examples = append(examples, Example(e))
	}
	return examples
}

func asRecordError(t testing.TB, err error) *dataset.RecordError {
	t.Helper()
	var e *dataset.RecordError
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, expected a RecordError", err)
	}
	return e
}
