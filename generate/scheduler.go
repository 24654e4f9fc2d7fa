package generate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Limits are those of a model and of a scheduler.
type Limits struct {
	// VocabSize is the number of tokens, and MaxLength the longest sequence, that the model takes.
	VocabSize, MaxLength int
	// Slots is the number of slots of the cache that tokens may have, without that for padding.
	Slots int
	// Rows is the most sequences of a call.
	Rows int
	// PromptTokens is the most tokens, padding included, of a call that computes prompts, and of the
	// sources that are encoded before. A longer prompt is computed in several calls, and a longer source
	// alone. 0 is no limit.
	PromptTokens int
	// SourceLength is the longest source that the model takes, 0 if it takes none, and SourceSlots the
	// number of slots of the caches of sources, as Slots is of the others.
	SourceLength, SourceSlots int
	// SharesSources says that the model takes a source for several sequences in a row, see Batch.Sources.
	// Otherwise it takes one for each.
	SharesSources bool
	// LogSumExp returns the logarithm of the sum of the exponentials of scores, and NaN if one of them is
	// NaN or +Inf. nil is a function in Go: such sums are most of the time of a search outside of the model.
	LogSumExp func(scores []float32) float64
}

// Validate returns an error that names the first field that makes no sense.
func (l Limits) Validate() error {
	switch {
	case l.VocabSize < 1 || l.VocabSize > math.MaxInt32:
		return fmt.Errorf("the vocabulary has %d tokens; expected 1 or more", l.VocabSize)
	case l.MaxLength < 2 || l.MaxLength > math.MaxInt32:
		return fmt.Errorf("the model's greatest length is %d; expected 2 or more", l.MaxLength)
	case l.Slots < 1 || l.Slots >= math.MaxInt32:
		return fmt.Errorf("the cache has %d slots; expected 1 to %d", l.Slots, math.MaxInt32-1)
	case l.Rows < 1:
		return fmt.Errorf("a call has %d sequences; expected 1 or more", l.Rows)
	case l.PromptTokens < 0:
		return fmt.Errorf("a call has %d tokens of prompts; expected 0 (no limit) or more", l.PromptTokens)
	case l.SourceLength < 0 || l.SourceLength > math.MaxInt32:
		return fmt.Errorf("the greatest length of a source is %d; expected 0 (no source) to %d", l.SourceLength, math.MaxInt32)
	case l.SourceLength > 0 && (l.SourceSlots < 1 || l.SourceSlots >= math.MaxInt32):
		return fmt.Errorf("the cache of sources has %d slots; expected 1 to %d", l.SourceSlots, math.MaxInt32-1)
	}
	return nil
}

// has returns an error unless the vocabulary has the tokens.
func (l Limits) has(what string, ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= l.VocabSize {
			return fmt.Errorf("the %s has token %d; expected 0 to %d, as the model's vocabulary", what, id, l.VocabSize-1)
		}
	}
	return nil
}

// takesSource returns an error unless a request may have a source of so many tokens.
func (l Limits) takesSource(tokens int) error {
	switch {
	case l.SourceLength == 0 && tokens > 0:
		return fmt.Errorf("the source has %d tokens; expected none: the model has no encoder", tokens)
	case l.SourceLength > 0 && tokens == 0:
		return errors.New("the source has no tokens; expected one or more")
	case tokens > l.SourceLength:
		return fmt.Errorf("the source has %d tokens; expected at most the %d that the model takes", tokens, l.SourceLength)
	case tokens > l.SourceSlots:
		return fmt.Errorf("the source has %d tokens; expected at most %d, as many as the cache of sources holds; make it larger", tokens, l.SourceSlots)
	}
	return nil
}

