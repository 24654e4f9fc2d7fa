package strategy

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	tf "github.com/wamuir/graft/tensorflow"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/kernels"
)

// Config is what a user chooses of a strategy.
type Config struct {
	// Device is a TensorFlow device name such as "/device:GPU:0"; "" is
	// TensorFlow's choice.
	Device string
	// IntraOpThreads and InterOpThreads bound TensorFlow's pools; 0 is one
	// thread per core, and one inter-op thread where the kernels of package
	// internal/kernels are used.
	IntraOpThreads, InterOpThreads int
	// Functions are the parts of the contract to compose: FunctionsTrain to
	// train, FunctionsEvaluate to evaluate and predict only.
	Functions Functions
	// StandardOps keeps to TensorFlow's own operations. Without it, the kernels
	// of package internal/kernels stand in their place where the device is a CPU.
	StandardOps bool
}

// Functions says what a composed graph can do.
type Functions int

const (
	// FunctionsTrain composes the training step, evaluation and prediction.
	FunctionsTrain Functions = iota
	// FunctionsEvaluate composes evaluation and prediction, without slots.
	FunctionsEvaluate
)

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	if c.IntraOpThreads < 0 || c.InterOpThreads < 0 {
		return fmt.Errorf("intra-op threads %d and inter-op threads %d must not be negative", c.IntraOpThreads, c.InterOpThreads)
	}
	return nil
}

// Scalars are the numbers of one step that a user tunes: learning_rate,
// weight_decay, clip_norm (0 is off), and the contract's hyperparameters. Those
// that are not set have the contract's defaults; learning_rate must be set.
type Scalars map[string]float64

// Result is what a step or an evaluation gives.
type Result struct {
	// Sums by output name, flat; never means.
	Sums map[string][]float64
	// GradientNorm is the global norm of the mean loss' gradient before clipping.
	GradientNorm float64
	// Applied is false where the loss or the norm was not finite: no variable changed.
	Applied bool
	// Iterations is the graph's own count of steps after this one.
	Iterations int64
}

// VariableSpec names a variable of the composed graph: a trained variable, a
// slot, or the count of iterations.
type VariableSpec struct {
	Name  string
	DType tf.DataType
	Shape []int64
	// Slot is set for the variables that exist for the optimizer's sake, which
	// start at zero and need not be there in what a run begins with.
	Slot bool
}

// OneDevice is a model on one device, in this process. Its methods may be called
// from several goroutines, Step from one at a time.
type OneDevice struct {
	export  *graphs.Export
	session *tf.Session
	plan    *plan
	ops     map[string]*tf.Operation
	runtime Runtime

	collect sync.Mutex
	pending int
}

// sessionConfig returns a serialized ConfigProto.
func sessionConfig(c Config, rewrites *cpb.RewriterConfig) ([]byte, error) {
	return proto.Marshal(&cpb.ConfigProto{
		IntraOpParallelismThreads: int32(c.IntraOpThreads),
		InterOpParallelismThreads: int32(c.InterOpThreads),
		AllowSoftPlacement:        true,
		GpuOptions:                &cpb.GPUOptions{AllowGrowth: true},
		GraphOptions:              &cpb.GraphOptions{RewriteOptions: rewrites},
	})
}

// fewRewrites leaves out of TensorFlow's graph optimizer what finds nothing to do in
// a graph of kernels: half of the time from the start of a session to its first step
// is the optimizer's.
func fewRewrites() *cpb.RewriterConfig {
	return &cpb.RewriterConfig{
		MetaOptimizerIterations: cpb.RewriterConfig_ONE,
		DisableTfgOptimizer:     true,
		LayoutOptimizer:         cpb.RewriterConfig_OFF,
		LoopOptimization:        cpb.RewriterConfig_OFF,
		ShapeOptimization:       cpb.RewriterConfig_OFF,
		ImplementationSelector:  cpb.RewriterConfig_OFF,
		MemoryOptimization:      cpb.RewriterConfig_NO_MEM_OPT,
	}
}

