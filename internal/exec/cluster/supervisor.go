package cluster

import (
	"cmp"
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

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
)

const (
	// greeting is the time limit for a chief's first message.
	greeting = 10 * time.Second
	// linger is how long a connection stays open after the last message, so that the chief
	// can read it.
	linger = 500 * time.Millisecond
	// maxGreetings limits the connections that have not sent their first message.
	maxGreetings = 64
)

// SupervisorConfig describes a worker.
type SupervisorConfig struct {
	// Listen is HOST:PORT. The default host is 127.0.0.1; 0.0.0.0 means all addresses of the
	// machine. Port 0 means any free port.
	Listen string
	// Devices are the devices to lend, in the form of package devices.
	Devices string
	// Threads is the number of threads per operation. It overrides the chief's setting; 0
	// leaves that.
	Threads int
	// Version is the version of the program.
	Version string
	// Child are the arguments, the program's name first, with which the program calls the
	// function Child.
	Child []string
	// Keys lock the worker: who has no keys that match gets no reply. nil means that everybody who
	// can connect may use the worker.
	Keys *peertls.Keys
	// Sockets is a folder that only this user may enter. The worker then has no port, but a Unix
	// socket in this folder, of which Listen is the name. "" means a port.
	Sockets string
	// Once ends Serve when a chief has finished its run.
	Once bool
	// Log is the supervisor's log. ChildLog receives the output of children.
	Log      *slog.Logger
	ChildLog io.Writer
}

// Validate returns an error that names the first invalid field.
func (c SupervisorConfig) Validate() error {
	check := devices.CheckListen
	if c.Sockets != "" {
		check = devices.CheckAddress // it is a name that the chief knows
	}
	if err := check(c.Listen); err != nil {
		return fmt.Errorf("listen %w", err)
	}
	if _, err := devices.Parse(c.Devices); err != nil {
		return err
	}
	if c.Threads < 0 || c.Threads > devices.MostThreads {
		return fmt.Errorf("number of threads is %d; expected 0 to %d", c.Threads, devices.MostThreads)
	}
	if len(c.Child) == 0 {
		return errors.New("no arguments for the child")
	}
	return checkSockets(c.Sockets, c.Keys != nil)
}

// listen returns a listener on the worker's address, and that address.
func (c SupervisorConfig) listen() (net.Listener, string, error) {
	if c.Sockets != "" {
		path, err := workerSocket(c.Sockets, c.Listen)
		if err != nil {
			return nil, "", err
		}
		l, err := listenSocket(path)
		return l, c.Listen, err
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, "", err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return nil, "", err
	}
	return l, l.Addr().String(), nil
}

// Supervisor is a worker: it listens for chiefs and serves one at a time.
type Supervisor struct {
	config   SupervisorConfig
	devices  devices.Spec
	listener net.Listener
	end      context.CancelFunc // of Serve
	address  string             // that chiefs know it by
	host     netip.Addr         // of a worker with a port
	log      *slog.Logger
	hello    hello

	arrivals arrivals
	sessions sync.WaitGroup

	mu      sync.Mutex
	current *busy
	gate    *gate     // of the current session, if it is locked
	warned  time.Time // of what anybody can cause
	taken   int       // number of sessions so far
}

// Listen starts to listen. Serve answers the chiefs.
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
	listener, address, err := c.listen()
	if err != nil {
		return nil, err
	}
	var host netip.Addr
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		host = at.AddrPort().Addr().Unmap()
	}
	return &Supervisor{
		config: c, devices: spec, listener: listener, address: address, host: host, log: c.Log,
		hello: hello{
			Protocol: protocol, Gorbit: c.Version, TensorFlow: tf.Version(), Processor: runtime.GOARCH, Instructions: kernels.Instructions(), BF16: devices.NativeBF16(), NoBF16: devices.NoBF16(), NoFP16: devices.NoFP16(),
			Devices: spec.String(), PID: os.Getpid(), Cores: runtime.NumCPU(),
		},
	}, nil
}

// Addr returns the address that the worker listens on.
func (s *Supervisor) Addr() string { return s.address }

// Serve serves chiefs until the context ends. When it returns, all children have ended.
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
			// Out of files or memory, which is temporary.
			s.log.Warn("cannot accept a connection", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		s.arrivals.add(conn)
		s.sessions.Go(func() { s.greet(ctx, conn.(halfCloser)) })
	}
}

// greet checks whether a connection is from a chief, and serves it if the worker is free.
func (s *Supervisor) greet(ctx context.Context, raw halfCloser) {
	defer raw.Close()
	defer s.arrivals.remove(raw)
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	if s.config.Keys == nil {
		s.listen(ctx, raw, raw, stop)
		return
	}
	conn := s.admit(ctx, raw)
	if conn == nil {
		return
	}
	if conn.ConnectionState().NegotiatedProtocol == streamProtocol {
		s.forward(conn)
		return
	}
	s.listen(ctx, raw, conn, stop)
}

// halfCloser is a connection that can say that it sends no more.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// listen reads the greeting on a connection and serves the chief if the worker is free. raw is what
// conn is over. stop ends the closing of the connection with the context.
func (s *Supervisor) listen(ctx context.Context, raw, conn halfCloser, stop func() bool) {
	peer := peerOf(raw)
	l := newLink(conn, conn)
	m, err := l.read(time.Now().Add(greeting))
	s.arrivals.remove(raw)
	switch {
	case !stop():
		return
	case s.config.Keys == nil && s.refuseTLS(raw, l, err):
		return
	case err != nil || m.Hello == nil:
		s.log.Debug("rejected a connection that is not from a chief", "peer", peer, "error", err)
		return
	case m.Hello.Protocol != protocol:
		s.log.Warn("rejected a chief with another protocol", "peer", peer, "protocol", m.Hello.Protocol)
		s.last(conn, l, message{Hello: &s.hello})
		return
	}
	now := busy{Peer: peer, Since: time.Now().UTC().Truncate(time.Second)}
	if other := s.take(&now); other != nil {
		s.log.Debug("told a second chief to wait", "peer", peer, "busy with", other.Peer)
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

// take assigns the worker to a chief. It returns the current chief if the worker is busy.
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

// last sends a last message and keeps the connection open until it was read: closing a connection
// with unread input discards the data sent.
func (s *Supervisor) last(conn halfCloser, l *link, m message) {
	if l.write(m, time.Now().Add(linger)) == nil {
		drain(conn, l.buf)
	}
}

// drain says that no more is sent, and reads and drops what still comes on a connection.
func drain(conn halfCloser, from io.Reader) {
	if conn.CloseWrite() == nil && conn.SetReadDeadline(time.Now().Add(linger)) == nil {
		_, _ = io.Copy(io.Discard, from)
	}
}

// childEnv returns the environment of a child: that of this process with the chief's oneDNN
// setting, and without proxies, which gRPC would use between the workers.
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
