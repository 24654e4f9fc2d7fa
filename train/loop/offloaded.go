package loop

import (
	"context"
	"slices"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/exec/reclaim"
	"github.com/gorbit-ml/gorbit/strategy"
)

// offloaded reports whether variables are not in memory.
func (c *Checkpoints) offloaded() bool {
	return slices.ContainsFunc(c.variables.Variables(), func(v strategy.VariableSpec) bool { return v.Offloaded })
}

// waitOffloaded waits for the checkpoint that is being written, whose values are those of the variables
// themselves, also if the context ends: no step may follow before. What is read for it leaves the memory
// again.
func (c *Checkpoints) waitOffloaded(ctx context.Context) error {
	written := make(chan error, 1)
	go func() { written <- c.Manager.Wait(context.WithoutCancel(ctx)) }()
	drop := time.NewTicker(20 * time.Millisecond)
	defer drop.Stop()
	for {
		select {
		case err := <-written:
			kernels.DropMapped()
			return err
		case <-drop.C:
			kernels.DropMapped()
		}
	}
}

// offloadedPart is how many bytes of variables that are not in memory are read into it at once.
const offloadedPart = 64 << 20

// restoreOffloaded sets the variables that are not in memory, of which there may be more than memory has,
// part by part. Those of leftOut are not in the checkpoint.
func (c *Checkpoints) restoreOffloaded(ctx context.Context, r *checkpoint.Restored, leftOut map[string]*tf.Tensor) error {
	var part []string
	size := int64(0)
	set := func() error {
		values, err := r.Read(ctx, part...)
		if err != nil || len(values) == 0 {
			return err
		}
		err = c.variables.Assign(ctx, values)
		part, size = part[:0], 0
		clear(values)
		reclaim.Memory()
		return err
	}
	for _, v := range c.variables.Variables() {
		if _, out := leftOut[v.Name]; out || !v.Offloaded {
			continue
		}
		n := int64(4) // bytes of a float32
		for _, d := range v.Shape {
			n *= d
		}
		if size > 0 && size+n > offloadedPart {
			if err := set(); err != nil {
				return err
			}
		}
		part, size = append(part, v.Name), size+n
	}
	return set()
}
