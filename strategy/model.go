package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	tf "github.com/wamuir/graft/tensorflow"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	_ "github.com/gorbit-ml/gorbit/internal/altstack" // for signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/cuda"
	"github.com/gorbit-ml/gorbit/internal/devices"
	"github.com/gorbit-ml/gorbit/internal/kernels"
	"github.com/gorbit-ml/gorbit/internal/shardinput"

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// Config is what a user chooses of a strategy.
type Config struct {
	// IntraOpThreads and InterOpThreads bound TensorFlow's pools; 0 is the cores
	// divided among the replicas of the process, and one inter-op thread for each
	// where the kernels of package internal/kernels are used.
	IntraOpThreads, InterOpThreads int
	// Functions are the parts of the contract to compose: FunctionsTrain to
	// train, FunctionsEvaluate to evaluate and predict only.
	Functions Functions
	// StandardOps keeps to TensorFlow's own operations. Without it, the kernels
	// of package internal/kernels stand in their place where all devices are CPUs, unless
	// XLA compiles the graph.
	StandardOps bool
	// ShardOptimizer has every variable's slots on one replica, its owner, instead
	// of on all: gradients are added up there, and the new value goes to the others.
	ShardOptimizer bool
	// Lanes is how many micro-batches one device computes side by side, with the same
	// variables; 0 is one. On a CPU of few cores, a lane for each is faster than one
	// whose operations use all cores.
	Lanes int
	// Patience bounds the calls of a session with other servers, so that none hangs
	// for ever; 0 is no bound. A call may take as long, and five times longer than the
	// longest before it; before the first has ended, ten times as long.
	Patience time.Duration
	// BucketBytes is how many bytes of gradients the replicas reduce together; 0 is
	// DefaultBucketBytes.
	BucketBytes int64
	// LocalInput has every worker of a NewMultiWorker read its part of the batches of
	// training: MultiWorker.Draw gives what a step is then made of. Nil has them fed.
	LocalInput *LocalInput
}

// DefaultBucketBytes is how many bytes of gradients are reduced together.
const DefaultBucketBytes = 1 << 20

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
	if c.Lanes < 0 || c.Lanes > 64 {
		return fmt.Errorf("%d lanes: expected 0 (one) to 64", c.Lanes)
	}
	if c.BucketBytes < 0 {
		return fmt.Errorf("buckets of %d bytes: expected 0 (%d) or more", c.BucketBytes, DefaultBucketBytes)
	}
	return nil
}

// Model is a Strategy whose replicas are in one graph, which one session runs.
type Model struct {
	export  *graphs.Export
	session *tf.Session
	plan    *plan
	ops     map[string]*tf.Operation
	runtime Runtime
	cluster Cluster // nil within one process
	updates int64   // the count of iterations as it was last seen

	patience time.Duration
	micro    int // micro-batches of a call

	mu      sync.Mutex
	pending int
	calls   []int         // evaluations and predictions in flight, by replica
	longest time.Duration // that a call has taken
	times   []Times       // of the replicas, none where there is one
	stuck   bool          // a call has not ended although its servers are lost
}

// target is where a model runs.
type target struct {
	devices []string // of the replicas
	names   []string // of the devices, for people; nil is the same
	shared  bool     // the replicas are lanes of one
	cpus    int      // virtual CPU devices of the process; 0 is one
	virtual int      // devices that the only GPU is to be; 0 is one
	hint    string   // how collectives communicate; "" is TensorFlow's choice
	master  string   // address of the session's master; "" for one in this process
	leader  string   // that agrees on the groups of collectives; "" within a process
	own     bool     // all devices are CPUs
	cluster Cluster
}

