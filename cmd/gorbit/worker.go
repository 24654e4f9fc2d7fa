package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/train"
)

func newWorker(g *globals) *cobra.Command {
	var c cluster.SupervisorConfig
	var child, onTPU, endWithInput bool
	var data string
	var hosts []string
	var products string
	cmd := &cobra.Command{
		Use:   "worker [--listen HOST:PORT] [--devices DEVICES] [flags]",
		Short: "Lend this machine's devices to a training run",
		Long: `Listens for gorbit train --workers and lends it this machine's devices, one run
at a time. Each session runs TensorFlow's server in a separate process, which ends with
the session; the worker itself runs until it is stopped.

With --tpu it runs TensorFlow's server itself, on a host of a TPU, for gorbit train --tpu.

With --token-file (or --tls-cert, --tls-key and --tls-ca) only chiefs and workers with the
same keys can connect, over mutual TLS 1.3, and TensorFlow itself listens on no port.
With --sockets, for chief and workers on one machine, nothing listens on a port.

Without keys there is no authentication: anyone who can reach the worker, or the servers
that it starts on other ports, can run any program on this machine. By default only this
machine can reach it. Pass an address of a private network to --listen, never a public one.`,
		Example: `  gorbit worker --listen 10.0.0.2:2222 --devices gpu --token-file token
  gorbit worker --listen 127.0.0.1:0 --devices cpu:2 --threads 1
  gorbit worker --tpu --listen 10.0.0.2:8470 --hosts 10.0.0.2:8470,10.0.0.3:8470`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:2222", "`HOST:PORT` to listen on; no host means loopback, 0.0.0.0 all addresses, port 0 any free port")
	f.StringVar(&c.Devices, "devices", "", "devices to lend `gpu:N|cpu:N`: cpu:N (N devices that share the cores), gpu (all GPUs) or gpu:N (default: all GPUs, or cpu:1 if there are none)")
	f.IntVar(&c.Threads, "threads", 0, "threads that one operation may use, overriding the run's setting; 0 keeps the run's setting")
	f.StringVar(&data, "data", "", "`FOLDER` of the data on this machine, for runs with --input local (default: the same path as on the chief)")
	f.BoolVar(&onTPU, "tpu", false, "serve this host's TPU to gorbit train --tpu; needs TensorFlow's library for TPUs")
	f.StringSliceVar(&hosts, "hosts", nil, "with --tpu: addresses (`HOST:PORT,...`) of the servers of all hosts of the TPU, in order (default: only this one)")
	f.StringVar(&products, "matmul-precision", productsDefault, "with --tpu: `PRECISION` of products of float32 numbers, default (rounded to bfloat16) or highest (float32, slower)")
	f.BoolVar(&endWithInput, "end-with-input", false, "end when standard input ends, as it does when the ssh that started the worker is gone")
	help.Group(f, "What to lend, and where", "listen", "devices", "threads", "data", "end-with-input")
	help.Group(f, "A TPU's host", "tpu", "hosts", "matmul-precision")
	readAccess := addAccess(f)
	f.BoolVar(&child, "child", false, "")
	if err := f.MarkHidden("child"); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if child {
			shardinput.Serve(shardinput.Options{Dir: data, Log: slog.New(slog.NewTextHandler(stderr, nil))})
			return cluster.Child(cmd.Context())
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		if onTPU {
			for _, name := range []string{"devices", "threads", "data"} {
				if f.Changed(name) {
					return usagef("--%s is given with --tpu; leave it out: a TPU's server lends all cores of its host", name)
				}
			}
			if err := refuseAccess(f); err != nil {
				return err
			}
			return tpuServer{c.Listen, hosts, products}.serve(cmd.Context(), cmd.OutOrStdout())
		}
		if len(hosts) > 0 {
			return usagef("--hosts is given without --tpu; leave it out")
		}
		if f.Changed("matmul-precision") {
			return usagef("--matmul-precision is given without --tpu; leave it out")
		}
		by, err := readAccess(cmd.InOrStdin())
		if err != nil {
			return err
		}
		c.Keys, c.Sockets = by.keys, by.sockets
		return lend(cmd, env, c, data, endWithInput)
	}
	return cmd
}

// lend serves runs until the command is stopped or, if endWithInput is set, its input ends.
func lend(cmd *cobra.Command, env train.Env, c cluster.SupervisorConfig, data string, endWithInput bool) (err error) {
	if c.Devices, err = lentDevices(c.Devices); err != nil {
		return err
	}
	if data != "" {
		if data, err = dataFolder(data); err != nil {
			return err
		}
	}
	s, err := listen(cmd.OutOrStdout(), env, c, data)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if endWithInput {
		var cancel context.CancelFunc
		ctx, cancel = untilEnd(ctx, cmd.InOrStdin())
		defer cancel()
	}
	return s.Serve(ctx)
}

// dataFolder returns the absolute path of the folder of --data.
func dataFolder(path string) (string, error) {
	switch info, err := vfs.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("--data %s: no such folder; expected the folder of the data on this machine", path)
	case err != nil:
		return "", fmt.Errorf("--data: %w", err)
	case !info.IsDir():
		return "", usagef("--data %s: not a folder; expected the folder of the data on this machine", path)
	}
	return vfs.Abs(path)
}

