package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
)

const (
	// DefaultTimeout is the default time limit for Connect and for the silence of a peer.
	DefaultTimeout = time.Minute

	// MaxTimeout is the largest timeout.
	MaxTimeout = time.Hour

	minTimeout = 100 * time.Millisecond
	// closeTime limits Close.
	closeTime = 5 * time.Second
	// retry is the time between two attempts to reach a worker.
	retry = 200 * time.Millisecond
)

// GroupLeader is the value of ConfigProto.experimental.collective_group_leader for sessions with a
// cluster.
const GroupLeader = tfserver.Leader

// Config describes a cluster.
type Config struct {
	// Addresses are the HOST:PORT of the workers, in the order of their tasks.
	Addresses []string
	// Timeout limits Connect, and how long a worker may be silent afterwards; 0 means
	// DefaultTimeout.
	Timeout time.Duration
	Log     *slog.Logger
	// Version is the program's version. If a worker has another one, a warning is logged.
	Version string
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's thread pools on all
	// workers that do not set their own; 0 means one thread per core.
	IntraOpThreads, InterOpThreads int
	// NoOneDNN turns oneDNN off on the workers.
	NoOneDNN bool
	// Keys are for workers with keys; nil for workers without.
	Keys ClientKeys
	// Sockets is the folder in which workers of this machine have their sockets, as
	// SupervisorConfig.Sockets says; "" for workers that have ports.
	Sockets string
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	if n := len(c.Addresses); n == 0 || n > maxTasks {
		return fmt.Errorf("%d workers given; expected 1 to %d", n, maxTasks)
	}
	seen := make(map[string]bool)
	for _, a := range c.Addresses {
		if err := devices.CheckAddress(a); err != nil {
			return fmt.Errorf("worker %w", err)
		}
		if seen[devices.Canonical(a)] {
			return fmt.Errorf("worker %s is given twice; for several devices on one worker, use gorbit worker --devices", a)
		}
		seen[devices.Canonical(a)] = true
	}
	if c.Timeout != 0 && (c.Timeout < minTimeout || c.Timeout > MaxTimeout) {
		return fmt.Errorf("worker timeout is %v; expected %v to %v", c.Timeout, minTimeout, MaxTimeout)
	}
	for _, n := range []int{c.IntraOpThreads, c.InterOpThreads} {
		if n < 0 || n > devices.MostThreads {
			return fmt.Errorf("number of threads is %d; expected 0 to %d", n, devices.MostThreads)
		}
	}
	return checkSockets(c.Sockets, c.Keys != nil)
}

// Worker is a worker of a cluster.
type Worker struct {
	Address string
	// Devices are the names of its devices in a session with the cluster, such as
	// /job:worker/replica:0/task:1/device:CPU:0.
	Devices      []string
	Processor    string // its kind, such as amd64 or arm64; "" if the worker is older and does not say
	Instructions string // of the kernels: avx512, avx2, neon or generic
	NativeBF16   bool   // its CPU has native bfloat16 products
	NoBF16       string // why its TensorFlow has no bfloat16 products at all; "" if it has
	NoFP16       string // why its TensorFlow has no float16 products at all; "" if it has
	Gorbit       string
	TensorFlow   string
	Cores        int
	PID          int // the supervisor's
}

// Usage is the last reported resource usage of a worker's TensorFlow process.
type Usage struct {
	Address      string
	RSS, PeakRSS int64 // bytes
	CPU          time.Duration
	At           time.Time // when the chief received it; zero before that
}

// Cluster is the chief's session with all workers.
type Cluster struct {
	config Config
	log    *slog.Logger
	peers  []*peer
	relay  *relay
	lock   *lock   // nil without keys or sockets
	name   string  // of the session with keys
	pauses *pauses // of the chief

	// ctx ends the goroutines in the background.
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

// Connect starts a TensorFlow server on every worker. Until the timeout, it waits for workers that
// are not running yet or still busy. It returns a *WorkerError for a worker that fails (several are
// joined), and a *PausedError if this process was paused.
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
	if config.Keys != nil {
		c.name = newSessionID()
	}
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
		servers[i] = p.at()
	}
	if err := c.each(ctx, func(p *peer, ctx context.Context) error { return p.start(ctx, servers) }); err != nil {
		return err
	}
	if err := c.openRelay(); err != nil {
		return fmt.Errorf("reach the workers: %w", err)
	}
	for _, p := range c.peers {
		p.enter(PhaseRun)
	}
	// A failure before the relay was set has not been sent to it.
	return c.Err()
}

