package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// offer lists the devices that TensorFlow offers in this process.
type offer struct {
	TensorFlow string    `json:"tensorflow"`
	CUDA       cuda.Info `json:"cuda"`
	Devices    []device  `json:"devices"`
}

// device is one of TensorFlow's devices.
type device struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// MemoryLimitBytes is how much of the device's memory TensorFlow may use. It does not limit
	// CPUs, for which it always reports 256 MiB.
	MemoryLimitBytes int64 `json:"memory_limit_bytes"`
	// Model is the vendor's name of the device.
	Model string `json:"model,omitempty"`
	// Cores is the number of cores, which all CPU devices share. Kernels is the instruction set
	// that gorbit's own kernels use. Both are set for CPUs only.
	Cores   int    `json:"cores,omitempty"`
	Kernels string `json:"kernels,omitempty"`
	// Capability is the compute capability of a GPU.
	Capability string `json:"capability,omitempty"`
}

func newDevices(*globals) *cobra.Command {
	var spec string
	var workers []string
	var timeout time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices [flags]",
		Short: "List the devices that TensorFlow offers here",
		Long: `Lists the devices of this machine as TensorFlow sees them, with their names for
runtime.device, and the versions of TensorFlow and CUDA. With --workers, lists the
devices that workers lend.`,
		Example: `  gorbit devices
  gorbit devices --devices cpu:4 --json
  gorbit devices --workers 10.0.0.2:2222,10.0.0.3:2222`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&spec, "devices", "", "devices to ask for `cpu:N|gpu:N`: cpu:4 creates 4 virtual CPU devices, gpu:2 uses the first 2 GPUs")
	cmd.Flags().StringSliceVar(&workers, "workers", nil, "list the devices of gorbit worker processes (`HOST:PORT,...`)")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the workers")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	help.Group(cmd.Flags(), "What to list", "devices", "workers", "timeout", "json")
	readAccess := addAccess(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(workers) > 0 {
			config := cluster.Config{Addresses: workers, Timeout: timeout, Log: slog.New(slog.DiscardHandler), Version: version.String()}
			by, err := readAccess(cmd.InOrStdin())
			if err != nil {
				return err
			}
			if config.Sockets = by.sockets; by.keys != nil {
				config.Keys = by.keys
			}
			return listWorkers(cmd.Context(), cmd.OutOrStdout(), config, asJSON)
		}
		var asked devices.Spec
		if spec != "" {
			var err error
			if asked, err = devices.Parse(spec); err != nil {
				return usagef("--devices: %w", err)
			}
		}
		found, err := listDevices(asked)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), found)
		}
		return found.write(cmd.OutOrStdout())
	}
	return cmd
}

// listWorkers prints the devices that workers lend.
func listWorkers(ctx context.Context, out io.Writer, config cluster.Config, asJSON bool) error {
	if err := config.Validate(); err != nil {
		return usagef("%w", err)
	}
	f, err := cluster.Connect(ctx, config)
	if err != nil {
		return err
	}
	workers := f.Workers()
	if err := f.Close(); err != nil {
		return err
	}
	if asJSON {
		return writeJSON(out, workers)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "worker\tdevice\tcores\tkernels\tversions\n")
	for _, k := range workers {
		for _, d := range k.Devices {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\tgorbit %s, TensorFlow %s\n", k.Address, d, k.Cores, k.Instructions, k.Gorbit, k.TensorFlow)
		}
	}
	return w.Flush()
}

// listDevices asks TensorFlow for its devices. If asked names a type, only devices of that type
// are returned.
func listDevices(asked devices.Spec) (*offer, error) {
	config := &cpb.ConfigProto{GpuOptions: &cpb.GPUOptions{AllowGrowth: true}}
	if asked.Count > 0 {
		config.DeviceCount = map[string]int32{asked.Type: int32(asked.Count)}
	}
	options, err := proto.Marshal(config)
	if err != nil {
		return nil, err
	}
	graph := tf.NewGraph()
	session, err := tf.NewSession(graph, &tf.SessionOptions{Config: options})
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	defer session.Close()
	// The session refers to memory that the graph's finalizer frees.
	defer runtime.KeepAlive(graph)
	list, err := session.ListDevices()
	if err != nil {
		return nil, fmt.Errorf("list the devices: %w", err)
	}
	if err := kernels.Register(); err != nil {
		return nil, err
	}
	o := &offer{TensorFlow: tf.Version(), CUDA: cuda.Query(), Devices: []device{}}
	gpus := 0
	for _, d := range list {
		if asked.Type != "" && d.Type != asked.Type {
			continue
		}
		found := device{Name: d.Name[strings.LastIndexByte(d.Name, '/'):], Type: d.Type, MemoryLimitBytes: d.MemoryLimitBytes}
		switch d.Type {
		case "CPU":
			found.Model, found.Cores, found.Kernels = devices.Processor(), runtime.NumCPU(), kernels.Instructions()
		case "GPU":
			if gpus < len(o.CUDA.GPUs) {
				found.Model, found.Capability = o.CUDA.GPUs[gpus].Name, o.CUDA.GPUs[gpus].Capability
			}
			gpus++
		}
		o.Devices = append(o.Devices, found)
	}
	if len(o.Devices) < max(asked.Count, 1) {
		return nil, o.missing(asked)
	}
	return o, nil
}

// missing returns an error that says why there are fewer devices than asked for.
func (o *offer) missing(asked devices.Spec) error {
	switch {
	case asked.Type == "GPU" && !o.CUDA.Built:
		return errors.New(cuda.NotBuilt)
	case asked.Type == "GPU" && o.CUDA.Driver == "":
		return errors.New("no GPU or no driver found: libcuda.so.1 is missing or reports no device")
	}
	return fmt.Errorf("%d devices of type %s requested; TensorFlow offers %d", max(asked.Count, 1), asked.Type, len(o.Devices))
}

// write prints a table of the devices, followed by the versions.
func (o *offer) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "device\ttype\tmemory limit\tdescription\n")
	for _, d := range o.Devices {
		// TensorFlow does not limit the memory of CPUs; the value it reports means nothing.
		memory := "-"
		if d.Type != "CPU" {
			memory = fmt.Sprintf("%.1f GiB", float64(d.MemoryLimitBytes)/(1<<30))
		}
		what := []string{}
		if d.Model != "" {
			what = append(what, d.Model)
		}
		if d.Cores > 0 {
			what = append(what, fmt.Sprintf("%d cores", d.Cores), "kernels "+d.Kernels)
		}
		if d.Capability != "" {
			what = append(what, "compute capability "+d.Capability)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.Name, d.Type, memory, strings.Join(what, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, left := range o.CUDA.Left {
		fmt.Fprintf(out, "TensorFlow leaves out a GPU: %s\n", left)
	}
	library := "without CUDA"
	if o.CUDA.Built {
		library = fmt.Sprintf("with CUDA %s, driver %s", known(o.CUDA.Runtime), known(o.CUDA.Driver))
	}
	_, err := fmt.Fprintf(out, "TensorFlow %s %s\n", o.TensorFlow, library)
	return err
}

func known(library string) string {
	if library == "" {
		return "not found"
	}
	return library
}
