package dataset

import "sync"

// result is a batch, or the error that prevented it.
type result struct {
	batch   *Batch
	next    State // Epoch, Position and Carried after the batch
	skipped int64 // damaged records dropped from the batch
	damage  error // error of the first of them
	err     error
}

// job is a run of consecutive batches to make. They are handed over together, because
// waking the other side takes longer than making a small batch.
type job struct {
	from  State
	count int
	plans []plan // of the batches, if their size is fixed
	to    chan<- []result
}

// mostTogether is the maximum number of batches in a job.
const mostTogether = 64

// prefetch makes batches ahead. The records of a batch depend only on its position,
// so readers make whole batches independently of each other, and the queue puts
// them in order.
type prefetch struct {
	queue    chan chan []result // one for each job, in order; closed after the last
	division division
	quit     chan struct{}
	done     sync.WaitGroup
}

// startPrefetch starts making the batches from the position of the dataset on.
func (d *Dataset) startPrefetch() *prefetch {
	cfg := &d.cfg
	together := min(max(cfg.Prefetch/(2*cfg.Readers), 1), mostTogether)
	p := &prefetch{queue: make(chan chan []result, max(cfg.Prefetch/together, 1)), division: d.division, quit: make(chan struct{})}
	jobs := make(chan job)
	p.done.Go(func() {
		defer close(jobs)
		defer close(p.queue)
		s := d.state
		var planned *planner
		if d.fit != nil {
			planned = d.planAt(s)
		}
		// Someone waits for the first batch, so it is a job of its own.
		for count := 1; s.before(cfg.Epochs); count = min(2*count, together) {
			to := make(chan []result, 1)
			j := job{from: s, to: to}
			for j.count < count && s.before(cfg.Epochs) {
				if planned != nil {
					b := planned.next()
					s = b.next
					if cfg.Epochs > 0 && b.epoch >= cfg.Epochs {
						break // the rest of the last epoch was left out
					}
					j.plans = append(j.plans, b)
				} else {
					s = s.After()
				}
				j.count++
			}
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
			r := newReader(cfg, &d.files, d.newOrder(), d.assembler())
			for j := range jobs {
				j.to <- p.make(r, j)
			}
		})
	}
	return p
}

// make makes the batches of a job, up to the first error.
func (p *prefetch) make(r *reader, j job) []result {
	results := make([]result, 0, j.count)
	for s := j.from; len(results) < j.count; {
		select {
		case <-p.quit:
			return results // nobody waits for them
		default:
		}
		var res result
		if j.plans != nil {
			b := j.plans[len(results)]
			res.next = b.next
			res.batch, res.skipped, res.damage, res.err = r.readPlanned(b)
		} else {
			res.next = s.After()
			start, end := r.cfg.Part.of(s.Position, s.end())
			res.batch, res.skipped, res.damage, res.err = r.read(s.Epoch, start, end)
		}
		if res.err == nil && p.division.parts > 0 {
			res.batch.Parts, res.err = r.cfg.Layout.Divide(res.batch, p.division.parts, p.division.longRows)
		}
		results = append(results, res)
		if res.err != nil {
			break
		}
		s = res.next
	}
	return results
}

// before reports whether the given number of epochs has a batch left; 0 means no limit.
func (s State) before(epochs int64) bool { return epochs == 0 || s.Epoch < epochs }

// size returns the size of the batch at s.
func (s State) size() int64 {
	if s.Settings.Growth == "" {
		return int64(s.Settings.BatchSize)
	}
	return s.Settings.sizeAt(parseGrowth(s.Settings.Growth), s.Epoch, s.Position)
}

// end returns the position after the batch at s.
func (s State) end() int64 {
	return min(s.Position+s.size(), s.Settings.Records)
}

// After returns the position of the batch after the one at s, whose size must not be fixed. Skipped
// does not change.
func (s State) After() State {
	s.Position = s.end()
	return s.normal()
}

// stop ends all goroutines. Each finishes the batch it is making.
func (p *prefetch) stop() {
	close(p.quit)
	p.done.Wait()
}
