package serve

import (
	"context"
	"sync"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Generates continue texts, or make texts of sources. The config of Generation has the special tokens.
type Generates struct {
	predict.Generation
	Model generate.Model
}

// generator continues the texts of all requests for a model together: they enter and leave its batches at
// any call.
type generator struct {
	*Generates
	most int // continuations that may be in progress or wait

	mu     sync.Mutex
	s      *generate.Scheduler
	asked  map[uint64]*asked // by the ids of prompts
	next   uint64
	runs   bool // the loop
	closed bool
	ended  sync.WaitGroup
}

// asked is prompts of a request that are being continued. Their ids follow each other.
type asked struct {
	first, end uint64
	ready      chan struct{} // has a token if there are updates
	updates    []generate.Update
}

// newGenerator returns a generator of at most so many prompts in progress.
func newGenerator(g *Generates, most int) (*generator, error) {
	s, err := generate.New(g.Limits)
	return &generator{Generates: g, most: most, s: s, asked: make(map[uint64]*asked)}, err
}

// start begins to continue prompts, and sets their ids. Either all of them begin or none does.
func (g *generator) start(requests []generate.Request) (*asked, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, errClosed
	case len(g.asked)+len(requests) > g.most:
		return nil, errFull
	}
	a := &asked{first: g.next, end: g.next, ready: make(chan struct{}, 1)}
	for _, r := range requests {
		r.ID = a.end
		if err := g.s.Add(r); err != nil {
			g.leave(a)
			return nil, fault.Usagef("%s", named(err))
		}
		g.asked[a.end] = a
		a.end++
	}
	if g.next = a.end; !g.runs {
		g.runs = true
		g.ended.Go(g.loop)
	}
	return a, nil
}

// wait returns what happened to prompts.
func (g *generator) wait(ctx context.Context, a *asked) ([]generate.Update, error) {
	select {
	case <-a.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	updates := a.updates
	a.updates = nil
	return updates, nil
}

// cancel ends prompts that nobody waits for any more.
func (g *generator) cancel(a *asked) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leave(a)
}

func (g *generator) leave(a *asked) {
	for id := a.first; id < a.end; id++ {
		g.s.Cancel(id)
		delete(g.asked, id)
	}
}

// waiting returns the number of prompts that wait for room.
func (g *generator) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.s.Waiting()
}

// loop calls the model until no prompt is left. A call has no deadline: several requests share it.
func (g *generator) loop() {
	for {
		g.mu.Lock()
		b, ok := g.s.Next()
		g.runs = ok
		g.mu.Unlock()
		if !ok {
			return
		}
		logits, err := g.Model.Compute(context.Background(), b)
		g.mu.Lock()
		var updates []generate.Update
		if err == nil {
			updates, err = g.s.Take(logits)
		}
		if err != nil {
			updates = g.s.Fail(err)
		}
		for _, u := range updates {
			a := g.asked[u.ID]
			if u.Err != nil || u.Results != nil {
				delete(g.asked, u.ID)
			}
			a.updates = append(a.updates, u)
			select {
			case a.ready <- struct{}{}:
			default:
			}
		}
		g.mu.Unlock()
	}
}

// warmUp continues a token by one or, to compute also one that the model has made, by two.
func (g *generator) warmUp(ctx context.Context) error {
	c := generate.Default()
	c.MaxNewTokens = min(2, g.Limits.MaxLength-1)
	r := g.OfTokens([]int32{0})
	r.Config = c
	a, err := g.start([]generate.Request{r})
	if err != nil {
		return err
	}
	defer g.cancel(a)
	for {
		updates, err := g.wait(ctx, a)
		if err != nil {
			return err
		}
		for _, u := range updates {
			if u.Err != nil || u.Results != nil {
				return u.Err
			}
		}
	}
}

// close refuses prompts, and waits until those in progress are continued.
func (g *generator) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.ended.Wait()
}
