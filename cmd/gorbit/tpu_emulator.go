package main

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

func newTPUEmulator(g *globals) *cobra.Command {
	var listen, peers []string
	var mesh, fails string
	var hosts, host int
	var abandoned time.Duration
	cmd := &cobra.Command{
		Use:   "tpu-emulator [--listen HOST:PORT[,...]] [--topology XxYxZxCORES] [--hosts N]",
		Short: "Emulate a TPU's server on the CPU, for tests",
		Long: `Answers as the TensorFlow server of a Cloud TPU does, for tests without one. It shows
TPU devices, has a topology, and runs operations, steps and loops of replicated
computations on the CPU. It refuses what a TPU refuses, and can be told to fail. Nothing
about it says how a TPU compiles and computes.

All hosts of the TPU are in this process. With --peers each is a process of its own, started
with the same topology and peers: sums over the cores go from host to host, and a host can be
lost. Clients get the addresses of --listen of all hosts, that of host 0 first.

TensorFlow's gRPC has no authentication: anyone who can reach the emulator can run any
program on this machine. By default only this machine can reach it.`,
		Example: `  gorbit tpu-emulator --listen 127.0.0.1:8470 --topology 2x2x1x2 --hosts 1
  gorbit tpu-emulator --listen 127.0.0.1:8471 --hosts 2 --host-index 1 \
      --peers 127.0.0.1:9470,127.0.0.1:9471`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&listen, "listen", []string{"127.0.0.1:8470"}, "addresses to listen on (`HOST:PORT,...`), such as one for each host; no host means loopback, 0.0.0.0 all addresses, port 0 any free port")
	f.StringVar(&mesh, "topology", "2x2x1x2", "size of the mesh, `XxYxZxCORES`: chips in x, y and z, and cores of each chip")
	f.IntVar(&hosts, "hosts", 1, "hosts that share the chips; a session's cluster must have as many tasks")
	f.StringSliceVar(&peers, "peers", nil, "addresses (`IP:PORT,...`) at which the hosts compute for each other, in order, the same for all; each host is then a process of its own")
	f.IntVar(&host, "host-index", 0, "number of this host, from 0; with --peers")
	f.StringVar(&fails, "fault", "", fmt.Sprintf("what goes wrong, for tests: KIND, KIND@CALL or KIND@CALL:TIME, with one of %v (see docs/guide/tpu.md)", emulator.Faults()))
	f.DurationVar(&abandoned, "abandoned", emulator.DefaultAbandoned, "end a session, and free its variables, so long after the last connection of its client ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		topology, err := emulator.ParseTopology(mesh, hosts)
		if err != nil {
			return err
		}
		if host != 0 && len(peers) == 0 {
			return usagef("--host-index is %d, and --peers is missing; expected the addresses at which all hosts compute for each other", host)
		}
		if host > 0 && fails != "" {
			return usagef("--fault is %q for host %d; expected it for host 0, which answers the clients", fails, host)
		}
		c := emulator.Config{Topology: topology, Fault: emulator.Fault(fails), Abandoned: abandoned, Log: env.Log, Apart: len(peers) > 0, Host: host}
		if err := c.Validate(); err != nil {
			return err
		}
		listeners, err := listenAll(listen)
		if err != nil {
			return fmt.Errorf("TPU emulator: %w", err)
		}
		e, err := emulatorWith(c, peers)
		if err == nil {
			what := fmt.Sprintf("a TPU with %d cores", topology.Cores())
			if c.Apart {
				what = fmt.Sprintf("host %d of %d of ", host, hosts) + what
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "emulating %s on %s; it is no TPU and computes on the CPU\n", what, addressesOf(listeners))
		}
		if err != nil {
			closeAll(listeners)
			return err
		}
		// Printed rather than logged, so that --log-level cannot hide it.
		fmt.Fprintln(stderr, "gorbit: TensorFlow's gRPC has no authentication: anyone who can reach this emulator can run programs here")
		return e.Serve(cmd.Context(), listeners...)
	}
	return cmd
}

// emulatorWith starts the server that computes, and makes the emulator in front of it.
func emulatorWith(c emulator.Config, peers []string) (_ *emulator.Emulator, err error) {
	if c.Apart {
		c.Backend, err = emulator.StartHost(c.Topology, peers, c.Host)
	} else {
		c.Backend, err = emulator.StartBackend(c.Topology)
	}
	if err != nil {
		return nil, err
	}
	return emulator.New(c)
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
