package dataset

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// plan is the content of a batch of a fixed size.
type plan struct {
	epoch  int64
	draws  []int64 // the records
	places []int32 // their places in the batch; -1 for those that take no room
	next   State   // Epoch, Position and Carried after the batch
}

// planner decides which records batches of a fixed size hold. It needs the sizes of the records but
// not the records themselves.
type planner struct {
	rooms  []uint16 // by record
	cfg    *Config
	size   int64 // of the batch that fill fills
	fill   Filler
	sees   int
	order  *order
	drop   bool // leave out the last batch of an epoch if it is not full
	all    State
	epoch  int64
	from   int64 // position after the last batch
	drawn  int64 // position of the next draw
	buffer []int64

	// The records that wait, in drawing order, and those that take no room.
	waiting []drawnRecord
	idle    []drawnRecord

	sizes, places []int32 // of waiting, while a batch is filled
}

// drawnRecord is a record and the position in the epoch at which it was drawn.
type drawnRecord struct{ position, record int64 }

// planAt returns a planner that begins at a position, which must be valid.
func (d *Dataset) planAt(s State) *planner {
	p := &planner{rooms: d.rooms, cfg: &d.cfg, drop: d.cfg.DropRemainder, all: d.state,
		order: d.newOrder(), epoch: s.Epoch, from: s.Position, drawn: s.Position}
	back, _ := parseCarried(s.Carried) // checked by Restore
	for _, b := range back {
		p.draw(s.Position-b, s.Position-b+1)
	}
	return p
}

// draw makes the records drawn at the positions start to end wait.
func (p *planner) draw(start, end int64) {
	p.buffer = p.order.draw(p.buffer, p.epoch, start, end)
	for i, r := range p.buffer {
		d := drawnRecord{start + int64(i), r}
		if p.rooms[r] == 0 {
			p.idle = append(p.idle, d)
		} else {
			p.waiting = append(p.waiting, d)
		}
	}
}

// refill draws what the next choice depends on.
func (p *planner) refill() {
	n := int64(len(p.rooms))
	if size := p.all.Settings.sizeAt(p.cfg.Growth, p.epoch, p.from); size != p.size {
		p.size, p.fill = size, p.cfg.Layout.(FittedLayout).Fit(int(size)).Fillers()
		p.sees = p.fill.Sees()
	}
	for len(p.waiting) < p.sees && p.drawn < n {
		end := min(p.drawn+int64(p.sees-len(p.waiting)), n)
		p.draw(p.drawn, end)
		p.drawn = end
	}
}

// choose chooses the records of the next batch. It reports whether the batch is full.
func (p *planner) choose() bool {
	p.refill()
	p.sizes, p.places = p.sizes[:0], slices.Grow(p.places[:0], len(p.waiting))[:len(p.waiting)]
	for _, d := range p.waiting {
		p.sizes = append(p.sizes, int32(p.rooms[d.record]))
	}
	return len(p.waiting) > 0 && p.fill.Fill(p.sizes, p.places)
}

// left reports whether the epoch has a batch left.
func (p *planner) left() bool {
	p.refill()
	if p.drop && len(p.waiting) < p.sees {
		return p.choose()
	}
	return len(p.waiting) > 0 || len(p.idle) > 0
}

// next returns the next batch. Epochs without a batch are passed over.
func (p *planner) next() plan {
	for {
		full := p.choose()
		if full || !p.drop {
			return p.take()
		}
		p.begin(p.epoch + 1)
	}
}

// begin moves to the beginning of an epoch.
func (p *planner) begin(epoch int64) {
	p.epoch, p.from, p.drawn = epoch, 0, 0
	p.waiting, p.idle = p.waiting[:0], p.idle[:0]
}

// take makes a batch of the records that were chosen.
func (p *planner) take() plan {
	b := plan{epoch: p.epoch}
	last := -1
	for i, place := range p.places {
		if place >= 0 {
			last = i
			b.draws, b.places = append(b.draws, p.waiting[i].record), append(b.places, place)
		}
	}
	if last >= 0 {
		p.from = max(p.from, p.waiting[last].position+1)
	}
	i := -1
	p.waiting = slices.DeleteFunc(p.waiting, func(drawnRecord) bool { i++; return p.places[i] >= 0 })
	if p.refill(); len(p.waiting) == 0 {
		p.from = p.drawn // the epoch is over
	}
	kept := p.idle[:0]
	for _, d := range p.idle {
		if d.position >= p.from {
			kept = append(kept, d)
			continue
		}
		b.draws, b.places = append(b.draws, d.record), append(b.places, -1)
	}
	p.idle = kept

	b.next = p.all
	if !p.left() {
		p.begin(p.epoch + 1)
	}
	b.next.Epoch, b.next.Position, b.next.Carried = p.epoch, p.from, p.carried()
	return b
}