// sessionConfig returns a serialized ConfigProto.
func (t target) sessionConfig(c Config, rewrites *cpb.RewriterConfig) ([]byte, error) {
	config := &cpb.ConfigProto{
		IntraOpParallelismThreads: int32(c.IntraOpThreads),
		InterOpParallelismThreads: int32(c.InterOpThreads),
		AllowSoftPlacement:        true,
		GpuOptions:                &cpb.GPUOptions{AllowGrowth: true},
		GraphOptions:              &cpb.GraphOptions{RewriteOptions: rewrites},
	}
	if t.cpus > 1 {
		config.DeviceCount = map[string]int32{"CPU": int32(t.cpus)}
	}
	if t.virtual > 1 {
		memory := float64(cuda.Query().GPUs[0].MemoryBytes) / (1 << 20)
		each := slices.Repeat([]float32{float32(0.9 * memory / float64(t.virtual))}, t.virtual)
		config.GpuOptions.Experimental = &cpb.GPUOptions_Experimental{
			VirtualDevices: []*cpb.GPUOptions_Experimental_VirtualDevices{{MemoryLimitMb: each}}}
	}
	if t.leader != "" {
		config.Experimental = &cpb.ConfigProto_Experimental{CollectiveGroupLeader: t.leader}
	}
	return proto.Marshal(config)
}

// fewRewrites leaves out of TensorFlow's graph optimizer what makes no step of a graph
// of kernels faster: a fourth of the processor time of a start would be the optimizer's.
func fewRewrites() *cpb.RewriterConfig {
	return &cpb.RewriterConfig{
		MetaOptimizerIterations: cpb.RewriterConfig_ONE,
		DisableTfgOptimizer:     true,
		Remapping:               cpb.RewriterConfig_OFF,
		ConstantFolding:         cpb.RewriterConfig_OFF,
		ArithmeticOptimization:  cpb.RewriterConfig_OFF,
		LayoutOptimizer:         cpb.RewriterConfig_OFF,
		LoopOptimization:        cpb.RewriterConfig_OFF,
		ShapeOptimization:       cpb.RewriterConfig_OFF,
		ImplementationSelector:  cpb.RewriterConfig_OFF,
		MemoryOptimization:      cpb.RewriterConfig_NO_MEM_OPT,
	}
}

// NewOneDevice composes the export's graph for one device, such as
// "/device:GPU:0"; "" is TensorFlow's choice. The variables hold nothing until
// Assign has set them; slots and the count of iterations are zero.
func NewOneDevice(ctx context.Context, export *graphs.Export, device string, config Config) (*Model, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Lanes > 1 {
		if config.IntraOpThreads == 0 {
			config.IntraOpThreads = max(1, runtime.NumCPU()/config.Lanes)
		}
		if config.InterOpThreads == 0 {
			config.InterOpThreads = config.Lanes
		}
	}
	have, err := target{}.list(config)
	if err != nil {
		return nil, err
	}
	found, err := find(have, device)
	if err != nil {
		return nil, err
	}
	name := device
	if name == "" && found.Type == "GPU" {
		name = shortName(found.Name)
	}
	lanes := max(1, config.Lanes)
	return newModel(ctx, export, target{devices: slices.Repeat([]string{name}, lanes), shared: lanes > 1,
		names: []string{shortName(found.Name)}, own: found.Type == "CPU"}, config)
}

// NewMirrored composes the export's graph for several devices of this process, such as
// "/device:GPU:0" and "/device:GPU:1", each of which has a replica of the model. All replicas hold the same values, bit for
// bit. Variables begin as those of NewOneDevice. Several GPUs where there is one are
// virtual ones, to try things out.
func NewMirrored(ctx context.Context, export *graphs.Export, devices []string, config Config) (*Model, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, errors.New("no devices given; expected names such as /device:GPU:0 and /device:GPU:1")
	}
	t := target{devices: devices, own: true}
	gpus := true
	for _, d := range t.devices {
		if n, ok := cpuNumber(d); ok {
			t.cpus = max(t.cpus, n+1)
			gpus = false
		}
	}
	if gpus {
		// TensorFlow takes NCCL only when told to, and NCCL does not take a GPU twice.
		t.hint = "nccl"
		if CountGPUs() == 1 && len(devices) > 1 {
			t.hint, t.virtual = "ring", len(devices)
		}
	}
	if t.own = t.cpus > 0; t.own && config.IntraOpThreads == 0 {
		config.IntraOpThreads = max(1, runtime.NumCPU()/len(t.devices))
	}
	if t.own && config.InterOpThreads == 0 {
		config.InterOpThreads = len(t.devices)
	}
	have, err := t.list(config)
	if err != nil {
		return nil, err
	}
	for _, d := range t.devices {
		found, err := find(have, d)
		if err != nil {
			return nil, err
		}
		t.own = t.own && found.Type == "CPU"
	}
	return newModel(ctx, export, t, config)
}

