package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/tfserver"
)

const (
	// DefaultTimeout is how long a peer may be silent, and all of Connect may take.
	DefaultTimeout = time.Minute

	// MaxTimeout is the most that a timeout may be.
	MaxTimeout = time.Hour

	minTimeout = 100 * time.Millisecond
	// closeTime bounds Close.
	closeTime = 5 * time.Second
	// retry is the time between two attempts to reach a worker.
	retry = 200 * time.Millisecond
)

// GroupLeader is what a session on a cluster says in
// ConfigProto.experimental.collective_group_leader.
const GroupLeader = tfserver.Leader

// Config describes a cluster.
type Config struct {
	// Addresses are HOST:PORT of the workers, in the order of their tasks.
	Addresses []string
	// Timeout bounds Connect, and how long a worker may be silent afterwards; 0 is
	// DefaultTimeout.
	Timeout time.Duration
	Log     *slog.Logger
	// Version is that of the program, for a warning if a worker has another.
	Version string
	// IntraOpThreads and InterOpThreads are TensorFlow's thread pools on every worker that
	// has no number of its own; 0 is one thread per core.
	IntraOpThreads, InterOpThreads int
	// NoOneDNN turns oneDNN off on the workers.
	NoOneDNN bool
}

// Validate reports the first thing in the configuration that cannot be.
func (c Config) Validate() error {
	if n := len(c.Addresses); n == 0 || n > maxTasks {
		return fmt.Errorf("%d workers; 1 to %d can be", n, maxTasks)
	}
	seen := make(map[string]bool)
	for _, a := range c.Addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			return fmt.Errorf("worker %q is not HOST:PORT: %w", a, err)
		}
		if host == "" || port == "" || port == "0" {
			return fmt.Errorf("worker %q is not HOST:PORT", a)
		}
		if seen[a] {
			return fmt.Errorf("worker %s is there twice; one worker can have several devices (gorbit worker --devices)", a)
		}
		seen[a] = true
	}
	if c.Timeout != 0 && (c.Timeout < minTimeout || c.Timeout > MaxTimeout) {
		return fmt.Errorf("worker timeout %v; %v to %v can be", c.Timeout, minTimeout, MaxTimeout)
	}
	for _, n := range []int{c.IntraOpThreads, c.InterOpThreads} {
		if n < 0 || n > maxThreads {
			return fmt.Errorf("%d threads; 0 to %d can be", n, maxThreads)
		}
	}
	return nil
}

// Worker is a worker of a cluster.
type Worker struct {
	Address string
	// Devices are the names of its devices in the cluster's session, such as
	// /job:worker/replica:0/task:1/device:CPU:0.
	Devices      []string
	Instructions string // of the kernels: avx512, avx2 or generic
	NativeBF16   bool   // whether its CPU multiplies matrices of bfloat16
	NoBF16       string // why its TensorFlow cannot multiply them at all; "" if it can
	Gorbit       string
	TensorFlow   string
	Cores        int
	PID          int // the supervisor's
}

// Usage is what a worker's TensorFlow process last said that it uses.
type Usage struct {
	Address      string
	RSS, PeakRSS int64 // bytes
	CPU          time.Duration
	At           time.Time // when the chief heard it; zero if it has not yet
}

// Cluster is a session with all workers.
type Cluster struct {
	config Config
	log    *slog.Logger
	peers  []*peer
	relay  *relay
	pauses *pauses // of the chief

	// ctx ends what runs in the background.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	failed chan struct{}
	mu     sync.Mutex
	err    error
	done   bool // the run is over
	over   bool // Close has begun
	once   sync.Once
	closed error
}

// Connect starts a TensorFlow server on every worker. It waits for workers that are not
// there yet, or still busy, as long as the timeout lasts. A worker that fails is a
// *WorkerError, several are joined; a pause of this process is a *PausedError.
func Connect(ctx context.Context, config Config) (*Cluster, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{config: config, log: config.Log, failed: make(chan struct{}), pauses: newPauses(interval(config.Timeout), boottime)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.background.Go(func() { c.pauses.watch(c.ctx) })
	for i, address := range config.Addresses {
		c.peers = append(c.peers, &peer{cluster: c, task: i, worker: Worker{Address: address}, replies: make(chan message, 1)})
	}
	if err := c.connect(ctx); err != nil {
		_ = c.Close()
		if ctx.Err() == nil {
			err = c.blame(err)
		}
		return nil, err
	}
	return c, nil
}

func (c *Cluster) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	if err := c.each(ctx, (*peer).connect); err != nil {
		return err
	}
	c.compare()
	if err := c.sameNetwork(); err != nil {
		return err
	}
	if err := c.each(ctx, (*peer).reserve); err != nil {
		return err
	}
	servers := make([]string, len(c.peers))
	for i, p := range c.peers {
		servers[i] = p.server.String()
	}
	if err := c.each(ctx, func(p *peer, ctx context.Context) error { return p.start(ctx, servers) }); err != nil {
		return err
	}
	relay, err := newRelay(servers[0])
	if err != nil {
		return fmt.Errorf("reach the workers: %w", err)
	}
	c.mu.Lock()
	c.relay = relay
	c.mu.Unlock()
	for _, p := range c.peers {
		p.enter(PhaseRun)
	}
	// A failure up to here may have found no relay to tell.
	return c.Err()
}

