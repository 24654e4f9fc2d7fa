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
)

// process is a running child.
type process struct {
	cmd  *exec.Cmd
	link *link
	ends []*os.File
	tail *tail
	// ended is closed when the child is gone.
	ended chan struct{}
}

// spawn starts this program again with the given arguments, its name first. It ends with
// the supervisor, however that ends: its input closes, and the system kills it.
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
		// The program that runs, also when its file was replaced since.
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
	// A group of its own: signals from a terminal are for the supervisor.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	startErr := make(chan error, 1)
	go func() {
		// The system takes the end of this thread for the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		startErr <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in ProcessState
		}
		close(p.ended)
	}()
	if err := <-startErr; err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// read hands over the child's messages, at least one per timeout, and ends
// with the child. The last event is an error that says how it ended.
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

// ending says how the child ended, or why it has to, after reading failed.
func (p *process) ending(err error, timeout time.Duration) error {
	select {
	case <-p.ended:
	default:
		if isTimeout(err) {
			return fmt.Errorf("its TensorFlow process hung: nothing was heard from it for %v, and it was killed; it was stopped, or its machine is overloaded", timeout)
		}
		return fmt.Errorf("its TensorFlow process was killed: %w", err)
	}
	state := p.cmd.ProcessState
	if state == nil {
		return fmt.Errorf("its TensorFlow process was lost: %w", err)
	}
	s := fmt.Sprintf("its TensorFlow process ended (%v)", state)
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		s += ": someone killed it, or the system did because memory ran out (dmesg tells)"
	}
	return errors.New(s)
}

// close kills the child and waits until it is gone.
func (p *process) close() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // an error is that it has ended
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

// tail passes a log on and keeps its last lines.
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
	// What a crash says comes first, and then where everything was, registers last.
	for _, begin := range []string{"PC=0x", "goroutine ", "runtime stack:"} {
		t.dumped = t.dumped || strings.HasPrefix(line, begin)
	}
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
