package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/devices"
	"github.com/gorbit-ml/gorbit/internal/kernels"
)

const (
	// greeting is how long a chief may take for its first message.
	greeting = 10 * time.Second
	// linger is how long a connection stays open after a failure was told, so that
	// it is read.
	linger = 500 * time.Millisecond
	// maxGreetings bounds the connections that have not said who they are.
	maxGreetings = 64
)

// SupervisorConfig describes a worker.
type SupervisorConfig struct {
	// Listen is HOST:PORT. No host is 127.0.0.1; all addresses of the machine are
	// 0.0.0.0. Port 0 is any free one.
	Listen string
	// Devices is what package devices reads.
	Devices string
	// Threads is how many threads an operation may use, in place of what a chief says;
	// 0 leaves it to the chief.
	Threads int
	// Version is that of the program.
	Version string
	// Child are the arguments, the program's name first, with which the program calls
	// the function Child.
	Child []string
	// Once ends Serve when a chief has said that its run is over.
	Once bool
	// Log is the supervisor's log, and ChildLog takes what children print.
	Log      *slog.Logger
	ChildLog io.Writer
}

// Validate reports the first thing in the configuration that cannot be.
func (c SupervisorConfig) Validate() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen address: %w", err)
	}
	if _, err := devices.Parse(c.Devices); err != nil {
		return err
	}
	if c.Threads < 0 || c.Threads > maxThreads {
		return fmt.Errorf("%d threads; 0 to %d can be", c.Threads, maxThreads)
	}
	if len(c.Child) == 0 {
		return errors.New("no arguments for the child")
	}
	return nil
}

// Supervisor is a worker: it listens for chiefs and serves one at a time.
type Supervisor struct {
	config   SupervisorConfig
	devices  devices.Spec
	listener net.Listener
	end      context.CancelFunc // of Serve
	host     netip.Addr
	log      *slog.Logger
	hello    hello

	greetings chan struct{}
	sessions  sync.WaitGroup

	mu      sync.Mutex
	current *busy
	taken   int // how often the place was taken
}

// Listen begins to listen. Chiefs are answered once Serve runs.
func Listen(c SupervisorConfig) (*Supervisor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.ChildLog == nil {
		c.ChildLog = io.Discard
	}
	if err := kernels.Register(); err != nil {
		return nil, err
	}
	spec, err := devices.Parse(c.Devices)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		listener.Close()
		return nil, err
	}
	return &Supervisor{
		config: c, devices: spec, listener: listener, host: at.Addr().Unmap(), log: c.Log,
		hello: hello{
			Protocol: protocol, Gorbit: c.Version, TensorFlow: tf.Version(), Instructions: kernels.Instructions(), BF16: devices.NativeBF16(), NoBF16: devices.NoBF16(),
			Devices: spec.String(), PID: os.Getpid(), Cores: runtime.NumCPU(),
		},
		greetings: make(chan struct{}, maxGreetings),
	}, nil
}

// Addr is where chiefs find the worker.
func (s *Supervisor) Addr() string { return s.listener.Addr().String() }

// Serve serves chiefs until the context ends. No child is left when it returns.
func (s *Supervisor) Serve(ctx context.Context) error {
	defer s.sessions.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.end = cancel
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	defer s.listener.Close()
	for {
		conn, err := s.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			// Files or memory ran out, which passes.
			s.log.Warn("cannot accept a connection", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case s.greetings <- struct{}{}:
			s.sessions.Go(func() { s.greet(ctx, conn.(*net.TCPConn)) })
		default:
			conn.Close()
		}
	}
}

// greet finds out whether a connection is a chief's and whether there is a place
// for it.
func (s *Supervisor) greet(ctx context.Context, conn *net.TCPConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	peer := conn.RemoteAddr().String()
	l := newLink(conn, conn)
	m, err := l.read(time.Now().Add(greeting))
	<-s.greetings
	switch {
	case !stop():
		return
	case err != nil || m.Hello == nil:
		s.log.Debug("a connection that is not a chief's", "peer", peer, "error", err)
		return
	case m.Hello.Protocol != protocol:
		s.log.Warn("a chief of another protocol was refused", "peer", peer, "protocol", m.Hello.Protocol)
		s.last(conn, l, message{Hello: &s.hello})
		return
	}
	now := busy{Peer: peer, Since: time.Now().UTC().Truncate(time.Second)}
	if other := s.take(&now); other != nil {
		s.log.Debug("a second chief was told to wait", "peer", peer, "busy with", other.Peer)
		s.last(conn, l, message{Busy: other})
		return
	}
	s.log.Info("a chief connected", "peer", peer)
	begin := time.Now()
	end := newSession(s, l, m.Hello).run(ctx)
	s.free()
	s.log.Info("the session is over, listening again", "peer", peer, "reason", end.reason, "lasted", time.Since(begin).Round(time.Millisecond))
	if end.say != nil {
		s.last(conn, l, *end.say)
	}
	if end.done && s.config.Once {
		s.end()
	}
}

// take gives the place to a chief, or returns who has it.
func (s *Supervisor) take(b *busy) *busy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return s.current
	}
	s.current = b
	s.taken++
	return nil
}

func (s *Supervisor) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

// last sends a last message and keeps the connection until it was read: closing one
// that has unread input throws away what was sent.
func (s *Supervisor) last(conn *net.TCPConn, l *link, m message) {
	deadline := time.Now().Add(linger)
	if l.write(m, deadline) != nil || conn.CloseWrite() != nil {
		return
	}
	if conn.SetReadDeadline(deadline) == nil {
		_, _ = io.Copy(io.Discard, l.buf)
	}
}

// childEnv is the environment of a child: this one's with oneDNN as the chief has
// it, and without proxies, which gRPC would send the workers' talk to.
func childEnv(noOneDNN bool) []string {
	var out []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "tf_enable_onednn_opts":
		default:
			out = append(out, v)
		}
	}
	on := "1"
	if noOneDNN {
		on = "0"
	}
	return append(out, "TF_ENABLE_ONEDNN_OPTS="+on)
}