// carried returns Carried of the position after the last batch.
func (p *planner) carried() string {
	var text []byte
	for _, d := range p.waiting {
		if d.position >= p.from {
			break
		}
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, p.from-d.position, 10)
	}
	return string(text)
}

// maxCarried is the maximum number of carried records of a position.
const maxCarried = 1 << 17

// parseCarried returns the distances in a State's Carried, which become less from each to the next.
func parseCarried(text string) ([]int64, error) {
	if text == "" {
		return nil, nil
	}
	if n := strings.Count(text, ","); n >= maxCarried {
		return nil, fmt.Errorf("has %d carried records; expected at most %d", n+1, maxCarried)
	}
	var back []int64
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(word, 10, 64)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != word:
			return nil, fmt.Errorf("has a carried record %q; expected a number", word)
		case n < 1 || len(back) > 0 && n >= back[len(back)-1]:
			return nil, fmt.Errorf("has a carried record %d; expected numbers of 1 or more, each less than the one before", n)
		}
		back = append(back, n)
	}
	return back, nil
}

// checkCarried returns what is wrong with Carried, or "". Its position must be valid.
func (s State) checkCarried(fitted bool) string {
	back, err := parseCarried(s.Carried)
	switch {
	case err != nil:
		return "it " + err.Error()
	case len(back) == 0:
		return ""
	case !fitted:
		return fmt.Sprintf("it carries %d records; expected none, because the size of batches is not fixed", len(back))
	case back[0] > s.Position:
		return fmt.Sprintf("its first carried record was drawn %d before position %d; expected one of the epoch", back[0], s.Position)
	}
	return ""
}

// count returns the number of batches of an epoch, and the sum of their sizes.
func (d *Dataset) count(ctx context.Context, epoch int64) (n, cells int64, err error) {
	p := d.planAt(State{Epoch: epoch})
	for ; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		if p.epoch != epoch || n == 0 && !p.left() {
			return n, cells, nil
		}
		cells += d.fit.Cells(p.next().places)
	}
}

// maxCounted is the maximum number of records whose batches are counted: some minutes of work.
const maxCounted = 1 << 30

// Batches returns the number of batches in a number of epochs, at least 1. With batches of a fixed
// size it is the sum of the exact numbers of the first epochs, which differ with the order of the
// records, and of the share of one more. It takes 0.5 µs of a processor for each
// record then: 5 s for an epoch of 10 million, and the epochs are shared by the processors.
func (d *Dataset) Batches(ctx context.Context, epochs float64) (int64, error) {
	if d.fit == nil {
		return max(1, int64(math.Round(d.settings.batchesIn(d.cfg.Growth, epochs)))), nil
	}
	whole := math.Floor(epochs)
	if d.cfg.Shuffle == ShuffleNone && d.cfg.Growth == nil {
		return max(1, int64(math.Round(epochs*float64(d.BatchesPerEpoch())))), nil
	}
	if counted := math.Ceil(epochs) * float64(d.NumExamples()); counted > maxCounted {
		return 0, fmt.Errorf("the batches of %v epochs of %d records of fixed rows cannot be counted in advance; expected at most %d records; set the number of steps instead", epochs, d.NumExamples(), int64(maxCounted))
	}
	counts := make([]int64, int(math.Ceil(epochs)))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for e := range counts {
		if e == 0 && d.cfg.Growth == nil {
			counts[0] = d.perEpoch
			continue
		}
		g.Go(func() (err error) {
			counts[e], _, err = d.count(ctx, int64(e))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	sum := int64(0)
	for e, n := range counts {
		if float64(e) < whole {
			sum += n
		} else {
			sum += int64(math.Round((epochs - whole) * float64(n)))
		}
	}
	return max(1, sum), nil
}