// Cluster is some TensorFlow servers that work together. All is known of it when it
// is handed over, and it outlives the model.
type Cluster interface {
	// Target is the address of the server that a session is made with, such as
	// "grpc://localhost:2222".
	Target() string
	// GroupLeader is the task that agrees on groups of collectives.
	GroupLeader() string
	// Devices are the full names of the replicas' devices.
	Devices() []string
	// Failed is closed when one of the servers is lost; Err then says why. Calls of
	// the session end soon after.
	Failed() <-chan struct{}
	Err() error
	// Fail makes the servers fail with an error.
	Fail(error)
}

// NewMultiWorker composes the export's graph for the devices of several servers, as
// NewMirrored does for those of one process. Every call returns the cluster's error
// once a server is lost.
func NewMultiWorker(ctx context.Context, export *graphs.Export, cluster Cluster, config Config) (*MultiWorker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	t := target{devices: cluster.Devices(), master: cluster.Target(), leader: cluster.GroupLeader(), own: true, cluster: cluster}
	if len(t.devices) == 0 {
		return nil, errors.New("the cluster has no devices")
	}
	for _, d := range t.devices {
		_, cpu := cpuNumber(d)
		t.own = t.own && cpu
	}
	model, err := newModel(ctx, export, t, config)
	if err != nil {
		return nil, err
	}
	m := &MultiWorker{Model: model}
	if m.plan.train != nil && m.plan.train.local != nil {
		if err = m.openInput(ctx); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}

// newModel composes the graph, and starts a session with it.
func newModel(ctx context.Context, export *graphs.Export, t target, config Config) (*Model, error) {
	// XLA knows none of the package's operations.
	own := t.own && !config.StandardOps && !export.Contract.XLA
	if own {
		if err := kernels.Register(); err != nil {
			return nil, err
		}
		update := config.IntraOpThreads
		if t.shared {
			update *= len(t.devices)
		}
		kernels.Threads(config.IntraOpThreads, update)
	}
	if config.LocalInput != nil {
		if err := shardinput.Register(); err != nil {
			return nil, err
		}
	}
	p, err := compose(export, layout{
		local:     (*shardinput.Data)(config.LocalInput),
		devices:   t.devices,
		functions: config.Functions,
		own:       own,
		shard:     (config.ShardOptimizer || t.shared) && len(t.devices) > 1,
		shared:    t.shared,
		bucket:    cmp.Or(config.BucketBytes, DefaultBucketBytes),
		hint:      cmp.Or(t.hint, "auto"),
	})
	if err != nil {
		return nil, err
	}
	var rewrites *cpb.RewriterConfig // nil is TensorFlow's default
	if len(p.kernels) > 0 {
		rewrites = fewRewrites()
		if config.InterOpThreads == 0 {
			// What is left is a chain of operations that use all cores each: running
			// two at a time makes both slower.
			config.InterOpThreads = 1
		}
	}
	graph := tf.NewGraph()
	session, err := t.newSession(graph, config, rewrites)
	if err != nil {
		return nil, err
	}
	m := &Model{export: export, session: session, plan: p, ops: make(map[string]*tf.Operation), cluster: t.cluster, patience: config.Patience, calls: make([]int, len(p.predict)),
		micro: len(t.devices),
		runtime: Runtime{Devices: t.devices, IntraOpThreads: config.IntraOpThreads, InterOpThreads: config.InterOpThreads,
			OptimizerBytes: p.slotBytes}}
	if t.names != nil {
		m.runtime.Devices = t.names
	}
	m.runtime.MicroBatches, m.runtime.StepsPerCall, m.runtime.InFlight = m.micro, 1, 2*len(m.runtime.Devices)
	if t.shared {
		m.runtime.InFlight = m.micro
	}
	if len(p.kernels) > 0 {
		m.runtime.Kernels = kernels.Instructions()
		m.runtime.LongRows = p.longRows()
	}
	if p.train != nil {
		m.times = make([]Times, len(p.train.clocks))
	}
	if err := m.load(ctx, graph); err != nil {
		m.Close()
		return nil, err
	}
	return m, ctx.Err()
}

func (t target) newSession(graph *tf.Graph, config Config, rewrites *cpb.RewriterConfig) (*tf.Session, error) {
	options, err := t.sessionConfig(config, rewrites)
	if err != nil {
		return nil, err
	}
	session, err := tf.NewSession(graph, &tf.SessionOptions{Target: t.master, Config: options})
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return session, nil
}

// load imports the composed graph, and sets the variables that start at zero.
func (m *Model) load(ctx context.Context, graph *tf.Graph) error {
	def, err := m.plan.builder.Marshal()
	if err != nil {
		return fmt.Errorf("compose %s: %w", m.export.Path, err)
	}
	if err := graph.Import(def, ""); err != nil {
		return fmt.Errorf("compose %s: TensorFlow %s refuses the graph: %w", m.export.Path, tf.Version(), err)
	}
	for _, op := range graph.Operations() {
		m.ops[op.Name()] = &op
	}
	if _, err := m.run(ctx, nil, nil, m.ops[m.plan.init]); err != nil {
		return fmt.Errorf("prepare %s: %w", m.export.Path, err)
	}
	return nil
}

// Runtime implements Strategy.
func (m *Model) Runtime() Runtime { return m.runtime }

// DeviceError says that a device is not on this machine.
type DeviceError struct {
	Device string
	Have   []string
}

func (e *DeviceError) Error() string {
	if strings.Contains(strings.ToUpper(e.Device), "TPU:") {
		return fmt.Sprintf("device %q: %v", e.Device, devices.ErrTPU)
	}
	return fmt.Sprintf("there is no device %q; this machine has %s", e.Device, strings.Join(e.Have, ", "))
}

// Is reports whether the target is the error's class, fault.Usage.
func (e *DeviceError) Is(target error) bool { return target == fault.Usage }

// CountGPUs returns the number of GPUs that TensorFlow can use. It starts no session:
// the first one of a process decides about TensorFlow's threads.
func CountGPUs() int { return cuda.Count() }

// list returns the devices of the process.
func (t target) list(config Config) ([]tf.Device, error) {
	graph := tf.NewGraph()
	session, err := t.newSession(graph, config, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	// The graph's finalizer frees what the session refers to.
	defer runtime.KeepAlive(graph)
	devices, err := session.ListDevices()
	if err != nil {
		return nil, fmt.Errorf("list the devices: %w", err)
	}
	return devices, nil
}

// find returns the device of a name, or the one that TensorFlow takes where
// none is said. It returns a *DeviceError where there is no such device:
// TensorFlow would take another one without a word.
func find(devices []tf.Device, device string) (tf.Device, error) {
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
		e.Have = append(e.Have, shortName(d.Name))
	}
	return tf.Device{}, e
}

func shortName(device string) string { return device[strings.LastIndexByte(device, '/'):] }

// Close implements Strategy. A session with a call that does not end
// is left alone: closing it would not end either.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck {
		runtime.SetFinalizer(m.session, nil)
		return nil
	}
	return m.session.Close()
}

