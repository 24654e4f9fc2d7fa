package main

import (
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/tpuemulator"
)

func newTPUEmulator(g *globals) *cobra.Command {
	var listen, mesh, fails string
	var hosts int
	cmd := &cobra.Command{
		Use:   "tpu-emulator [--listen HOST:PORT] [--topology XxYxZxCORES] [--hosts N]",
		Short: "Emulate a TPU's server on the CPU, for tests",
		Long: `Answers as the TensorFlow server of a Cloud TPU does, for tests without one. It shows
TPU devices, has a topology, and runs operations and single steps of replicated
computations on the CPU. gorbit train does not use it: training on TPUs does not work yet.
Nothing about it says how a TPU compiles and computes.

TensorFlow's gRPC has no authentication: anyone who can reach the emulator can run any
program on this machine. By default only this machine can reach it.`,
		Example: `  gorbit tpu-emulator --listen 127.0.0.1:8470 --topology 2x2x1x2 --hosts 1`,
		Args:    noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8470", "address to listen on; no host means loopback, 0.0.0.0 all addresses, port 0 any free port")
	f.StringVar(&mesh, "topology", "2x2x1x2", "size of the mesh: chips in x, y and z, and cores of each chip")
	f.IntVar(&hosts, "hosts", 1, "hosts that share the chips; a session's cluster must have as many tasks")
	f.StringVar(&fails, "fault", "", fmt.Sprintf("what goes wrong when the TPU is configured, for tests: one of %v", tpuemulator.Faults()))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		topology, err := tpuemulator.ParseTopology(mesh, hosts)
		if err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return usagef("--listen: %w; expected HOST:PORT", err)
		}
		if host == "" {
			host = "127.0.0.1"
		}
		c := tpuemulator.Config{Topology: topology, Fault: tpuemulator.Fault(fails), Log: env.Log}
		if err := c.Validate(); err != nil {
			return err
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return fmt.Errorf("TPU emulator: %w", err)
		}
		if c.Backend, err = tpuemulator.StartBackend(topology); err != nil {
			l.Close()
			return err
		}
		e, err := tpuemulator.New(c)
		if err != nil {
			l.Close()
			return err
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "emulating a TPU with %d cores on %s; it is no TPU and computes on the CPU\n", topology.Cores(), l.Addr()); err != nil {
			l.Close()
			return err
		}
		// Printed rather than logged, so that --log-level cannot hide it.
		fmt.Fprintln(os.Stderr, "gorbit: TensorFlow's gRPC has no authentication: anyone who can reach this emulator can run programs here")
		return e.Serve(cmd.Context(), l)
	}
	return cmd
}
