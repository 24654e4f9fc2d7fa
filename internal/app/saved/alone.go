package saved

import (
	"errors"
	"fmt"
	"runtime"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/run/described"
)

// Alone returns a model for calls that no other runs beside: each of them uses all cores, while one of m
// uses its lane's. It returns nil where a call of m uses all cores. It shares the memory of m's variables,
// and is closed with m. Its answers differ from those of m by no more than the rounding of sums. It is any
// faster only in a process whose sessions have threads of their own: see tfprocess.SessionThreads.
func (m *Model) Alone() (*Model, error) {
	if m.cores || m.alone != nil {
		return m.alone, nil
	}
	alone := &Model{Caller: described.Caller{Model: m.Caller.Model}, Inputs: m.Inputs, Outputs: m.Outputs, Lanes: 1,
		graph: m.graph, cores: true, lone: true, rows: m.rows, packed: m.packed, longest: m.longest}
	alone.Run = alone.by(alone.rows)
	var err error
	if alone.session, err = m.newSession(runtime.NumCPU(), 1); err != nil {
		return nil, fmt.Errorf("model %s: for calls that are alone: %w", m.Dir, err)
	}
	if err := m.share(alone.session); err != nil {
		return nil, errors.Join(fmt.Errorf("model %s: for calls that are alone: %w", m.Dir, err), alone.Close())
	}
	m.alone = alone
	return alone, nil
}

// share gives the variables of another session of the graph the values of this one. TensorFlow's tensors
// are counted references, so that they are copied neither when they are read nor when they are assigned.
func (m *Model) share(to *tf.Session) error {
	var reads, places []tf.Output
	var assigns []*tf.Operation
	for _, variable := range m.graph.Operations() {
		if variable.Type() != "VarHandleOp" {
			continue
		}
		dtype, err := variable.Attr("dtype")
		if err != nil {
			return err
		}
		handle := variable.Output(0)
		read, err := m.add("ReadVariableOp", len(reads), dtype, handle)
		if err != nil {
			return err
		}
		place, err := m.add("Placeholder", len(reads), dtype)
		if err != nil {
			return err
		}
		assign, err := m.add("AssignVariableOp", len(reads), dtype, handle, place.Output(0))
		if err != nil {
			return err
		}
		reads, places, assigns = append(reads, read.Output(0)), append(places, place.Output(0)), append(assigns, assign)
	}
	values, err := m.session.Run(nil, reads, nil)
	if err != nil || len(reads) == 0 {
		return err
	}
	feeds := make(map[tf.Output]*tf.Tensor, len(values))
	for i, v := range values {
		feeds[places[i]] = v
	}
	_, err = to.Run(feeds, nil, assigns)
	return err
}

// add adds an operation on a variable, the nth, to the graph.
func (m *Model) add(what string, n int, dtype any, inputs ...tf.Input) (*tf.Operation, error) {
	return m.graph.AddOperation(tf.OpSpec{Type: what, Name: fmt.Sprintf("gorbit_alone/%d/%s", n, what), Input: inputs, Attrs: map[string]any{"dtype": dtype}})
}
