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

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// Phase is what a chief was doing with a worker.
type Phase string

// The phases of a session.
const (
	PhaseConnect Phase = "connect"                   // dial, until the port accepts
	PhaseGreet   Phase = "greet"                     // exchange versions
	PhaseReserve Phase = "start its process"         // start the child, which takes a port
	PhaseStart   Phase = "start TensorFlow's server" // start the server
	PhaseRun     Phase = "run"                       // the session
	PhaseClose   Phase = "end the session"           // wait for the child's end
)

// WorkerError is a worker that failed.
type WorkerError struct {
	Address string
	Phase   Phase
	// Waited is how long the phase had lasted, or in PhaseRun how long nothing had
	// been heard.
	Waited time.Duration
	Err    error
}

// Error names the worker, what was being done, for how long, why it failed
// and what to do.
func (e *WorkerError) Error() string {
	s := fmt.Sprintf("worker %s: %s: after %v: %s", e.Address, e.Phase, e.Waited.Round(10*time.Millisecond), describe(e.Err))
	if advice := e.advice(); advice != "" {
		s += "; " + advice
	}
	return s
}

// Unwrap returns what happened.
func (e *WorkerError) Unwrap() error { return e.Err }

func describe(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "nothing was heard from it"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it closed the connection"
	}
	return err.Error()
}

// advice is the likely cause and what to do.
func (e *WorkerError) advice() string {
	var (
		dns     *net.DNSError
		version *VersionError
		busy    *BusyError
		spoken  *ProtocolError
		told    *FailedError
	)
	switch err := e.Err; {
	case errors.As(err, &version):
		return "run the same release on every machine"
	case errors.As(err, &busy):
		return "stop that chief, or wait for its end; a worker that lost its chief is free after the chief's worker timeout"
	case errors.As(err, &told):
		return "" // says it itself
	case errors.As(err, &spoken):
		if strings.HasPrefix(spoken.Got, "HTTP/") {
			return "a web server listens there; give the address that gorbit worker printed"
		}
		if strings.HasPrefix(spoken.Got, "\x00\x00") {
			return "that looks like a gRPC server, such as TensorFlow's own; give the address that gorbit worker printed"
		}
		return "give the address that gorbit worker printed"
	case errors.As(err, &dns):
		return "check the host's name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens there: start gorbit worker --listen %s on that machine", e.Address)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "check the address and the network"
	case e.Phase == PhaseConnect:
		return "the machine is down or a firewall drops the connection: check the address"
	case e.Phase == PhaseGreet:
		return "the port accepts connections but does not speak as gorbit worker does, or the worker is stopped: check the address and look at the worker"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the worker is stopped, overloaded or cut off from the network: look at its log and its machine, or give a longer worker timeout"
	}
	return "the worker ended or lost the connection: look at its log and start it again"
}

// VersionError is a worker that is too different to work with.
type VersionError struct {
	What          string // "TensorFlow" or "protocol"
	Chief, Worker string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the chief has %s %q, the worker %q", e.What, e.Chief, e.Worker)
}

// BusyError is a worker that serves another chief.
type BusyError struct {
	Peer  string
	Since time.Time
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("busy with %s since %s", e.Peer, e.Since.Local().Format(time.DateTime))
}

// ProtocolError is a line that is not of the workers' protocol.
type ProtocolError struct {
	Got string // how it begins
	Err error
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("it sent %q, which is not gorbit worker's protocol (%v)", e.Got, e.Err)
}

// Unwrap returns what is wrong with it.
func (e *ProtocolError) Unwrap() error { return e.Err }

// FailedError is a failure that a worker told of.
type FailedError struct {
	Message string
	Class   fault.Class // of the error at the worker
	// Final says that the worker lives and cannot do what it was asked to: another
	// session would end the same way.
	Final bool
	Tail  []string // the last lines of its TensorFlow's log
}

func (e *FailedError) Error() string {
	if len(e.Tail) == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s; the last it logged: %s", e.Message, strings.Join(e.Tail, " | "))
}

// Is reports whether the target is the class of the error at the worker.
func (e *FailedError) Is(target error) bool { return target == e.Class }
