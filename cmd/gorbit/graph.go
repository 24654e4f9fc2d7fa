package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

func newGraph(g *globals) *cobra.Command {
	var out string
	var files, settings []string
	cmd := &cobra.Command{
		Use:   "graph --graph EXPORT --out FOLDER [flags]",
		Short: "Write the graph that a training would run",
		Long: `Composes the graph that gorbit train with the same flags would run, and writes it into a
folder, which it makes: graph.pb is the GraphDef of the training step, evaluation and
prediction on all devices; config.pb the ConfigProto of the session; runs.json the calls of the
session, with what each is fed, fetches and runs (-1 is a size that depends on the
batch). Nothing is run, no data is read, and the devices of --devices need not be there.
gorbit tpu graph writes those of a TPU.`,
		Example: `  gorbit graph --graph exports/mrpc --devices gpu:2 --out /tmp/graph
  gorbit graph --params runs/mrpc/params.yaml --out /tmp/graph`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "`FOLDER` to write; it must not exist")
	f.StringArrayVar(&files, "params", nil, "YAML `FILE` of params; may be repeated, later files win")
	f.StringArrayVar(&settings, "set", nil, "one param, as `SECTION.NAME=VALUE`; may be repeated")
	help.Group(f, "The graph and its params", "out", "params", "set")
	short := addParams(f, trainGroups...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if out == "" {
			return usagef("--out is missing; expected the folder to write")
		}
		given := params.Given{Files: files, Settings: settings, Flags: typedParams(f)}
		p, _, err := train.LoadParams(cmd.Context(), "", func(p *params.Params) error { return p.Load(files, slices.Concat(settings, short())) })
		if err != nil {
			return err
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		made, err := train.ComposeGraph(cmd.Context(), p, env)
		if err != nil {
			return given.Locate(err)
		}
		return writeGraph(out, made.GraphDef, made.Config, map[string]any{"devices": made.Devices, "runs": made.Calls})
	}
	return cmd
}

// writeGraph makes a folder of a graph, of its session's configuration, unless that is nil, and of the
// calls that run it.
func writeGraph(out string, graph, config []byte, runs map[string]any) error {
	text, err := json.MarshalIndent(runs, "", " ")
	if err != nil {
		return err
	}
	if err = vfs.Mkdir(out, 0o777); errors.Is(err, fs.ErrExist) {
		return usagef("%s already exists; choose another folder with --out", out)
	}
	if err == nil {
		err = vfs.WriteFile(filepath.Join(out, "graph.pb"), graph)
	}
	if err == nil && config != nil {
		err = vfs.WriteFile(filepath.Join(out, "config.pb"), config)
	}
	if err == nil {
		err = vfs.WriteFile(filepath.Join(out, "runs.json"), append(text, '\n'))
	}
	if err != nil {
		return err
	}
	return vfs.SyncDir(out)
}
