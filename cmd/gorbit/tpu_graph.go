package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

func newTPUGraph(*globals) *cobra.Command {
	var mesh, job, mode, out string
	var axes map[string]int64
	var more []string
	c := strategy.Config{StepsPerCall: 1}
	cmd := &cobra.Command{
		Use:   "graph EXPORT --axes rows=N,length=N,examples=N --out FOLDER",
		Short: "Write the graph that a TPU would run",
		Long: `Composes the graph of an export that gorbit would run on a TPU of the given topology, and
writes it into a folder, which it makes: graph.pb is the GraphDef; runs.json lists the calls
of a session, with the names and shapes of what each is fed. It needs no TPU. The programs
of a TPU have fixed shapes, so the size of every axis of the export's features is needed
(gorbit inspect EXPORT shows them). With --more-axes there are programs for more shapes, as
for data.buckets of a run.`,
		Example: `  gorbit tpu graph exports/mrpc --axes rows=16,length=128,examples=32 \
      --topology 2x2x1x2 --out /tmp/graph`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d exports given; expected one; see %s --help", len(args), cmd.CommandPath())
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&mesh, "topology", "2x2x1x2", "size of the mesh, `XxYxZxCORES`: chips in x, y and z, and cores of each chip")
	f.StringVar(&job, "job", tpu.DefaultJob, "job of the TPU's tasks in names of devices")
	f.IntVar(&c.Replicas, "replicas", 0, "cores to use; 0 means all")
	f.StringToInt64Var(&axes, "axes", nil, "size of each axis of the features of one replica")
	f.StringArrayVar(&more, "more-axes", nil, "axes (`NAME=N,...`) of another shape, which has programs of its own; may be repeated")
	f.IntVar(&c.StepsPerCall, "steps-per-call", 1, "training steps in a call; more than one are made by a loop on the TPU")
	f.StringVar(&mode, "mode", "train", "evaluate is for a graph without the training step `train|evaluate`")
	f.StringVar(&out, "out", "", "`FOLDER` to write; it must not exist")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch mode {
		case "train":
		case "evaluate":
			c.Functions = strategy.FunctionsEvaluate
		default:
			return usagef("--mode is %q; expected train or evaluate", mode)
		}
		if out == "" {
			return usagef("--out is missing; expected the folder to write")
		}
		topology, err := emulator.ParseTopology(mesh, 1)
		if err != nil {
			return err
		}
		c.Replicas = cmp.Or(c.Replicas, topology.Cores())
		export, err := graphs.Open(args[0])
		if err != nil {
			return err
		}
		c.Axes = axes
		for _, text := range more {
			sizes, err := parseAxes(text)
			if err != nil {
				return usagef("--more-axes: %w", err)
			}
			c.MoreAxes = append(c.MoreAxes, sizes)
		}
		g, err := strategy.NewTPUGraph(export, topology, job, c)
		if err != nil {
			return err
		}
		return writeGraph(out, g.GraphDef, nil, map[string]any{"job": job, "replicas": c.Replicas, "steps_per_call": c.StepsPerCall, "runs": g.Calls})
	}
	return cmd
}

// parseAxes parses sizes of axes, such as rows=16,length=64.
func parseAxes(text string) (map[string]int64, error) {
	out := make(map[string]int64)
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(word, "=")
		size, err := strconv.ParseInt(value, 10, 64)
		if err != nil || name == "" {
			return nil, fmt.Errorf("%q is not the size of an axis; expected sizes such as rows=16,length=64,examples=32", word)
		}
		out[name] = size
	}
	return out, nil
}
