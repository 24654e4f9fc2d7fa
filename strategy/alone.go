package strategy

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// Alone returns a model for predictions that no other call runs beside: each of them uses all cores, while
// one of a model with lanes uses its lane's share. It returns nil if m has no lanes.
//
// The model has the values of m, those that Assign sets later included, in the same memory, and is closed
// with m, which must be composed with FunctionsEvaluate. Its results differ from those of m by no more than
// the rounding of sums. The session has threads of its own, and is any faster, only in a process whose
// sessions do not share them: see tfprocess.SessionThreads.
func (m *Model) Alone(ctx context.Context) (*Model, error) {
	switch {
	case !m.target.shared:
		return nil, nil
	case m.alone != nil:
		return m.alone, nil
	case m.plan.Train != nil:
		return nil, errors.New("the model trains, and only one that does not can share its variables; expected FunctionsEvaluate")
	}
	config := m.config
	config.Lanes, config.IntraOpThreads, config.InterOpThreads = 1, runtime.NumCPU(), 1
	alone, err := newModel(ctx, m.export, oneDevice(m.target.devices[0], m.target.own, 1), config)
	m.lanesThreads()
	if err != nil {
		return nil, fmt.Errorf("for calls that are alone: %w", err)
	}
	alone.between = m.lanesThreads
	if err := m.share(ctx, alone); err != nil {
		return nil, errors.Join(err, alone.Close())
	}
	m.alone = alone
	return alone, nil
}

// lanesThreads sets the threads of kernels to those of the model's lanes.
func (m *Model) lanesThreads() {
	kernels.Threads(m.config.IntraOpThreads, m.config.IntraOpThreads*len(m.target.devices))
}

// share gives another model the values of this one. TensorFlow's tensors are counted references, so that
// they are copied neither when they are read nor when they are assigned.
func (m *Model) share(ctx context.Context, to *Model) error {
	var names []string
	for _, v := range m.plan.Variables {
		names = append(names, v.Name)
	}
	read, err := m.Read(ctx, names...)
	if err != nil {
		return err
	}
	values := make(map[string]*tf.Tensor, len(names))
	for i, name := range names {
		values[name] = read[i]
	}
	return to.Assign(ctx, values)
}
