package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
)

// peer is the chief's side of a worker.
type peer struct {
	cluster *Cluster
	task    int
	worker  Worker
	conn    net.Conn
	link    *link
	server  netip.AddrPort // of its TensorFlow server; of the worker itself where there are keys
	socket  string         // of its TensorFlow server, which then has no other address
	// replies are the worker's replies. reading is closed when no more messages are read.
	replies chan message
	reading chan struct{}

	mu    sync.Mutex
	phase Phase
	since time.Time // of the phase
	last  time.Time // of the last message
	usage Usage
	gone  bool // no more messages are read
}

func (p *peer) enter(phase Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.since = phase, time.Now()
}

// wrap returns a *WorkerError for an error in the current phase.
func (p *peer) wrap(err error) *WorkerError {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.since
	if p.phase == PhaseRun {
		since = p.last
	}
	return &WorkerError{Address: p.worker.Address, Phase: p.phase, Waited: time.Since(since), Err: err}
}

// connect connects to the worker and exchanges versions.
func (p *peer) connect(ctx context.Context) error {
	begin := time.Now()
	deadline, _ := ctx.Deadline()
	var last *WorkerError
	told := false
	for {
		attempt := time.Now()
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
		// An attempt that is cut off by the timeout says less than the one before, unless
		// it waited for long. That the worker is busy is always the better reason.
		cut := ctx.Err() != nil || !time.Now().Before(deadline)
		busy := (*BusyError)(nil)
		if last == nil || !cut || !errors.As(last, &busy) && time.Since(attempt) > p.cluster.config.Timeout/2 {
			last = failure
		}
		if cut {
			last.Waited = failure.Waited
			return last
		}
		if !told {
			told = true
			p.cluster.log.Info("waiting for a worker", "worker", p.worker.Address, "reason", describe(err), "timeout", p.cluster.config.Timeout)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// passing reports whether an error may go away once the worker is started or free.
func passing(err error) bool {
	var version *VersionError
	var spoken *ProtocolError
	var told *FailedError
	var keys *peertls.Error
	if errors.As(err, &keys) {
		return ended(keys.Err)
	}
	return !errors.As(err, &version) && !errors.As(err, &spoken) && !errors.As(err, &told)
}

func (p *peer) greet(ctx context.Context) error {
	p.enter(PhaseConnect)
	raw, err := dialWorker(ctx, p.cluster.config.Sockets, p.worker.Address)
	if err != nil {
		return err
	}
	var conn net.Conn = raw
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
	if keys := p.cluster.config.Keys; keys != nil {
		c, err := secure(ctx, keys, conn, p.host(), talkProtocol)
		if err != nil {
			return err
		}
		conn, l = c, newLink(c, c)
	}
	mine := hello{Protocol: protocol, Gorbit: p.cluster.config.Version, TensorFlow: tf.Version(), TimeoutMillis: p.cluster.config.Timeout.Milliseconds()}
	if err := l.write(message{Hello: &mine}, deadline); err != nil {
		return err
	}
	m, err := l.read(deadline)
	if errors.Is(err, net.ErrClosed) {
		return os.ErrDeadlineExceeded
	}
	if keys := p.cluster.config.Keys; keys != nil {
		err = keys.Explain(err) // only now does the worker say that it does not accept the chief's
	}
	if err != nil {
		return err
	}
	if m.Failed != nil {
		return m.Failed.err()
	}
	if m.Busy != nil {
		return &BusyError{Peer: m.Busy.Peer, Since: m.Busy.Since}
	}
	if m.Hello == nil {
		return &ProtocolError{Err: errors.New("expected a hello message")}
	}
	h := m.Hello
	if h.Protocol != protocol {
		return &VersionError{What: "protocol", Chief: protocol, Worker: h.Protocol}
	}
	if h.TensorFlow != mine.TensorFlow {
		return &VersionError{What: "TensorFlow", Chief: mine.TensorFlow, Worker: h.TensorFlow}
	}
	if p.cluster.config.Sockets == "" {
		at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err != nil {
			return err
		}
		p.server = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	keep = true
	p.conn, p.link = conn, l
	p.worker.Processor, p.worker.Instructions, p.worker.Gorbit, p.worker.TensorFlow = h.Processor, h.Instructions, h.Gorbit, h.TensorFlow
	p.worker.NativeBF16, p.worker.NoBF16, p.worker.NoFP16, p.worker.Cores, p.worker.PID = h.BF16, h.NoBF16, h.NoFP16, h.Cores, h.PID
	p.reading = make(chan struct{})
	p.cluster.background.Go(p.read)
	p.cluster.background.Go(p.beat)
	return nil
}

// read reads the worker's messages until the session ends.
func (p *peer) read() {
	defer close(p.reading)
	err := p.hear()
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	if err != nil {
		p.cluster.Fail(p.wrap(err))
	}
	// The worker waits until its last message was read.
	p.conn.Close()
}

func (p *peer) hear() error {
	for {
		m, err := p.link.await(p.cluster.config.Timeout, p.cluster.pauses)
		if err != nil {
			return err
		}
		p.heard(m.Beat)
		switch {
		case m.Beat != nil:
		case m.Failed != nil:
			return m.Failed.err()
		case m.Bye != nil && p.cluster.closing():
			return nil
		case m.Reserved != nil, m.Started != nil:
			select {
			case p.replies <- m:
			default:
				return &ProtocolError{Err: errors.New("unexpected reply")}
			}
		default:
			return &ProtocolError{Err: errors.New("unexpected message")}
		}
	}
}

// heard records that the worker is alive, and its usage.
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
	timeout := p.cluster.config.Timeout
	tick := time.NewTicker(interval(timeout))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// A worker that does not read is detected by its silence.
			if p.link.write(message{Beat: new(beat)}, time.Now().Add(timeout)) != nil {
				return
			}
		case <-p.reading:
			return
		case <-p.cluster.ctx.Done():
			return
		}
	}
}

// ask sends a message and waits for the reply.
func (p *peer) ask(ctx context.Context, phase Phase, m message) (message, error) {
	p.enter(phase)
	deadline, _ := ctx.Deadline()
	if err := p.link.write(m, deadline); err != nil {
		select {
		case <-p.reading: // it may have sent the reason
		case <-ctx.Done():
		}
		return message{}, p.why(err)
	}
	select {
	case answer := <-p.replies:
		return answer, nil
	case <-p.reading:
		return message{}, p.why(errors.New("it closed the connection"))
	case <-p.cluster.failed:
		// Usually another worker has failed.
		return message{}, p.why(context.Canceled)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return message{}, context.Canceled
		}
		return message{}, p.wrap(os.ErrDeadlineExceeded)
	}
}