// NewOneDevice composes the export's graph for one device. The variables hold
// nothing until Assign has set them; slots and the count of iterations are zero.
func NewOneDevice(ctx context.Context, export *graphs.Export, config Config) (*OneDevice, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	device, err := findDevice(config.Device)
	if err != nil {
		return nil, err
	}
	own := device.Type == "CPU" && !config.StandardOps
	if own {
		if err := kernels.Register(); err != nil {
			return nil, err
		}
		kernels.Threads(config.IntraOpThreads)
	}
	p, err := compose(export, config, own)
	if err != nil {
		return nil, err
	}
	var rewrites *cpb.RewriterConfig // nil is TensorFlow's default
	if p.kernels > 0 {
		rewrites = fewRewrites()
		if config.InterOpThreads == 0 {
			// What is left is a chain of operations that use all cores each: running
			// two at a time makes both slower.
			config.InterOpThreads = 1
		}
	}
	graph := tf.NewGraph()
	session, err := newSession(graph, config, rewrites)
	if err != nil {
		return nil, err
	}
	s := &OneDevice{export: export, session: session, plan: p, ops: make(map[string]*tf.Operation),
		runtime: Runtime{Device: device.Name, IntraOpThreads: config.IntraOpThreads, InterOpThreads: config.InterOpThreads}}
	if p.kernels > 0 {
		s.runtime.Kernels = kernels.Instructions()
	}
	if err := s.load(graph); err != nil {
		session.Close()
		return nil, err
	}
	return s, ctx.Err()
}

func newSession(graph *tf.Graph, config Config, rewrites *cpb.RewriterConfig) (*tf.Session, error) {
	options, err := sessionConfig(config, rewrites)
	if err != nil {
		return nil, err
	}
	session, err := tf.NewSession(graph, &tf.SessionOptions{Config: options})
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return session, nil
}

// load imports the composed graph, and sets the variables that start at zero.
func (s *OneDevice) load(graph *tf.Graph) error {
	def, err := s.plan.builder.Marshal()
	if err != nil {
		return fmt.Errorf("compose %s: %w", s.export.Path, err)
	}
	if err := graph.Import(def, ""); err != nil {
		return fmt.Errorf("compose %s: TensorFlow %s refuses the graph: %w", s.export.Path, tf.Version(), err)
	}
	for _, op := range graph.Operations() {
		s.ops[op.Name()] = &op
	}
	if _, err := s.session.Run(nil, nil, []*tf.Operation{s.ops[s.plan.init]}); err != nil {
		return fmt.Errorf("prepare %s: %w", s.export.Path, err)
	}
	return nil
}

// Runtime is what a strategy runs with.
type Runtime struct {
	// Device is TensorFlow's full name of it.
	Device string
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's pools; 0 is
	// one thread per core.
	IntraOpThreads, InterOpThreads int
	// Kernels names the instructions that the package's own kernels use: avx512,
	// avx2 or generic; "" if the graph has TensorFlow's operations alone.
	Kernels string
}

// Runtime returns what the model runs with.
func (s *OneDevice) Runtime() Runtime { return s.runtime }

// DeviceError says that a device is not on this machine.
type DeviceError struct {
	Device string
	Have   []string
}

func (e *DeviceError) Error() string {
	return fmt.Sprintf("there is no device %q; this machine has %s", e.Device, strings.Join(e.Have, ", "))
}

// findDevice returns the device of a name, or the one that TensorFlow takes where
// none is said. It returns a *DeviceError where there is no such device:
// TensorFlow would take another one without a word.
func findDevice(device string) (tf.Device, error) {
	graph := tf.NewGraph()
	session, err := newSession(graph, Config{}, nil)
	if err != nil {
		return tf.Device{}, err
	}
	defer session.Close()
	// The graph's finalizer frees what the session refers to.
	defer runtime.KeepAlive(graph)
	devices, err := session.ListDevices()
	if err != nil {
		return tf.Device{}, fmt.Errorf("list the devices: %w", err)
	}
	if device == "" {
		i := max(0, slices.IndexFunc(devices, func(d tf.Device) bool { return d.Type == "GPU" }))
		return devices[i], nil
	}
	e := &DeviceError{Device: device}
	for _, d := range devices {
		// The full name, or its end: /device:GPU:0.
		if strings.EqualFold(d.Name, device) || strings.HasSuffix(strings.ToLower(d.Name), strings.ToLower("/"+strings.TrimPrefix(device, "/"))) {
			return d, nil
		}
		e.Have = append(e.Have, d.Name[strings.LastIndexByte(d.Name, '/'):])
	}
	return tf.Device{}, e
}

