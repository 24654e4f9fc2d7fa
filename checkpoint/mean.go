package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"
)

// Mean returns the means of tensors over checkpoints: of float32 the sum in float64, in the order of
// the checkpoints, divided by their number and rounded to float32; of all other types the values of the
// last checkpoint. averages is as in [ManagerConfig]; Mean returns of how many tensors the average was
// taken, and an error if some of the checkpoints have an average and others do not.
//
// It verifies the checksums of what it reads, and holds no checkpoint in memory. The error is a
// [MismatchError] for a checkpoint without one of the tensors, and a [CorruptError] for a damaged one.
func Mean(ctx context.Context, of []*Bundle, want []Entry, averages string) (means map[string]*tf.Tensor, averaged int, err error) {
	if len(of) == 0 {
		return nil, 0, errors.New("the mean of no checkpoints")
	}
	names := make([][]string, len(of))
	for i, b := range of {
		if names[i], err = b.wanted(want, "", averages); err != nil {
			return nil, 0, err
		}
	}
	means = make(map[string]*tf.Tensor, len(want))
	for k, w := range want {
		entries := make([]Entry, len(of))
		for i, b := range of {
			if names[i][k] != names[0][k] {
				return nil, 0, fmt.Errorf("one of %s and %s has a moving average of %s and the other has none; expected checkpoints that all have it, or none of them", of[0].prefix, b.prefix, plain(w.Name))
			}
			key, _ := b.Resolve(names[i][k])
			entries[i], _ = b.Entry(key)
		}
		if names[0][k] != w.Name {
			averaged++
		}
		if w.DType == tf.Float {
			means[w.Name], err = meanOf(ctx, of, entries)
		} else {
			last := len(of) - 1
			var read map[string]*tf.Tensor
			read, err = of[last].Read(ctx, names[last][k])
			means[w.Name] = read[names[last][k]]
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return means, averaged, nil
}

// meanOf returns the mean of a float32 tensor over checkpoints that all have it in the same shape.
func meanOf(ctx context.Context, of []*Bundle, entries []Entry) (_ *tf.Tensor, err error) {
	values := make([]*Values, len(of))
	for i, b := range of {
		if values[i], err = OpenValues(ctx, b, entries[i]); err != nil {
			return nil, err
		}
		defer values[i].Close()
	}
	n, _ := elements(entries[0].Shape)
	out := make([]byte, 0, 4*n)
	sum, next := make([]float64, 1<<14), make([]float64, 1<<14)
	for {
		got, err := values[0].Next(sum)
		if errors.Is(err, io.EOF) {
			return tf.ReadTensor(tf.Float, slices.Clone(entries[0].Shape), bytes.NewReader(out))
		}
		if err != nil {
			return nil, err
		}
		for _, v := range values[1:] {
			if _, err := v.Next(next[:got]); err != nil {
				return nil, err
			}
			for j, x := range next[:got] {
				sum[j] += x
			}
		}
		for _, x := range sum[:got] {
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(float32(x/float64(len(of)))))
		}
	}
}
