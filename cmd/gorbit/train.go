package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/tfprocess"
	"github.com/gorbit-ml/gorbit/train"
)

func newTrain(g *globals) *cobra.Command {
	var run string
	var files, settings []string
	cmd := &cobra.Command{
		Use:   "train --graph EXPORT --data DATA --run FOLDER [flags]",
		Short: "Train an exported graph, or continue a run",
		Long: `Trains an exported graph on TFRecords and evaluates as it goes.

A run is described by params: defaults, then the files of --params in order, then
--set, then the other flags. They are written, resolved, to FOLDER/params.yaml. If
FOLDER holds a checkpoint, the run continues from it: after a stop of any kind the
same command ends in the same variables, bit for bit. SIGINT and SIGTERM save and
stop within a step, with exit code 75.`,
		Example: `  gorbit train --graph exports/mrpc --data data/mrpc --init model.safetensors --run runs/mrpc --epochs 3
  gorbit train --params base.yaml --params mrpc.yaml --set optimizer.learning_rate=1e-4 --run runs/mrpc
  gorbit train --params runs/mrpc/params.yaml --run runs/again`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "folder of the run (required)")
	f.StringArrayVar(&files, "params", nil, "YAML file of params; several may be given, later ones win")
	f.StringArrayVar(&settings, "set", nil, "one param, as section.name=value; see params.yaml of any run for the names")
	f.Bool("print-params", false, "print the resolved params and exit")

	// Flags for the params that are set most often.
	short := []struct{ flag, param, help string }{
		{"graph", "graph", "folder of the export"},
		{"data", "data.dir", "folder of the records"},
		{"init", "init", "initial weights: safetensors file, checkpoint or run folder"},
		{"strict", "strict", "fail where --init lacks a variable, or has it in another shape"},
		{"epochs", "train.epochs", "epochs to train"},
		{"steps", "train.steps", "steps to train, instead of epochs"},
		{"batch-size", "train.batch_size", "global batch size, in examples"},
		{"learning-rate", "optimizer.learning_rate", "peak learning rate"},
		{"schedule", "optimizer.schedule", "constant, linear, polynomial, cosine, cosine_with_restarts or inverse_sqrt"},
		{"warmup-ratio", "optimizer.warmup_ratio", "share of all steps spent warming up"},
		{"warmup-steps", "optimizer.warmup_steps", "steps spent warming up, instead of a share"},
		{"steps-per-loop", "train.steps_per_loop", "steps between two log lines"},
		{"eval-interval", "train.eval_interval", "steps between evaluations (0: every epoch, -1: at the end, -2: none)"},
		{"checkpoint-interval", "checkpoint.interval", "steps between checkpoints (0: as evaluations)"},
		{"strategy", "strategy.name", "auto, one, mirrored (several devices of this machine) or multiworker (several machines)"},
		{"devices", "strategy.devices", "devices of this machine with a replica each: gpu:N, or cpu:N for virtual ones"},
		{"workers", "strategy.workers", "addresses of gorbit worker processes, host:port,host:port"},
		{"input", "strategy.input", "who reads the batches of training: chief, or local (every worker its own part)"},
		{"accumulate", "strategy.accumulate", "micro-batches per replica and update"},
		{"shard-optimizer", "strategy.shard_optimizer", "keep the optimizer's state of each variable on one replica only"},
		{"worker-timeout", "strategy.worker_timeout", "how long a worker may be silent, or take to come"},
		{"max-restarts", "strategy.max_restarts", "how often to go on from the last checkpoint after a worker was lost"},
		{"elastic", "strategy.elastic", "go on without a worker that does not come back"},
		{"allow-slow-precision", "runtime.allow_slow_precision", "train a bf16 or fp16 graph where TensorFlow emulates it"},
		{"on-corrupt", "data.on_corrupt", "damaged records: fail or skip"},
		{"seed", "seed", "seed of the data's order and the graph's random numbers"},
	}
	params := train.Defaults()
	values := make(map[string]*string)
	defaults := params.Flat()
	for _, s := range short {
		v := new(string)
		values[s.flag] = v
		help := fmt.Sprintf("%s [%s, default %v]", s.help, s.param, defaults[s.param])
		f.StringVar(v, s.flag, "", help)
	}
	for _, name := range []string{"strict", "shard-optimizer", "elastic", "allow-slow-precision"} {
		f.Lookup(name).NoOptDefVal = "true"
	}

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, s := range short {
			if f.Changed(s.flag) {
				value := *values[s.flag]
				if _, text := defaults[s.param].(string); text {
					value = strconv.Quote(value)
				}
				settings = append(settings, s.param+"="+value)
			}
		}
		if err := params.Load(files, settings); err != nil {
			return err
		}
		if show, _ := f.GetBool("print-params"); show {
			text, err := params.YAML()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}
		if run == "" {
			return usagef("--run is required: the folder of the run")
		}
		kept := params.Keep(run)
		if err := useOneDNN(params.Runtime.OneDNN); err != nil {
			return err
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		env.Log.Info("process", "cores", runtime.NumCPU(), "malloc_keeps_memory", tfprocess.MallocKeeps())
		if len(kept) > 0 {
			env.Log.Warn("a run keeps what decides its rounding", "kept", strings.Join(kept, "; "))
		}
		// A reader of the lines that goes away does not end the run.
		signal.Ignore(syscall.SIGPIPE)
		return trainInCluster(cmd.Context(), cmd.OutOrStdout(), params, run, env)
	}
	return cmd
}

// useOneDNN makes TensorFlow use oneDNN or not. TensorFlow reads the setting when its
// library is loaded, so the program starts anew where it runs with the other.
func useOneDNN(setting string) error {
	if setting != "on" && setting != "off" {
		return nil // Validate says so
	}
	return tfprocess.OneDNN(setting == "on", os.Args)
}
