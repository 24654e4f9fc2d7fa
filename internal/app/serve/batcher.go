package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/train/predict"
)

// item is an example that waits for its outputs.
type item struct {
	example
	call   *call
	number int // among the examples of the call
}

// call is the examples of one request. It is answered when all of them are.
type call struct {
	ctx     context.Context
	since   time.Time
	results []predict.Result
	left    int // examples without outputs
	err     error
	done    chan struct{}
}

// errFull means that the queue has no room for the examples of a request.
var errFull = errors.New("the queue is full; try again later")

// errClosed means that the server stops.
var errClosed = errors.New("the server is stopping")

// batcherConfig says how batches are made.
type batcherConfig struct {
	// lanes is the number of batches that are computed at the same time.
	lanes int
	// cost is the most that the examples of a batch may cost together, and examples the most of
	// them. An example that costs more is a batch alone.
	cost, examples int
	// delay is how long an example waits for others if its batch is not full.
	delay time.Duration
	// queue is the most examples that may wait.
	queue int
	// compute returns the outputs for the examples of a batch.
	compute func([]item) ([]predict.Result, error)
	// batched is told of every batch before it is computed: the examples, and how long the first
	// one has waited.
	batched func([]item, time.Duration)
}

// batcher makes batches of the examples of concurrent requests.
//
// A lane that is free takes the example that has waited longest, and then others in the order of
// their arrival as long as they fit. If several lanes are free, each takes its share of what waits, so
// that all of them compute. Under load there is always enough to fill a batch, because examples
// arrive while the lanes compute, so that nothing is won by waiting; delay is for models whose small
// batches are slow.
type batcher struct {
	batcherConfig
	lanesDone sync.WaitGroup

	mu     sync.Mutex
	wake   *sync.Cond // when queue, idle or closed changes, or a delay is over
	queue  []item
	idle   int // lanes that wait
	closed bool
}

// newBatcher starts the lanes.
func newBatcher(c batcherConfig) *batcher {
	b := &batcher{batcherConfig: c}
	b.wake = sync.NewCond(&b.mu)
	for range c.lanes {
		b.lanesDone.Go(b.lane)
	}
	return b
}

// answer waits for the outputs for examples. When the context ends, those that still wait are dropped
// from the queue.
func (b *batcher) answer(ctx context.Context, examples []example) ([]predict.Result, error) {
	c := &call{ctx: ctx, since: time.Now(), results: make([]predict.Result, len(examples)), left: len(examples), done: make(chan struct{})}
	if err := b.enqueue(c, examples); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.results, c.err
	case <-ctx.Done():
		b.drop(c)
		return nil, context.Cause(ctx)
	}
}

func (b *batcher) enqueue(c *call, examples []example) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return errClosed
	case len(b.queue)+len(examples) > b.batcherConfig.queue:
		return errFull
	}
	for i, e := range examples {
		b.queue = append(b.queue, item{e, c, i})
	}
	b.wake.Broadcast()
	return nil
}

// drop removes the examples of a call from the queue.
func (b *batcher) drop(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = slices.DeleteFunc(b.queue, func(i item) bool { return i.call == c })
}

// waiting returns the number of examples in the queue.
func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// close refuses further examples and returns when those in the queue are answered.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wake.Broadcast()
	b.lanesDone.Wait()
}

// lane computes one batch after the other.
func (b *batcher) lane() {
	for batch := b.next(); batch != nil; batch = b.next() {
		b.batched(batch, time.Since(batch[0].call.since))
		b.run(batch)
	}
}

// run computes a batch. If that fails, each call is computed alone, so that only the one whose examples
// are at fault fails.
func (b *batcher) run(batch []item) {
	results, err := b.compute(batch)
	if err == nil || batch[0].call == batch[len(batch)-1].call {
		b.deliver(batch, results, err)
		return
	}
	for len(batch) > 0 {
		n := slices.IndexFunc(batch, func(i item) bool { return i.call != batch[0].call })
		if n < 0 {
			n = len(batch)
		}
		results, err := b.compute(batch[:n])
		b.deliver(batch[:n], results, err)
		batch = batch[n:]
	}
}

// deliver gives the outputs, or the error, to the calls of a batch.
func (b *batcher) deliver(batch []item, results []predict.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, i := range batch {
		c := i.call
		if err == nil {
			c.results[i.number] = results[k]
		} else {
			c.err = err
		}
		if c.left--; c.left == 0 {
			close(c.done)
		}
	}
}

// next waits for the examples of a batch; nil means that the batcher is closed and its queue empty.
func (b *batcher) next() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle++
	defer func() { b.idle-- }()
	for {
		for len(b.queue) == 0 {
			if b.closed {
				return nil
			}
			b.wake.Wait()
		}
		left := b.delay - time.Since(b.queue[0].call.since)
		if left <= 0 || b.closed || b.full() {
			return b.take()
		}
		timer := time.AfterFunc(left, b.wake.Broadcast)
		b.wake.Wait()
		timer.Stop()
	}
}

// full reports whether waiting would not make the next batch larger.
func (b *batcher) full() bool {
	cost, n := 0, 0
	for _, i := range b.queue {
		if i.key == b.queue[0].key {
			cost, n = cost+i.cost, n+1
		}
	}
	return cost >= b.cost || n >= b.examples
}

// take removes the examples of a batch from the queue. The first one is always among them, so that
// none waits forever for room.
func (b *batcher) take() []item {
	total := 0
	for _, i := range b.queue {
		total += i.cost
	}
	share := min(b.cost, (total+b.idle-1)/b.idle)
	var batch []item
	var rest []item
	cost := 0
	for k, i := range b.queue {
		if len(batch) == b.examples || cost >= share {
			rest = append(rest, b.queue[k:]...)
			break
		}
		if len(batch) > 0 && (i.key != batch[0].key || cost+i.cost > b.cost) {
			rest = append(rest, i)
			continue
		}
		batch = append(batch, i)
		cost += i.cost
	}
	b.queue = rest
	if len(rest) > 0 {
		b.wake.Broadcast() // for the other lanes, which see that an example is left
	}
	return batch
}
