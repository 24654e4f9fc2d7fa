package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/tpuemulator"
)

func newTPUEmulator(g *globals) *cobra.Command {
	var listen []string
	var mesh, fails string
	var hosts int
	var abandoned time.Duration
	cmd := &cobra.Command{
		Use:   "tpu-emulator [--listen HOST:PORT[,...]] [--topology XxYxZxCORES] [--hosts N]",
		Short: "Emulate a TPU's server on the CPU, for tests",
		Long: `Answers as the TensorFlow server of a Cloud TPU does, for tests without one. It shows
TPU devices, has a topology, and runs operations, steps and loops of replicated
computations on the CPU. It refuses what a TPU refuses, and can be told to fail. Nothing
about it says how a TPU compiles and computes.

TensorFlow's gRPC has no authentication: anyone who can reach the emulator can run any
program on this machine. By default only this machine can reach it.`,
		Example: `  gorbit tpu-emulator --listen 127.0.0.1:8470 --topology 2x2x1x2 --hosts 1`,
		Args:    noArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&listen, "listen", []string{"127.0.0.1:8470"}, "addresses to listen on, such as one for each host; no host means loopback, 0.0.0.0 all addresses, port 0 any free port")
	f.StringVar(&mesh, "topology", "2x2x1x2", "size of the mesh: chips in x, y and z, and cores of each chip")
	f.IntVar(&hosts, "hosts", 1, "hosts that share the chips; a session's cluster must have as many tasks")
	f.StringVar(&fails, "fault", "", fmt.Sprintf("what goes wrong, for tests: KIND, KIND@CALL or KIND@CALL:TIME, with one of %v (see docs/guide/tpu.md)", tpuemulator.Faults()))
	f.DurationVar(&abandoned, "abandoned", tpuemulator.DefaultAbandoned, "end a session, and free its variables, so long after the last connection of its client ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		topology, err := tpuemulator.ParseTopology(mesh, hosts)
		if err != nil {
			return err
		}
		c := tpuemulator.Config{Topology: topology, Fault: tpuemulator.Fault(fails), Abandoned: abandoned, Log: env.Log}
		if err := c.Validate(); err != nil {
			return err
		}
		listeners, err := listenAll(listen)
		if err != nil {
			return fmt.Errorf("TPU emulator: %w", err)
		}
		e, err := emulatorWith(c)
		if err == nil {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "emulating a TPU with %d cores on %s; it is no TPU and computes on the CPU\n", topology.Cores(), addressesOf(listeners))
		}
		if err != nil {
			closeAll(listeners)
			return err
		}
		// Printed rather than logged, so that --log-level cannot hide it.
		fmt.Fprintln(os.Stderr, "gorbit: TensorFlow's gRPC has no authentication: anyone who can reach this emulator can run programs here")
		return e.Serve(cmd.Context(), listeners...)
	}
	return cmd
}

// emulatorWith starts the server that computes, and makes the emulator in front of it.
func emulatorWith(c tpuemulator.Config) (_ *tpuemulator.Emulator, err error) {
	if c.Backend, err = tpuemulator.StartBackend(c.Topology); err != nil {
		return nil, err
	}
	return tpuemulator.New(c)
}

// listenAll listens on all addresses, HOST:PORT, or on none.
func listenAll(addresses []string) (out []net.Listener, err error) {
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			closeAll(out)
			return nil, usagef("--listen: %w; expected HOST:PORT", err)
		}
		l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, usagef("--listen: no address; expected HOST:PORT")
	}
	return out, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

func addressesOf(listeners []net.Listener) string {
	var out []string
	for _, l := range listeners {
		out = append(out, l.Addr().String())
	}
	return strings.Join(out, ", ")
}