// GraphDef implements Strategy.
func (m *Model) GraphDef() ([]byte, error) { return m.plan.builder.Marshal() }

// Variables implements Strategy.
func (m *Model) Variables() []VariableSpec { return m.plan.variables }

// output returns an output of a node by the builder's "node:index" notation.
func (m *Model) output(ref string) tf.Output {
	name, index := ref, 0
	if i := strings.LastIndexByte(ref, ':'); i >= 0 {
		name = ref[:i]
		fmt.Sscan(ref[i+1:], &index)
	}
	return m.ops[name].Output(index)
}

func (m *Model) outputs(refs []string) []tf.Output {
	out := make([]tf.Output, len(refs))
	for i, ref := range refs {
		out[i] = m.output(ref)
	}
	return out
}

// run calls the session and keeps the memory of past calls' tensors bounded:
// the binding frees a tensor when Go's collector finds it dead, and the
// collector does not see its size.
func (m *Model) run(ctx context.Context, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets ...*tf.Operation) ([]*tf.Tensor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, err := m.call(ctx, feeds, fetches, targets)
	m.mu.Lock()
	m.pending++
	full := m.pending >= 256
	if full {
		m.pending = 0
	}
	m.mu.Unlock()
	if full {
		go runtime.GC()
	}
	return out, err
}

