package launch

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drain is how long output may still come after all processes of a group are gone.
const drain = 2 * time.Second

// process is a running command and everything it started: a process group.
type process struct {
	done chan struct{}
	err  error // after done: nil or an *exec.ExitError

	mu  sync.Mutex
	pid int // 0 once the number may be another process'
}

// start starts a command in its own process group. If this process ends for any reason, the
// command gets a SIGTERM. When the command ends, the rest of its group is killed.
func start(c Command, environ []string, stdout, stderr io.Writer) (*process, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = environ
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = drain
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel treats the end of the thread that started a process as the end of its parent.
		runtime.LockOSThread()
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

// terminate asks the process to end, and kills its group if it has not ended after the grace
// period. It reports whether it had to kill.
func (p *process) terminate(grace time.Duration) bool {
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
