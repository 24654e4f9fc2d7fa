package strategy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/internal/exec/tfsession"
)

// session is a TensorFlow session with one graph. It finds the graph's operations by name, and
// gives up calls that wait for a lost server.
type session struct {
	local   *tf.Session        // nil if there are other servers
	remote  *tfsession.Session // nil within one process
	graph   *tf.Graph
	ops     map[string]*tf.Operation
	cluster connection // nil within one process
	// patience limits calls, see Config.Patience.
	patience time.Duration

	path      string // of the export
	beginning sync.Mutex
	fills     map[string][]build.Ref // what the first call has to run, see Plan.Fills; nil after it

	mu      sync.Mutex
	kinds   map[string]bool // of calls that were made within one process
	first   *thread         // makes the first call of each kind; nil unless within one process
	pending int             // calls since the last garbage collection
	longest time.Duration   // the longest call so far
}

// connection is what a session knows of the servers that it runs on.
type connection interface {
	// Failed, Err and Fail are those of Cluster.
	Failed() <-chan struct{}
	Err() error
	Fail(error)
}

// judge is a connection that knows itself which errors mean that it is lost, and how to say that.
type judge interface {
	// lost returns an error that says so if the error of a call means that the connection is
	// lost, and the error itself otherwise.
	lost(err error) error
	// silent returns the error of a call that got no reply.
	silent(limit time.Duration) error
}

// newSession starts a session of a serialized GraphDef.
func newSession(t target, def []byte, config Config, rewrites *cpb.RewriterConfig) (*session, error) {
	graph := tf.NewGraph()
	on, err := newTFSession(t, graph, config, rewrites)
	if err != nil {
		return nil, err
	}
	if t.cluster != nil {
		// The cluster ends the calls when it fails.
		return newRemote(on, t.cluster, tfsession.Config{Grace: lostGrace, Log: config.Log}, config.Patience).load(graph, def)
	}
	s := &session{local: on, kinds: make(map[string]bool), first: newThread()}
	return s.load(graph, def)
}

// newRemote returns a session with other servers.
func newRemote(on *tf.Session, cluster connection, c tfsession.Config, patience time.Duration) *session {
	return &session{remote: tfsession.New(on, c), cluster: cluster, patience: patience}
}

// load imports a serialized GraphDef. It closes the session if that fails.
func (s *session) load(graph *tf.Graph, def []byte) (*session, error) {
	s.graph, s.ops = graph, make(map[string]*tf.Operation)
	if err := graph.Import(def, ""); err != nil {
		s.close()
		return nil, fmt.Errorf("TensorFlow %s rejects the graph: %w", tf.Version(), err)
	}
	for _, op := range graph.Operations() {
		s.ops[op.Name()] = &op
	}
	return s, nil
}

// extend adds nodes, whose inputs are outputs of the graph, and functions. No call may be made meanwhile.
func (s *session) extend(def *gpb.GraphDef) error {
	var options tf.GraphImportOptions
	for _, n := range def.GetNode() {
		for _, in := range n.GetInput() {
			node, number, _ := strings.Cut(in, ":")
			ref := build.Ref{Node: node}
			if number != "" {
				var err error
				if ref.Index, err = strconv.Atoi(number); err != nil {
					return fmt.Errorf("input %s of %s: %w", in, n.GetName(), err)
				}
			}
			to, err := s.output(ref)
			if err != nil {
				return err
			}
			options.AddInputMapping(ref.Node, ref.Index, to)
		}
	}
	content, err := proto.Marshal(def)
	if err != nil {
		return err
	}
	if err := s.graph.ImportWithOptions(content, options); err != nil {
		return fmt.Errorf("TensorFlow %s rejects more of the graph: %w", tf.Version(), err)
	}
	for _, n := range def.GetNode() {
		s.ops[n.GetName()] = s.graph.Operation(n.GetName())
	}
	return nil
}

// run feeds tensors to outputs, runs the target nodes and returns the fetched outputs.
//
// It also limits the memory of past calls' tensors: the binding frees a tensor when Go's garbage
// collector finds it unreachable, but the collector does not know its size.
func (s *session) run(ctx context.Context, feeds feedSet, fetches []build.Ref, targets ...build.Ref) ([]*tf.Tensor, error) {
	return s.runSteps(ctx, 1, feeds, fetches, targets...)
}

