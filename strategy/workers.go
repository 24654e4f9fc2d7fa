package strategy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// MultiWorker is a Model on several servers. Its workers can read the data themselves.
type MultiWorker struct {
	*Model
	tickets atomic.Int64 // of draws
}

// local describes how the workers read the data themselves; nil if it is fed.
func (m *Model) local() *compose.Local {
	if m.plan.Train == nil {
		return nil
	}
	return m.plan.Train.Local
}

// Draw makes the workers read their parts of the batch at a position of an epoch and divide them
// among their replicas, with accumulate micro-batches for each. It may be called during a step.
func (m *MultiWorker) Draw(ctx context.Context, epoch, position int64, accumulate int) (*Drawn, error) {
	p := m.local()
	if p == nil {
		return nil, errors.New("the workers do not read the features themselves; set Config.LocalInput")
	}
	d := &Drawn{Accumulate: accumulate, Micro: make([]int, accumulate*m.runtime.MicroBatches), ticket: m.tickets.Add(1), rows: make(map[string][][]int32)}
	out, err := m.draw(ctx, d.ticket, epoch, position, int64(accumulate))
	if err != nil {
		return nil, err
	}
	first := 0 // the first replica of the worker
	for i, replicas := range p.Replicas {
		stats, ok := out[2*i].Value().([]int64)
		rows, fine := out[2*i+1].Value().([]int32)
		if !ok || !fine || len(stats) != shardinput.Stats+len(p.Rows)+accumulate*replicas {
			return nil, fmt.Errorf("unexpected reply of worker %d to a draw: shapes %v and %v", i, out[2*i].Shape(), out[2*i+1].Shape())
		}
		for k, sum := range []*int{&d.Examples, &d.Labeled, &d.Truncated, &d.Tokens, &d.Rows} {
			*sum += int(stats[k])
		}
		d.Skipped += stats[5]
		d.Pairs += stats[6]
		d.TargetTokens += int(stats[7])
		d.TargetPairs += stats[8]
		for k, feature := range p.Rows {
			n := stats[shardinput.Stats+k]
			if n < 0 || n > int64(len(rows)) {
				return nil, fmt.Errorf("unexpected reply of worker %d to a draw: %d rows of %s; expected 0 to %d", i, n, feature, len(rows))
			}
			d.rows[feature] = append(d.rows[feature], rows[:n])
			rows = rows[n:]
		}
		for k, n := range stats[shardinput.Stats+len(p.Rows):] {
			d.Micro[k/replicas*m.runtime.MicroBatches+first+k%replicas] = int(n)
		}
		first += replicas
	}
	return d, nil
}

func (m *MultiWorker) draw(ctx context.Context, request ...int64) ([]*tf.Tensor, error) {
	p := m.local()
	fed, err := newTensor(tf.Int64, []int64{int64(len(request))}, raw(request))
	if err != nil {
		return nil, err
	}
	return m.session.run(ctx, feedSet{p.Request: fed}, p.Fetches)
}

// openInput waits until all workers have opened the data.
func (m *MultiWorker) openInput(ctx context.Context) error {
	for {
		out, err := m.draw(ctx, 0, 0, 0, 0)
		if err != nil {
			return err
		}
		ready := true
		for i := 0; i < len(out); i += 2 {
			stats, ok := out[i].Value().([]int64)
			ready = ready && ok && len(stats) > 0 && stats[0] == 1
		}
		if ready {
			return nil
		}
	}
}
