package strategy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// step is a step in progress, or one of its phases.
type step struct {
	m    *Model
	plan *compose.Train
	// drawn is the number of seeds before those of the phase. later are the phases after it that the
	// step has, and last is set for the last one.
	drawn  int
	later  []*step
	last   bool
	in     fed
	rounds int // micro-batches per replica
	seed   [2]int64
	// scalars are the hyperparameters of the step. rows are the rows of variables that the
	// batches use, by feature. Both are fed to the call that updates.
	scalars []float32
	rows    map[string]rowSet

	clocks tally
	result Result
}

// newPart checks the input of a step, and returns the phase of the step that a plan is for.
func (m *Model) newPart(in StepInput, p *compose.Train) (*step, error) {
	s := &step{m: m, plan: p, seed: in.Seed, clocks: make(tally, len(p.Clocks))}
	s.result.Sums = make(map[string][]float64, len(p.Sums))
	n := m.runtime.MicroBatches
	switch {
	case p.Local != nil && in.Drawn == nil:
		return nil, errors.New("the workers read the features themselves; set StepInput.Drawn to the result of MultiWorker.Draw")
	case p.Local != nil:
		s.in, s.rounds = drawnBatch{p.Local, in.Drawn}, in.Drawn.Accumulate
	case in.Drawn != nil:
		return nil, errors.New("the workers do not read the features themselves; set StepInput.Batches, not Drawn")
	case len(in.Batches) == 0 || len(in.Batches)%n != 0:
		return nil, fmt.Errorf("%d micro-batches given; expected a multiple of %d, the number computed in parallel", len(in.Batches), n)
	default:
		s.in, s.rounds = fedBatches{p.Feeds, in.Batches}, len(in.Batches)/n
	}
	var err error
	if s.scalars, err = scalarValues(p.Scalars, in.Scalars); err != nil {
		return nil, err
	}
	s.rows = rowsOf(p, m.export.Contract, s.in)
	return s, nil
}

// updateFeeds returns the feeds of the call that updates, without the features.
func (s *step) updateFeeds() (feedSet, error) {
	specs := []spec{{s.plan.ScalarFeed, tf.Float, []int64{int64(len(s.scalars))}, [][]byte{raw(s.scalars)}}}
	for feature, feed := range s.plan.Rows {
		r := s.rows[feature]
		specs = append(specs, spec{feed.Rows, tf.Int32, []int64{int64(len(r.rows))}, [][]byte{raw(r.rows)}},
			spec{feed.Class, tf.Int32, nil, [][]byte{raw([]int32{int32(r.class)})}})
	}
	if !s.plan.Last.IsZero() {
		last := int64(0)
		if s.last {
			last = 1
		}
		specs = append(specs, spec{s.plan.Last, tf.Int64, nil, [][]byte{raw([]int64{last})}})
	}
	return tensors(specs)
}

// make runs the step, or the phase of one. If every replica has one micro-batch, that is a single call;
// otherwise it is one call per round and one that updates the variables.
func (s *step) make(ctx context.Context) error {
	p := s.plan
	if s.rounds == 1 {
		feeds, err := s.round(0)
		if err != nil {
			return err
		}
		update, err := s.updateFeeds()
		if err != nil {
			return err
		}
		maps.Copy(feeds, update)
		out, err := s.call(ctx, feeds, slices.Concat(p.Step.Clocks, p.SumFetches, p.Step.Fetches), p.Step.Done)
		if err != nil {
			return err
		}
		if err := s.result.add(p.Sums, out[:len(p.SumFetches)]); err != nil {
			return err
		}
		s.decided(out[len(p.SumFetches):])
		return nil
	}
	for k := range s.rounds {
		feeds, err := s.round(k)
		if err != nil {
			return err
		}
		call := p.First
		if k > 0 {
			call = p.Next
		}
		out, err := s.call(ctx, feeds, slices.Concat(p.Clocks, call.Sums), call.Done)
		if err != nil {
			return err
		}
		if err := s.result.add(p.Sums, out); err != nil {
			return err
		}
	}
	return s.apply(ctx)
}

