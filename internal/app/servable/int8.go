package servable

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	tf "github.com/wamuir/graft/tensorflow"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/exec/dense"
	"github.com/gorbit-ml/gorbit/strategy"
)

// round returns a SavedModel whose dense layers compute in int8, and packs their matrices and the tables of
// embeddings among the tensors.
func round(data []byte, tensors []checkpoint.NamedTensor) ([]byte, *layout.Int8, error) {
	saved := new(spb.SavedModel)
	if err := proto.Unmarshal(data, saved); err != nil {
		return nil, nil, err
	}
	matrices, err := dense.Int8(saved.GetMetaGraphs()[0])
	if err != nil {
		return nil, nil, fault.Usagef("%w", err)
	}
	values := make(map[string]*tf.Tensor, len(tensors))
	for _, t := range tensors {
		values[t.Name] = t.Value
	}
	about := new(layout.Int8)
	for i, t := range tensors {
		m, ok := matrices[t.Name]
		if !ok {
			continue
		}
		pack, packed := dense.Pack, new(bytes.Buffer)
		if m.Table {
			pack = dense.PackTable
		}
		for _, key := range m.Of {
			shape := values[key].Shape()
			numbers, err := strategy.Float32s(values[key])
			if err != nil {
				return nil, nil, fmt.Errorf("variable %s: %w", key, err)
			}
			matrix, ok := pack(numbers, shape)
			if !ok {
				return nil, nil, fmt.Errorf("variable %s has a value that is not finite; expected numbers; export another checkpoint", key)
			}
			packed.Write(matrix)
			if m.Table {
				about.Embeddings += shape[0] * shape[1]
			} else {
				about.Layers, about.Weights = about.Layers+1, about.Weights+shape[0]*shape[1]
			}
		}
		if tensors[i].Value, err = tf.ReadTensor(tf.DataType(dense.PackedType), m.PackedShape(), packed); err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", t.Name, err)
		}
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(saved)
	return out, about, err
}

// measure sets the quality of the model in a folder, and writes its description again.
func (o Options) measure(ctx context.Context, dir string, d *layout.Description) (err error) {
	if d.Int8.Quality, err = o.Measure(ctx, dir); err != nil {
		return err
	}
	description, err := encode(d)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.FromSlash(layout.DescriptionFile))
	if err := vfs.Remove(path); err != nil {
		return err
	}
	return vfs.WriteFile(path, description)
}
