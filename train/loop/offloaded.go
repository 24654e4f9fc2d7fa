package loop

import (
	"context"
	"slices"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
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

// Variables that are not in memory, of which there may be more than memory has, are read into it in parts:
// of so many bytes at least, and as many as are this share of all.
const (
	offloadedPart  = 16 << 20
	offloadedShare = 64 // each kind of assignment makes TensorFlow prepare the graph once more
)

// inParts calls a function with the names of variables: all at once if they are in memory, and otherwise
// part by part. Memory that a call leaves is freed before the next.
func inParts(variables []strategy.VariableSpec, names []string, each func(part []string) error) error {
	sizes, all := make(map[string]int64), int64(0)
	for _, v := range variables {
		if v.Offloaded && slices.Contains(names, v.Name) {
			n := int64(4) // bytes of a float32
			for _, d := range v.Shape {
				n *= d
			}
			sizes[v.Name] = n
			all += n
		}
	}
	limit := max(offloadedPart, all/offloadedShare)
	var part []string
	size := int64(0)
	for _, name := range names {
		if size > 0 && size+sizes[name] > limit {
			if err := each(part); err != nil {
				return err
			}
			reclaim.Memory()
			part, size = nil, 0
		}
		part, size = append(part, name), size+sizes[name]
	}
	if len(part) == 0 {
		return nil
	}
	err := each(part)
	if all > 0 {
		reclaim.Memory()
	}
	return err
}

// restoreOffloaded sets the variables that are not in memory. Those of leftOut are not in the checkpoint, but
// for averages without a value, which begin at the values of their variables.
func (c *Checkpoints) restoreOffloaded(ctx context.Context, r *checkpoint.Restored, leftOut map[string]*tf.Tensor) error {
	var names []string
	for _, v := range c.variables.Variables() {
		if _, out := leftOut[v.Name]; v.Offloaded && !out {
			names = append(names, v.Name)
		}
	}
	return inParts(c.variables.Variables(), names, func(part []string) error {
		values, err := r.Read(ctx, part...)
		if err != nil {
			return err
		}
		for _, name := range part {
			average := graphs.AveragePrefix + name
			if value, out := leftOut[average]; out && value == nil {
				values[average] = values[name]
			}
		}
		return c.variables.Assign(ctx, values)
	})
}
