package strategy

import (
	"fmt"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Cluster is a group of TensorFlow servers that work together. It must not change, and must
// outlive the model.
type Cluster interface {
	// Target is the address of the server that a session is made with, such as
	// "grpc://localhost:2222".
	Target() string
	// GroupLeader is the task that coordinates the groups of collectives.
	GroupLeader() string
	// Devices returns the full names of the replicas' devices.
	Devices() []string
	// Failed is closed when a server is lost. Err then returns the reason, and calls of the
	// session end soon after.
	Failed() <-chan struct{}
	Err() error
	// Fail makes the cluster fail with an error.
	Fail(error)
}

// target describes where a model runs.
type target struct {
	devices []string // of the replicas
	names   []string // of the devices as shown to users; nil means devices
	shared  bool     // the replicas are lanes of one device
	cpus    int      // virtual CPU devices of the process; 0 means one
	virtual int      // virtual devices to split the only GPU into; 0 means one
	hint    string   // how collectives communicate; "" means TensorFlow's choice
	master  string   // address of the session's master; "" means this process
	leader  string   // coordinates the groups of collectives; "" within a process
	own     bool     // all devices are CPUs, so our kernels can be used
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

// newTFSession starts a session that runs a graph.
func newTFSession(t target, graph *tf.Graph, config Config, rewrites *cpb.RewriterConfig) (*tf.Session, error) {
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

// graphRewrites returns what TensorFlow's graph optimizer does with a graph. It turns off what takes a
// fifth of the CPU time at start-up and changes no result and makes no step faster: another optimizer
// over the graph, and passes for memory and shapes. If the graph uses our kernels, one round of the
// passes that are left does. Arithmetic would put the sums of three and more replicas, which are made
// two at a time, into one AddN, whose order depends on the schedule.
//
// Programs are for XLA to optimize: other passes would put operations into them that XLA does not know.
// But functions must be inlined. XLA otherwise takes all inputs of one for constants, and compiles
// again for each value, if one output is the shape of something.
func graphRewrites(p *compose.Plan, replicas int) *cpb.RewriterConfig {
	if p.Programs {
		return &cpb.RewriterConfig{Optimizers: []string{"function"}}
	}
	r := &cpb.RewriterConfig{
		DisableTfgOptimizer: true,
		ShapeOptimization:   cpb.RewriterConfig_OFF,
		MemoryOptimization:  cpb.RewriterConfig_NO_MEM_OPT,
	}
	if replicas > 2 {
		r.ArithmeticOptimization = cpb.RewriterConfig_OFF
	}
	if len(p.Kernels) > 0 {
		r.MetaOptimizerIterations = cpb.RewriterConfig_ONE
		r.Remapping = cpb.RewriterConfig_OFF
		r.ConstantFolding = cpb.RewriterConfig_OFF
		r.ArithmeticOptimization = cpb.RewriterConfig_OFF
		r.LayoutOptimizer = cpb.RewriterConfig_OFF
		r.LoopOptimization = cpb.RewriterConfig_OFF
		r.ImplementationSelector = cpb.RewriterConfig_OFF
	}
	return r
}
