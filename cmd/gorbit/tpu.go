package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/tpu"
)

func newTPU(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tpu",
		Short: "Find Cloud TPUs, and show what they would run",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTPUDescribe(g), newTPUGraph(g))
	return cmd
}

// tpuFlags declares the flags that locate a TPU.
func tpuFlags(f *pflag.FlagSet, c *tpu.Config) {
	f.StringVar(&c.Project, "tpu-project", "", "project of the TPU (default: this machine's, from the metadata server)")
	f.StringVar(&c.Zone, "tpu-zone", "", "zone of the TPU (default: this machine's, from the metadata server)")
	f.StringVar(&c.API, "tpu-api", "", "base URL of the Cloud TPU API, `https://...` (default "+tpu.DefaultAPI+")")
	f.DurationVar(&c.ReadyTimeout, "tpu-ready-timeout", 0, "how long to wait for a TPU that is being created or started")
	f.BoolVar(&c.WaitForNode, "tpu-wait", false, "also wait for a TPU that was preempted or stopped, until it is created again")
}

func newTPUDescribe(g *globals) *cobra.Command {
	var c tpu.Config
	var start tpu.SystemConfig
	var asJSON, topology bool
	cmd := &cobra.Command{
		Use:   "describe [NAME]",
		Short: "Resolve the name of a TPU and show the result",
		Long: `Resolves the name of a TPU and shows the addresses of its workers and, for a node of
the Cloud TPU API, its state, health and type. NAME is a node, a comma-separated list
of addresses (grpc://10.0.0.2:8470), or local. Without NAME, the name comes from the
environment: KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME or TPU_CONFIG, in this order.

With --topology it also starts the TPU's system, shows its mesh and the place of each core,
and shuts it down again. That ends whatever runs on the TPU.`,
		Example: `  gorbit tpu describe node-1 --tpu-zone us-central1-b
  gorbit tpu describe grpc://10.0.0.2:8470,grpc://10.0.0.3:8470
  gorbit tpu describe grpc://10.0.0.2:8470 --topology`,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%d names given; expected one; separate addresses by commas", len(args))
		}
		return nil
	}
	f := cmd.Flags()
	tpuFlags(f, &c)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&topology, "topology", false, "start the TPU and show its topology; this ends whatever runs on it")
	f.DurationVar(&start.Timeout, "tpu-timeout", tpu.DefaultStartTimeout, "how long the TPU may take to start, with --topology")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		c.Name, c.Log, c.Getenv = strings.Join(args, ""), env.Log, os.Getenv
		r, err := tpu.NewResolver(c)
		if err != nil {
			return err
		}
		found, err := r.Resolve(cmd.Context())
		if err != nil {
			return err
		}
		out := description(found)
		if topology {
			start.Log = env.Log
			if found.Local {
				if err := tfprocess.TPU(); err != nil {
					return err
				}
			}
			if out.Topology, err = topologyOf(cmd.Context(), found, start); out.Topology == nil {
				return err
			}
		}
		return cmp.Or(out.print(cmd.OutOrStdout(), found, asJSON), err)
	}
	return cmd
}

// print prints the description, as JSON or as a table.
func (d tpuDescription) print(to io.Writer, found tpu.Cluster, asJSON bool) error {
	if asJSON {
		return writeJSON(to, d)
	}
	if err := describe(to, found); err != nil || d.Topology == nil {
		return err
	}
	return d.Topology.print(to)
}

// tpuDescription is the JSON output of describe.
type tpuDescription struct {
	Source  string    `json:"source"`
	Local   bool      `json:"local"`
	Master  string    `json:"master"`
	Job     string    `json:"job"`
	Workers []string  `json:"workers"`
	Node    *tpu.Node `json:"node,omitempty"`

	Topology *tpuTopology `json:"topology,omitempty"`
}

func description(c tpu.Cluster) tpuDescription {
	return tpuDescription{Source: c.Source, Local: c.Local, Master: c.Master(), Job: c.Job, Workers: append([]string{}, c.Workers...), Node: c.Node}
}

// tpuTopology is the JSON output of describe --topology.
type tpuTopology struct {
	Emulated bool           `json:"emulated"`
	Mesh     tpu.Coordinate `json:"mesh"`
	Tasks    int            `json:"tasks"`
	Cores    []tpuCore      `json:"cores"`
}

// tpuCore is a core and its place in the mesh.
type tpuCore struct {
	Device     string         `json:"device"`
	Coordinate tpu.Coordinate `json:"coordinate"`
}

// topologyOf starts a TPU, and shuts it down. If only the latter fails, it returns the topology and the
// error.
func topologyOf(ctx context.Context, c tpu.Cluster, config tpu.SystemConfig) (*tpuTopology, error) {
	s, err := tpu.Start(ctx, c, config)
	if err != nil {
		return nil, err
	}
	err = s.Shutdown(ctx)
	t := s.Topology
	out := &tpuTopology{Emulated: s.Emulated, Mesh: t.Mesh, Tasks: t.Tasks}
	for _, at := range t.Coordinates {
		core, _ := t.At(at)
		out.Cores = append(out.Cores, tpuCore{Device: core.Name(s.Job), Coordinate: at})
	}
	return out, err
}

func (t *tpuTopology) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if t.Emulated {
		fmt.Fprintln(w, "emulated\tyes: gorbit tpu-emulator, no TPU")
	}
	fmt.Fprintf(w, "mesh\t%d x %d x %d chips of %d cores\n", t.Mesh[0], t.Mesh[1], t.Mesh[2], t.Mesh[3])
	fmt.Fprintf(w, "tasks\t%d with %d cores each\n", t.Tasks, len(t.Cores)/t.Tasks)
	for _, c := range t.Cores {
		fmt.Fprintf(w, "%s\tx=%d y=%d z=%d core=%d\n", c.Device, c.Coordinate[0], c.Coordinate[1], c.Coordinate[2], c.Coordinate[3])
	}
	return w.Flush()
}

// describe prints a resolved TPU as a table.
func describe(out io.Writer, c tpu.Cluster) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	row("found by", c.Source)
	if n := c.Node; n != nil {
		row("node", n.Name)
		row("state", n.State)
		row("health", strings.TrimSpace(n.Health+" "+n.HealthDescription))
		row("type", n.AcceleratorType)
		row("runtime", cmp.Or(n.RuntimeVersion, n.TensorFlowVersion))
		for _, s := range n.Symptoms {
			row("symptom", strings.Join(strings.Fields(fmt.Sprintf("%s %s worker %s: %s", s.CreateTime, s.Type, s.WorkerID, s.Details)), " "))
		}
	}
	if c.Local {
		row("master", "this machine")
	}
	row("master", c.Master())
	for i, address := range c.Workers {
		row(fmt.Sprintf("/job:%s/task:%d", c.Job, i), address)
	}
	return w.Flush()
}
