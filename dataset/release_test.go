package dataset

import (
	"reflect"
	"testing"
)

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

func TestReleasedBatchesMakeNoDifference(t *testing.T) {
	f := samples(t, 203)
	for _, how := range packings {
		cfg := Config{BatchSize: 7, Epochs: 3, Packing: how, RowLength: 64, Readers: 1, Prefetch: 1}
		want := rest(t, open(t, cfg, f), 1000)
		cfg.Readers, cfg.Prefetch = 2, 16
		d := open(t, cfg, f)
		for i, w := range want {
			b := next(t, d)
			unpack(t, b)
			if !reflect.DeepEqual(b.Features, w.Features) || b.State != w.State {
				t.Fatalf("%s: batch %d differs once others have been released", how, i)
			}
			again := *b
			b.Release()
			b.Release()
			again.Release()
			if b.Features != nil || b.Feature(InputIDs) != nil {
				t.Fatalf("%s: batch %d still has features", how, i)
			}
			if n := d.free.size(); n > i+1 {
				t.Fatalf("%s: %d pieces of memory are free after %d batches", how, n, i+1)
			}
		}
		if next(t, d) != nil {
			t.Errorf("%s: more than %d batches", how, len(want))
		}
		if d.free.size() == 0 {
			t.Errorf("%s: nothing is free", how)
		}
	}
}

func TestReleaseOfFewKeepsTheOthers(t *testing.T) {
	d := open(t, Config{BatchSize: 5, Epochs: 2, Prefetch: 8}, samples(t, 100))
	var kept []*Batch
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
	for _, b := range kept {
		for k, e := range unpack(t, b) {
			if want := sample(d.files.number(b.Records[k])); !reflect.DeepEqual(e, want) {
				t.Fatalf("example %v is %v, expected %v", b.Records[k], e, want)
			}
		}
	}
}