// Batch is what a model is to compute: the next tokens of some sequences. Its lists are matrices, row after
// row, padded with 0.
type Batch struct {
	// Rows is the number of sequences, Tokens the most new tokens of one, and Context the most tokens of
	// one in all.
	Rows, Tokens, Context int
	// InputIDs are the new tokens, PositionIDs their places in their sequences, and Slots their slots:
	// [Rows, Tokens].
	InputIDs, PositionIDs, Slots []int32
	// ContextSlots are the slots of the tokens of each sequence from its first to its last new one:
	// [Rows, Context].
	ContextSlots []int32
	// Last is the column of each sequence's last new token: [Rows].
	Last []int32
	// Source is the most tokens of the source of a sequence, and SourceSlots are their slots:
	// [Sources, Source]. Rows / Sources sequences in a row have the same source, such as beams.
	Sources, Source int
	SourceSlots     []int32
	// Encode are the sources that are to be encoded before; nil if there are none.
	Encode *Sources
}

// SourceOf returns the slots of the source of a sequence.
func (b *Batch) SourceOf(row int) []int32 {
	return b.SourceSlots[row/(b.Rows/b.Sources)*b.Source:][:b.Source]
}

// Sources are to be encoded: matrices of Rows rows of Tokens columns, padded with 0.
type Sources struct {
	Rows, Tokens int
	// InputIDs are the tokens of each source, PositionIDs their places, and Slots their slots in the
	// caches of sources.
	InputIDs, PositionIDs, Slots []int32
}

// Scheduler has the state of many requests. It is not safe for concurrent use.
type Scheduler struct {
	limits   Limits
	slots    *slots
	sources  *slots
	reserved int // slots that the requests in running may need
	rows     int // sequences that they may have
	waiting  []*active
	running  []*active
	called   []called // those of the batch that Next gave, until Take; nil before
}

// called is a request of a batch and the number of its rows.
type called struct {
	*active
	rows int
}

// New returns a scheduler without requests.
func New(l Limits) (*Scheduler, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return &Scheduler{limits: l, slots: newSlots(l.Slots), sources: newSlots(l.SourceSlots)}, nil
}

// Add adds a request. It returns an error, and leaves the request out, if it makes no sense or can never
// have the slots that it needs.
func (s *Scheduler) Add(r Request) error {
	if s.find(r.ID) != nil {
		return fmt.Errorf("request %d is not finished; expected another id", r.ID)
	}
	a, err := newActive(r, s.limits)
	if err == nil {
		s.waiting = append(s.waiting, a)
	}
	return err
}

// find returns the request of an id that is not finished, or nil.
func (s *Scheduler) find(id uint64) *active {
	for _, list := range [][]*active{s.waiting, s.running} {
		for _, a := range list {
			if a.ID == id {
				return a
			}
		}
	}
	return nil
}

// Cancel takes a request out, if there is one of the id that is not finished. It has no more updates.
func (s *Scheduler) Cancel(id uint64) {
	if a := s.find(id); a != nil {
		a.leave(s.slots)
		s.remove(a)
	}
}

// remove forgets a request.
func (s *Scheduler) remove(a *active) {
	if i := slices.Index(s.waiting, a); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	i := slices.Index(s.running, a)
	s.running = slices.Delete(s.running, i, i+1)
	s.sources.give(a.source...)
	a.source = nil
	s.reserved -= a.need
	s.rows -= a.width()
}

// Waiting returns the number of requests that wait for room.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Running returns the number of requests that have room.
func (s *Scheduler) Running() int { return len(s.running) }

