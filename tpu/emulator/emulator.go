package emulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
	"github.com/gorbit-ml/gorbit/tpu"
)

// DefaultAbandoned is how long a session lives without a client, if a Config does not say.
const DefaultAbandoned = 2 * time.Minute

// Config describes an emulator.
type Config struct {
	// Topology of the TPU that is emulated.
	Topology *tpu.Topology
	// Backend is HOST:PORT of TensorFlow's server that computes, see StartBackend. With Apart it is
	// that of this host, see StartHost.
	Backend string
	// Apart says that each host of the topology is an emulator of its own. Host is the number of
	// this one. The first answers the clients, the others compute.
	Apart bool
	Host  int
	// Fault is what goes wrong.
	Fault Fault
	// Abandoned is how long a session and its variables live after the last connection of
	// its client ended; 0 is DefaultAbandoned.
	Abandoned time.Duration
	// Log takes a line for each session; nil is none.
	Log *slog.Logger
}

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	switch {
	case c.Topology == nil:
		return errors.New("no topology")
	case c.Apart && (c.Host < 0 || c.Host >= c.Topology.Tasks):
		return fault.Usagef("number of the host is %d; expected 0 to %d", c.Host, c.Topology.Tasks-1)
	case c.Abandoned < 0:
		return fault.Usagef("time after which a session is abandoned is %v; expected more than 0", c.Abandoned)
	}
	_, err := c.Fault.plan()
	return err
}

// StartBackend starts TensorFlow's server for an emulator in this process, on this machine's
// loopback, and returns its address. It ends with the process.
func StartBackend(t *tpu.Topology) (string, error) {
	host := netip.MustParseAddr("127.0.0.1")
	port, release, err := tfserver.Reserve(host)
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(host.String(), strconv.Itoa(port))
	_, err = tfserver.Start(tfserver.Config{Cluster: []string{address}, Host: host,
		CPUs: layout{hosts: t.Tasks, cores: t.DevicesPerTask}.cpus()})
	return address, errors.Join(err, release())
}

// StartHost is StartBackend for one of several hosts that are emulators of their own. Peers are the
// addresses, IP:PORT, at which the servers of all hosts compute for each other, in order.
func StartHost(t *tpu.Topology, peers []string, host int) (string, error) {
	if len(peers) != t.Tasks {
		return "", fault.Usagef("%d peers given; expected %d, an address for each host", len(peers), t.Tasks)
	}
	for _, peer := range peers {
		if at, err := netip.ParseAddrPort(peer); err != nil || at.Port() == 0 {
			return "", fault.Usagef("peer is %q; expected IP:PORT, such as 127.0.0.1:9470", peer)
		}
	}
	if host < 0 || host >= t.Tasks {
		return "", fault.Usagef("number of the host is %d; expected 0 to %d", host, t.Tasks-1)
	}
	_, err := tfserver.Start(tfserver.Config{Cluster: peers, Task: host, Host: netip.MustParseAddrPort(peers[host]).Addr(),
		CPUs: layout{hosts: t.Tasks, cores: t.DevicesPerTask, apart: true}.cpus()})
	return peers[host], err
}

// Emulator is a master service.
type Emulator struct {
	apart    bool
	host     int
	topology *tpu.Topology
	answer   *tpu.Topology // of ConfigureDistributedTPU
	plan     plan
	log      *slog.Logger
	backend  *grpc.ClientConn
	sessions *sessions
	conns    *conns
	away     chan struct{}  // has one if the TPU is preempted
	freeing  sync.WaitGroup // sessions of the server behind
}

// New makes an emulator.
func New(c Config) (*Emulator, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("TPU emulator: %w", err)
	}
	if c.Backend == "" {
		return nil, errors.New("TPU emulator: no address of a server that computes")
	}
	e := &Emulator{apart: c.Apart, host: c.Host, topology: c.Topology, answer: c.Topology, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), away: make(chan struct{}, 1)}
	var err error
	if e.plan, err = c.Fault.plan(); err != nil {
		return nil, err
	}
	if e.plan.kind == Mismatch {
		if e.answer, err = ParseTopology("1x1x1x1", 1); err != nil {
			return nil, err
		}
	}
	e.sessions = &sessions{abandoned: cmp.Or(c.Abandoned, DefaultAbandoned), open: make(map[string]*session), free: e.free}
	e.conns = &conns{open: make(map[string]*conn), ended: e.sessions.ended}
	e.backend, err = grpc.NewClient("passthrough:///"+c.Backend, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32), grpc.ForceCodecV2(codec{})))
	if err != nil {
		return nil, fmt.Errorf("TPU emulator: %w", err)
	}
	return e, nil
}

// free ends sessions of the server behind, in their own time.
func (e *Emulator) free(handle, why string) {
	e.freeing.Go(func() { e.freeSession(handle, why) })
}

// Serve answers on all listeners until the context ends. It closes them. An emulator serves
// once.
func (e *Emulator) Serve(ctx context.Context, listeners ...net.Listener) error {
	defer e.backend.Close()
	defer e.freeing.Wait()
	defer func() {
		for _, handle := range e.sessions.forget() {
			e.free(handle, "the emulator ends")
		}
	}()
	e.log.Warn("this is an emulator of a TPU and no TPU: it computes on the CPU", "cores", e.topology.Cores(), "hosts", e.topology.Tasks, "fault", e.plan.String())
	for {
		preempted, err := e.serve(ctx, listeners)
		if err != nil || !preempted {
			return err
		}
		for _, handle := range e.sessions.forget() {
			e.free(handle, "the TPU is preempted")
		}
		e.log.Warn("the emulated TPU is preempted, as the fault says", "fault", e.plan.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(e.plan.lasts):
		}
		for i, l := range listeners {
			if listeners[i], err = net.Listen("tcp", l.Addr().String()); err != nil {
				return fmt.Errorf("TPU emulator: %w", err)
			}
		}
		e.log.Warn("the emulated TPU is back, with no configuration and no variables")
	}
}

// serve answers until the context ends or the TPU is preempted, which it reports.
func (e *Emulator) serve(ctx context.Context, listeners []net.Listener) (preempted bool, err error) {
	// TensorFlow's server has no limit on messages either. Their sizes are checked against
	// this one before they are read.
	s := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32), grpc.ForceServerCodecV2(codec{}),
		grpc.ConnectionTimeout(20*time.Second), grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: time.Minute}))
	s.RegisterService(e.service(), e)
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { errs <- s.Serve(listener{l, e.conns}) }()
	}
	left := len(listeners)
	select {
	case <-ctx.Done():
	case <-e.away:
		preempted = true
	case err = <-errs:
		left--
	}
	// Stop waits for connections that said nothing yet.
	for _, l := range listeners {
		l.Close()
	}
	e.conns.closeAll()
	s.Stop()
	for range left {
		<-errs
	}
	if err != nil && ctx.Err() == nil {
		return false, fmt.Errorf("TPU emulator: %w", err)
	}
	return preempted && ctx.Err() == nil, nil
}