// round returns the feeds of one round of micro-batches.
func (s *step) round(k int) (feedSet, error) {
	n := s.m.runtime.MicroBatches
	feeds, err := s.in.feeds(k, s.rounds, n)
	if err != nil {
		return nil, err
	}
	if feeds[s.plan.ScalarFeed], err = newTensor(tf.Float, []int64{int64(len(s.scalars))}, raw(s.scalars)); err != nil {
		return nil, err
	}
	var seeds []int64
	for i := range n {
		own := microSeed(s.seed, s.drawn+k*n+i)
		seeds = append(seeds, own[:]...)
	}
	feeds[s.plan.Seeds], err = newTensor(tf.Int64, []int64{int64(n), 2}, raw(seeds))
	return feeds, err
}

// apply updates the variables with the gradients that the rounds have accumulated.
func (s *step) apply(ctx context.Context) error {
	p := s.plan
	totals := []float32{float32(s.result.Sums["weight_sum"][0]), float32(s.result.Sums["loss_sum"][0])}
	feeds, err := s.updateFeeds()
	if err != nil {
		return err
	}
	if feeds[p.Totals], err = newTensor(tf.Float, []int64{2}, raw(totals)); err != nil {
		return err
	}
	out, err := s.call(ctx, feeds, slices.Concat(p.Apply.Clocks, p.Apply.Fetches), p.Apply.Done)
	if err != nil {
		return err
	}
	s.decided(out)
	return nil
}

// call runs one of the step's calls, adds the replicas' clock readings, which are fetched first,
// and returns the other outputs.
func (s *step) call(ctx context.Context, feeds feedSet, fetches []build.Ref, done build.Ref) ([]*tf.Tensor, error) {
	start := time.Now()
	out, err := s.m.session.run(ctx, feeds, fetches, done)
	if err != nil {
		err = s.m.stepError(ctx, err)
	}
	s.result.InSession += time.Since(start)
	if err != nil {
		return nil, err
	}
	return s.clocks.take(out)
}

// decided records the outcome and the times of the step.
func (s *step) decided(out []*tf.Tensor) {
	s.m.took(s.clocks)
	s.result.GradientNorm = float64(out[0].Value().(float32))
	s.result.Applied = out[1].Value().(bool)
	s.result.Iterations = out[2].Value().(int64)
	s.m.updates = s.result.Iterations
}

// fed is the source of a step's features.
type fed interface {
	// feeds returns the feeds of one of the rounds, with n micro-batches.
	feeds(round, rounds, n int) (feedSet, error)
	// numbers returns the values of a feature, in any order.
	numbers(feature string) [][]int32
}

// fedBatches feeds micro-batches.
type fedBatches struct {
	plan    *compose.Feeds
	batches [][]Feature
}

func (b fedBatches) feeds(round, _, n int) (feedSet, error) {
	return feed(b.plan, b.batches[round*n:(round+1)*n])
}

func (b fedBatches) numbers(feature string) [][]int32 {
	var out [][]int32
	for _, batch := range b.batches {
		for _, f := range batch {
			if f.Name == feature {
				out = append(out, f.Int32)
			}
		}
	}
	return out
}

// drawnBatch uses a batch that the workers have drawn.
type drawnBatch struct {
	plan  *compose.Local
	drawn *Drawn
}

func (b drawnBatch) feeds(round, rounds, _ int) (feedSet, error) {
	request := []int64{b.drawn.ticket, int64(round), int64(rounds)}
	t, err := newTensor(tf.Int64, []int64{int64(len(request))}, raw(request))
	if err != nil {
		return nil, err
	}
	return feedSet{b.plan.Take: t}, nil
}

func (b drawnBatch) numbers(feature string) [][]int32 { return b.drawn.rows[feature] }