// lentDevices returns the devices that a worker lends: those that are named, all GPUs, or one CPU device
// if there are none.
func lentDevices(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	switch n, err := strategy.CountGPUs(); {
	case err != nil:
		return "", err
	case n > 0:
		return "gpu", nil
	}
	return "cpu:1", nil
}

// listen makes this process a worker and prints its address. data is the folder of the data on
// this machine; "" means the same path as on the chief.
func listen(out io.Writer, env train.Env, c cluster.SupervisorConfig, data string) (*cluster.Supervisor, error) {
	c.Child = []string{"gorbit", "worker", "--child"}
	if data != "" {
		c.Child = append(c.Child, "--data", data)
	}
	c.Log, c.ChildLog, c.Version = env.Log, stderr, version.String()
	if err := c.Validate(); err != nil {
		return nil, usagef("%w", err)
	}
	s, err := cluster.Listen(c)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	where := ""
	if c.Sockets != "" {
		where = ", by a socket in " + c.Sockets
	}
	if _, err := fmt.Fprintf(out, "listening on %s with %s%s\n", s.Addr(), c.Devices, where); err != nil {
		return nil, err
	}
	if c.Keys == nil && c.Sockets == "" {
		// Printed rather than logged, so that --log-level cannot hide it.
		fmt.Fprintln(stderr, "gorbit: TensorFlow's gRPC has no authentication: anyone who can reach this worker can run programs here, so give it a --token-file, or keep it in a private network")
	}
	return s, nil
}

// tpuServer is TensorFlow's server on a host of a TPU, for gorbit train --tpu.
type tpuServer struct {
	listen   string
	hosts    []string // of all servers of the TPU, in order; nil means only this one
	products string   // of float32 numbers: their precision
}

// The values of --matmul-precision.
const (
	productsDefault = "default"
	productsHighest = "highest"
)

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
	if s.products != productsDefault && s.products != productsHighest {
		return tfserver.Config{}, usagef("--matmul-precision is %q; expected default or highest", s.products)
	}
	c := tfserver.Config{Task: -1, Host: at.Unmap(), CPUs: 1, GPUs: 0, FullFloat32: s.products == productsHighest}
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

// setTPU sets what TensorFlow's library for TPUs reads when it is loaded. What the user has set stays.
func setTPU(ctx context.Context) error {
	if err := tfprocess.TPU(); err != nil {
		return err
	}
	host, err := tpu.ThisHost(ctx, os.Getenv)
	switch {
	case errors.Is(err, fault.Usage), err != nil && ctx.Err() != nil:
		return fmt.Errorf("worker: %w", err)
	case err != nil:
		fmt.Fprintf(stderr, "gorbit: the variables of a TPU VM, such as TPU_MESH_CONTROLLER_ADDRESS, are left as they are: %v; a TPU of several hosts needs them\n", err)
	}
	if host.PJRT() {
		fmt.Fprintf(stderr, "gorbit: the TPU is a %s, for which TensorFlow is documented with PJRT only, and this server does not load that: expect it to find no cores; docs/guide/tpu.md says what is known\n", host.Kind)
	}
	for name, value := range host.Variables {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// serve runs the server until ctx ends. TensorFlow's server cannot be stopped: it ends with the
// process.
func (s tpuServer) serve(ctx context.Context, out io.Writer) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	if err := setTPU(ctx); err != nil {
		return err
	}
	if free, err := net.Listen("tcp", s.listen); err != nil {
		return fmt.Errorf("worker: %w; if a server for TPUs listens there already, as on images with -pod in their names, use that one, or stop it with sudo systemctl stop tpu-runtime", err)
	} else if err := free.Close(); err != nil {
		return fmt.Errorf("worker: %w", err)
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
	fmt.Fprintln(stderr, "gorbit: TensorFlow's gRPC has no authentication: anyone who can reach this worker can run programs here, so keep it in a private network")
	<-ctx.Done()
	return nil
}