// runSteps is run for a call that makes several steps, and may take so many times as long.
func (s *session) runSteps(ctx context.Context, steps int, feeds feedSet, fetches []build.Ref, targets ...build.Ref) ([]*tf.Tensor, error) {
	if _, err := s.begin(ctx, nil, nil, nil); err != nil {
		return nil, err
	}
	return s.do(ctx, steps, feeds, fetches, targets)
}

// assign runs the targets, which set the variables of those names to what is fed.
func (s *session) assign(ctx context.Context, feeds feedSet, targets []build.Ref, names []string) error {
	done, err := s.begin(ctx, feeds, targets, names)
	if err == nil && !done {
		_, err = s.do(ctx, 1, feeds, nil, targets)
	}
	return err
}

// begin makes the first call, and reports whether this was it: it runs the targets, which set the
// variables of those names to what is fed, and sets all others to their first values. TensorFlow prepares
// the graph again for each kind of call: one for both makes a start shorter.
func (s *session) begin(ctx context.Context, feeds feedSet, targets []build.Ref, names []string) (bool, error) {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	if s.fills == nil {
		return false, nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.fills)) {
		if !slices.Contains(names, name) {
			targets = append(targets, s.fills[name]...)
		}
	}
	if len(targets) > 0 {
		if _, err := s.do(ctx, 1, feeds, nil, targets); err != nil {
			return true, fmt.Errorf("prepare %s: %w", s.path, err)
		}
	}
	s.fills = nil
	return true, nil
}

// do makes a call, on a thread of its own if it is the first of its kind.
func (s *session) do(ctx context.Context, steps int, feeds feedSet, fetches, targets []build.Ref) ([]*tf.Tensor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fed := make(map[tf.Output]*tf.Tensor, len(feeds))
	fetched := make([]tf.Output, len(fetches))
	done := make([]*tf.Operation, len(targets))
	var err error
	for ref, t := range feeds {
		var to tf.Output
		if to, err = s.output(ref); err != nil {
			return nil, fmt.Errorf("feed: %w", err)
		}
		fed[to] = t
	}
	for i, ref := range fetches {
		if fetched[i], err = s.output(ref); err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
	}
	for i, ref := range targets {
		if done[i], err = s.operation(ref); err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
	}
	call := func() ([]*tf.Tensor, error) { return s.call(ctx, steps, fed, fetched, done) }
	if first := s.newKind(feeds, fetches, targets); first != nil {
		call = first.making(call)
	}
	out, err := call()
	s.mu.Lock()
	s.pending++
	full := s.pending >= 256
	if full {
		s.pending = 0
	}
	s.mu.Unlock()
	if full {
		go runtime.GC()
	}
	return out, err
}

// newKind returns the thread that makes a call if there was none with the same feeds, fetches and
// targets. From now on there was.
func (s *session) newKind(feeds feedSet, fetches, targets []build.Ref) *thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		return nil
	}
	fed := slices.SortedFunc(maps.Keys(feeds), func(a, b build.Ref) int { return strings.Compare(a.String(), b.String()) })
	kind := fmt.Sprint(fed, fetches, targets)
	if s.kinds[kind] {
		return nil
	}
	s.kinds[kind] = true
	return s.first
}

// thread makes calls one at a time on a thread of the system. TensorFlow prepares a graph for each kind
// of call. Its oneDNN pass then looks for each operation in the list of all kernels, and remembers by
// thread what it found: on one thread that takes 7 % of a start, on several as much for each.
type thread struct {
	work chan func()
	quit chan struct{}
}

func newThread() *thread {
	t := &thread{make(chan func()), make(chan struct{})}
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		for {
			select {
			case f := <-t.work:
				f()
			case <-t.quit:
				return
			}
		}
	}()
	return t
}

// making returns a call that is made on the thread, or on any if the thread has ended.
func (t *thread) making(call func() ([]*tf.Tensor, error)) func() ([]*tf.Tensor, error) {
	return func() (out []*tf.Tensor, err error) {
		done := make(chan struct{})
		f := func() {
			defer close(done)
			out, err = call()
		}
		select {
		case t.work <- f:
			<-done
			return out, err
		case <-t.quit:
			return call()
		}
	}
}

