// Package saved loads models that gorbit export wrote, with the TensorFlow binding of training and the
// CPU kernels of package kernels. Package train/predict/served loads them for programs without
// training.
//
// A model that takes texts may have the signature "packed" in addition to that of TensorFlow
// Serving: the features of package packed in, and outputs for each example. Then the texts of a
// call are one row without padding. Models without it, such as those of older exports, get a text
// in each row.
package saved

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"

	tf "github.com/wamuir/graft/tensorflow"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	_ "github.com/gorbit-ml/gorbit/internal/exec/altstack" // for signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/exec/dense"
	"github.com/gorbit-ml/gorbit/internal/exec/kernelops"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/exec/reclaim"
	"github.com/gorbit-ml/gorbit/internal/run/described"
)

// mostLanes is the largest number of cores that get a lane each, as in training. With more, two calls
// at a time share the cores.
const mostLanes = 4

// Model is a loaded model. It implements predict.Model for texts and predict.BatchModel for other
// features. Several goroutines may use it at once.
type Model struct {
	described.Caller
	// Inputs and Outputs describe the tensors of the signature serving_default, the outputs in the
	// order of the description's answers.
	Inputs, Outputs []graphs.Arg
	// Lanes is the number of calls that keep the cores busy.
	Lanes int

	graph   *tf.Graph // kept: its finalizer frees memory that the session uses
	session *tf.Session
	run     func(func() error) error // runs a call of the session
	pack    string                   // the operation that packs matrices; "" for none
	calls   atomic.Int64
}

// collectAfter is the number of calls between garbage collections: the binding frees a tensor when Go's
// collector finds it unreachable, but the collector does not know its size.
const collectAfter = 256

// call is a signature.
type call struct {
	inputs  map[string]tf.Output
	outputs []tf.Output
}

// Open loads an exported model. It returns a *safety.Error if the model uses operations that reach
// beyond the graph, except for those named in allowOps. The error for a damaged model is of class
// fault.Damaged.
func Open(dir string, allowOps []string) (*Model, error) {
	d, err := described.Read(dir)
	if err != nil {
		return nil, err
	}
	saved := new(cpb.SavedModel)
	if err := d.ReadGraph(saved, allowOps); err != nil {
		return nil, err
	}
	if n := len(saved.GetMetaGraphs()); n != 1 {
		return nil, fault.Damagedf("model %s: it has %d graphs; expected one", dir, n)
	}
	meta := saved.GetMetaGraphs()[0]
	signature := meta.GetSignatureDef()[described.PackedSignature]
	var run []string // in addition to what the description names
	for _, info := range signature.GetOutputs() {
		run = append(run, info.GetName())
	}
	if err := safety.Refuse("model", dir, safety.Check(saved, run...), allowOps); err != nil {
		return nil, err
	}
	gpus, err := cuda.Count()
	if err != nil {
		return nil, err
	}
	m := &Model{Caller: described.Caller{Model: d}}
	if err = m.load(meta, gpus == 0); err != nil {
		err = fmt.Errorf("TensorFlow cannot load it: %w", err)
	} else {
		err = m.connect(meta, signature)
	}
	if err != nil {
		if m.session != nil {
			m.Close()
		}
		return nil, fault.Damagedf("model %s: %w", dir, err)
	}
	return m, nil
}