// call calls the session. A call that waits for a lost server is given up.
func (m *Model) call(ctx context.Context, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets []*tf.Operation) ([]*tf.Tensor, error) {
	if m.cluster == nil {
		return m.session.Run(feeds, fetches, targets)
	}
	type result struct {
		out []*tf.Tensor
		err error
	}
	done := make(chan result, 1)
	start := time.Now()
	go func() {
		out, err := m.session.Run(feeds, fetches, targets)
		done <- result{out, err}
	}()
	m.mu.Lock()
	limit := m.patience + 5*m.longest
	if m.longest == 0 {
		limit = 10 * m.patience
	}
	m.mu.Unlock()
	var late <-chan time.Time
	if m.patience > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case r := <-done:
		if r.err != nil {
			return nil, m.lost(r.err)
		}
		m.mu.Lock()
		m.longest = max(m.longest, time.Since(start))
		m.mu.Unlock()
		return r.out, nil
	case <-late:
		m.cluster.Fail(&SessionLostError{fmt.Errorf("no answer to a call for %v, while all workers are there: can they reach each other?", limit.Round(time.Second))})
	case <-m.cluster.Failed():
	case <-ctx.Done():
		m.cluster.Fail(ctx.Err())
	}
	select {
	case <-done:
	case <-time.After(lostGrace):
		m.mu.Lock()
		m.stuck = true
		m.mu.Unlock()
	}
	return nil, m.cluster.Err()
}

// lost returns the cluster's error where a server is lost: the session's own says
// little of it, and often comes first.
func (m *Model) lost(err error) error {
	if bad := shardinput.Find(err); bad != nil {
		return bad
	}
	if oom(err) {
		return err
	}
	select {
	case <-m.cluster.Failed():
		return m.cluster.Err()
	case <-time.After(lostGrace):
		if !unavailable(err) {
			return err
		}
		return &SessionLostError{err}
	}
}

// unavailable reports whether an error may come of a server or a connection that was
// lost, by the words that TensorFlow and gRPC use: the binding gives no codes.
func unavailable(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc([]string{"socket closed", "connection reset", "failed to connect", "unavailable", "collective ops is aborted",
		"aborted", "cancelled", "deadline exceeded", "end of file", "broken pipe"}, func(s string) bool { return strings.Contains(text, s) })
}

// lostGrace is how long an error that looks like a lost server waits for the cluster
// to name it, and a call of a lost cluster for its end.
const lostGrace = 5 * time.Second

// SessionLostError says that a session with other servers broke without any of them
// being known to be lost. A new session may go on.
type SessionLostError struct{ Err error }

func (e *SessionLostError) Error() string {
	return "the session with the workers broke: " + e.Err.Error()
}
func (e *SessionLostError) Unwrap() error { return e.Err }

// feed makes the feeds of the replicas' batches by their outputs.
func (m *Model) feed(p *feedPlan, batches ...[]Feature) (map[tf.Output]*tf.Tensor, error) {
	tensors, err := p.tensors(batches)
	if err != nil {
		return nil, err
	}
	feeds := make(map[tf.Output]*tf.Tensor, len(tensors)+2)
	for name, t := range tensors {
		feeds[m.output(name)] = t
	}
	return feeds, nil
}

