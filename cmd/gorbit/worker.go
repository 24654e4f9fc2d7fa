package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/cluster"
	"github.com/gorbit-ml/gorbit/internal/shardinput"
	"github.com/gorbit-ml/gorbit/internal/version"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train"
)

func newWorker(g *globals) *cobra.Command {
	var c cluster.SupervisorConfig
	var child bool
	var data string
	cmd := &cobra.Command{
		Use:   "worker [--listen HOST:PORT] [--devices DEVICES] [flags]",
		Short: "Lend this machine's devices to a training run",
		Long: `Listens for gorbit train --workers and lends it this machine's devices, one run
after the other. Every session has a process of its own for TensorFlow's server, which
ends with it; the worker itself goes on until it is stopped.

TensorFlow's gRPC has no authentication: who reaches the worker, or the servers that it
starts on ports of their own, can run any program on this machine. Without --listen only this
machine reaches it; give it an address of a private network, never a public one.`,
		Example: `  gorbit worker --listen 10.0.0.2:2222 --devices gpu
  gorbit worker --listen 127.0.0.1:0 --devices cpu:2 --threads 1`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:2222", "address to listen on; without a host it is loopback, 0.0.0.0 is every address, port 0 any free one")
	f.StringVar(&c.Devices, "devices", "", "cpu:N (N devices that share the cores), gpu (all) or gpu:N (default: all GPUs, cpu:1 where there is none)")
	f.IntVar(&c.Threads, "threads", 0, "threads that an operation may use, in place of what the run says; 0 leaves it to the run")
	f.StringVar(&data, "data", "", "this machine's folder of the data, for runs with --input local; by default it is at the chief's path")
	f.BoolVar(&child, "child", false, "")
	if err := f.MarkHidden("child"); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if child {
			shardinput.Serve(shardinput.Options{Dir: data, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
			return cluster.Child(cmd.Context())
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		if c.Devices == "" {
			c.Devices = ownDevices()
		}
		if data != "" {
			if data, err = filepath.Abs(data); err != nil {
				return err
			}
		}
		s, err := listen(cmd.OutOrStdout(), env, c, data)
		if err != nil {
			return err
		}
		return s.Serve(cmd.Context())
	}
	return cmd
}

// ownDevices are the devices that a worker lends where nobody says which: the GPUs, or
// a CPU device where there is none.
func ownDevices() string {
	if strategy.CountGPUs() > 0 {
		return "gpu"
	}
	return "cpu:1"
}

// listen makes this process a worker, and says so. Data is this machine's folder of the
// data, "" for the chief's path.
func listen(out io.Writer, env train.Env, c cluster.SupervisorConfig, data string) (*cluster.Supervisor, error) {
	c.Child = []string{"gorbit", "worker", "--child"}
	if data != "" {
		c.Child = append(c.Child, "--data", data)
	}
	c.Log, c.ChildLog, c.Version = env.Log, os.Stderr, version.String()
	if err := c.Validate(); err != nil {
		return nil, usagef("%w", err)
	}
	s, err := cluster.Listen(c)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if _, err := fmt.Fprintf(out, "listening on %s with %s\n", s.Addr(), c.Devices); err != nil {
		return nil, err
	}
	// Not by the log, which may leave it out.
	fmt.Fprintln(os.Stderr, "gorbit: TensorFlow's gRPC has no authentication: who reaches this worker can run programs here, so keep it in a private network")
	return s, nil
}