// Next returns the next batch, and false if there is nothing to compute. The batch is either of prompts, or
// of one token of every sequence. Take or Fail must be called before the next call of Next.
func (s *Scheduler) Next() (*Batch, bool) {
	if s.called != nil {
		panic("generate: Next was called before Take or Fail")
	}
	for len(s.waiting) > 0 {
		a := s.waiting[0] // requests enter in their order, so that none waits forever
		if s.reserved+a.need > s.limits.Slots || s.rows+a.width() > s.limits.Rows || len(a.Source) > len(s.sources.free) {
			break
		}
		s.waiting = s.waiting[1:]
		s.running = append(s.running, a)
		s.reserved += a.need
		s.rows += a.width()
		for range a.Source {
			a.source = append(a.source, s.sources.take())
		}
	}
	next := s.prompts()
	if len(next) == 0 {
		next = s.running
	}
	if len(next) == 0 {
		return nil, false
	}
	for _, a := range next {
		s.called = append(s.called, called{a, max(len(a.live), 1)})
	}
	return s.batch(), true
}

// prompts returns the requests whose prompts are computed next: those of about one length, the longest first,
// so that little is computed for padding.
func (s *Scheduler) prompts() []*active {
	var out []*active
	for _, a := range s.running {
		if !a.computed {
			out = append(out, a)
		}
	}
	length := func(a *active) int { return max(len(a.Prompt), len(a.Source)) } // also of one that is computed in part
	slices.SortStableFunc(out, func(a, b *active) int { return cmp.Compare(length(b), length(a)) })
	if s.limits.PromptTokens > 0 && len(out) > 0 {
		out = out[:min(len(out), max(1, s.limits.PromptTokens/length(out[0])))]
	}
	return out
}

// batch lays out the tokens that have no slot, and gives them one.
func (s *Scheduler) batch() *Batch {
	type row struct{ news, all []*token }
	var rows []row
	b := &Batch{Encode: s.encode()}
	shared := 1 // how many sequences in a row have the same source
	if s.limits.SharesSources {
		shared = 0
	}
	for _, a := range s.called {
		if a.live == nil {
			a.begin(s.known(a.active))
		}
		a.computed = true
		b.Source, shared = max(b.Source, len(a.source)), divisor(shared, len(a.live))
		for _, q := range a.live {
			r := row{all: make([]*token, q.end.place+1)}
			first := q.end.place + 1
			for t := q.end; t != nil; t = t.before {
				r.all[t.place] = t
				if t.slot == 0 {
					first = t.place
				}
			}
			if most := s.limits.PromptTokens; most > 0 && len(r.all)-first > most {
				r.all, a.computed = r.all[:first+most], false
			}
			r.news = r.all[first:]
			for _, t := range r.news {
				t.slot = s.slots.take()
			}
			b.Tokens, b.Context = max(b.Tokens, len(r.news)), max(b.Context, len(r.all))
			rows = append(rows, r)
		}
	}
	b.Rows, b.Sources = len(rows), len(rows)/shared
	b.InputIDs, b.PositionIDs, b.Slots = make([]int32, b.Rows*b.Tokens), make([]int32, b.Rows*b.Tokens), make([]int32, b.Rows*b.Tokens)
	b.ContextSlots, b.Last, b.SourceSlots = make([]int32, b.Rows*b.Context), make([]int32, b.Rows), make([]int32, 0, b.Sources*b.Source)
	for i, r := range rows {
		for j, t := range r.news {
			at := i*b.Tokens + j
			b.InputIDs[at], b.PositionIDs[at], b.Slots[at] = t.id, int32(t.place), t.slot
		}
		for j, t := range r.all {
			b.ContextSlots[i*b.Context+j] = t.slot
		}
		b.Last[i] = int32(len(r.news) - 1)
	}
	for _, a := range s.called {
		for range len(a.live) / shared {
			b.SourceSlots = append(append(b.SourceSlots, a.source...), make([]int32, b.Source-len(a.source))...)
		}
	}
	return b
}