// why returns the cluster's failure if there is one, else err as a failure of this worker.
func (p *peer) why(err error) error {
	if first := p.cluster.Err(); first != nil {
		var w *WorkerError
		if errors.As(first, &w) && w.Address != p.worker.Address {
			return context.Canceled
		}
		return first
	}
	return p.wrap(err)
}

func (p *peer) reserve(ctx context.Context) error {
	m, err := p.ask(ctx, PhaseReserve, message{Reserve: &reserve{NoOneDNN: p.cluster.config.NoOneDNN, Session: p.cluster.name}})
	if err != nil {
		return err
	}
	if m.Reserved == nil {
		return p.wrap(&ProtocolError{Err: errors.New("expected a port")})
	}
	switch c := p.cluster.config; {
	case (c.Sockets != "") != (m.Reserved.Socket != ""):
		return p.wrap(&ProtocolError{Err: errors.New("expected a socket from a worker with --sockets, and a port from others")})
	case c.Sockets != "":
		p.socket = m.Reserved.Socket
	case c.Keys == nil:
		p.server = netip.AddrPortFrom(p.server.Addr(), uint16(m.Reserved.Port))
	}
	return nil
}

func (p *peer) start(ctx context.Context, servers []string) error {
	var names []string
	if p.cluster.config.Keys != nil {
		for _, other := range p.cluster.peers {
			names = append(names, other.host())
		}
	}
	m, err := p.ask(ctx, PhaseStart, message{Start: &start{
		Cluster: servers, Names: names, Task: p.task,
		IntraOpThreads: p.cluster.config.IntraOpThreads, InterOpThreads: p.cluster.config.InterOpThreads,
	}})
	if err != nil {
		return err
	}
	if m.Started == nil {
		return p.wrap(&ProtocolError{Err: errors.New("expected devices")})
	}
	p.worker.Devices = m.Started.Devices
	return nil
}

// at returns the address of the worker's server in the messages of the protocol.
func (p *peer) at() string {
	if p.socket != "" {
		return unixPrefix + p.socket
	}
	return p.server.String()
}

// host returns the worker's name or address without the port.
func (p *peer) host() string {
	host, _, err := net.SplitHostPort(p.worker.Address)
	if err != nil {
		return p.worker.Address
	}
	return host
}

// passage returns how to connect to the worker's server in a locked session.
func (p *peer) passage() passage {
	return passage{keys: p.cluster.config.Keys, address: p.server.String(), host: p.host(), session: p.cluster.name}
}

// close ends the session with the worker within the given time.
func (p *peer) close(grace time.Duration) error {
	if p.conn == nil {
		return nil
	}
	defer p.conn.Close()
	p.mu.Lock()
	gone := p.gone
	p.mu.Unlock()
	if gone {
		return nil // has failed and was reported
	}
	p.enter(PhaseClose)
	deadline := time.Now().Add(grace)
	if err := p.link.write(message{Bye: &bye{Done: p.cluster.isDone()}}, deadline); err != nil {
		return p.wrap(err)
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-p.reading:
		return nil // it is done, or has failed, which also ends its child
	case <-timer.C:
		return p.wrap(os.ErrDeadlineExceeded)
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
