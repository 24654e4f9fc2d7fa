package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// process is a running child.
type process struct {
	cmd  *exec.Cmd
	link *link
	ends []*os.File
	tail *tail
	// ended is closed when the child has ended.
	ended chan struct{}
}

// spawn starts this program as a child with the given arguments, its name first. The child ends
// when the supervisor ends, for whatever reason: its input closes, and the system kills it.
func spawn(args, env []string, log io.Writer) (*process, error) {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourOut.Close()
		return nil, err
	}
	defer theirIn.Close()
	defer theirOut.Close()

	p := &process{
		// The running program, even if its file has been replaced.
		cmd:   &exec.Cmd{Path: "/proc/self/exe", Args: args},
		link:  newLink(ourIn, ourOut),
		ends:  []*os.File{ourIn, ourOut},
		tail:  &tail{to: log},
		ended: make(chan struct{}),
	}
	p.cmd.Stdin, p.cmd.ExtraFiles = theirIn, []*os.File{theirOut}
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	p.cmd.Env = env
	p.cmd.WaitDelay = time.Second
	// A process group of its own, so that signals from a terminal go only to the supervisor.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	startErr := make(chan error, 1)
	go func() {
		// For Pdeathsig, the end of this thread is the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		startErr <- err
		if err == nil {
			_ = p.cmd.Wait() // the result is in ProcessState
		}
		close(p.ended)
	}()
	if err := <-startErr; err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// read sends the child's messages to events until the child ends or sends none for the timeout. The
// last event is an error that says how the child ended.
func (p *process) read(timeout time.Duration, pauses *pauses, events chan<- event, done <-chan struct{}) {
	for {
		m, err := p.link.await(timeout, pauses)
		if err != nil {
			if !isTimeout(err) {
				select {
				case <-p.ended:
				case <-time.After(time.Second):
				}
			}
			err = p.ending(err, timeout)
		}
		select {
		case events <- event{m, err}:
		case <-done:
			return
		}
		if err != nil {
			return
		}
	}
}

// ending returns an error that says how the child ended, or why it must be killed, after err.
func (p *process) ending(err error, timeout time.Duration) error {
	select {
	case <-p.ended:
	default:
		if isTimeout(err) {
			return fmt.Errorf("its TensorFlow process sent nothing for %v and was killed; it was stopped, or its machine is overloaded", timeout)
		}
		return fmt.Errorf("its TensorFlow process was killed: %w", err)
	}
	state := p.cmd.ProcessState
	if state == nil {
		return fmt.Errorf("its TensorFlow process was lost: %w", err)
	}
	s := fmt.Sprintf("its TensorFlow process ended (%v)", state)
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		s += ": someone killed it, or the system did because memory ran out; check dmesg"
	}
	return errors.New(s)
}

// close kills the child and waits until it has ended.
func (p *process) close() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // fails only if it has ended
		<-p.ended
	}
	for _, f := range p.ends {
		f.Close()
	}
}

const (
	tailLines = 10
	tailWidth = 256
)

// tail forwards a log and keeps its last lines.
type tail struct {
	to io.Writer

	mu     sync.Mutex
	lines  []string
	part   []byte
	dumped bool
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if t.to != nil {
		_, _ = t.to.Write(b) // a log that cannot be written must not end the child
	}
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		t.part = append(t.part, line[:min(len(line), tailWidth-len(t.part))]...)
		if ended {
			t.end()
		}
		b = rest
	}
	return n, nil
}

func (t *tail) end() {
	line := strings.TrimSpace(string(t.part))
	// A crash dump begins with the reason. Goroutines, registers and calls in C follow and are not
	// kept; a sentence of the program ends it.
	for _, begin := range []string{"PC=0x", "goroutine ", "runtime stack:"} {
		t.dumped = t.dumped || strings.HasPrefix(line, begin)
	}
	t.dumped = (t.dumped || strings.HasSuffix(line, "]") && strings.Contains(line, "[0x")) && !strings.HasPrefix(line, fault.Program)
	if line != "" && !t.dumped {
		t.lines = append(t.lines, line)
		t.lines = t.lines[max(0, len(t.lines)-tailLines):]
	}
	t.part = t.part[:0]
}

// last returns the last lines.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	return append([]string(nil), t.lines...)
}
