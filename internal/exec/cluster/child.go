package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
)

// childFD is the file descriptor for the messages of a child. TensorFlow may write to standard
// output.
const childFD = 3

// Child runs the process that a Supervisor starts for a session. It returns when the supervisor
// ends or is silent for too long, or with an error. The process must then end.
func Child(ctx context.Context) error {
	var ends [2]*os.File
	for i, fd := range []int{0, childFD} {
		// Deadlines need non-blocking files.
		if err := syscall.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("this command is for internal use by gorbit worker: %w", err)
		}
		ends[i] = os.NewFile(uintptr(fd), "supervisor")
	}
	c := &child{link: newLink(ends[0], ends[1]), timeout: MaxTimeout}

	ended := make(chan error, 1)
	go func() { ended <- c.serve(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

type child struct {
	link    *link
	timeout time.Duration
	port    int
	host    netip.Addr
	locked  bool
	socket  string // of the server; "" where it has a port or is locked
	release func() error
}

func (c *child) serve(ctx context.Context) error {
	work := make(chan message, 1)
	go func() {
		for m := range work {
			if err := c.answer(ctx, m); err != nil {
				// If this fails, the supervisor has ended.
				_ = c.write(message{Failed: failedBy(err)})
			}
		}
	}()
	pauses := newPauses(interval(c.timeout), boottime)
	go pauses.watch(ctx)
	for {
		m, err := c.link.await(c.timeout, pauses)
		if err != nil {
			return fmt.Errorf("lost the supervisor: %w", err)
		}
		switch {
		case m.Beat != nil:
		case m.Reserve != nil && c.release == nil:
			if err := c.reserve(m.Reserve); err != nil {
				_ = c.write(message{Failed: failedBy(err)})
				return err
			}
			go c.beat(ctx)
		case m.Start != nil && c.release != nil:
			// Starting the server takes time. Keep reading the supervisor's messages.
			select {
			case work <- m:
			default:
				return errors.New("the supervisor asked for two servers")
			}
		default:
			return errors.New("unexpected message from the supervisor")
		}
	}
}

func (c *child) write(m message) error { return c.link.write(m, time.Now().Add(c.timeout)) }

func (c *child) beat(ctx context.Context) {
	tick := time.NewTicker(interval(c.timeout))
	defer tick.Stop()
	for {
		usage := measure()
		if err := c.write(message{Beat: &usage}); err != nil {
			return // the reader fails, too
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *child) reserve(r *reserve) error {
	c.timeout = time.Duration(r.TimeoutMillis) * time.Millisecond
	if r.Socket != "" {
		c.socket, c.release = r.Socket, func() error { return nil }
		return c.write(message{Reserved: &reserved{Socket: r.Socket}})
	}
	host, err := netip.ParseAddr(r.Host)
	if err != nil {
		return err
	}
	c.host = host
	if r.Locked {
		c.locked, c.release = true, func() error { return nil }
		return c.write(message{Reserved: &reserved{Port: r.Port}})
	}
	if c.port, c.release, err = tfserver.Reserve(host); err != nil {
		return err
	}
	return c.write(message{Reserved: &reserved{Port: c.port}})
}

func (c *child) answer(ctx context.Context, m message) error {
	spec, err := devices.Parse(m.Start.Devices)
	if err != nil {
		return err
	}
	// The first graph of the server may use our operations.
	if err := kernels.Register(); err != nil {
		return err
	}
	if err := shardinput.Register(); err != nil {
		return err
	}
	kernels.Threads(m.Start.IntraOpThreads, m.Start.IntraOpThreads)
	config := tfserver.Config{
		Cluster: m.Start.Cluster, Task: m.Start.Task, Host: c.host, CPUs: 1,
		IntraOpThreads: m.Start.IntraOpThreads, InterOpThreads: m.Start.InterOpThreads,
	}
	switch {
	case c.locked:
		config.Socket = ownSocket(m.Start.Sockets)
		config.Cluster, err = routes(len(m.Start.Cluster), func(task int) string { return socket(m.Start.Sockets, task) })
	case c.socket != "":
		config.Socket = c.socket
		config.Cluster, err = routes(len(m.Start.Cluster), func(task int) string { return strings.TrimPrefix(m.Start.Cluster[task], unixPrefix) })
	}
	if err != nil {
		return err
	}
	switch {
	case spec.Type == "CPU":
		config.CPUs = spec.Count
	case spec.Count == 0:
		config.GPUs = tfserver.AllGPUs
	default:
		config.GPUs = spec.Count
	}
	server, err := tfserver.Start(config)
	if err != nil {
		return err
	}
	if err := c.release(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	all, err := server.Devices(ctx)
	if err != nil {
		return err
	}
	names, err := meant(spec, all)
	if err != nil {
		return err
	}
	return c.write(message{Started: &started{Devices: names}})
}

// routes returns the addresses of a session's servers, by task, whose sockets have these paths.
func routes(tasks int, path func(task int) string) ([]string, error) {
	out := make([]string, tasks)
	for task := range out {
		r, err := tfserver.NewRoute(path(task))
		if err != nil {
			return nil, err
		}
		out[task] = r.Address()
	}
	return out, nil
}

// clip limits a text to well below the size of a message.
func clip(s string) string { return s[:min(len(s), 4096)] }

// measure returns the resource usage of this process.
func measure() beat {
	var b beat
	b.RSS, b.PeakRSS = devices.Resident(os.Getpid()), devices.PeakResident(os.Getpid())
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		b.CPUMillis = (usage.Utime.Nano() + usage.Stime.Nano()) / int64(time.Millisecond)
	}
	return b
}