// divisor returns the greatest number that divides both.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// known returns the last token of the longest beginning of a prompt that the caches hold for another request,
// all of it but one token at most, whose logits are asked for; nil if there is none. What precedes a token is
// all that its keys and values hang on, unless there is a source.
func (s *Scheduler) known(a *active) *token {
	var best *token
	for _, other := range s.running {
		if other == a || len(other.live) == 0 || len(a.Source) > 0 {
			continue
		}
		same := 0
		for same < min(len(a.Prompt)-1, len(other.Prompt)) && a.Prompt[same] == other.Prompt[same] {
			same++
		}
		if best != nil && best.place+1 >= same {
			continue
		}
		t := other.live[0].end
		for t != nil && (t.place >= same || t.slot == 0) {
			t = t.before
		}
		if t != nil && (best == nil || t.place > best.place) {
			best = t
		}
	}
	return best
}

// encode lays out the sources of the batch that are not encoded yet.
func (s *Scheduler) encode() *Sources {
	var all []*active
	out := new(Sources)
	for _, a := range s.called {
		if len(a.source) > 0 && !a.encoded {
			a.encoded = true
			out.Rows, out.Tokens = out.Rows+1, max(out.Tokens, len(a.source))
			all = append(all, a.active)
		}
	}
	if all == nil {
		return nil
	}
	n := out.Rows * out.Tokens
	out.InputIDs, out.PositionIDs, out.Slots = make([]int32, n), make([]int32, n), make([]int32, n)
	for i, a := range all {
		from := i * out.Tokens
		copy(out.InputIDs[from:], a.Source)
		copy(out.Slots[from:], a.source)
		for j := range a.source {
			out.PositionIDs[from+j] = int32(j)
		}
	}
	return out
}

// Take takes the logits of the batch, [Rows, VocabSize], which it may overwrite, and lets every sequence of
// the batch take its next token. It returns what happened to each request of it, in order.
func (s *Scheduler) Take(logits []float32) ([]Update, error) {
	if s.called == nil {
		return nil, errors.New("logits are given; expected a batch to be asked for before")
	}
	vocab, rows := s.limits.VocabSize, 0
	for _, c := range s.called {
		rows += c.rows
	}
	if len(logits) != rows*vocab {
		return nil, fmt.Errorf("the model gave %d logits; expected %d, for %d sequences and %d tokens", len(logits), rows*vocab, rows, vocab)
	}
	all := s.called
	s.called = nil
	var rowsOf []weighed // of each request that takes tokens
	for _, c := range all {
		var own [][]float32
		for range c.rows {
			own, logits = append(own, logits[:vocab:vocab]), logits[vocab:]
		}
		if len(c.live) == 0 || !c.computed {
			continue // canceled, or a part of a prompt
		}
		c.start()
		for len(own) < len(c.live) {
			own = append(own, own[0]) // samples, which do not overwrite it
		}
		rowsOf = append(rowsOf, weighed{c.active, own, make([]choice, len(own))})
	}
	weigh(rowsOf)
	var out []Update
	for _, w := range rowsOf {
		u := w.take(w.choices, s.slots)
		if u.Err != nil || u.Results != nil {
			s.remove(w.active)
		}
		out = append(out, u)
	}
	return out, nil
}

// weighed is a request with the logits of its live sequences, and what may follow them.
type weighed struct {
	*active
	rows    [][]float32
	choices []choice
}

// weigh sets the choices, on all processors: to weigh a vocabulary takes long.
func weigh(all []weighed) {
	type row struct{ request, number int }
	var rows []row
	for i, w := range all {
		for k := range w.rows {
			rows = append(rows, row{i, k})
		}
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(rows)) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(rows) {
					return
				}
				w, k := all[rows[i].request], rows[i].number
				w.choices[k] = w.weigh(k, w.rows[k])
			}
		})
	}
	wait.Wait()
}

// Fail gives up the requests of the batch that Next gave, because of an error of the model.
func (s *Scheduler) Fail(err error) []Update {
	all := s.called
	s.called = nil
	var out []Update
	for _, c := range all {
		if len(c.live) == 0 {
			continue // canceled
		}
		c.leave(s.slots)
		s.remove(c.active)
		out = append(out, Update{ID: c.ID, Err: err})
	}
	return out
}
