package strategy

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/gorbit-ml/gorbit/graphs"
	_ "github.com/gorbit-ml/gorbit/internal/exec/altstack" // for signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/exec/reclaim"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Model is a Strategy that holds all replicas in one graph and runs it in one session.
type Model struct {
	export  *graphs.Export
	session *session
	plan    *compose.Plan
	runtime Runtime
	updates int64          // the last known count of iterations
	loops   int64          // calls of several steps so far
	probes  map[int]*probe // that Diagnose has added, by replica
	logits  []float32      // what NextLogits gave, for the next call to use again

	stop func() // ends what runs beside the session; nil if nothing does

	mu    sync.Mutex
	calls []int   // evaluations and predictions in flight, by replica
	times []Times // by replica; empty if there is only one
}

var _ Strategy = (*Model)(nil)

// newModel composes the graph and starts a session that runs it.
func newModel(ctx context.Context, export *graphs.Export, t target, config Config) (*Model, error) {
	if err := registerOps(t, t.kernels(export, config), config); err != nil {
		return nil, err
	}
	p, config, err := composeFor(export, t, config)
	if err != nil {
		return nil, err
	}
	if p.FileBytes > 0 {
		if err := checkSpace(config, p.FileBytes); err != nil {
			return nil, err
		}
	}
	if config.OffloadAll {
		reclaim.LargeBlocks() // gradients in memory, which are there for a moment
	}
	def, err := p.GraphDef()
	if err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	s, err := newSession(t, def, config, graphRewrites(p, len(t.devices)))
	if err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	m := &Model{export: export, session: s, plan: p, calls: make([]int, len(p.Predict)), runtime: newRuntime(t, p, config)}
	if config.OffloadAll {
		end := make(chan struct{})
		m.stop = sync.OnceFunc(func() { close(end) })
		go keepFewMapped(end)
	}
	if p.Train != nil {
		m.times = make([]Times, len(p.Train.Clocks))
	}
	if t.cluster == nil {
		s.path, s.fills = export.Path, p.Fills // Assign is the first call, as a rule
	} else if _, err := s.run(ctx, nil, nil, p.Init); err != nil {
		m.Close()
		return nil, fmt.Errorf("prepare %s: %w", export.Path, err)
	}
	return m, ctx.Err()
}

// kernels reports whether the graph uses our kernels.
func (t target) kernels(export *graphs.Export, config Config) bool {
	return t.own && !config.StandardOps && !export.Contract.XLA // XLA does not know our operations
}

// composeFor composes the graph for a target, and returns the configuration with the threads for it.
func composeFor(export *graphs.Export, t target, config Config) (*compose.Plan, Config, error) {
	p, err := compose.Compose(export, compose.Layout{
		Local:    (*shardinput.Data)(config.LocalInput),
		Devices:  t.devices,
		Train:    config.Functions == FunctionsTrain,
		Generate: config.Generate,
		Own:      t.kernels(export, config),
		Shard:    (config.ShardOptimizer || t.shared) && len(t.devices) > 1,
		Shared:   t.shared,
		Offload:  config.Offload,
		Whole:    config.OffloadAll,
		Bucket:   cmp.Or(config.BucketBytes, DefaultBucketBytes),
		Hint:     cmp.Or(t.hint, "auto"),
		Steps:    config.StepsPerCall,
		Factors:  config.factors(),
		Average:  config.averages(),

		Together: config.together,
	})
	if err == nil && len(p.Kernels) > 0 && config.InterOpThreads == 0 {
		// The graph is now a chain of operations that each use all cores. Running
		// two at a time makes both slower.
		config.InterOpThreads = 1
	}
	return p, config, err
}

// registerOps registers the operations that the graph may use with TensorFlow. Those of package
// internal/exec/kernels are included if own is set.
func registerOps(t target, own bool, config Config) error {
	if own {
		if err := kernels.Register(); err != nil {
			return err
		}
		update := config.IntraOpThreads
		if t.shared {
			update *= len(t.devices)
		}
		kernels.Threads(config.IntraOpThreads, update)
	}
	if config.LocalInput != nil {
		return shardinput.Register()
	}
	return nil
}

// newRuntime describes what a plan runs on.
func newRuntime(t target, p *compose.Plan, config Config) Runtime {
	r := Runtime{Devices: t.devices, MicroBatches: len(t.devices), StepsPerCall: 1, InFlight: 2 * len(t.devices),
		IntraOpThreads: config.IntraOpThreads, InterOpThreads: config.InterOpThreads, OptimizerBytes: p.SlotBytes, OffloadedBytes: p.FileBytes}
	if t.names != nil {
		r.Devices = t.names
	}
	if p.Loop != nil {
		r.StepsPerCall = p.Loop.Steps
	}
	if t.shared {
		r.InFlight = len(t.devices)
	}
	if len(p.Kernels) > 0 {
		r.Kernels = kernels.Instructions()
		r.LongRows = p.LongRows()
	}
	return r
}

// Runtime implements Strategy.
func (m *Model) Runtime() Runtime { return m.runtime }

// GraphDef implements Strategy.
func (m *Model) GraphDef() ([]byte, error) { return m.plan.GraphDef() }

// Close implements Strategy. A session with other servers that do not answer is left behind.
func (m *Model) Close() error {
	if m.stop != nil {
		m.stop()
	}
	return m.session.close()
}
