package dataset

import "sync"

// result is a batch, or why there is none.
type result struct {
	batch   *Batch
	next    State // Epoch and Position behind the batch
	skipped int64 // damaged records that the batch lacks
	damage  error // of the first of them
	err     error
}

// job is a batch to be made.
type job struct {
	epoch, start, end int64
	next              State
	to                chan<- result
}

// prefetch makes batches ahead. Which records a batch holds depends on its
// position alone, so readers make whole batches independently of each other,
// and the queue brings them into order.
type prefetch struct {
	queue chan chan result // one for every batch, in order; closed behind the last
	quit  chan struct{}
	done  sync.WaitGroup
}

// startPrefetch starts making the batches from a position on.
func startPrefetch(cfg *Config, f *files, from State) *prefetch {
	p := &prefetch{queue: make(chan chan result, cfg.Prefetch), quit: make(chan struct{})}
	jobs := make(chan job)
	p.done.Go(func() {
		defer close(jobs)
		defer close(p.queue)
		size, records := int64(cfg.BatchSize), f.len()
		for s := from; cfg.Epochs == 0 || s.Epoch < cfg.Epochs; {
			to := make(chan result, 1)
			j := job{epoch: s.Epoch, start: s.Position, end: min(s.Position+size, records), to: to}
			s.Position = j.end
			s = s.normal()
			j.next = s
			select {
			case p.queue <- to:
			case <-p.quit:
				return
			}
			select {
			case jobs <- j:
			case <-p.quit:
				return
			}
		}
	})
	for range cfg.Readers {
		p.done.Go(func() {
			r := newReader(cfg, f)
			for j := range jobs {
				res := result{next: j.next}
				res.batch, res.skipped, res.damage, res.err = r.read(j.epoch, j.start, j.end)
				j.to <- res
			}
		})
	}
	return p
}

// stop ends all goroutines, at the latest when each has made its batch.
func (p *prefetch) stop() {
	close(p.quit)
	p.done.Wait()
}