// OutOfMemoryError says that a step did not fit in a device's memory and changed
// nothing.
type OutOfMemoryError struct{ Err error }

func (e *OutOfMemoryError) Error() string { return "out of memory: " + e.Err.Error() }
func (e *OutOfMemoryError) Unwrap() error { return e.Err }

// oom reports whether TensorFlow says that memory ran out. The binding gives its
// message alone, without the code, which is not always that of exhausted resources.
func oom(err error) bool { return outOfMemory.MatchString(err.Error()) }

var outOfMemory = regexp.MustCompile(`(?i)` + strings.Join([]string{
	"OOM when allocating",              // kernels
	"failed to allocate memory",        // kernels that MLIR makes for GPUs
	"failed to allocate request for",   // the executor's allocator
	"out of memory (while|allocating)", // XLA
	"unable to allocate output tensor", // copies between devices
	"Dst tensor is not initialized",    // copies to a GPU
	"failed to allocate (the )?scratch",
	"CUDA_ERROR_OUT_OF_MEMORY",
	"_STATUS_ALLOC_FAILED", // cuBLAS and its like
}, "|"))

// stepError returns an *OutOfMemoryError where memory ran out before any variable
// was changed: updates begin behind the count of iterations.
func (m *Model) stepError(ctx context.Context, err error) error {
	err = fmt.Errorf("training step: %w", err)
	if !oom(err) {
		return err
	}
	out, readErr := m.Read(ctx, m.export.Contract.Optimizer.Iterations)
	if readErr != nil || out[0].Value().(int64) != m.updates {
		return err
	}
	return &OutOfMemoryError{err}
}

// Steps implements Strategy. Every step is a call of the session, or of several where
// micro-batches are added up.
func (m *Model) Steps(ctx context.Context, steps []StepInput) ([]Result, error) {
	out := make([]Result, 0, len(steps))
	for _, in := range steps {
		r, err := m.oneStep(ctx, in)
		if err != nil {
			return out, err
		}
		out = append(out, *r)
	}
	return out, nil
}

func (m *Model) oneStep(ctx context.Context, in StepInput) (*Result, error) {
	local := m.plan.train != nil && m.plan.train.local != nil
	switch {
	case local && in.Drawn == nil:
		return nil, errors.New("the workers read the features themselves: a step is made of what MultiWorker.Draw gives")
	case local:
		return m.step(ctx, in.Drawn, in.Drawn.Accumulate, in.Seed, in.Scalars)
	case in.Drawn != nil:
		return nil, errors.New("the workers read no features themselves: a step is made of batches")
	case len(in.Batches) == 0 || len(in.Batches)%m.micro != 0:
		return nil, fmt.Errorf("%d micro-batches given; expected a multiple of %d, which are computed side by side", len(in.Batches), m.micro)
	}
	return m.step(ctx, fedBatches(in.Batches), len(in.Batches)/m.micro, in.Seed, in.Scalars)
}

// stepInput is what a step is made of.
type stepInput interface {
	// feeds makes those of one round of so many.
	feeds(m *Model, round, rounds int) (map[tf.Output]*tf.Tensor, error)
	// numbers lists what a feature holds, in any order.
	numbers(feature string) [][]int32
}

// fedBatches are micro-batches that are fed.
type fedBatches [][]Feature

func (b fedBatches) feeds(m *Model, round, _ int) (map[tf.Output]*tf.Tensor, error) {
	return m.feed(m.plan.train.feeds, b[round*m.micro:(round+1)*m.micro]...)
}

func (b fedBatches) numbers(feature string) [][]int32 {
	var out [][]int32
	for _, batch := range b {
		for _, f := range batch {
			if f.Name == feature {
				out = append(out, f.Int32)
			}
		}
	}
	return out
}

