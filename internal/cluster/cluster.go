package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

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

// GroupLeader is what a session on a fleet says in
// ConfigProto.experimental.collective_group_leader.
const GroupLeader = tfserver.Leader

// Config describes a fleet.
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

// Worker is a worker of a fleet.
type Worker struct {
	Address string
	// Devices are the names of its devices in the fleet's session, such as
	// /job:worker/replica:0/task:1/device:CPU:0.
	Devices      []string
	Instructions string // of the kernels: avx512, avx2 or generic
	NativeBF16   bool   // whether its CPU multiplies matrices of bfloat16
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

// Fleet is a session with all workers.
type Fleet struct {
	config Config
	log    *slog.Logger
	peers  []*peer
	relay  *relay

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
// *WorkerError, several are joined.
func Connect(ctx context.Context, c Config) (*Fleet, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{config: c, log: c.Log, failed: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for i, address := range c.Addresses {
		f.peers = append(f.peers, &peer{fleet: f, task: i, worker: Worker{Address: address}, replies: make(chan message, 1)})
	}
	if err := f.connect(ctx); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	if err := f.each(ctx, (*peer).connect); err != nil {
		return err
	}
	f.compare()
	if err := f.sameNetwork(); err != nil {
		return err
	}
	if err := f.each(ctx, (*peer).reserve); err != nil {
		return err
	}
	cluster := make([]string, len(f.peers))
	for i, p := range f.peers {
		cluster[i] = p.server.String()
	}
	if err := f.each(ctx, func(p *peer, ctx context.Context) error { return p.start(ctx, cluster) }); err != nil {
		return err
	}
	relay, err := newRelay(cluster[0])
	if err != nil {
		return fmt.Errorf("reach the workers: %w", err)
	}
	f.mu.Lock()
	f.relay = relay
	f.mu.Unlock()
	for _, p := range f.peers {
		p.enter(PhaseRun)
	}
	// A failure up to here may have found no relay to tell.
	return f.Err()
}

// each does something with all workers at once. The first failure ends it for the
// others.
func (f *Fleet) each(ctx context.Context, do func(*peer, context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(f.peers))
	// One that has done its part may fail while others are waited for.
	go func() {
		select {
		case <-f.failed:
			cancel()
		case <-inner.Done():
		}
	}()
	var wg sync.WaitGroup
	for i, p := range f.peers {
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
		return f.Err()
	case 1:
		return kept[0]
	}
	return errors.Join(kept...)
}

// compare warns of differences that change results in their last digits.
func (f *Fleet) compare() {
	first := f.peers[0].worker
	for _, p := range f.peers {
		w := p.worker
		if f.config.Version != "" && w.Gorbit != f.config.Version {
			f.log.Warn("a worker has another version of gorbit; results may differ", "worker", w.Address, "version", w.Gorbit, "chief", f.config.Version)
		}
		if w.Instructions != first.Instructions {
			f.log.Warn("workers' kernels use different instructions and round differently; GORBIT_KERNELS on the workers chooses",
				"worker", w.Address, "instructions", w.Instructions, "first worker", first.Instructions)
		}
	}
}

// sameNetwork refuses workers of which some are told to others by an address that
// only their own machine knows.
func (f *Fleet) sameNetwork() error {
	var local, remote *peer
	for _, p := range f.peers {
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
// session fail once the fleet has.
func (f *Fleet) Target() string { return "grpc://" + f.relay.addr() }

// Workers are the workers in the order of their tasks.
func (f *Fleet) Workers() []Worker {
	out := make([]Worker, len(f.peers))
	for i, p := range f.peers {
		out[i] = p.worker
	}
	return out
}

// Devices are the names of all workers' devices, in the order of their tasks.
func (f *Fleet) Devices() []string {
	var out []string
	for _, p := range f.peers {
		out = append(out, p.worker.Devices...)
	}
	return out
}

// GroupLeader is what a session on the fleet names as the leader of its collectives.
func (f *Fleet) GroupLeader() string { return GroupLeader }

// Failed is closed when a worker has failed.
func (f *Fleet) Failed() <-chan struct{} { return f.failed }

// Err is the first failure, a *WorkerError or what Fail was given, or nil.
func (f *Fleet) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Fail gives the fleet up, if it has not failed before: calls of TensorFlow sessions on
// it end with this error, which nothing else can make them do.
func (f *Fleet) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.err != nil {
		return
	}
	f.err = err
	if f.relay != nil {
		f.relay.refuse(err.Error())
	}
	close(f.failed)
}

// closing reports whether Close has begun.
func (f *Fleet) closing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// Usage is what the workers last said that they use, in the order of their tasks.
func (f *Fleet) Usage() []Usage {
	out := make([]Usage, len(f.peers))
	for i, p := range f.peers {
		p.mu.Lock()
		out[i] = p.usage
		p.mu.Unlock()
		out[i].Address = p.worker.Address
	}
	return out
}

// Finish is Close at the end of a run: workers that serve one run end as well.
func (f *Fleet) Finish() error {
	f.mu.Lock()
	f.done = true
	f.mu.Unlock()
	return f.Close()
}

func (f *Fleet) isDone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// Close ends the session: every worker kills its TensorFlow process and listens for
// the next chief. It returns when all have done so, or after some seconds with those that did
// not say so. TensorFlow sessions on the fleet are to be closed before; a call of theirs
// that comes later waits without end.
func (f *Fleet) Close() error {
	f.once.Do(func() {
		f.mu.Lock()
		f.over = true
		f.mu.Unlock()
		grace := min(closeTime, f.config.Timeout)
		errs := make([]error, len(f.peers))
		var wg sync.WaitGroup
		for i, p := range f.peers {
			wg.Go(func() { errs[i] = p.close(grace) })
		}
		wg.Wait()
		f.cancel()
		f.background.Wait()
		if f.relay != nil {
			f.relay.close()
		}
		f.closed = errors.Join(errs...)
	})
	return f.closed
}

// peer is the chief's side of a worker.
type peer struct {
	fleet  *Fleet
	task   int
	worker Worker
	conn   net.Conn
	link   *link
	server netip.AddrPort // of its TensorFlow server
	// replies are the messages that answer the chief's. reading is closed when no more
	// are read.
	replies chan message
	reading chan struct{}

	mu    sync.Mutex
	phase Phase
	since time.Time // of the phase
	last  time.Time // of the last message
	usage Usage
	gone  bool // nothing more is read
}

func (p *peer) enter(phase Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.since = phase, time.Now()
}

// wrap makes a *WorkerError of what went wrong in the present phase.
func (p *peer) wrap(err error) *WorkerError {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.since
	if p.phase == PhaseRun {
		since = p.last
	}
	return &WorkerError{Address: p.worker.Address, Phase: p.phase, Waited: time.Since(since), Err: err}
}

// connect reaches the worker and learns what it is.
func (p *peer) connect(ctx context.Context) error {
	begin := time.Now()
	var last *WorkerError
	told := false
	for {
		err := p.greet(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return context.Canceled
		}
		failure := p.wrap(err)
		failure.Waited = time.Since(begin)
		if !passing(err) {
			return failure
		}
		// An attempt that the end of the time cut off says less than the one before,
		// unless the worker kept it waiting.
		if ctx.Err() == nil || last == nil || failure.Phase == PhaseGreet {
			last = failure
		}
		if ctx.Err() != nil {
			last.Waited = failure.Waited
			return last
		}
		if !told {
			told = true
			p.fleet.log.Info("waiting for a worker", "worker", p.worker.Address, "reason", describe(err), "at most", p.fleet.config.Timeout)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// passing reports whether a worker that is started, or set free, may follow.
func passing(err error) bool {
	var version *VersionError
	var spoken *ProtocolError
	return !errors.As(err, &version) && !errors.As(err, &spoken)
}

func (p *peer) greet(ctx context.Context) error {
	p.enter(PhaseConnect)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.worker.Address)
	if err != nil {
		return err
	}
	p.enter(PhaseGreet)
	keep := false
	defer func() {
		if !keep {
			conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	deadline, _ := ctx.Deadline()
	l := newLink(conn, conn)
	mine := hello{Protocol: protocol, Gorbit: p.fleet.config.Version, TensorFlow: tf.Version(), TimeoutMillis: p.fleet.config.Timeout.Milliseconds()}
	if err := l.write(message{Hello: &mine}, deadline); err != nil {
		return err
	}
	m, err := l.read(deadline)
	if errors.Is(err, net.ErrClosed) {
		return os.ErrDeadlineExceeded
	}
	if err != nil {
		return err
	}
	if m.Busy != nil {
		return &BusyError{Peer: m.Busy.Peer, Since: m.Busy.Since}
	}
	if m.Hello == nil {
		return &ProtocolError{Err: errors.New("no hello")}
	}
	h := m.Hello
	if h.Protocol != protocol {
		return &VersionError{What: "protocol", Chief: protocol, Worker: h.Protocol}
	}
	if h.TensorFlow != mine.TensorFlow {
		return &VersionError{What: "TensorFlow", Chief: mine.TensorFlow, Worker: h.TensorFlow}
	}
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	keep = true
	p.conn, p.link = conn, l
	p.server = netip.AddrPortFrom(at.Addr().Unmap(), 0)
	p.worker.Instructions, p.worker.Gorbit, p.worker.TensorFlow = h.Instructions, h.Gorbit, h.TensorFlow
	p.worker.NativeBF16, p.worker.Cores, p.worker.PID = h.BF16, h.Cores, h.PID
	p.reading = make(chan struct{})
	p.fleet.background.Go(p.read)
	p.fleet.background.Go(p.beat)
	return nil
}

// read hears the worker until its end.
func (p *peer) read() {
	defer close(p.reading)
	err := p.hear()
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	if err != nil {
		p.fleet.Fail(p.wrap(err))
	}
	// The worker waits until its last words were read.
	p.conn.Close()
}

func (p *peer) hear() error {
	for {
		m, err := p.link.read(time.Now().Add(p.fleet.config.Timeout))
		if err != nil {
			return err
		}
		p.heard(m.Beat)
		switch {
		case m.Beat != nil:
		case m.Failed != nil:
			return &FailedError{Message: m.Failed.Message, Final: m.Failed.Final, Tail: m.Failed.Tail}
		case m.Bye != nil && p.fleet.closing():
			return nil
		case m.Reserved != nil, m.Started != nil:
			select {
			case p.replies <- m:
			default:
				return &ProtocolError{Err: errors.New("an answer to no question")}
			}
		default:
			return &ProtocolError{Err: errors.New("a message that is not for a chief now")}
		}
	}
}

// heard notes that the worker is alive, and what it uses.
func (p *peer) heard(b *beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.last = now
	if b != nil && b.RSS > 0 {
		p.usage = Usage{RSS: b.RSS, PeakRSS: b.PeakRSS, CPU: time.Duration(b.CPUMillis) * time.Millisecond, At: now}
	}
}

// beat tells the worker that the chief is alive.
func (p *peer) beat() {
	timeout := p.fleet.config.Timeout
	tick := time.NewTicker(interval(timeout))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// A worker that does not read is found by its silence.
			if p.link.write(message{Beat: new(beat)}, time.Now().Add(timeout)) != nil {
				return
			}
		case <-p.reading:
			return
		case <-p.fleet.ctx.Done():
			return
		}
	}
}

// ask sends a message and waits for the answer.
func (p *peer) ask(ctx context.Context, phase Phase, m message) (message, error) {
	p.enter(phase)
	deadline, _ := ctx.Deadline()
	if err := p.link.write(m, deadline); err != nil {
		select {
		case <-p.reading: // it may have said why
		case <-ctx.Done():
		}
		return message{}, p.why(err)
	}
	select {
	case answer := <-p.replies:
		return answer, nil
	case <-p.reading:
		return message{}, p.why(errors.New("it closed the connection"))
	case <-p.fleet.failed:
		// Another worker's failure is the reason, unless it is this one's.
		return message{}, p.why(context.Canceled)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return message{}, context.Canceled
		}
		return message{}, p.wrap(os.ErrDeadlineExceeded)
	}
}

// why returns the fleet's failure if there is one, else err of this worker's.
func (p *peer) why(err error) error {
	if first := p.fleet.Err(); first != nil {
		var w *WorkerError
		if errors.As(first, &w) && w.Address != p.worker.Address {
			return context.Canceled
		}
		return first
	}
	return p.wrap(err)
}

func (p *peer) reserve(ctx context.Context) error {
	m, err := p.ask(ctx, PhaseReserve, message{Reserve: &reserve{NoOneDNN: p.fleet.config.NoOneDNN}})
	if err != nil {
		return err
	}
	if m.Reserved == nil {
		return p.wrap(&ProtocolError{Err: errors.New("no port")})
	}
	p.server = netip.AddrPortFrom(p.server.Addr(), uint16(m.Reserved.Port))
	return nil
}

func (p *peer) start(ctx context.Context, cluster []string) error {
	m, err := p.ask(ctx, PhaseStart, message{Start: &start{
		Cluster: cluster, Task: p.task,
		IntraOpThreads: p.fleet.config.IntraOpThreads, InterOpThreads: p.fleet.config.InterOpThreads,
	}})
	if err != nil {
		return err
	}
	if m.Started == nil {
		return p.wrap(&ProtocolError{Err: errors.New("no devices")})
	}
	p.worker.Devices = m.Started.Devices
	return nil
}

// close ends the session with the worker within the time given.
func (p *peer) close(grace time.Duration) error {
	if p.conn == nil {
		return nil
	}
	defer p.conn.Close()
	p.mu.Lock()
	gone := p.gone
	p.mu.Unlock()
	if gone {
		return nil // has failed, which is known
	}
	p.enter(PhaseClose)
	deadline := time.Now().Add(grace)
	if err := p.link.write(message{Bye: &bye{Done: p.fleet.isDone()}}, deadline); err != nil {
		return p.wrap(err)
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-p.reading:
		return nil // it is done, or has failed meanwhile, which ends its child too
	case <-timer.C:
		return p.wrap(os.ErrDeadlineExceeded)
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
