package prepare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// CheckTPUGraph returns a *params.Error for a graph that runs do not use on a TPU, before that is started:
// a start ends whatever runs on it.
func CheckTPUGraph(c *graphs.Contract) error {
	if c.Precision == graphs.FP16 {
		return &params.Error{Params: []string{"graph"}, Err: fmt.Errorf("the graph computes in %s, and strategy is tpu; export the graph with --precision bf16 or float32", graphs.FP16)}
	}
	if !TakesTokens(c) {
		return nil // in addition to the examples, one axis may be open, and that has a fixed length
	}
	if c.HasTargets() {
		return &params.Error{Params: []string{"graph"}, Err: errors.New("the graph makes texts of sources, and strategy is tpu, for which a batch of sources and targets has no fixed shape; use CPUs or GPUs")}
	}
	fixed := []string{AxisRows, AxisLength, AxisExamples}
	if c.Masking != nil {
		fixed = append(fixed, AxisPredictions)
	}
	for _, f := range c.Features {
		for i, axis := range f.Axes {
			if f.Shape[i] < 0 && !slices.Contains(fixed, axis) {
				return &params.Error{Params: []string{"graph"}, Err: fmt.Errorf("feature %s of the graph has an axis %s, and strategy is tpu, for which only the axes %s have fixed sizes; use CPUs or GPUs", f.Name, axis, strings.Join(fixed, ", "))}
			}
		}
	}
	return nil
}

// TpuAxes returns the sizes of the axes of a batch of one of so many cores of a TPU, for each shape of
// batches, the largest last.
func TpuAxes(p params.Params, c *graphs.Contract, cores int) []map[string]int64 {
	if TakesTokens(c) {
		var out []map[string]int64
		layout := PackedFor(p, c)
		for _, s := range layout.Shapes(cores) {
			axes := map[string]int64{AxisRows: int64(s.Rows), AxisLength: int64(s.RowLength), AxisExamples: int64(s.Examples)}
			if c.Masking != nil {
				axes[AxisPredictions] = int64(layout.Predictions(cores))
			}
			out = append(out, axes)
		}
		return out
	}
	layout, open := denseFor(p, c, ToEvaluate), c.OpenAxis()
	examples := int64(layout.PartExamples(cores))
	if open == "" {
		return []map[string]int64{{AxisExamples: examples}}
	}
	var out []map[string]int64
	for _, length := range layout.Lengths() {
		out = append(out, map[string]int64{AxisExamples: examples, open: int64(length)})
	}
	return out
}

// lengthStep is the unit to which the length of batches on a TPU is rounded up.
const lengthStep = 8

// FixLength sets data.row_length for a dense graph with an open axis on a TPU, unless it is set: the
// longest example of the data. m describes the data, and may be nil.
func FixLength(p *params.Params, c *graphs.Contract, m *convert.Manifest) error {
	open := c.OpenAxis()
	if TakesTokens(c) || open == "" || p.Data.RowLength > 0 {
		return nil
	}
	longest := int64(0)
	if m != nil {
		for _, split := range m.Splits {
			for _, f := range split.Features {
				if f.Longest != nil {
					longest = max(longest, *f.Longest)
				}
			}
		}
	}
	if longest == 0 {
		return fmt.Errorf("data.row_length is 0, and data %s does not say how long its examples are; expected the length of axis %s of the graph, which is fixed on a TPU, as with --set data.row_length=64", p.Data.Dir, open)
	}
	p.Data.RowLength = int(longest+lengthStep-1) / lengthStep * lengthStep
	return nil
}

// CheckWhole returns a *params.Error if a batch of the training data would be filled up on a TPU, for a
// graph that must not see such examples in training.
func (s *Setup) CheckWhole(set *dataset.Dataset) error {
	p, c := s.Params, s.Export.Contract
	if p.Strategy.Kind() != devices.TPU || c.Additive || TakesTokens(c) {
		return nil
	}
	const why = "the graph's results depend on the other examples of a batch, as with batch normalization, and on a TPU a smaller batch would be filled up with examples of weight 0"
	if policy, _ := tfrecord.ParsePolicy(p.Data.OnCorrupt); policy == tfrecord.Skip {
		return params.Errorf("data.on_corrupt", "is skip: %s; expected fail", why)
	}
	if p.Train.BatchWarmup != "" {
		return params.Errorf("train.batch_warmup", "is %q: %s; leave it out", p.Train.BatchWarmup, why)
	}
	if p.Data.Buckets != "" && !p.Data.DropRemainder {
		return params.Errorf("data.buckets", "is %s, with which the last batches of an epoch are smaller: %s; leave them out with --set data.drop_remainder=true", p.Data.Buckets, why)
	}
	if n := set.NumExamples() % int64(p.Train.BatchSize); n > 0 && !p.Data.DropRemainder {
		return &params.Error{Params: []string{"data.drop_remainder"}, Err: fmt.Errorf("the last batch of an epoch has %d examples: %s; leave it out with --set data.drop_remainder=true", n, why)}
	}
	return nil
}

// checkShare returns a *params.Error if the cores of a TPU cannot share a batch evenly, for a graph that
// must not see examples that fill it up.
func checkShare(p params.Params, c *graphs.Contract, cores int) error {
	if c.Additive || TakesTokens(c) || p.Train.BatchSize%cores == 0 {
		return nil
	}
	return params.Errorf("train.batch_size", "is %d, and the TPU has %d cores; expected a multiple, since the graph's results depend on how a batch is divided, as with batch normalization", p.Train.BatchSize, cores)
}
