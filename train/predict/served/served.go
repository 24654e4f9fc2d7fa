// Package served loads models that gorbit export wrote. It uses tfgo, the usual SavedModel loader
// for Go. A program that imports it cannot also import package strategy, and therefore not package
// train: these use another TensorFlow binding, and the two cannot be linked together.
package served

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	spb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/galeone/tfgo"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	_ "github.com/gorbit-ml/gorbit/internal/exec/altstack" // handles signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/run/described"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Model is an exported model. It implements predict.Model for texts. Several goroutines may use it at
// once.
type Model struct {
	// Tokenizer, Labels and MaxLength are those the model was trained with. Tokenizer is nil if the
	// model takes no texts.
	Tokenizer *text.Tokenizer
	Labels    []string
	MaxLength int
	// Pairs reports whether the model was trained on pairs of texts; nil if the model does not
	// say it.
	Pairs *bool
	// Renderer makes answers of the model's outputs.
	Renderer predict.Renderer
	// Maker is how the model makes texts; nil if it does not.
	Maker *predict.Maker

	caller described.Caller
	saved  *tfgo.Model
	lanes  int                      // calls that keep the cores busy
	run    func(func() error) error // runs a call of the session
}

// Open loads an exported model. It returns a *safety.Error if the model uses operations that reach
// beyond the graph, except for those named in allowOps. The error for a damaged model is of class
// fault.Damaged.
func Open(dir string, allowOps ...string) (*Model, error) {
	d, err := described.Read(dir)
	if err != nil {
		return nil, err
	}
	m := &Model{Tokenizer: d.Tokenizer, Labels: d.Labels, MaxLength: d.MaxLength, Pairs: d.Pairs, Renderer: d.Renderer, Maker: d.Maker}
	graph := new(spb.SavedModel)
	if err := d.ReadGraph(graph, allowOps); err != nil {
		return nil, err
	}
	packed, err := packedCall(d, graph, allowOps)
	if err != nil {
		return nil, err
	}
	longest, err := m.load(dir, graph)
	if err != nil {
		return nil, err
	}
	var outputs []string
	for _, a := range d.Answers {
		outputs = append(outputs, a.Name)
	}
	run, err := m.by(layout.Call{Inputs: d.Inputs, Outputs: d.Outputs}, outputs)
	if err != nil {
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	m.caller = described.Caller{Model: d, Run: run, Longest: longest}
	if packed != nil {
		if m.caller.Packed, err = m.by(*packed, outputs); err != nil {
			return nil, fault.Damagedf("model %s: signature %s: %w", dir, described.PackedSignature, err)
		}
	}
	return m, nil
}

// load loads the model, on CPUs with kernels in place of the functions that they implement. It returns the
// most tokens of a packed row.
func (m *Model) load(dir string, graph *spb.SavedModel) (longest int, err error) {
	gpus, err := cuda.Count()
	if err != nil {
		return 0, err
	}
	m.lanes, m.run = 1, plainly
	path, done, options := "", func() {}, (*tf.SessionOptions)(nil)
	if gpus == 0 {
		if err := kernels.Register(); err != nil {
			return 0, err
		}
		if names := substitute(graph); len(names) > 0 {
			if kernels.WithinSequences(names) && m.Maker == nil {
				longest = described.RowTokens
			}
			if m.lanes, m.run, options, err = laneOptions(m.Maker == nil); err == nil {
				path, done, err = described.WithGraph(dir, graph)
			}
		}
	}
	if path == "" && err == nil {
		path, done, err = described.PlainPath(dir)
	}
	if err != nil {
		return 0, fmt.Errorf("model %s: %w", dir, err)
	}
	defer done()
	_, err = vfs.Again(func() (*tfgo.Model, error) {
		err := catch(func() { m.saved = tfgo.LoadModel(path, []string{layout.Tag}, options) })
		return m.saved, fault.Numbered(err)
	})
	if err != nil {
		return 0, fault.Damagedf("model %s: TensorFlow cannot load it: %w", dir, err)
	}
	return longest, nil
}

// packedCall returns the signature of rows that texts share; nil without.
func packedCall(d *described.Model, graph *spb.SavedModel, allowOps []string) (*layout.Call, error) {
	if len(graph.GetMetaGraphs()) != 1 || d.Tokenizer == nil {
		return nil, nil
	}
	signature := graph.GetMetaGraphs()[0].GetSignatureDef()[described.PackedSignature]
	if signature == nil {
		return nil, nil
	}
	call := &layout.Call{Inputs: named(signature.GetInputs()), Outputs: named(signature.GetOutputs())}
	return call, safety.Refuse("model", d.Dir, safety.Check(graph, slices.Collect(maps.Values(call.Outputs))...), allowOps)
}

func named(infos map[string]*spb.TensorInfo) map[string]string {
	out := make(map[string]string, len(infos))
	for name, info := range infos {
		out[name] = info.GetName()
	}
	return out
}

// tensor returns a tensor of the graph by name. Package layout has already checked the name.
func (m *Model) tensor(name string) tf.Output {
	operation, index, err := layout.ParseTensor(name)
	if err != nil {
		panic(err)
	}
	return m.saved.Op(operation, index)
}

// callTokens is the most tokens of a call whose texts share rows.
const callTokens = 1024

// Predictor returns a Predictor that runs the model on at most batchSize texts per call. Several calls run side
// by side if the model's texts share rows, unless batchSize is 1.
func (m *Model) Predictor(batchSize int) (*predict.Predictor, error) {
	if m.Tokenizer == nil {
		return nil, fault.Usagef("the model takes no texts; expected records, with the features %s", strings.Join(slices.Sorted(maps.Keys(m.caller.Inputs)), ", "))
	}
	c := predict.Config{Tokenizer: m.Tokenizer, MaxLength: m.MaxLength, DocStride: m.caller.DocStride, Renderer: m.Renderer, Window: batchSize}
	if m.caller.Longest > 0 && batchSize > 1 {
		c.Window, c.CallTokens, c.InFlight = batchSize*m.lanes, callTokens, m.lanes
	}
	return predict.New(m, c)
}

// Predict implements predict.Model. It makes one call, with rows as long as the longest example, or with rows
// that examples share if the model has them.
func (m *Model) Predict(ctx context.Context, examples []text.Encoding) ([]predict.Result, error) {
	return m.caller.Predict(ctx, examples)
}

// TakesTexts reports whether the model takes texts. The others take records.
func (m *Model) TakesTexts() bool { return m.Tokenizer != nil }

// Layout returns how records become the batches that a model answers that takes no texts.
func (m *Model) Layout() dataset.Layout { return m.caller.Layout() }

// OpenRows opens a table whose rows have the values of the model's features in columns, and makes
// batches of up to size of them. The name - is standard input.
func (m *Model) OpenRows(ctx context.Context, path string, stdin io.Reader, columns predict.Columns, size int) (*predict.Rows, error) {
	features, tokenizer, err := m.caller.Rows()
	if err != nil {
		return nil, err
	}
	records, err := convert.NewRowRecords(features, filepath.Dir(path), tokenizer)
	if err != nil {
		return nil, err
	}
	return predict.OpenRows(ctx, path, stdin, columns, records, m.Layout(), size)
}

// PredictBatch implements predict.BatchModel for batches of Layout.
func (m *Model) PredictBatch(ctx context.Context, b *dataset.Batch) ([]predict.Result, error) {
	return m.caller.PredictBatch(ctx, b)
}

// Generator makes caches of the limits, and returns what computes next tokens with them, of a model that has a
// Maker. There is one at a time.
func (m *Model) Generator(ctx context.Context, l generate.Limits) (generate.Model, error) {
	return m.caller.Generator(ctx, l, func(c layout.Call) (described.Run, error) {
		return m.by(c, slices.Collect(maps.Keys(c.Outputs)))
	})
}

// by returns a described.Run of tfgo that calls a signature for some of its outputs.
func (m *Model) by(c layout.Call, names []string) (described.Run, error) {
	inputs, outputs := make(map[string]tf.Output), make([]tf.Output, len(names))
	if err := catch(func() {
		for name, tensor := range c.Inputs {
			inputs[name] = m.tensor(tensor)
		}
		for i, name := range names {
			outputs[i] = m.tensor(c.Outputs[name])
		}
	}); err != nil {
		return nil, err
	}
	return func(_ context.Context, features []dataset.Feature) ([]described.Tensor, error) {
		feeds, err := described.Feeds(inputs, features, tf.ReadTensor)
		if err != nil {
			return nil, err
		}
		var out []*tf.Tensor
		exec := func() error { return catch(func() { out = m.saved.Exec(outputs, feeds) }) }
		if err := m.run(exec); err != nil {
			return nil, fmt.Errorf("TensorFlow cannot run the model: %w", err)
		}
		return described.Fetched(out)
	}, nil
}

// catch calls f and returns a panic of tfgo as an error of one line.
func catch(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			panic(p)
		case error, string:
			line, _, _ := strings.Cut(fmt.Sprint(p), "\n")
			err = errors.New(line)
		default:
			panic(p)
		}
	}()
	f()
	return nil
}
