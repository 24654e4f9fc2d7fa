package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// memory is a file of records in memory; a nil record is damaged.
type memory struct {
	name    string
	records [][]byte
}

func (m memory) Len() int { return len(m.records) }

func (m memory) Record(i int, buf []byte) ([]byte, error) {
	if m.records[i] == nil {
		return nil, &tfrecord.CorruptError{Path: m.name, Record: int64(i), Reason: "made so"}
	}
	return append(buf[:0], m.records[i]...), nil
}

// samples returns made-up records 0 to n-1 in a few files, one of them empty.
func samples(t testing.TB, n int) Files {
	var f Files
	k := 0
	for i, size := range []int{n / 3, 0, n / 2, n - n/3 - n/2} {
		m := memory{name: fmt.Sprintf("dir/s-%05d-of-00004.tfrecord", i)}
		for range size {
			m.records = append(m.records, rowtest.SampleRecord(t, k))
			k++
		}
		f.Add(m.name, m)
	}
	return f
}

// open returns a Dataset of files in memory.
func open(t testing.TB, cfg Config, f Files) *Dataset {
	t.Helper()
	d, err := OpenFiles(withLayout(cfg), f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// next returns the next batch, or nil at the end.
func next(t testing.TB, d *Dataset) *Batch {
	t.Helper()
	b, err := d.Next(context.Background())
	if err == io.EOF {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rest returns all batches that are left, but no more than most.
func rest(t testing.TB, d *Dataset, most int) (all []*Batch) {
	t.Helper()
	for len(all) < most {
		b := next(t, d)
		if b == nil {
			break
		}
		all = append(all, b)
	}
	return all
}

// failure returns the error of the first Next that has one.
func failure(t testing.TB, d *Dataset) error {
	t.Helper()
	for {
		if _, err := d.Next(context.Background()); err != nil {
			return err
		}
	}
}

// copyFile copies a file of testdata to where an index can be written.
func copyFile(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func asRecordError(t testing.TB, err error) *RecordError {
	t.Helper()
	var e *RecordError
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, expected a RecordError", err)
	}
	return e
}

var packings = []packed.Packing{packed.PackBestFit, packed.PackFirstFit, packed.PackNone}

// withLayout returns a configuration with packed rows where it has no layout.
func withLayout(cfg Config) Config {
	if cfg.Layout == nil {
		cfg.Layout = packed.Config{}
	}
	return cfg
}
