package strategy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/shardinput"
)

// localPlan says how workers read the features of the training step.
type localPlan struct {
	// request is fed with what all workers are to draw, take with what the replicas
	// are to take of it.
	request, take string
	// fetches of a draw: the stats and the rows of each worker.
	fetches []string
	// rows are the features of which a draw tells the numbers.
	rows []string
	// replicas of each worker.
	replicas []int
}

// readLocally adds the operations by which every worker reads the features of its
// replicas. It returns the nodes of the features for each replica.
func (c *composer) readLocally(f *graphs.Function) (*localPlan, []map[string]string, error) {
	features := c.features(f)
	p := &localPlan{rows: c.rowFeatures()}
	config := shardinput.Config{Data: *c.local, Int32s: features.int32s, Rows: p.rows, LongRows: c.plan.longRows()}
	for _, feature := range features.features {
		config.Features = append(config.Features, shardinput.Feature{Name: feature.Name, Axes: len(feature.Axes)})
	}
	c.OnDevice(c.replicas[0].host)
	p.request = c.Placeholder("draw/request", int64Type, []int64{shardinput.DrawNumbers})
	p.take = c.Placeholder("take/request", int64Type, []int64{shardinput.TakeNumbers})
	out := make([]map[string]string, len(c.replicas))
	for from := 0; from < len(c.replicas); {
		to := from + 1
		for to < len(c.replicas) && taskOf(c.replicas[to].device) == taskOf(c.replicas[from].device) {
			to++
		}
		config.Part, config.Replicas = dataset.Part{From: from, To: to, Of: len(c.replicas)}, to-from
		text, err := config.JSON()
		if err != nil {
			return nil, nil, err
		}
		p.replicas = append(p.replicas, to-from)
		name := fmt.Sprintf("draw/%d", config.Worker)
		c.OnDevice(c.replicas[from].host)
		draw := c.Node(shardinput.Draw, name, []string{c.Bytes(name+"/config", text), p.request})
		p.fetches = append(p.fetches, draw+":0", draw+":1")
		for i, r := range c.replicas[from:to] {
			own := r.prefix + "take"
			c.OnDevice(r.host)
			take := c.Node(shardinput.Take, own, []string{p.take, c.Int64s(own+"/place", []int64{int64(i), int64(to - from)})})
			out[from+i] = c.cut(own, features, r, take+":0", take+":1", take+":2")
		}
		from = to
		config.Worker++
	}
	return p, out, nil
}

// taskOf returns a device's name without the device.
func taskOf(device string) string {
	return device[:max(0, strings.LastIndex(strings.ToLower(device), "/device:"))]
}

// LocalInput says what workers read where each reads its part of the batches.
type LocalInput struct {
	// Dir is the folder of the data in the process that composes the graph, and Files are
	// its files, in order, those in the folder named from there.
	Dir   string
	Files []string
	// Dataset is how batches are made of them; its Files and Part do not count.
	Dataset dataset.Config
	// Settings are those of the data as this process opened it, which a worker's must equal.
	Settings dataset.Settings
	// Workers are what the workers are called in errors, by their number.
	Workers []string
}

// MultiWorker is a Model on several servers, whose workers can read the data themselves.
type MultiWorker struct {
	*Model
	tickets atomic.Int64 // of draws
}

// Drawn is a batch that the workers have read and keep, until two more have been
// drawn.
type Drawn struct {
	// Examples, Labeled (those with a label), Truncated (those that were shortened),
	// Tokens and Rows are the batch's; Skipped is the number of damaged records left
	// out of it.
	Examples, Labeled, Truncated, Tokens, Rows int
	Skipped                                    int64
	// Accumulate is how many micro-batches every replica has of it, and Micro how many
	// examples each has, those that are computed together one after the other.
	Accumulate int
	Micro      []int

	ticket int64
	rows   map[string][][]int32
}

// Draw has the workers read their parts of the batch at a position of the data, and
// divide them among their replicas and so many micro-batches each. It may be called
// while a step is made.
func (m *MultiWorker) Draw(ctx context.Context, epoch, position int64, accumulate int) (*Drawn, error) {
	if m.plan.train == nil || m.plan.train.local == nil {
		return nil, errors.New("the workers read no features themselves")
	}
	d := &Drawn{Accumulate: accumulate, Micro: make([]int, accumulate*m.micro), ticket: m.tickets.Add(1), rows: make(map[string][][]int32)}
	out, err := m.draw(ctx, d.ticket, epoch, position, int64(accumulate))
	if err != nil {
		return nil, err
	}
	p := m.plan.train.local
	first := 0 // replica of the worker
	for i, replicas := range p.replicas {
		stats, ok := out[2*i].Value().([]int64)
		rows, fine := out[2*i+1].Value().([]int32)
		if !ok || !fine || len(stats) != shardinput.Stats+len(p.rows)+accumulate*replicas {
			return nil, fmt.Errorf("worker %d answers a draw with %v and %v", i, out[2*i].Shape(), out[2*i+1].Shape())
		}
		for k, sum := range []*int{&d.Examples, &d.Labeled, &d.Truncated, &d.Tokens, &d.Rows} {
			*sum += int(stats[k])
		}
		d.Skipped += stats[5]
		for k, feature := range p.rows {
			n := stats[shardinput.Stats+k]
			if n < 0 || n > int64(len(rows)) {
				return nil, fmt.Errorf("worker %d has %d numbers of %s among %d", i, n, feature, len(rows))
			}
			d.rows[feature] = append(d.rows[feature], rows[:n])
			rows = rows[n:]
		}
		for k, n := range stats[shardinput.Stats+len(p.rows):] {
			d.Micro[k/replicas*m.micro+first+k%replicas] = int(n)
		}
		first += replicas
	}
	return d, nil
}

func (m *MultiWorker) draw(ctx context.Context, request ...int64) ([]*tf.Tensor, error) {
	p := m.plan.train.local
	fed, err := newTensor(tf.Int64, []int64{int64(len(request))}, raw(request))
	if err != nil {
		return nil, err
	}
	return m.run(ctx, map[tf.Output]*tf.Tensor{m.output(p.request): fed}, m.outputs(p.fetches))
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

func (d *Drawn) feeds(m *Model, round, rounds int) (map[tf.Output]*tf.Tensor, error) {
	request := []int64{d.ticket, int64(round), int64(rounds)}
	fed, err := newTensor(tf.Int64, []int64{int64(len(request))}, raw(request))
	if err != nil {
		return nil, err
	}
	return map[tf.Output]*tf.Tensor{m.output(m.plan.train.local.take): fed}, nil
}

func (d *Drawn) numbers(feature string) [][]int32 { return d.rows[feature] }
