package tpuemulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/tfserver"
	"github.com/gorbit-ml/gorbit/tpu"
)

// Fault is something that goes wrong when a client configures the TPU, on purpose.
type Fault string

const (
	// None is a TPU that works.
	None Fault = ""
	// Hang does not answer ConfigureDistributedTPU.
	Hang Fault = "hang"
	// Forget does not know the session any more, as a server that was started anew.
	Forget Fault = "forget"
	// Fail answers ConfigureDistributedTPU with an error.
	Fail Fault = "fail"
	// Mismatch answers with the topology of another TPU, which has one core.
	Mismatch Fault = "mismatch"
)

// Faults are all faults but None.
func Faults() []Fault { return []Fault{Hang, Forget, Fail, Mismatch} }

// Config describes an emulator.
type Config struct {
	// Topology of the TPU that is emulated.
	Topology *tpu.Topology
	// Backend is HOST:PORT of TensorFlow's server that computes, see StartBackend.
	Backend string
	// Fault is what goes wrong.
	Fault Fault
	// Log takes a line for each session; nil is none.
	Log *slog.Logger
}

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	switch {
	case c.Topology == nil:
		return errors.New("no topology")
	case c.Fault != None && !slices.Contains(Faults(), c.Fault):
		return fault.Usagef("fault %q: expected one of %v", c.Fault, Faults())
	}
	return nil
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

// Emulator is a master service.
type Emulator struct {
	topology *tpu.Topology
	answer   *tpu.Topology // of ConfigureDistributedTPU
	fault    Fault
	log      *slog.Logger
	backend  *grpc.ClientConn

	mu       sync.Mutex
	sessions map[string]*session // by handle
}

// session is what the emulator keeps of a session.
type session struct {
	layout layout
	found  rewritten
}

// New makes an emulator.
func New(c Config) (*Emulator, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("TPU emulator: %w", err)
	}
	if c.Backend == "" {
		return nil, errors.New("TPU emulator: no address of a server that computes")
	}
	answer := c.Topology
	if c.Fault == Mismatch {
		var err error
		if answer, err = ParseTopology("1x1x1x1", 1); err != nil {
			return nil, err
		}
	}
	backend, err := grpc.NewClient("passthrough:///"+c.Backend, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("TPU emulator: %w", err)
	}
	return &Emulator{topology: c.Topology, answer: answer, fault: c.Fault, backend: backend, sessions: make(map[string]*session),
		log: cmp.Or(c.Log, slog.New(slog.DiscardHandler))}, nil
}

// Serve answers until the context ends. It closes the listener. An emulator serves once.
func (e *Emulator) Serve(ctx context.Context, l net.Listener) error {
	defer e.backend.Close()
	// TensorFlow's server has no limit either.
	s := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))
	s.RegisterService(e.service(), e)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("TPU emulator: %w", err)
	}
	return nil
}