// openRelay makes the relay to the first worker's server.
func (c *Cluster) openRelay() error {
	var r *relay
	var l *lock
	var err error
	switch first := c.peers[0]; {
	case c.config.Keys != nil:
		r, l, err = privateRelay(first.passage().dial)
	case c.config.Sockets != "":
		r, l, err = privateRelay(func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", first.socket)
		})
	default:
		var listener net.Listener
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
			to := first.server.String()
			r = newRelay(listener, func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) })
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relay, c.lock = r, l
	return nil
}

// each calls do for all workers concurrently. The first failure cancels the other calls.
func (c *Cluster) each(ctx context.Context, do func(*peer, context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(c.peers))
	// A worker whose call has returned may fail while the others are still running.
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

// compare logs a warning about differences that change the last digits of results.
func (c *Cluster) compare() {
	first := c.peers[0].worker
	var processors, instructions []string
	for _, p := range c.peers {
		w := p.worker
		if c.config.Version != "" && w.Gorbit != c.config.Version {
			c.log.Warn("a worker has another version of gorbit; results may differ", "worker", w.Address, "version", w.Gorbit, "chief", c.config.Version)
		}
		switch {
		case w.Processor != first.Processor && w.Processor != "" && first.Processor != "":
			processors = append(processors, fmt.Sprintf("%s (%s)", w.Address, w.Processor))
		case w.Instructions != first.Instructions:
			instructions = append(instructions, fmt.Sprintf("%s (%s)", w.Address, w.Instructions))
		}
	}
	if len(processors) > 0 {
		c.log.Warn("the workers' processors are of different kinds and round differently, whatever GORBIT_KERNELS is; workers of one kind would end in other bits",
			"first worker", fmt.Sprintf("%s (%s)", first.Address, first.Processor), "others", strings.Join(processors, ", "))
	}
	if len(instructions) > 0 {
		c.log.Warn("the workers' kernels use different instructions and round differently; set GORBIT_KERNELS on the workers to use the same",
			"first worker", fmt.Sprintf("%s (%s)", first.Address, first.Instructions), "others", strings.Join(instructions, ", "))
	}
}

// sameNetwork returns an error if some workers have loopback addresses, which the other workers
// cannot reach.
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
		Err: &FailedError{Message: fmt.Sprintf("its address is a loopback address, which worker %s cannot reach; start it with --listen and an address of this machine in their network", remote.worker.Address)},
	}
}

// Target returns the target of a TensorFlow session with all devices. It leads to the server of the
// first worker. The session's configuration must set GroupLeader. Once the cluster has failed,
// calls of the session fail.
func (c *Cluster) Target() string {
	if c.lock != nil {
		return "grpc://" + c.lock.route.Address()
	}
	return "grpc://" + c.relay.addr()
}

// Workers returns the workers in the order of their tasks.
func (c *Cluster) Workers() []Worker {
	out := make([]Worker, len(c.peers))
	for i, p := range c.peers {
		out[i] = p.worker
	}
	return out
}

// Devices returns the names of all workers' devices, in the order of their tasks.
func (c *Cluster) Devices() []string {
	var out []string
	for _, p := range c.peers {
		out = append(out, p.worker.Devices...)
	}
	return out
}

// GroupLeader returns the leader of the collectives of a session with the cluster.
func (c *Cluster) GroupLeader() string { return GroupLeader }

// Failed is closed when a worker has failed.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Err returns the first failure: a *WorkerError, a *PausedError, the error given to Fail, or nil.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Fail makes the cluster fail if it has not failed before: calls of TensorFlow sessions with it end
// with this error. There is no other way to end them. If this process was paused for longer than
// the workers wait, the error is replaced by a *PausedError.
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

// Usage returns the workers' last reported usage, in the order of their tasks.
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

// Finish closes the cluster at the end of a run. Workers that serve only one run end as well.
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

// Close ends the session: every worker kills its TensorFlow process and listens for the next chief.
// Close returns when all have confirmed this, or after some seconds with errors for the others.
// TensorFlow sessions with the cluster must be closed before, because later calls of them hang.
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
		if c.lock != nil {
			c.lock.close()
		}
		c.closed = errors.Join(errs...)
	})
	return c.closed
}