// Close frees the session and its variables.
func (s *OneDevice) Close() error { return s.session.Close() }

// GraphDef returns the composed graph, serialized.
func (s *OneDevice) GraphDef() ([]byte, error) { return s.plan.builder.Marshal() }

// Variables lists what a checkpoint of this strategy holds, sorted by name.
func (s *OneDevice) Variables() []VariableSpec { return s.plan.variables }

// output returns an output of a node by the builder's "node:index" notation.
func (s *OneDevice) output(ref string) tf.Output {
	name, index := ref, 0
	if i := strings.LastIndexByte(ref, ':'); i >= 0 {
		name = ref[:i]
		fmt.Sscan(ref[i+1:], &index)
	}
	return s.ops[name].Output(index)
}

func (s *OneDevice) outputs(refs []string) []tf.Output {
	out := make([]tf.Output, len(refs))
	for i, ref := range refs {
		out[i] = s.output(ref)
	}
	return out
}

// run calls the session and keeps the memory of past calls' tensors bounded:
// the binding frees a tensor when Go's collector finds it dead, and the
// collector does not see its size.
func (s *OneDevice) run(ctx context.Context, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets ...*tf.Operation) ([]*tf.Tensor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, err := s.session.Run(feeds, fetches, targets)
	s.collect.Lock()
	s.pending++
	full := s.pending >= 256
	if full {
		s.pending = 0
	}
	s.collect.Unlock()
	if full {
		go runtime.GC()
	}
	return out, err
}

// feed makes the tensors of a batch. Features that the function does not take
// are left out; one that it takes and the batch lacks is an error.
func (s *OneDevice) feed(groups []group, features []Feature) (map[tf.Output]*tf.Tensor, error) {
	byName := make(map[string]*Feature, len(features))
	for i := range features {
		byName[features[i].Name] = &features[i]
	}
	feeds := make(map[tf.Output]*tf.Tensor, len(groups)+2)
	for _, g := range groups {
		var parts [][]byte
		var shape []int
		for i, name := range g.features {
			f := byName[name]
			if f == nil {
				return nil, fmt.Errorf("the batch has no feature %s, which the graph takes", name)
			}
			if err := f.check(); err != nil {
				return nil, err
			}
			if i == 0 {
				shape = f.Shape
			} else if !slices.Equal(shape, f.Shape) {
				return nil, fmt.Errorf("feature %s has shape %v, %s has %v; they must be the same", name, f.Shape, g.features[0], shape)
			}
			if len(f.Shape) != g.rank {
				return nil, fmt.Errorf("feature %s has shape %v; the graph takes %d axes", name, f.Shape, g.rank)
			}
			if (g.dtype == tf.Int32) != (f.Float32 == nil) {
				return nil, fmt.Errorf("feature %s is not of the dtype that the graph takes", name)
			}
			if g.dtype == tf.Int32 {
				parts = append(parts, raw(f.Int32))
			} else {
				parts = append(parts, raw(f.Float32))
			}
		}
		dims := []int64{int64(len(g.features))}
		for _, d := range shape {
			dims = append(dims, int64(d))
		}
		t, err := newTensor(g.dtype, dims, parts...)
		if err != nil {
			return nil, fmt.Errorf("features %s: %w", strings.Join(g.features, ", "), err)
		}
		feeds[s.output(g.placeholder)] = t
	}
	return feeds, nil
}