// load starts a session of the model's graph, with our kernels or without, and gives its variables their
// values.
func (m *Model) load(meta *cpb.MetaGraphDef, own bool) error {
	def, replaced, err := m.kernels(meta.GetGraphDef(), own)
	if err != nil {
		return err
	}
	config := &cpb.ConfigProto{AllowSoftPlacement: true, GpuOptions: &cpb.GPUOptions{AllowGrowth: true}}
	if replaced {
		config.GraphOptions = &cpb.GraphOptions{RewriteOptions: rewrites()}
	}
	m.Lanes, m.run = 2, func(run func() error) error { return run() }
	if n := runtime.NumCPU(); own && n <= mostLanes && m.Maker == nil { // whose next tokens are computed by one call at a time
		m.Lanes = n
		config.IntraOpParallelismThreads, config.InterOpParallelismThreads = 1, int32(n)
		m.run = kernels.Run // a call alone has all cores for its kernels
	}
	options, err := proto.Marshal(config)
	if err != nil {
		return err
	}
	m.graph = tf.NewGraph()
	if err := m.graph.Import(def, ""); err != nil {
		return err
	}
	if m.session, err = tf.NewSession(m.graph, &tf.SessionOptions{Config: options}); err != nil {
		return err
	}
	return m.restore(meta.GetSaverDef())
}

// rewrites returns what TensorFlow's graph optimizer does with a graph of kernels: functions become part of
// the graph, and a bias part of its product. The other passes take a quarter of the time until the first
// answer, and make no call faster.
func rewrites() *cpb.RewriterConfig {
	return &cpb.RewriterConfig{
		DisableTfgOptimizer:     true,
		MetaOptimizerIterations: cpb.RewriterConfig_ONE,
		ShapeOptimization:       cpb.RewriterConfig_OFF,
		MemoryOptimization:      cpb.RewriterConfig_NO_MEM_OPT,
		ConstantFolding:         cpb.RewriterConfig_OFF,
		ArithmeticOptimization:  cpb.RewriterConfig_OFF,
		LayoutOptimizer:         cpb.RewriterConfig_OFF,
		LoopOptimization:        cpb.RewriterConfig_OFF,
		ImplementationSelector:  cpb.RewriterConfig_OFF,
	}
}

// kernels returns the serialized graph, with kernels in place of the functions that they implement if
// own is set, and whether there are any.
func (m *Model) kernels(def *gpb.GraphDef, own bool) (made []byte, replaced bool, err error) {
	if !own {
		made, err = proto.Marshal(def)
		return made, false, err
	}
	if err := kernels.Register(); err != nil {
		return nil, false, err
	}
	reclaim.Files()     // of loading TensorFlow
	if m.Maker == nil { // whose kernels take matrices as they are
		m.pack = dense.Float32(def)
	}
	b := build.New(def.GetLibrary(), def.GetVersions())
	names := b.Substitute(kernelops.Ops())
	if kernels.WithinSequences(names) && m.Maker == nil {
		m.Longest = described.RowTokens
	}
	if made, err = b.Marshal(); err != nil {
		return nil, false, err
	}
	library := new(gpb.GraphDef)
	if err := proto.Unmarshal(made, library); err != nil {
		return nil, false, err
	}
	def.Library = library.GetLibrary()
	made, err = proto.Marshal(def)
	return made, len(names) > 0 || m.pack != "", err
}

// restore runs the model's own operation that restores its variables.
func (m *Model) restore(saver *cpb.SaverDef) error {
	folder, done, err := described.PlainPath(m.Dir)
	if err != nil {
		return err
	}
	defer done()
	name, err := m.output(saver.GetFilenameTensorName())
	if err != nil {
		return err
	}
	operation := m.graph.Operation(saver.GetRestoreOpName())
	if operation == nil {
		return fmt.Errorf("the graph has no operation %s, which restores its variables", saver.GetRestoreOpName())
	}
	path, err := tf.NewTensor(filepath.Join(folder, filepath.FromSlash(layout.VariablesPrefix)))
	if err != nil {
		return err
	}
	_, err = vfs.Again(func() ([]*tf.Tensor, error) {
		_, err := m.session.Run(map[tf.Output]*tf.Tensor{name: path}, nil, []*tf.Operation{operation})
		return nil, fault.Numbered(err)
	})
	if err == nil && m.pack != "" {
		_, err = m.session.Run(nil, nil, []*tf.Operation{m.graph.Operation(m.pack)})
	}
	return err
}