// call runs the session. It gives up a call that waits for a lost server. Steps is how many times as
// long as other calls it may take.
func (s *session) call(ctx context.Context, steps int, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets []*tf.Operation) ([]*tf.Tensor, error) {
	run := func(on *tf.Session) ([]*tf.Tensor, error) { return runTraced(ctx, on, feeds, fetches, targets) }
	if s.remote == nil {
		return run(s.local)
	}
	if _, judges := s.cluster.(judge); judges && s.failed() {
		return nil, s.cluster.Err()
	}
	start := time.Now()
	waiting, stop := s.watch(ctx, s.limit(steps))
	defer stop()
	out, err := s.remote.Call(waiting, run)
	switch {
	case err == nil:
		s.mu.Lock()
		s.longest = max(s.longest, time.Since(start)/time.Duration(steps))
		s.mu.Unlock()
		return out, nil
	case waiting.Err() != nil:
		return nil, cmp.Or(s.cluster.Err(), err)
	}
	return nil, s.lost(err)
}

// limit returns how long a call of so many steps may take; 0 is no limit.
func (s *session) limit(steps int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.patience + 5*s.longest
	if _, judges := s.cluster.(judge); s.longest == 0 && !judges {
		limit = 10 * s.patience
	}
	if s.patience == 0 {
		return 0
	}
	return limit * time.Duration(steps)
}

// watch returns a context that ends when a call is to be given up: the cluster has failed. It fails it if
// the call takes longer than the limit, or its context ends. The function returned ends the watch.
func (s *session) watch(ctx context.Context, limit time.Duration) (context.Context, func()) {
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer giveUp()
		var late <-chan time.Time
		if limit > 0 {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-over:
		case <-late:
			s.cluster.Fail(s.silent(limit))
		case <-s.cluster.Failed():
		case <-ctx.Done():
			s.cluster.Fail(ctx.Err())
		}
	}()
	return waiting, func() { close(over) }
}

// silent returns the error of a call that got no reply.
func (s *session) silent(limit time.Duration) error {
	if own, ok := s.cluster.(judge); ok {
		return own.silent(limit)
	}
	return &SessionLostError{fmt.Errorf("a call got no reply for %v although all workers are up; check that they can reach each other", limit.Round(time.Second))}
}

// failed reports whether a server is lost.
func (s *session) failed() bool {
	if s.cluster == nil {
		return false
	}
	select {
	case <-s.cluster.Failed():
		return true
	default:
		return false
	}
}

// lost returns the cluster's error if a server is lost. The session's own error often comes first
// and says little.
func (s *session) lost(err error) error {
	if bad := shardinput.Find(err); bad != nil {
		return bad
	}
	if oom(err) {
		return err
	}
	if own, ok := s.cluster.(judge); ok {
		return own.lost(err)
	}
	select {
	case <-s.cluster.Failed():
		return s.cluster.Err()
	case <-time.After(lostGrace):
		if !unavailable(err) {
			return err
		}
		return &SessionLostError{err}
	}
}

// lostGrace is how long to wait for the cluster to report a lost server after an error that looks
// like one, and for a call to end after the cluster is lost.
const lostGrace = 5 * time.Second

// output returns an output of the graph.
func (s *session) output(ref build.Ref) (tf.Output, error) {
	op, err := s.operation(ref)
	switch {
	case err != nil:
		return tf.Output{}, err
	case ref.Index < 0 || ref.Index >= op.NumOutputs():
		return tf.Output{}, fmt.Errorf("%q is no output of the graph; operation %s has %d", ref, ref.Node, op.NumOutputs())
	}
	return op.Output(ref.Index), nil
}

// operation returns an operation of the graph.
func (s *session) operation(ref build.Ref) (*tf.Operation, error) {
	op, ok := s.ops[ref.Node]
	if !ok {
		return nil, fmt.Errorf("node %q not found in the graph", ref.Node)
	}
	return op, nil
}

// close frees the session. It leaves one behind whose servers do not answer.
func (s *session) close() error {
	if s.remote != nil {
		limit := closeTime
		if s.patience > 0 {
			limit = min(limit, s.patience)
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return s.remote.Close(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		close(s.first.quit)
		s.first = nil
	}
	return s.local.Close()
}

// closeTime is how long the servers may take to close a session.
const closeTime = 5 * time.Second