// Step makes one optimizer update from a batch. The seed decides all randomness
// of the step; callers give every step its own.
func (s *OneDevice) Step(ctx context.Context, features []Feature, seed [2]int64, scalars Scalars) (*Result, error) {
	p := s.plan.train
	if p == nil {
		return nil, fmt.Errorf("the graph was composed for evaluation only")
	}
	feeds, err := s.feed(p.groups, features)
	if err != nil {
		return nil, err
	}
	values := make([]float32, len(p.scalars))
	for i, h := range p.scalars {
		values[i] = float32(h.Default)
		if v, ok := scalars[h.Name]; ok {
			values[i] = float32(v)
		}
	}
	for name := range scalars {
		if !slices.ContainsFunc(p.scalars, func(h graphs.Hyperparameter) bool { return h.Name == name }) {
			return nil, fmt.Errorf("the graph has no hyperparameter %q", name)
		}
	}
	if feeds[s.output(p.scalarFeed)], err = newTensor(tf.Float, []int64{int64(len(values))}, raw(values)); err != nil {
		return nil, err
	}
	if feeds[s.output(p.seed)], err = newTensor(tf.Int64, []int64{2}, raw(seed[:])); err != nil {
		return nil, err
	}
	out, err := s.run(ctx, feeds, s.outputs(p.fetches), s.ops[p.done])
	if err != nil {
		return nil, fmt.Errorf("training step: %w", err)
	}
	r := &Result{Sums: make(map[string][]float64, len(p.sums))}
	for i, name := range p.sums {
		if r.Sums[name], err = floats(out[i]); err != nil {
			return nil, fmt.Errorf("output %s: %w", name, err)
		}
	}
	rest := out[len(p.sums):]
	r.GradientNorm = float64(rest[0].Value().(float32))
	r.Applied = rest[1].Value().(bool)
	r.Iterations = rest[2].Value().(int64)
	return r, nil
}

// Evaluate gives the metric sums of a batch.
func (s *OneDevice) Evaluate(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return s.call(ctx, s.plan.evaluate, features)
}

// Predict gives the named outputs of a batch, flat; their first axis is examples.
func (s *OneDevice) Predict(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return s.call(ctx, s.plan.predict, features)
}

func (s *OneDevice) call(ctx context.Context, p *callPlan, features []Feature) (map[string][]float64, error) {
	feeds, err := s.feed(p.groups, features)
	if err != nil {
		return nil, err
	}
	out, err := s.run(ctx, feeds, s.outputs(p.fetches))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	values := make(map[string][]float64, len(out))
	for i, name := range p.outputs {
		if values[name], err = floats(out[i]); err != nil {
			return nil, fmt.Errorf("%s: output %s: %w", p.name, name, err)
		}
	}
	return values, nil
}

// Read returns the values of variables. A value may share its memory with the
// variable until the next step, which then makes a copy: reading costs nothing,
// and the step after it is as much slower as copying takes.
func (s *OneDevice) Read(ctx context.Context, names ...string) ([]*tf.Tensor, error) {
	fetches := make([]tf.Output, len(names))
	for i, name := range names {
		ref, ok := s.plan.reads[name]
		if !ok {
			return nil, fmt.Errorf("no variable %s", name)
		}
		fetches[i] = s.output(ref)
	}
	out, err := s.run(ctx, nil, fetches)
	if err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	return out, nil
}

// Assign sets variables.
func (s *OneDevice) Assign(ctx context.Context, values map[string]*tf.Tensor) error {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	feeds := make(map[tf.Output]*tf.Tensor, len(values))
	var targets []*tf.Operation
	for _, name := range names {
		a, ok := s.plan.assigns[name]
		if !ok {
			return fmt.Errorf("no variable %s", name)
		}
		spec := a.spec
		if t := values[name]; t.DataType() != spec.DType || !slices.Equal(t.Shape(), spec.Shape) && len(spec.Shape)+len(t.Shape()) > 0 {
			return fmt.Errorf("variable %s has shape %v, the value %v", name, spec.Shape, t.Shape())
		}
		feeds[s.output(a.value)] = values[name]
		targets = append(targets, s.ops[a.assign])
	}
	if _, err := s.run(ctx, feeds, nil, targets...); err != nil {
		return fmt.Errorf("assign variables: %w", err)
	}
	return nil
}

var dtypes = map[string]struct {
	proto dtpb.DataType
	tf    tf.DataType
}{
	"float32": {dtpb.DataType_DT_FLOAT, tf.Float},
	"int32":   {dtpb.DataType_DT_INT32, tf.Int32},
	"int64":   {dtpb.DataType_DT_INT64, tf.Int64},
}
