package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
)

// Phase is a phase of the chief's session with a worker.
type Phase string

// The phases of a session.
const (
	PhaseConnect Phase = "connect"                   // dial, until the port accepts
	PhaseGreet   Phase = "greet"                     // exchange versions
	PhaseReserve Phase = "start its process"         // start the child, which reserves a port
	PhaseStart   Phase = "start TensorFlow's server" // start the server
	PhaseRun     Phase = "run"                       // the session
	PhaseClose   Phase = "end the session"           // wait for the child's end
)

// WorkerError means that a worker failed.
type WorkerError struct {
	Address string
	Phase   Phase
	// Waited is the time since the start of the phase or, in PhaseRun, since the last message
	// of the worker.
	Waited time.Duration
	Err    error
}

// Error returns the worker, the phase and its duration, the cause, and what to do next.
func (e *WorkerError) Error() string {
	s := fmt.Sprintf("worker %s: %s: after %v: %s", e.Address, e.Phase, e.Waited.Round(10*time.Millisecond), describe(e.Err))
	if advice := e.advice(); advice != "" {
		s += "; " + advice
	}
	return s
}

// Unwrap returns the cause.
func (e *WorkerError) Unwrap() error { return e.Err }

func describe(err error) string {
	var keys *peertls.Error
	switch {
	case errors.As(err, &keys):
		return keys.Reason
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "nothing was heard from it"
	case ended(err):
		return "it closed the connection"
	}
	return err.Error()
}

// ended reports whether an error means that the other side closed the connection.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// advice returns the likely cause and what to do next.
func (e *WorkerError) advice() string {
	var (
		dns     *net.DNSError
		version *VersionError
		busy    *BusyError
		spoken  *ProtocolError
		told    *FailedError
		keys    *peertls.Error
	)
	switch err := e.Err; {
	case errors.As(err, &keys):
		return keys.Advice
	case errors.As(err, &version):
		return "run the same release on every machine"
	case errors.As(err, &busy):
		return "stop that chief, or wait until it ends; a worker that lost its chief is free after the chief's worker timeout"
	case errors.As(err, &told):
		return "" // the message has its own advice
	case errors.As(err, &spoken):
		if strings.HasPrefix(spoken.Got, "HTTP/") {
			return "a web server listens there; use the address that gorbit worker printed"
		}
		if strings.HasPrefix(spoken.Got, "\x00\x00") {
			return "this looks like a gRPC server, such as TensorFlow's own; use the address that gorbit worker printed"
		}
		return "use the address that gorbit worker printed"
	case errors.As(err, &dns):
		return "check the host name"
	case e.Phase == PhaseConnect && noSocket(err):
		return fmt.Sprintf("no worker has this socket; start gorbit worker --listen %s with the same --sockets", e.Address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens there; start gorbit worker --listen %s on that machine", e.Address)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "check the address and the network"
	case e.Phase == PhaseConnect:
		return "the machine is down or a firewall drops the connection; check the address"
	case e.Phase == PhaseGreet:
		return "the port accepts connections but does not speak gorbit worker's protocol, or the worker is stopped; check the address and the worker"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the worker is stopped, overloaded or cut off from the network; check its log and its machine, or set a longer worker timeout"
	}
	return "the worker ended or lost the connection; check its log and start it again"
}

// noSocket reports whether a Unix socket is not there, or nobody listens on it.
func noSocket(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Net == "unix" && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED))
}

// VersionError means that a worker has an incompatible version.
type VersionError struct {
	What          string // "TensorFlow" or "protocol"
	Chief, Worker string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the chief has %s %q, the worker %q", e.What, e.Chief, e.Worker)
}

// BusyError means that a worker serves another chief.
type BusyError struct {
	Peer  string
	Since time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("busy with %s since %s", e.Peer, e.Since.Local().Format(time.DateTime))
}

// ProtocolError means that a line does not follow the workers' protocol.
type ProtocolError struct {
	Got string // the start of the line
	Err error
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("it sent %q, which is not gorbit worker's protocol (%v)", e.Got, e.Err)
}

// Unwrap returns the reason.
func (e *ProtocolError) Unwrap() error { return e.Err }

// FailedError is a failure reported by a worker.
type FailedError struct {
	Message string
	Class   fault.Class // of the error at the worker
	// Final means that the worker is alive but cannot do what was requested: another session
	// would end in the same way.
	Final bool
	Tail  []string // the last lines of its TensorFlow's log
}

func (e *FailedError) Error() string {
	if len(e.Tail) == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s; its last log lines: %s", e.Message, strings.Join(e.Tail, " | "))
}

// Is reports whether the target is the class of the error at the worker.
func (e *FailedError) Is(target error) bool { return target == e.Class }
