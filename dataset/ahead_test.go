package dataset_test

import (
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"

	. "github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/dataset/packed"
)

// counted is a file that counts the records that are read.
type counted struct {
	memory
	read *atomic.Int64
}

func (c counted) Record(i int, buf []byte) ([]byte, error) {
	c.read.Add(1)
	return c.memory.Record(i, buf)
}

// TestAhead takes no batch after the first, and looks how many are made. The batches do not change.
func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int64
		m := memory{name: "m"}
		for k := range 400 {
			m.records = append(m.records, rowtest.SampleRecord(t, k))
		}
		var plain, watched Files
		plain.Add("m", m)
		watched.Add("m", counted{m, &read})
		cfg := Config{BatchSize: 4, Readers: 1, Prefetch: 1}
		want, got := open(t, cfg, plain), open(t, cfg, watched)
		defer want.Close()
		defer got.Close()
		same := func(n int) {
			for i := range n {
				// The lease is memory that other batches use at the same time.
				a, b := *next(t, got), *next(t, want)
				a.Lease, b.Lease = nil, nil
				if !reflect.DeepEqual(a, b) {
					t.Fatalf("batch %d of %d differs", i, n)
				}
			}
		}
		// ahead returns how many batches are made when n more were taken: at first few.
		ahead := func(n int) int64 {
			synctest.Wait()
			before := read.Load()
			got.Ahead(0) // changes nothing
			same(n)
			synctest.Wait()
			return (read.Load()-before)/4 - int64(n)
		}
		same(50)
		if n := ahead(20); n > 5 {
			t.Errorf("%d batches more are ahead with a prefetch of 1", n)
		}
		got.Ahead(40)
		got.Ahead(20) // fewer do not make it less
		if n := ahead(20); n < 40 || n > 80 {
			t.Errorf("%d batches are ahead, expected about 40", n)
		}
	})
}

// TestLargeExamplesAreNotMadeAhead bounds the memory of the batches that wait.
func TestLargeExamplesAreNotMadeAhead(t *testing.T) {
	for _, c := range []struct{ side, batch, want int }{{1, 32, 64}, {224, 32, 13}, {1024, 32, 4}, {1, 4096, 4}} {
		layout := dense.Config{Features: []Spec{{Name: "image", DType: Uint8, Shape: []int{c.side, c.side, 3}}}}
		if got := (Config{BatchSize: c.batch, Readers: 2, Layout: layout}).Ahead(); got != c.want {
			t.Errorf("%d batches of %d images of %d pixels a side are made ahead, want %d", got, c.batch, c.side, c.want)
		}
	}
	if got := (Config{BatchSize: 32, Readers: 2, Layout: packed.Config{}}).Ahead(); got != 64 {
		t.Errorf("%d packed batches are made ahead, want 64", got)
	}
}
