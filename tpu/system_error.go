package tpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Phase is a part of a System's life.
type Phase string

// Phases, in their order.
const (
	PhaseConnect   Phase = "connect"
	PhaseDevices   Phase = "list the devices"
	PhaseConfigure Phase = "configure the TPU"
	PhaseTopology  Phase = "check the topology"
	PhaseShutdown  Phase = "shut the TPU down"
)

// SystemError is a TPU that could not be started or shut down.
type SystemError struct {
	// Peer is the target of the session, such as grpc://10.0.0.2:8470, or "local".
	Peer string
	// Phase in which it failed.
	Phase Phase
	// Err is why.
	Err error
	// Next is what to do about it.
	Next string
}

// Error names the peer, the phase, the cause and what to do next.
func (e *SystemError) Error() string {
	return fmt.Sprintf("TPU at %s: %s: %v; %s", e.Peer, e.Phase, e.Err, e.Next)
}

// Unwrap returns the cause.
func (e *SystemError) Unwrap() error { return e.Err }

// NoTPUError is a TensorFlow server, or library, that has no TPU.
type NoTPUError struct {
	// Devices that it has.
	Devices []string
}

// Error names the devices.
func (e *NoTPUError) Error() string {
	const most = 8
	names := e.Devices
	if len(names) > most {
		names = append(append([]string{}, names[:most]...), "...")
	}
	return fmt.Sprintf("no TPU is among the devices (%s)", strings.Join(names, ", "))
}

// failed is the error of a phase. That somebody stopped the start is passed on as it is.
func (s *System) failed(phase Phase, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	cause := err
	if errors.Is(err, errTooLate) && phase != PhaseConnect {
		cause = silentError(s.timeout)
		if gone := s.unreachable(); len(gone) > 0 {
			cause = fmt.Errorf("%w, and nothing answers at %s", cause, strings.Join(gone, ", "))
		}
	}
	return &SystemError{Peer: s.peer, Phase: phase, Err: cause, Next: s.next(phase, err)}
}

// unreachable returns the addresses of tasks at which no server answers. The first task waits for the
// others.
func (s *System) unreachable() []string {
	ctx, cancel := context.WithTimeoutCause(context.Background(), graceTimeout, errTooLate)
	defer cancel()
	tasks := s.others
	if s.address != "" { // not this process
		tasks = append([]string{s.address}, s.others...)
	}
	gone := make([]string, len(tasks))
	var probes sync.WaitGroup
	for i, address := range tasks {
		probes.Go(func() {
			if probe(ctx, address) != nil {
				gone[i] = "grpc://" + address
			}
		})
	}
	probes.Wait()
	return slices.DeleteFunc(gone, func(address string) bool { return address == "" })
}

// next is what to do about an error.
func (s *System) next(phase Phase, err error) string {
	var none *NoTPUError
	switch {
	case errors.Is(err, errNotGRPC):
		return fmt.Sprintf("expected a TPU's TensorFlow server, whose port is usually %s (a gorbit worker is for --workers)", DefaultPort)
	case phase == PhaseConnect:
		return fmt.Sprintf("start TensorFlow's server on the TPU VM, again if it hangs, or check the address, the port (usually %s) and the firewall", DefaultPort)
	case errors.As(err, &none) && s.peer == "local":
		return "run this on a TPU VM, with TensorFlow's library for TPUs (make setup TF=tpu)"
	case errors.As(err, &none):
		return "expected TPU_SYSTEM:0 and TPU:0: start the server on a TPU VM, with TensorFlow's library for TPUs"
	case phase == PhaseDevices:
		return "gorbit tpu describe NAME shows the addresses: expected one for each host of the TPU, and TensorFlow 2.18 at each"
	case phase == PhaseTopology:
		return "expected one version of TensorFlow on all hosts of the TPU: restart their servers, then type the same command"
	case errors.Is(err, errTooLate):
		return "see whether another program uses the TPU, give more time with --tpu-timeout, or restart the servers on all its hosts"
	case phase == PhaseShutdown:
		return "the next start configures the TPU again; if that fails, restart the servers on all its hosts"
	}
	return "see that no other program uses the TPU and restart the servers on all its hosts, then type the same command"
}
