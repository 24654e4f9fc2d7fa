package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
)

// A cluster with keys is locked. TensorFlow's servers and clients then use Unix sockets in folders
// that only their user may enter, and what they send each other goes through relays: from the
// socket, over mutual TLS to the port of the other worker, to the socket of its server. On that port
// the protocol inside of TLS says what a connection is for.
const (
	talkProtocol   = "gorbit-worker"     // messages, as without keys
	streamProtocol = "gorbit-tensorflow" // an open message, then what TensorFlow sends
)

// ClientKeys are the keys of a chief; *peertls.Keys has the methods, and those of a worker.
type ClientKeys interface {
	Client(ctx context.Context, conn net.Conn, host, protocol string) (*tls.Conn, error)
	Explain(err error) error
}

// secure makes a connection to a worker one of TLS. host is the worker's as the user knows it.
func secure(ctx context.Context, keys ClientKeys, conn net.Conn, host, protocol string) (*tls.Conn, error) {
	c, err := keys.Client(ctx, conn, host, protocol)
	if ended(err) {
		err = &peertls.Error{Reason: "it closed the connection before it gave a certificate", Advice: "check its log, and that it is gorbit worker with the same keys", Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		err = os.ErrDeadlineExceeded
	}
	return c, err
}

// passage is how to connect to the server of a worker of a locked session.
type passage struct {
	keys    ClientKeys
	address string // IP:PORT of the worker
	host    string // the name or address that its certificate is for
	session string
}

// dial connects to the worker's server.
func (p passage) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	c, err := secure(ctx, p.keys, conn, p.host, streamProtocol)
	if err == nil {
		err = newLink(c, c).write(message{Open: &open{Session: p.session}}, time.Now().Add(greeting))
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return stream{c}, nil
}

// stream is a connection of TensorFlow inside of TLS.
type stream struct{ *tls.Conn }

// Close closes the connection at once. That of tls.Conn waits where the other side does not read.
func (s stream) Close() error { return s.NetConn().Close() }

// buffered is a connection of which some was read ahead.
type buffered struct {
	net.Conn
	buf io.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.buf.Read(p) }

// lock is what a chief without ports has in a session in addition to its connections to the
// workers.
type lock struct {
	folder *folder
	route  *tfserver.Route
}

// privateRelay returns a relay to the first worker's server that only this user can use, and what it
// needs. TensorFlow's sessions reach it by the lock's route.
func privateRelay(dial func(context.Context) (net.Conn, error)) (*relay, *lock, error) {
	f, err := newFolder()
	if err != nil {
		return nil, nil, err
	}
	l := &lock{folder: f}
	if l.route, err = tfserver.NewRoute(socket(f.path, 0)); err != nil {
		l.close()
		return nil, nil, err
	}
	listener, err := net.Listen("unix", socket(f.path, 0))
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return newRelay(listener, dial), l, nil
}

func (l *lock) close() {
	if l.route != nil {
		l.route.Close()
	}
	l.folder.remove()
}

// gate is the way into the TensorFlow server of a worker's locked session, and its ways out to the
// other workers.
type gate struct {
	session string
	folder  *folder
	dir     string // the folder's path
	conns   *conns
	relays  []*relay
	// broken receives a failure that ends the session.
	broken chan error
}

func newGate(session string) (*gate, error) {
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	return &gate{session: session, folder: f, dir: f.path, conns: newConns(), broken: make(chan error, 1)}, nil
}

// reach makes a socket for each of the other workers' servers, with a relay that leads there.
func (g *gate) reach(keys ClientKeys, s *start) error {
	for task, address := range s.Cluster {
		if task == s.Task {
			continue
		}
		listener, err := net.Listen("unix", socket(g.dir, task))
		if err != nil {
			return err
		}
		to := passage{keys: keys, address: address, host: s.Names[task], session: g.session}
		g.relays = append(g.relays, newRelay(listener, func(ctx context.Context) (net.Conn, error) {
			conn, err := to.dial(ctx)
			// That a worker is gone is for the chief to find. What keys lack stays so.
			if wrong := (*peertls.Error)(nil); errors.As(err, &wrong) && !ended(wrong.Err) {
				select {
				case g.broken <- fmt.Errorf("it cannot reach worker %s: %s; %s", net.JoinHostPort(to.host, portOf(to.address)), wrong.Reason, wrong.Advice):
				default:
				}
			}
			return conn, err
		}))
	}
	return nil
}

func portOf(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	return strconv.Itoa(int(at.Port()))
}

// close ends all connections.
func (g *gate) close() {
	g.conns.close()
	for _, r := range g.relays {
		r.close()
	}
	g.folder.remove()
}

// admit answers the TLS of a connection to a locked worker. It returns nil if the connection was
// refused, and then has said why.
func (s *Supervisor) admit(ctx context.Context, conn halfCloser) *tls.Conn {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	c, err := s.config.Keys.Server(ctx, conn, talkProtocol, streamProtocol)
	if err == nil {
		return c
	}
	peer := conn.RemoteAddr().String()
	var header tls.RecordHeaderError
	var wrong *peertls.Error
	switch {
	case errors.As(err, &header) && header.RecordHeader[0] == '{':
		s.warn("rejected a chief without keys; start it with this worker's --token-file", "peer", peer)
		s.last(conn, newLink(conn, conn), message{Failed: &failed{Message: "the worker takes connections with TLS only; start the training with its --token-file (or --tls-cert, --tls-key and --tls-ca)", Final: true}})
	case errors.As(err, &header), !errors.As(err, &wrong):
		s.log.Debug("rejected a connection that does not speak TLS", "peer", peer, "error", err)
	default:
		s.warn("rejected a connection with other keys", "peer", peer, "reason", wrong.Reason, "advice", wrong.Advice)
		drain(conn, conn) // the other side is to read why
	}
	return nil
}

// refuseTLS tells a chief with keys that this worker has none, if that is what greeted.
func (s *Supervisor) refuseTLS(conn halfCloser, l *link, err error) bool {
	const handshake = "\x16\x03" // the first bytes of a TLS client
	var spoken *ProtocolError
	if !errors.As(err, &spoken) || !strings.HasPrefix(spoken.Got, handshake) {
		return false
	}
	s.warn("rejected a connection with TLS; this worker was started without keys", "peer", conn.RemoteAddr().String())
	s.last(conn, l, message{Failed: &failed{Message: "the worker was started without keys", Final: true}})
	return true
}

// warn logs a warning about what anybody can cause: not more than one in a while.
func (s *Supervisor) warn(text string, args ...any) {
	s.mu.Lock()
	quiet := time.Since(s.warned) < reportInterval
	if !quiet {
		s.warned = time.Now()
	}
	s.mu.Unlock()
	if quiet {
		s.log.Debug(text, args...)
		return
	}
	s.log.Warn(text, args...)
}

// forward serves a connection from another TensorFlow of the session.
func (s *Supervisor) forward(conn *tls.Conn) {
	l := newLink(conn, conn)
	m, err := l.read(time.Now().Add(greeting))
	peer := conn.RemoteAddr().String()
	if err != nil || m.Open == nil {
		s.log.Debug("a peer did not say which session it is of", "peer", peer, "error", err)
		return
	}
	s.mu.Lock()
	g := s.gate
	s.mu.Unlock()
	if g == nil || g.session != m.Open.Session {
		s.log.Debug("a peer of a session that is over", "peer", peer)
		return
	}
	s.arrivals.remove(conn.NetConn())
	from := buffered{stream{conn}, l.buf}
	if conn.SetDeadline(time.Time{}) != nil || !g.conns.keep(from) {
		return
	}
	server, err := net.Dial("unix", ownSocket(g.dir))
	if err != nil || !g.conns.keep(server) {
		g.conns.drop(from)
		if err == nil {
			server.Close()
		}
		return
	}
	g.conns.join(from, server)
}

// setGate gives the worker's port to a session, or to none.
func (s *Supervisor) setGate(g *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = g
}

// newSessionID returns a name for a session that no other has.
func newSessionID() string { return rand.Text() }
