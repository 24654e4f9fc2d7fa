package packed

import (
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
)

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// open returns a Dataset of the files of made-up records.
func open(t *testing.T, cfg dataset.Config) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// next returns the next batch, or nil at the end.
func next(t *testing.T, d *dataset.Dataset) *dataset.Batch {
	t.Helper()
	b, err := d.Next(t.Context())
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReleasedBatchesMakeNoDifference(t *testing.T) {
	files := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "r"), 203, 2)
	for _, how := range packings {
		cfg := dataset.Config{Files: files, BatchSize: 7, Epochs: 3, Layout: Config{Packing: how, RowLength: 64}, Readers: 1, Prefetch: 1}
		var want []*dataset.Batch
		for d := open(t, cfg); ; {
			b := next(t, d)
			if b == nil {
				break
			}
			want = append(want, b)
		}
		cfg.Readers, cfg.Prefetch = 2, 16
		d := open(t, cfg)
		var free *pool
		for i, w := range want {
			b := next(t, d)
			unpack(t, b)
			if !reflect.DeepEqual(b.Features, w.Features) || b.State != w.State {
				t.Fatalf("%s: batch %d differs once others have been released", how, i)
			}
			free = b.Lease.(*lease).from
			again := *b
			b.Release()
			b.Release()
			again.Release()
			if b.Features != nil || b.Feature(InputIDs) != nil {
				t.Fatalf("%s: batch %d still has features", how, i)
			}
			if n := free.size(); n > i+1 {
				t.Fatalf("%s: %d pieces of memory are free after %d batches", how, n, i+1)
			}
		}
		if next(t, d) != nil {
			t.Errorf("%s: more than %d batches", how, len(want))
		}
		if free.size() == 0 {
			t.Errorf("%s: nothing is free", how)
		}
	}
}

func TestReleaseOfFewKeepsTheOthers(t *testing.T) {
	files := rowtest.WriteShards(t, filepath.Join(t.TempDir(), "r"), 100, 1)
	d := open(t, dataset.Config{Files: files, BatchSize: 5, Epochs: 2, Prefetch: 8, Layout: Config{}})
	var kept []*dataset.Batch
	for i := 0; ; i++ {
		b := next(t, d)
		if b == nil {
			break
		}
		if i%2 == 0 {
			b.Release()
			continue
		}
		kept = append(kept, b)
	}
	if len(kept) != 20 {
		t.Errorf("%d batches are kept, expected 20", len(kept))
	}
	for _, b := range kept {
		for k, e := range unpack(t, b) {
			if want := sample(int(b.Records[k].Record)); !reflect.DeepEqual(e, want) {
				t.Fatalf("example %v is %v, expected %v", b.Records[k], e, want)
			}
		}
	}
}
