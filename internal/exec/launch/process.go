package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// drain is how long output may still come after all processes of a group are gone.
const drain = 2 * time.Second

// Process is a running command and everything it started: a process group.
type Process struct {
	done chan struct{}
	err  error // after done: nil or an *exec.ExitError

	mu  sync.Mutex
	pid int // 0 once the number may be another process'
}

// Start starts a command in its own process group. If this process ends for any reason, the
// command gets a SIGTERM. When the command ends, the rest of its group is killed. environ nil is
// this process' own. The command's input is its secret, if it has one, and stays open.
func Start(c Command, environ []string, stdout, stderr io.Writer) (*Process, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = environ
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = drain
	input, err := secretInput(c.secret)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	if input != nil {
		cmd.Stdin = input.read
	}
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		defer input.close()
		// The kernel treats the end of the thread that started a process as the end of its parent.
		runtime.LockOSThread()
		if err := onCores(c.Cores); err != nil {
			started <- err
			return
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		pid := cmd.Process.Pid
		p.pid = pid
		started <- nil
		// The process keeps its PID, and its group's, until it is waited for.
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		p.mu.Lock()
		_ = unix.Kill(-pid, unix.SIGKILL)
		p.pid = 0
		p.mu.Unlock()
		p.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// onCores binds this thread, and so what it starts, to cores; none leaves it as it is.
func onCores(cores []int) error {
	if len(cores) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to cores %v: %w", cores, err)
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Code returns the exit code of a process that has ended, or -1 if a signal ended it.
func (p *Process) Code() int { return exitCode(p.err) }

// How describes how a process that has ended did so: "exit code 1" or "signal SIGKILL".
func (p *Process) How() string { return how(p.err) }

// input is a pipe with a secret in it.
type input struct{ read, write *os.File }

// secretInput returns the input of a process that reads a secret; nil without one.
func secretInput(secret string) (*input, error) {
	if secret == "" {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in := &input{r, w}
	if _, err := io.WriteString(w, secret+"\n"); err != nil { // it fits into the pipe
		in.close()
		return nil, err
	}
	return in, nil
}

// close ends the input.
func (i *input) close() {
	if i != nil {
		i.read.Close()
		i.write.Close()
	}
}

// Terminate asks the process to end, and kills its group if it has not ended after the grace
// period. It reports whether it had to kill.
func (p *Process) Terminate(grace time.Duration) bool {
	p.mu.Lock()
	if p.pid != 0 {
		// Only the process: it may need what it started to end well.
		_ = unix.Kill(p.pid, unix.SIGTERM)
	}
	p.mu.Unlock()
	select {
	case <-p.done:
		return false
	case <-time.After(grace):
	}
	p.mu.Lock()
	if p.pid != 0 {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	p.mu.Unlock()
	<-p.done
	return true
}

// how describes how a process ended: "exit code 1" or "signal SIGKILL".
func how(err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return "exit code 0"
	case !errors.As(err, &exit):
		return err.Error()
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return "signal " + unix.SignalName(s.Signal())
	}
	return fmt.Sprintf("exit code %d", exit.ExitCode())
}

// crashed reports whether a process ended by the signal of a crash. Others are sent by somebody, or by
// the system when memory runs out.
func crashed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	s, ok := exit.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && slices.Contains([]syscall.Signal{syscall.SIGABRT, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL}, s.Signal())
}

// killed stands for the exit code of a process that a signal ended.
const killed = -1

// exitCode returns the exit code of a process that ended.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	}
	return killed
}

// Cores returns the processor cores that this process may use.
func Cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cores of this process: %w", err)
	}
	var out []int
	for i := range 8 * int(unsafe.Sizeof(set)) {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}