// scalarValues returns a step's hyperparameters in the order in which they are fed.
func scalarValues(want []graphs.Hyperparameter, scalars Scalars) ([]float32, error) {
	for name := range scalars {
		if !slices.ContainsFunc(want, func(h graphs.Hyperparameter) bool { return h.Name == name }) {
			return nil, fmt.Errorf("the graph has no hyperparameter %q", name)
		}
	}
	if _, ok := scalars["learning_rate"]; !ok {
		return nil, errors.New("the step has no learning_rate; set it in StepInput.Scalars")
	}
	values := make([]float32, len(want))
	for i, h := range want {
		values[i] = float32(h.Default)
		if v, ok := scalars[h.Name]; ok {
			values[i] = float32(v)
		}
	}
	return values, nil
}

// rowSet holds the rows of variables that the batches of a step use, and the class of their number.
type rowSet struct {
	class int
	rows  []int32
}

// rowsOf returns the rows of variables that the batches use, by feature.
func rowsOf(p *compose.Train, contract *graphs.Contract, in fed) map[string]rowSet {
	out := make(map[string]rowSet, len(p.Rows))
	for feature := range p.Rows {
		most := int32(0)
		for _, v := range contract.Variables {
			if v.Rows == feature {
				most = int32(v.Shape[0])
			}
		}
		seen := make([]uint64, most/64+1)
		for _, numbers := range in.numbers(feature) {
			for _, row := range numbers {
				// The lookup reports rows out of range.
				if row >= 0 && row < most {
					seen[row/64] |= 1 << (row % 64)
				}
			}
		}
		var rows []int32
		for i, word := range seen {
			for ; word != 0; word &= word - 1 {
				rows = append(rows, int32(64*i+bits.TrailingZeros64(word)))
			}
		}
		// Pad with the last row: a repeated row gets the same values again.
		class, size := compose.RowClass(len(rows))
		if len(rows) == 0 {
			rows = []int32{0}
		}
		for len(rows) < size {
			rows = append(rows, rows[len(rows)-1])
		}
		out[feature] = rowSet{class, rows}
	}
	return out
}

// microSeed returns the seed of a step's micro-batch i. Micro-batch 0 has the step's own seed; the
// first number of the others is that plus i times an odd constant modulo 2^31, so that all differ.
//
// Both numbers have at most 31 bits, because XLA cuts them to 32, and would draw others from longer
// ones than TensorFlow's kernels do. A step's own number that is longer is mixed to 31 bits.
func microSeed(seed [2]int64, i int) [2]int64 {
	const odd = 0x9e3779b1
	first := uint32(short(seed[0])) + uint32(i)*odd
	return [2]int64{int64(first & math.MaxInt32), short(seed[1])}
}

// short returns a number from 0 to 2^31-1 itself, and mixes any other to one of them by SplitMix64.
func short(n int64) int64 {
	if n >= 0 && n <= math.MaxInt32 {
		return n
	}
	x := uint64(n) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64((x ^ x>>31) >> 33)
}

// add adds the sums of all replicas. Tensors holds them replica by replica, each in the order of
// names.
func (r *Result) add(names []string, tensors []*tf.Tensor) error {
	for i, t := range tensors {
		name := names[i%len(names)]
		values, err := floats(t)
		if err != nil {
			return fmt.Errorf("output %s: %w", name, err)
		}
		r.addSum(name, values)
	}
	return nil
}

// addSum adds the values to the sum of a name. It keeps the values.
func (r *Result) addSum(name string, values []float64) {
	sum := r.Sums[name]
	if sum == nil {
		r.Sums[name] = values
		return
	}
	for j, v := range values {
		sum[j] += v
	}
}

// stepError returns an *OutOfMemoryError if memory ran out before any variable changed. Updates
// start only after the count of iterations has changed.
func (m *Model) stepError(ctx context.Context, err error) error {
	err = fmt.Errorf("training step: %w", err)
	if !oom(err) || len(m.plan.Phases) > 1 { // an earlier phase may have updated its variables
		return err
	}
	out, readErr := m.Read(ctx, m.export.Contract.Optimizer.Iterations)
	if readErr != nil || out[0].Value().(int64) != m.updates {
		return err
	}
	return &OutOfMemoryError{err}
}