// each does something with all workers at once. The first failure ends it for the
// others.
func (c *Cluster) each(ctx context.Context, do func(*peer, context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(c.peers))
	// One that has done its part may fail while others are waited for.
	go func() {
		select {
		case <-c.failed:
			cancel()
		case <-inner.Done():
		}
	}()
	var wg sync.WaitGroup
	for i, p := range c.peers {
		wg.Go(func() {
			if errs[i] = do(p, inner); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	var kept []error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			kept = append(kept, err)
		}
	}
	switch len(kept) {
	case 0:
		return c.Err()
	case 1:
		return kept[0]
	}
	return errors.Join(kept...)
}

// compare warns of differences that change results in their last digits.
func (c *Cluster) compare() {
	first := c.peers[0].worker
	for _, p := range c.peers {
		w := p.worker
		if c.config.Version != "" && w.Gorbit != c.config.Version {
			c.log.Warn("a worker has another version of gorbit; results may differ", "worker", w.Address, "version", w.Gorbit, "chief", c.config.Version)
		}
		if w.Instructions != first.Instructions {
			c.log.Warn("workers' kernels use different instructions and round differently; GORBIT_KERNELS on the workers chooses",
				"worker", w.Address, "instructions", w.Instructions, "first worker", first.Instructions)
		}
	}
}

// sameNetwork refuses workers of which some are told to others by an address that
// only their own machine knows.
func (c *Cluster) sameNetwork() error {
	var local, remote *peer
	for _, p := range c.peers {
		if p.server.Addr().IsLoopback() {
			local = p
		} else {
			remote = p
		}
	}
	if local == nil || remote == nil {
		return nil
	}
	return &WorkerError{
		Address: local.worker.Address, Phase: PhaseConnect,
		Err: &FailedError{Message: fmt.Sprintf("it is at a loopback address, where worker %s cannot reach it; start it with --listen and an address of this machine in their network", remote.worker.Address)},
	}
}

// Target is what a TensorFlow session of this process reaches all devices by. It leads to
// the server of the first worker. The session's configuration has GroupLeader. Calls of the
// session fail once the cluster has.
func (c *Cluster) Target() string { return "grpc://" + c.relay.addr() }

// Workers are the workers in the order of their tasks.
func (c *Cluster) Workers() []Worker {
	out := make([]Worker, len(c.peers))
	for i, p := range c.peers {
		out[i] = p.worker
	}
	return out
}

// Devices are the names of all workers' devices, in the order of their tasks.
func (c *Cluster) Devices() []string {
	var out []string
	for _, p := range c.peers {
		out = append(out, p.worker.Devices...)
	}
	return out
}

// GroupLeader is what a session on the cluster names as the leader of its collectives.
func (c *Cluster) GroupLeader() string { return GroupLeader }

// Failed is closed when a worker has failed.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Err is the first failure, a *WorkerError, a *PausedError or what Fail was given, or nil.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Fail gives the cluster up, if it has not failed before: calls of TensorFlow sessions on
// it end with this error, which nothing else can make them do. After a pause of this process
// that no worker waits for, the error is a *PausedError instead.
func (c *Cluster) Fail(err error) {
	if !errors.Is(err, context.Canceled) {
		err = c.blame(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.err != nil {
		return
	}
	c.err = err
	if c.relay != nil {
		c.relay.refuse(err.Error())
	}
	close(c.failed)
}

// closing reports whether Close has begun.
func (c *Cluster) closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Usage is what the workers last said that they use, in the order of their tasks.
func (c *Cluster) Usage() []Usage {
	out := make([]Usage, len(c.peers))
	for i, p := range c.peers {
		p.mu.Lock()
		out[i] = p.usage
		p.mu.Unlock()
		out[i].Address = p.worker.Address
	}
	return out
}

// Finish is Close at the end of a run: workers that serve one run end as well.
func (c *Cluster) Finish() error {
	c.mu.Lock()
	c.done = true
	c.mu.Unlock()
	return c.Close()
}

func (c *Cluster) isDone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// Close ends the session: every worker kills its TensorFlow process and listens for
// the next chief. It returns when all have done so, or after some seconds with those that did
// not say so. TensorFlow sessions on the cluster are to be closed before; a call of theirs
// that comes later waits without end.
func (c *Cluster) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		grace := min(closeTime, c.config.Timeout)
		errs := make([]error, len(c.peers))
		var wg sync.WaitGroup
		for i, p := range c.peers {
			wg.Go(func() { errs[i] = p.close(grace) })
		}
		wg.Wait()
		c.cancel()
		c.background.Wait()
		if c.relay != nil {
			c.relay.close()
		}
		c.closed = errors.Join(errs...)
	})
	return c.closed
}
