package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
	"github.com/gorbit-ml/gorbit/tpu"
)

// tpuServer is TensorFlow's server on a host of a TPU, for gorbit train --tpu.
type tpuServer struct {
	listen string
	hosts  []string // of all servers of the TPU, in order; nil means only this one
}

// config returns the configuration of the server: the task of this host, and the addresses of all.
func (s tpuServer) config() (tfserver.Config, error) {
	if err := devices.CheckAddress(s.listen); err != nil {
		return tfserver.Config{}, usagef("--listen: %w; a TPU's server needs a port that is known, usually %s", err, tpu.DefaultPort)
	}
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return tfserver.Config{}, usagef("--listen: %w", err)
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return tfserver.Config{}, usagef("--listen is %q; expected an IP address and a port, such as 10.0.0.2:%s", s.listen, tpu.DefaultPort)
	}
	hosts := s.hosts
	if len(hosts) == 0 {
		hosts = []string{s.listen}
	}
	c := tfserver.Config{Task: -1, Host: at.Unmap(), CPUs: 1, GPUs: 0}
	seen := make(map[string]bool)
	for i, address := range hosts {
		if err := devices.CheckAddress(address); err != nil {
			return c, usagef("--hosts: %w", err)
		}
		name := devices.Canonical(address)
		if seen[name] {
			return c, usagef("--hosts: %s is named twice", address)
		}
		if seen[name] = true; name == devices.Canonical(s.listen) {
			c.Task = i
		}
		c.Cluster = append(c.Cluster, address)
	}
	if c.Task < 0 {
		return c, usagef("--hosts is %s, which lacks %s, the address of --listen; expected the addresses of all hosts of the TPU, the same list on each", strings.Join(hosts, ","), s.listen)
	}
	return c, nil
}

// serve runs the server until ctx ends. TensorFlow's server cannot be stopped: it ends with the
// process.
func (s tpuServer) serve(ctx context.Context, out io.Writer) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	server, err := tfserver.Start(c)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	names, err := server.Devices(ctx)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	cores := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(name, "/device:TPU:") })
	if len(cores) == 0 {
		return fmt.Errorf("worker: %w; run this on a TPU VM, with TensorFlow's library for TPUs (make setup TF=tpu)", &tpu.NoTPUError{Devices: names})
	}
	if _, err := fmt.Fprintf(out, "listening on %s with %d TPU cores, as task %d of %d\n", s.listen, len(cores), c.Task, len(c.Cluster)); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "gorbit: TensorFlow's gRPC has no authentication: anyone who can reach this worker can run programs here, so keep it in a private network")
	<-ctx.Done()
	return nil
}
