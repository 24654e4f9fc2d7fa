package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// event is the result of a read.
type event struct {
	message message
	err     error
}

// ending says why a session ended, and holds the last message to the chief.
type ending struct {
	reason string
	say    *message
	done   bool // the run is over
}

// session is the supervisor's side of a session. It forwards messages between chief and child.
type session struct {
	*Supervisor
	link    *link // to the chief
	timeout time.Duration
	pauses  *pauses

	chief, child chan event
	done         chan struct{} // closed at the end
	readers      sync.WaitGroup

	process *process // nil before the chief asks for it
	gate    *gate    // nil before that, and without keys
	folder  *folder  // of the child's socket; nil before that, and without sockets
	asked   bool     // for TensorFlow's server
	usage   beat     // of the child
}

func newSession(s *Supervisor, l *link, h *hello) *session {
	timeout := h.timeout()
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	timeout = max(timeout, minTimeout)
	return &session{
		Supervisor: s, link: l, timeout: timeout, pauses: newPauses(interval(timeout), boottime),
		chief: make(chan event), child: make(chan event), done: make(chan struct{}),
	}
}

// run serves the chief until the session ends. When it returns, the child has ended.
func (s *session) run(ctx context.Context) ending {
	if err := s.link.write(message{Hello: &s.hello}, s.soon()); err != nil {
		return lostChief(err)
	}
	watching, stop := context.WithCancel(ctx)
	s.readers.Go(func() { s.pauses.watch(watching) })
	s.readers.Go(s.readChief)
	defer func() {
		stop()
		close(s.done)
		if s.process != nil {
			s.process.close()
		}
		if s.gate != nil {
			s.setGate(nil)
			s.gate.close()
		}
		if s.folder != nil {
			s.folder.remove()
		}
		s.link.stop()
		s.readers.Wait()
	}()
	tick := time.NewTicker(interval(s.timeout))
	defer tick.Stop()
	for {
		var end *ending
		select {
		case <-ctx.Done():
			end = s.fail(errors.New("gorbit worker was stopped"))
		case <-tick.C:
			end = s.beat()
		case e := <-s.chief:
			end = s.hearChief(e)
		case e := <-s.child:
			end = s.hearChild(e)
		case err := <-s.broken():
			end = s.fail(err)
		}
		if end != nil {
			return *end
		}
	}
}

// broken receives a failure of the gate.
func (s *session) broken() <-chan error {
	if s.gate == nil {
		return nil
	}
	return s.gate.broken
}

func (s *session) soon() time.Time { return time.Now().Add(s.timeout) }

func (s *session) readChief() {
	for {
		m, err := s.link.await(s.timeout, s.pauses)
		select {
		case s.chief <- event{m, err}:
		case <-s.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// beat tells the chief and the child that the worker is alive.
func (s *session) beat() *ending {
	if err := s.link.write(message{Beat: &s.usage}, s.soon()); err != nil {
		end := lostChief(err)
		return &end
	}
	if s.process != nil {
		// A child that does not read is detected by its silence.
		_ = s.process.link.write(message{Beat: new(beat)}, time.Now().Add(interval(s.timeout)))
	}
	return nil
}

// hearChief handles a message of the chief. It returns nil unless the session ends.
func (s *session) hearChief(e event) *ending {
	switch m := e.message; {
	case isTimeout(e.err):
		end := s.say(failed{Message: fmt.Sprintf("the worker received nothing from the chief for %v and ended the session", s.timeout)})
		end.reason = "the chief is gone: " + describe(e.err)
		return end
	case e.err != nil:
		end := lostChief(e.err)
		return &end
	case m.Beat != nil:
	case m.Bye != nil:
		return &ending{reason: "the chief is done", say: &message{Bye: new(bye)}, done: m.Bye.Done}
	case m.Reserve != nil && s.process == nil:
		return s.spawn(m.Reserve)
	case m.Start != nil && s.process != nil && !s.asked:
		s.asked = true
		if s.gate != nil {
			if err := s.reach(m.Start); err != nil {
				return s.say(failed{Message: clip(err.Error()), Final: true})
			}
		}
		m.Start.Devices = s.devices.String()
		if s.config.Threads > 0 {
			m.Start.IntraOpThreads = s.config.Threads
		}
		_ = s.process.link.write(m, s.soon())
	default:
		return s.fail(errors.New("unexpected message from the chief"))
	}
	return nil
}

// reach makes the ways to the other workers, and tells the child where their sockets are.
func (s *session) reach(m *start) error {
	if len(m.Names) != len(m.Cluster) {
		return fmt.Errorf("the chief gave names of %d workers; expected %d", len(m.Names), len(m.Cluster))
	}
	m.Sockets = s.gate.dir
	return s.gate.reach(s.config.Keys, m)
}

// spawn starts the child.
func (s *session) spawn(asked *reserve) *ending {
	r := reserve{TimeoutMillis: s.timeout.Milliseconds()}
	if s.config.Sockets == "" {
		r.Host = s.host.String()
	} else {
		var err error
		if s.folder, err = newFolder(); err != nil {
			return s.say(failed{Message: clip(err.Error()), Final: true})
		}
		r.Socket = ownSocket(s.folder.path)
	}
	if s.config.Keys != nil {
		var err error
		if s.gate, err = newGate(asked.Session); err != nil {
			return s.say(failed{Message: clip(err.Error()), Final: true})
		}
		s.setGate(s.gate)
		r.Locked, r.Port = true, s.listener.Addr().(*net.TCPAddr).Port
	}
	p, err := spawn(s.config.Child, childEnv(asked.NoOneDNN), s.config.ChildLog)
	if err != nil {
		return s.say(failed{Message: clip("cannot start a process for TensorFlow: " + err.Error()), Final: true})
	}
	s.process = p
	s.readers.Go(func() { p.read(s.timeout, s.pauses, s.child, s.done) })
	// If this fails, the child's reader reports why.
	_ = p.link.write(message{Reserve: &r}, s.soon())
	return nil
}

// hearChild handles a message of the child. It returns nil unless the session ends.
func (s *session) hearChild(e event) *ending {
	switch m := e.message; {
	case e.err != nil:
		return s.fail(e.err)
	case m.Beat != nil:
		s.usage = *m.Beat
	case m.Failed != nil:
		return s.say(failed{Message: clip(m.Failed.Message), Class: m.Failed.Class, Final: true})
	case m.Reserved != nil, m.Started != nil:
		if err := s.link.write(m, s.soon()); err != nil {
			end := lostChief(err)
			return &end
		}
	default:
		return s.fail(errors.New("unexpected message from its TensorFlow process"))
	}
	return nil
}

// say ends a session and reports a failure to the chief.
func (s *session) say(told failed) *ending {
	if s.process != nil {
		told.Tail = s.process.tail.last()
	}
	return &ending{reason: told.Message, say: &message{Failed: &told}}
}

func (s *session) fail(err error) *ending { return s.say(*failedBy(err)) }

func lostChief(err error) ending { return ending{reason: "the chief is gone: " + describe(err)} }
