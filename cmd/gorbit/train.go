package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/tfprocess"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train"
)

// shortFlag is a flag of a param.
type shortFlag struct{ flag, param, help string }

// shortFlags are the flags of the most common params.
var shortFlags = []shortFlag{
	{"graph", "graph", "folder of the export"},
	{"data", "data.dir", "folder of the records"},
	{"init", "init", "initial weights: safetensors file, checkpoint or run folder"},
	{"strict", "strict", "fail if --init lacks a variable or has it in another shape"},
	{"epochs", "train.epochs", "epochs to train"},
	{"steps", "train.steps", "steps to train, instead of epochs"},
	{"batch-size", "train.batch_size", "global batch size, in examples"},
	{"learning-rate", "optimizer.learning_rate", "peak learning rate"},
	{"schedule", "optimizer.schedule", "constant, linear, polynomial, cosine, cosine_with_restarts or inverse_sqrt"},
	{"warmup-ratio", "optimizer.warmup_ratio", "share of all steps spent warming up"},
	{"warmup-steps", "optimizer.warmup_steps", "steps spent warming up, instead of a share"},
	{"steps-per-loop", "train.steps_per_loop", "steps between two log lines"},
	{"steps-per-call", "train.steps_per_call", "most steps in one call of the devices; results do not depend on it (0: the strategy's best)"},
	{"eval-interval", "train.eval_interval", "steps between evaluations (0: every epoch, -1: only at the end, -2: none)"},
	{"checkpoint-interval", "checkpoint.interval", "steps between checkpoints (0: same as --eval-interval)"},
	{"strategy", "strategy.name", "auto, one, mirrored (several devices of this machine), multiworker (several machines) or tpu"},
	{"devices", "strategy.devices", "devices of this machine, one replica each: gpu:N, or cpu:N for virtual ones"},
	{"workers", "strategy.workers", "addresses of gorbit worker processes, host:port,host:port"},
	{"input", "strategy.input", "who reads the training batches: chief, or local (each worker reads its own part)"},
	{"accumulate", "strategy.accumulate", "micro-batches per replica for each update"},
	{"shard-optimizer", "strategy.shard_optimizer", "keep the optimizer state of each variable on only one replica"},
	{"worker-timeout", "strategy.worker_timeout", "how long to wait for a worker to start or to answer"},
	{"max-restarts", "strategy.max_restarts", "how often to continue from the last checkpoint after losing a worker or the TPU"},
	{"elastic", "strategy.elastic", "continue without workers that do not come back"},
	{"allow-slow-precision", "runtime.allow_slow_precision", "train a bf16 or fp16 graph even where TensorFlow only emulates it"},
	{"on-corrupt", "data.on_corrupt", "what to do with damaged records: fail or skip"},
	{"seed", "seed", "seed for the order of the data and the graph's random numbers"},
}

// tpuParams are the flags of the params of a TPU.
var tpuParams = []shortFlag{
	{"tpu", "strategy.tpu", "Cloud TPU to use: a node's name, addresses grpc://HOST:8470,..., or local"},
	{"tpu-project", "strategy.tpu_project", "project of the TPU"},
	{"tpu-zone", "strategy.tpu_zone", "zone of the TPU"},
	{"tpu-api", "strategy.tpu_api", "base URL of the Cloud TPU API"},
	{"tpu-ready-timeout", "strategy.tpu_ready_timeout", "how long to wait for a TPU that is being created or started"},
	{"tpu-wait", "strategy.tpu_wait", "also wait for a TPU that was preempted or does not answer"},
	{"tpu-timeout", "strategy.tpu_timeout", "how long the TPU may take to start, and to answer in a call"},
}

func newTrain(g *globals) *cobra.Command {
	var run string
	var files, settings []string
	cmd := &cobra.Command{
		Use:   "train --graph EXPORT --data DATA --run FOLDER [flags]",
		Short: "Train an exported graph, or continue a run",
		Long: `Trains an exported graph on TFRecords and evaluates as it goes.

Params describe a run: the defaults, then the files of --params in order, then --set,
then the other flags. The resolved params are written to FOLDER/params.yaml. If FOLDER
holds a checkpoint, the run continues from it: however the run was stopped, the same
command ends with the same variables, bit for bit. On SIGINT or SIGTERM, training saves
and stops within a step, or within a call of several steps (--steps-per-call), with exit
code 75.`,
		Example: `  gorbit train --graph exports/mrpc --data data/mrpc --init model.safetensors --run runs/mrpc --epochs 3
  gorbit train --params base.yaml --params mrpc.yaml --set optimizer.learning_rate=1e-4 --run runs/mrpc
  gorbit train --params runs/mrpc/params.yaml --run runs/again`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "folder of the run (required)")
	f.StringArrayVar(&files, "params", nil, "YAML file of params; may be repeated, later files win")
	f.StringArrayVar(&settings, "set", nil, "one param, as section.name=value; may be repeated (--print-params lists the names)")
	f.Bool("print-params", false, "print the resolved params and exit")

	params := train.Defaults()
	short := addShort(f, params, slices.Concat(shortFlags, tpuParams))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings = append(settings, short()...)
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
			return usagef("--run is missing; expected the folder of the run")
		}
		if f.Changed("tpu") && params.Strategy.TPU == "" {
			return emptyTPU("--strategy tpu")
		}
		kept := params.Keep(run)
		if err := useOneDNN(params.Runtime.OneDNN); err != nil {
			return err
		}
		env, err := g.env(cmd.OutOrStdout())
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
		return trainInCluster(cmd.Context(), cmd.OutOrStdout(), params, run, env)
	}
	return cmd
}

// emptyTPU returns the error of --tpu without a name. A TPU of the environment is named by other flags.
func emptyTPU(other string) error {
	return usagef("--tpu is empty; expected a node's name, grpc://HOST:PORT or local; for the name in the environment, use %s", other)
}

// addShort adds flags of params. The function that it returns gives those that were set, in the form
// of --set.
func addShort(f *pflag.FlagSet, params train.Params, flags []shortFlag) func() []string {
	defaults := params.Flat()
	for _, s := range flags {
		f.String(s.flag, "", fmt.Sprintf("%s [%s, default %v]", s.help, s.param, defaults[s.param]))
		if _, yes := defaults[s.param].(bool); yes {
			f.Lookup(s.flag).NoOptDefVal = "true"
		}
	}
	return func() []string {
		var settings []string
		for _, s := range flags {
			if !f.Changed(s.flag) {
				continue
			}
			value := f.Lookup(s.flag).Value.String()
			if _, text := defaults[s.param].(string); text {
				value = strconv.Quote(value)
			}
			settings = append(settings, s.param+"="+value)
		}
		return settings
	}
}

// useOneDNN turns oneDNN on or off. TensorFlow reads the setting when its library is loaded, so
// the program starts itself again if it runs with the other one.
func useOneDNN(setting string) error {
	if setting != "on" && setting != "off" {
		return nil // Validate reports it
	}
	return tfprocess.OneDNN(setting == "on", os.Args)
}