// step makes an update in one or more rounds.
func (m *Model) step(ctx context.Context, in stepInput, rounds int, seed [2]int64, scalars Scalars) (*Result, error) {
	p := m.plan.train
	if p == nil {
		return nil, fmt.Errorf("the graph was composed for evaluation only")
	}
	n := m.micro
	if _, ok := scalars["learning_rate"]; !ok {
		return nil, errors.New("the step has no learning_rate; expected one among its scalars")
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
	shared, err := newTensor(tf.Float, []int64{int64(len(values))}, raw(values))
	if err != nil {
		return nil, err
	}
	rows, err := p.rowFeeds(m.export.Contract, in)
	if err != nil {
		return nil, err
	}
	r := &Result{Sums: make(map[string][]float64, len(p.sums))}
	run := func(feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, target *tf.Operation) ([]*tf.Tensor, error) {
		start := time.Now()
		defer func() { r.InSession += time.Since(start) }()
		out, err := m.run(ctx, feeds, fetches, target)
		if err != nil {
			return nil, m.stepError(ctx, err)
		}
		return out, nil
	}
	clocks := make(tally, len(p.clocks))
	for k := range rounds {
		feeds, err := in.feeds(m, k, rounds)
		if err != nil {
			return nil, err
		}
		feeds[m.output(p.scalarFeed)] = shared
		var seeds []int64
		for i := range n {
			own := microSeed(seed, k*n+i)
			seeds = append(seeds, own[:]...)
		}
		if feeds[m.output(p.seeds)], err = newTensor(tf.Int64, []int64{int64(n), 2}, raw(seeds)); err != nil {
			return nil, err
		}
		fetches, done := slices.Concat(p.clocks, p.sumFetches), p.first
		switch {
		case rounds == 1:
			for name, t := range rows {
				feeds[m.output(name)] = t
			}
			fetches, done = slices.Concat(p.step.clocks, p.sumFetches, p.step.fetches), p.step.done
		case k > 0:
			done = p.next
		}
		out, err := run(feeds, m.outputs(fetches), m.ops[done])
		if err != nil {
			return nil, err
		}
		if out, err = clocks.take(out); err != nil {
			return nil, err
		}
		if err := r.add(p.sums, out[:len(p.sumFetches)]); err != nil {
			return nil, err
		}
		if rounds == 1 {
			m.decided(r, out[len(p.sumFetches):], clocks)
			return r, nil
		}
	}
	totals := []float32{float32(r.Sums["weight_sum"][0]), float32(r.Sums["loss_sum"][0])}
	feeds := map[tf.Output]*tf.Tensor{m.output(p.scalarFeed): shared}
	for name, t := range rows {
		feeds[m.output(name)] = t
	}
	if feeds[m.output(p.totals)], err = newTensor(tf.Float, []int64{2}, raw(totals)); err != nil {
		return nil, err
	}
	out, err := run(feeds, m.outputs(slices.Concat(p.apply.clocks, p.apply.fetches)), m.ops[p.apply.done])
	if err != nil {
		return nil, err
	}
	if out, err = clocks.take(out); err != nil {
		return nil, err
	}
	m.decided(r, out, clocks)
	return r, nil
}

// rowFeeds makes the feeds that say which rows of variables the batches touch.
func (p *trainPlan) rowFeeds(contract *graphs.Contract, in stepInput) (map[string]*tf.Tensor, error) {
	feeds := make(map[string]*tf.Tensor, 2*len(p.rows))
	for feature, feed := range p.rows {
		most := int32(0)
		for _, v := range contract.Variables {
			if v.Rows == feature {
				most = int32(v.Shape[0])
			}
		}
		seen := make([]uint64, most/64+1)
		for _, numbers := range in.numbers(feature) {
			for _, row := range numbers {
				// One that is outside is the lookup's to complain of.
				if row >= 0 && row < most {
					seen[row/64] |= 1 << (row % 64)
				}
			}
		}
		var rows []int32
		for i, word := range seen {
			for ; word != 0; word &= word - 1 {
				rows = append(rows, int32(64*i+bits.TrailingZeros64(word)))
			}
		}
		// Rows that are there twice are the same on both occasions.
		class, size := rowClass(len(rows))
		if len(rows) == 0 {
			rows = []int32{0}
		}
		for len(rows) < size {
			rows = append(rows, rows[len(rows)-1])
		}
		var err error
		if feeds[feed.rows], err = newTensor(tf.Int32, []int64{int64(size)}, raw(rows)); err == nil {
			feeds[feed.class], err = newTensor(tf.Int32, nil, raw([]int32{int32(class)}))
		}
		if err != nil {
			return nil, fmt.Errorf("rows of %s: %w", feature, err)
		}
	}
	return feeds, nil
}

// microSeed returns the seed of a micro-batch of a step. The first one's is the
// step's own; the others' are drawn from it and the number by SplitMix64.
func microSeed(seed [2]int64, i int) [2]int64 {
	if i == 0 {
		return seed
	}
	x := uint64(seed[0]) + uint64(i)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return [2]int64{int64(x ^ x>>31), seed[1]}
}

// add adds the sums of all replicas, those of one after those of the other.
func (r *Result) add(names []string, tensors []*tf.Tensor) error {
	for i, t := range tensors {
		name := names[i%len(names)]
		values, err := floats(t)
		if err != nil {
			return fmt.Errorf("output %s: %w", name, err)
		}
		sum := r.Sums[name]
		if sum == nil {
			r.Sums[name] = values
			continue
		}
		for j, v := range values {
			sum[j] += v
		}
	}
	return nil
}

// decided takes over what the step decided, and how long it took.
func (m *Model) decided(r *Result, out []*tf.Tensor, took tally) {
	m.took(took)
	r.GradientNorm = float64(out[0].Value().(float32))
	r.Applied = out[1].Value().(bool)
	r.Iterations = out[2].Value().(int64)
	m.updates = r.Iterations
}

// Evaluate implements Strategy.
func (m *Model) Evaluate(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return m.onReplica(ctx, m.plan.evaluate, features)
}

// Predict implements Strategy.
func (m *Model) Predict(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return m.onReplica(ctx, m.plan.predict, features)
}

// onReplica calls a function on the replica that has the fewest calls in flight.
func (m *Model) onReplica(ctx context.Context, plans []*callPlan, features []Feature) (map[string][]float64, error) {
	m.mu.Lock()
	replica := slices.Index(m.calls, slices.Min(m.calls))
	m.calls[replica]++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.calls[replica]--
		m.mu.Unlock()
	}()
	p := plans[replica]
	feeds, err := m.feed(p.feeds, features)
	if err != nil {
		return nil, err
	}
	out, err := m.run(ctx, feeds, m.outputs(p.fetches))
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

// Read implements Strategy.
func (m *Model) Read(ctx context.Context, names ...string) ([]*tf.Tensor, error) {
	fetches := make([]tf.Output, len(names))
	for i, name := range names {
		reads := m.plan.reads[name]
		if len(reads) == 0 {
			return nil, fmt.Errorf("no variable %s", name)
		}
		fetches[i] = m.output(reads[0])
	}
	out, err := m.run(ctx, nil, fetches)
	if err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	return out, nil
}

// Assign implements Strategy.
func (m *Model) Assign(ctx context.Context, values map[string]*tf.Tensor) error {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	feeds := make(map[tf.Output]*tf.Tensor, len(values))
	var targets []*tf.Operation
	for _, name := range names {
		a, ok := m.plan.assigns[name]
		if !ok {
			return fmt.Errorf("no variable %s", name)
		}
		spec := a.spec
		if t := values[name]; t.DataType() != spec.DType || !slices.Equal(t.Shape(), spec.Shape) && len(spec.Shape)+len(t.Shape()) > 0 {
			return fmt.Errorf("variable %s has shape %v, the value %v", name, spec.Shape, t.Shape())
		}
		feeds[m.output(a.value)] = values[name]
		targets = append(targets, m.ops[a.assign])
	}
	if _, err := m.run(ctx, feeds, nil, targets...); err != nil {
		return fmt.Errorf("assign variables: %w", err)
	}
	if t := values[m.export.Contract.Optimizer.Iterations]; t != nil {
		m.updates = t.Value().(int64)
	}
	return nil
}
