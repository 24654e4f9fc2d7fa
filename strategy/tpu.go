package strategy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/tfsession"
	"github.com/gorbit-ml/gorbit/tpu"
)

// TPU is a Model on the cores of a TPU. Every core has a replica, with all variables. All replicas
// run the same compiled program: a loop of training steps, an evaluation or a prediction. The shapes
// of its features are fixed by Config.Axes, and Config.MoreAxes if there are several.
type TPU struct {
	*Model
	program  sync.Mutex         // held while one runs
	compiled map[build.Ref]bool // the programs that have run, by their first output
	stop     func()             // ends the watch over the connection
	evaluate []gathering        // by shape
	predict  gathering
}

var _ Strategy = (*TPU)(nil)

// NewTPU composes the export's graph for the cores of a TPU that was started. Config.Axes is needed,
// and Config.StepsPerCall and Config.Replicas are used. Variables start as in NewOneDevice. The
// system must outlive the result, whose Close does not shut it down.
func NewTPU(ctx context.Context, export *graphs.Export, system *tpu.System, config Config) (*TPU, error) {
	p, err := composeTPU(export, system.Topology, system.Job, config)
	if err != nil {
		return nil, err
	}
	def, err := p.GraphDef()
	if err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	graph := tf.NewGraph()
	// The programs are optimized by the TPU's compiler.
	on, err := system.NewSession(graph, &cpb.ConfigProto{GraphOptions: &cpb.GraphOptions{RewriteOptions: &cpb.RewriterConfig{DisableMetaOptimizer: true}}})
	if err != nil {
		return nil, fmt.Errorf("start a session with the TPU at %s: %w", system.Peer(), err)
	}
	l := &lease{peer: system.Peer(), failed: make(chan struct{})}
	s, err := newRemote(on, l, tfsession.Config{Peer: system.Peer(), Log: config.Log}, config.Patience).load(graph, def)
	if err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	assignment, err := system.Topology.Assign(p.TPU.Evaluate.Feeds.Replicas)
	if err != nil {
		return nil, err
	}
	m := &TPU{Model: &Model{export: export, session: s, plan: p}, compiled: make(map[build.Ref]bool), evaluate: make([]gathering, 1+len(p.TPU.More))}
	watched, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	go l.watch(watched, system)
	m.runtime = Runtime{MicroBatches: len(assignment.Cores), StepsPerCall: 1, InFlight: 2 * len(assignment.Cores), OptimizerBytes: p.SlotBytes}
	for _, core := range assignment.Cores {
		m.runtime.Devices = append(m.runtime.Devices, core.Name(system.Job))
	}
	if t := p.TPU.Train; t != nil {
		m.runtime.StepsPerCall = t.Feeds.Steps
	}
	if _, err := s.run(ctx, nil, nil, p.Init); err != nil {
		m.Close()
		return nil, fmt.Errorf("prepare %s: %w", export.Path, err)
	}
	return m, ctx.Err()
}

// compileTimes is how many times as long as other calls one may take that compiles its program.
const compileTimes = 10

// run runs the program with these outputs. Its first call compiles it. The caller holds m.program.
func (m *TPU) run(ctx context.Context, feeds feedSet, fetches []build.Ref) ([]*tf.Tensor, error) {
	times := 1
	if !m.compiled[fetches[0]] {
		times = compileTimes
	}
	out, err := m.session.runSteps(ctx, times, feeds, fetches)
	if err == nil {
		m.compiled[fetches[0]] = true
	}
	return out, err
}

// Close implements Strategy. It does not shut the system down.
func (m *TPU) Close() error {
	m.stop()
	return m.Model.Close()
}

// lease is the connection with a TPU.
type lease struct {
	peer   string
	once   sync.Once
	failed chan struct{}
	err    error
}

// How often the server of a TPU is asked whether it is there, how often it may fail to answer in a row,
// and how long to wait before it is asked again.
const (
	watchEvery = 2 * time.Second
	watchMost  = 3
	watchAgain = 500 * time.Millisecond
)

// watch fails the lease if the server of the TPU is gone. A call would wait for it without an end.
func (l *lease) watch(ctx context.Context, system *tpu.System) {
	for failures, wait := 0, watchEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-l.failed:
			return
		case <-time.After(wait):
		}
		err := system.Probe(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures, wait = 0, watchEvery
			continue
		}
		if failures, wait = failures+1, watchAgain; failures == watchMost {
			l.Fail(&TPULostError{fmt.Errorf("%s: %w", l.peer, err)})
			return
		}
	}
}

// Failed implements connection.
func (l *lease) Failed() <-chan struct{} { return l.failed }

// Err implements connection.
func (l *lease) Err() error {
	select {
	case <-l.failed:
		return l.err
	default:
		return nil
	}
}

// Fail implements connection.
func (l *lease) Fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.failed)
	})
}

// lost implements judge. Every later call fails as well: what the variables hold is not known.
func (l *lease) lost(err error) error {
	if strings.Contains(err.Error(), "request was received twice") { // and the request, which is long
		l.Fail(&TPULostError{fmt.Errorf("%s: the connection was cut during a call, and whether its steps were made is not known", l.peer)})
		return l.err
	}
	if !unavailable(err) && !forgotten.MatchString(err.Error()) {
		return err
	}
	l.Fail(&TPULostError{fmt.Errorf("%s: %w", l.peer, err)})
	return l.err
}

// silent implements judge.
func (l *lease) silent(limit time.Duration) error {
	return &TPULostError{fmt.Errorf("%s: a call got no reply for %v; check the TPU with gorbit tpu describe", l.peer, limit.Round(time.Second))}
}
