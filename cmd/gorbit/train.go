package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/doctor"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

func newTrain(g *globals) *cobra.Command {
	var run string
	var files, settings []string
	cmd := &cobra.Command{
		Use:   "train --graph EXPORT --data DATA --run FOLDER [flags]",
		Short: "Train an exported graph, or continue a run",
		Long: `Trains an exported graph on TFRecords and evaluates as it goes.

Params describe a run: the defaults, some of which an export of Keras has of its own,
then the files of --params in order, then --set, then the other flags, which have the
name of their param in brackets. The resolved params are written to FOLDER/params.yaml.
If FOLDER holds a checkpoint, the run continues from it: however the run was stopped, the same
command ends with the same variables, bit for bit. On SIGINT or SIGTERM, training saves
and stops within a step, or within a call of several steps (--steps-per-call), with exit code 75.`,
		Example: `  gorbit train --graph exports/mrpc --data data/mrpc --run runs/mrpc --epochs 3
  gorbit train --params base.yaml --set optimizer.learning_rate=1e-4 --run runs/mrpc
  gorbit train --params runs/mrpc/params.yaml --run runs/again`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "`FOLDER` of the run (required)")
	f.StringArrayVar(&files, "params", nil, "YAML `FILE` of params; may be repeated, later files win")
	f.StringArrayVar(&settings, "set", nil, "one param, as `SECTION.NAME=VALUE`; may be repeated (--print-params lists the names)")
	f.Bool("print-params", false, "print the resolved params and exit")
	resumeFrom := f.String("resume-from", "", "continue from this `STEP|best|PATH`, not from the newest checkpoint; later steps are set aside")
	overwrite := f.Bool("overwrite", false, "remove the run in the folder and start from scratch")
	receipt := f.Bool("receipt", false, "at the end, write the run's receipt.json, which gorbit verify checks")
	help.Group(f, "The run and its params", "run", "params", "set", "print-params", "resume-from", "overwrite", "receipt")

	readAccess := addAccess(f)
	short := addParams(f, trainGroups...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := params.Given{Files: files, Settings: settings, Flags: typedParams(f)}
		load := func(p *params.Params) error { return p.Load(files, slices.Concat(settings, short())) }
		p, own, err := train.LoadParams(cmd.Context(), run, load)
		if err != nil {
			return err
		}
		if show, _ := f.GetBool("print-params"); show {
			text, err := p.YAMLWith("of the graph", own)
			if err != nil {
				return err
			}
			_, err = shown.Data(cmd.OutOrStdout()).Write(text)
			return err
		}
		if run == "" {
			return usagef("--run is missing; expected the folder of the run")
		}
		if f.Changed("tpu") && p.Strategy.TPU == "" {
			return emptyTPU("--strategy tpu")
		}
		var kept []string
		if !*overwrite {
			kept = p.Keep(vfs.Join(train.Origin(run, *resumeFrom), runfolder.Params))
		}
		if err := setProcess(p); err != nil {
			return err
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		tellOwn(env.Log, p, own)
		env.ResumeFrom, env.Overwrite, env.Memory = *resumeFrom, *overwrite, available(doctor.ThisMachine(runtime.NumCPU()))
		by, err := accessOfTraining(f, readAccess, cmd.InOrStdin(), p, &env)
		if err != nil {
			return err
		}
		env.Placed = func(on strategy.Runtime) { tellCalls(cmd.Context(), on.StepsPerCall) }
		env.Log.Info("process", "cores", runtime.NumCPU(), "malloc_keeps_memory", tfprocess.MallocKeeps())
		if len(kept) > 0 {
			env.Log.Warn("settings that affect rounding stay as the run began with", "kept", strings.Join(kept, "; "))
		}
		// The run continues if the reader of its output goes away.
		signal.Ignore(syscall.SIGPIPE)
		return given.Locate(withReceipt(cmd, run, *receipt, func() error { return trainInCluster(cmd.Context(), cmd.OutOrStdout(), p, run, env, by) }))
	}
	return cmd
}

// tellOwn logs the params that are the graph's.
func tellOwn(log *slog.Logger, p params.Params, own []string) {
	if len(own) == 0 {
		return
	}
	var said []any
	all := p.Flat()
	for _, name := range own {
		said = append(said, strings.TrimPrefix(name, "optimizer."), strings.Trim(fmt.Sprint(all[name]), `"`))
	}
	log.Info("optimizer as the graph brings it along", said...)
}

// emptyTPU returns the error of --tpu without a name. A TPU of the environment is named by other flags.
func emptyTPU(other string) error {
	return usagef("--tpu is empty; expected a node's name, grpc://HOST:PORT or local; for the name in the environment, use %s", other)
}

// setProcess sets what TensorFlow reads when its library is loaded: whether it takes the TPU of this
// machine, and oneDNN. The program starts itself again if it runs with the other setting of oneDNN.
func setProcess(p params.Params) error {
	if s := p.Strategy; s.Kind() == devices.TPU && s.TPUConfig(nil).Local() {
		if err := tfprocess.TPU(); err != nil {
			return err
		}
	}
	setting := p.Runtime.OneDNN
	if setting != "on" && setting != "off" {
		return nil // Validate reports it
	}
	return tfprocess.OneDNN(setting == "on", os.Args)
}