// output returns an output of the graph by its name, operation:index.
func (m *Model) output(name string) (tf.Output, error) {
	op, index, err := layout.ParseTensor(name)
	if err != nil {
		return tf.Output{}, err
	}
	operation := m.graph.Operation(op)
	if operation == nil || index >= operation.NumOutputs() {
		return tf.Output{}, fmt.Errorf("the graph has no tensor %s", name)
	}
	return operation.Output(index), nil
}

// connect finds the tensors of the signatures.
func (m *Model) connect(meta *cpb.MetaGraphDef, signature *cpb.SignatureDef) error {
	var names []string
	for _, a := range m.Answers {
		names = append(names, a.Name)
	}
	rows, err := m.callOf(m.Description.Inputs, m.Description.Outputs, names) // one example in a row, or features side by side
	if err != nil {
		return err
	}
	m.Run = m.by(rows)
	served := meta.GetSignatureDef()[layout.Signature]
	for name, info := range served.GetInputs() {
		m.Inputs = append(m.Inputs, argOf(name, info))
	}
	if len(names) == 0 { // of a model that makes texts of sources
		names = slices.Sorted(maps.Keys(m.Description.Outputs))
	}
	for _, name := range names {
		m.Outputs = append(m.Outputs, argOf(name, served.GetOutputs()[name]))
	}
	if signature == nil || m.Tokenizer == nil {
		return nil
	}
	packed, err := m.callOf(namesOf(signature.GetInputs()), namesOf(signature.GetOutputs()), names)
	if err != nil {
		return fmt.Errorf("signature %s: %w", described.PackedSignature, err)
	}
	m.Packed = m.by(packed)
	return nil
}

func namesOf(infos map[string]*cpb.TensorInfo) map[string]string {
	out := make(map[string]string, len(infos))
	for name, info := range infos {
		out[name] = info.GetName()
	}
	return out
}

// argOf describes a tensor of a signature.
func argOf(name string, info *cpb.TensorInfo) graphs.Arg {
	a := graphs.Arg{Name: name, DType: info.GetDtype()}
	for _, d := range info.GetTensorShape().GetDim() {
		a.Shape = append(a.Shape, d.GetSize())
	}
	return a
}

// callOf finds tensors by their names in the graph: those of some outputs.
func (m *Model) callOf(inputs, outputs map[string]string, names []string) (c call, err error) {
	c.inputs = make(map[string]tf.Output, len(inputs))
	for name, tensor := range inputs {
		if c.inputs[name], err = m.output(tensor); err != nil {
			return c, fmt.Errorf("input %s: %w", name, err)
		}
	}
	for _, name := range names {
		o, err := m.output(outputs[name])
		if err != nil {
			return c, fmt.Errorf("output %s: %w", name, err)
		}
		c.outputs = append(c.outputs, o)
	}
	return c, nil
}

// Packs reports whether the texts of a call share rows.
func (m *Model) Packs() bool { return m.Packed != nil }

// by returns a described.Run that calls a signature.
func (m *Model) by(c call) described.Run {
	return func(_ context.Context, features []dataset.Feature) ([]described.Tensor, error) {
		feeds, err := described.Feeds(c.inputs, features, tf.ReadTensor)
		if err != nil {
			return nil, err
		}
		var out []*tf.Tensor
		err = m.run(func() error {
			out, err = m.session.Run(feeds, c.outputs, nil)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("TensorFlow cannot run the model: %w", err)
		}
		if m.calls.Add(1)%collectAfter == 0 {
			go runtime.GC()
		}
		return described.Fetched(out)
	}
}

// Generator makes caches of the limits, and returns what computes next tokens with them. There is one at a time.
func (m *Model) Generator(ctx context.Context, l generate.Limits) (generate.Model, error) {
	return m.Caller.Generator(ctx, l, func(c layout.Call) (described.Run, error) {
		call, err := m.callOf(c.Inputs, c.Outputs, slices.Collect(maps.Keys(c.Outputs)))
		return m.by(call), err
	})
}

// Close frees the session.
func (m *Model) Close() error { return m.session.Close() }
