package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

// paramFlag is a flag of a param. form is that of its value in help; "" for that of the param's type.
type paramFlag struct{ flag, param, form, help string }

// paramGroup is flags of params that help shows together.
type paramGroup struct {
	title string
	flags []paramFlag
}

// trainGroups are the flags of gorbit train for the most common params.
var trainGroups = []paramGroup{
	{"What to train", []paramFlag{
		{"graph", "graph", "FOLDER", "folder of the export"},
		{"init", "init", "PATH", "initial weights: safetensors file, checkpoint or run folder"},
		{"strict", "strict", "", "fail if --init lacks a variable or has it in another shape"},
		{"seed", "seed", "", "seed for the order of the data and the graph's random numbers"},
	}},
	{"Data", []paramFlag{
		{"data", "data.dir", "FOLDER", "folder of the records"},
		{"batch-size", "train.batch_size", "", "global batch size, in examples"},
		{"on-corrupt", "data.on_corrupt", "fail|skip", "what to do with damaged records"},
	}},
	{"How long", []paramFlag{
		{"epochs", "train.epochs", "", "epochs to train"},
		{"steps", "train.steps", "", "steps to train, instead of epochs"},
		{"patience", "train.patience", "", "stop after this many evaluations without a better one (0: off)"},
		{"min-delta", "train.min_delta", "", "how much better an evaluation must be to count for --patience"},
	}},
	{"Optimizer", []paramFlag{
		{"learning-rate", "optimizer.learning_rate", "", "peak learning rate"},
		{"schedule", "optimizer.schedule", "NAME", words.Or(runner.Schedules())},
		{"warmup-ratio", "optimizer.warmup_ratio", "", "share of all steps spent warming up"},
		{"warmup-steps", "optimizer.warmup_steps", "", "steps spent warming up, instead of a share"},
	}},
	{"Log, evaluations and checkpoints", []paramFlag{
		{"steps-per-loop", "train.steps_per_loop", "", "steps between two log lines"},
		{"eval-interval", "train.eval_interval", "", "steps between evaluations (0: every epoch, -1: only at the end, -2: none)"},
		{"checkpoint-interval", "checkpoint.interval", "", "steps between checkpoints (0: same as --eval-interval)"},
	}},
	{"Where", []paramFlag{
		{"strategy", "strategy.name", "NAME", "auto, one, mirrored (several devices of this machine), multiworker (several machines) or tpu"},
		{"devices", "strategy.devices", "gpu:N|cpu:N", "devices of this machine, one replica each; cpu:N makes virtual ones"},
		{"workers", "strategy.workers", "HOST:PORT,...", "addresses of gorbit worker processes"},
		{"input", "strategy.input", "chief|local", "who reads the training batches: chief, or local (each worker reads its own part)"},
		{"accumulate", "strategy.accumulate", "", "micro-batches per replica for each update"},
		{"shard-optimizer", "strategy.shard_optimizer", "", "keep the optimizer state of each variable on only one replica"},
		{"worker-timeout", "strategy.worker_timeout", "", "how long to wait for a worker to start or to answer"},
		{"max-restarts", "strategy.max_restarts", "", "how often to continue from the last checkpoint after losing a worker or the TPU"},
		{"elastic", "strategy.elastic", "", "continue without workers that do not come back"},
		{"steps-per-call", "train.steps_per_call", "", "most steps in one call of the devices; results do not depend on it (0: the strategy's best)"},
		{"allow-slow-precision", "runtime.allow_slow_precision", "", "train a bf16 or fp16 graph even where TensorFlow only emulates it"},
	}},
	tpuGroup,
}

// tpuGroup are the flags of the params of a TPU.
var tpuGroup = paramGroup{"Cloud TPU", []paramFlag{
	{"tpu", "strategy.tpu", "NAME|grpc://...|local", "Cloud TPU to use: a node's name, addresses grpc://HOST:8470,..., or local"},
	{"tpu-project", "strategy.tpu_project", "NAME", "project of the TPU"},
	{"tpu-zone", "strategy.tpu_zone", "ZONE", "zone of the TPU"},
	{"tpu-api", "strategy.tpu_api", "URL", "base URL of the Cloud TPU API"},
	{"tpu-ready-timeout", "strategy.tpu_ready_timeout", "", "how long to wait for a TPU that is being created or started"},
	{"tpu-wait", "strategy.tpu_wait", "", "also wait for a TPU that was preempted or does not answer"},
	{"tpu-timeout", "strategy.tpu_timeout", "", "how long the TPU may take to start, and to answer in a call"},
}}

// paramValue is the value of a flag of a param.
type paramValue struct {
	paramFlag
	kind any // the param's default
	text string
}

func (v *paramValue) String() string { return v.text }

// Set keeps a value that has the param's type.
func (v *paramValue) Set(text string) error {
	v.text = text
	scratch := params.Defaults()
	return scratch.Set(v.setting())
}

// Param returns the name of the param, for the flag's help.
func (v *paramValue) Param() string { return v.param }

// Type returns the form of the value.
func (v *paramValue) Type() string {
	switch v.kind.(type) {
	case bool:
		return "bool"
	case float64:
		return cmp.Or(v.form, "X")
	case time.Duration:
		return cmp.Or(v.form, "DURATION")
	case string:
		return v.form
	}
	return cmp.Or(v.form, "N")
}

// setting returns the flag in the form of --set.
func (v *paramValue) setting() string {
	if _, yes := v.kind.(string); yes {
		return v.param + "=" + strconv.Quote(v.text)
	}
	return v.param + "=" + v.text
}

// typedParams returns the flags of params that were typed, such as "--epochs 3", by param.
func typedParams(f *pflag.FlagSet) map[string]string {
	typed := map[string]string{}
	f.Visit(func(flag *pflag.Flag) {
		if v, ok := flag.Value.(*paramValue); ok {
			typed[v.param] = fmt.Sprintf("--%s %s", v.flag, v.text)
		}
	})
	return typed
}

// addParams adds flags of params. The function that it returns gives those that were set, in the form
// of --set.
func addParams(f *pflag.FlagSet, p params.Params, groups ...paramGroup) func() []string {
	defaults := p.Flat()
	var values []*paramValue
	for _, g := range groups {
		for _, of := range g.flags {
			v := &paramValue{paramFlag: of, kind: defaults[of.param]}
			f.Var(v, of.flag, of.help)
			values = append(values, v)
			flag := f.Lookup(of.flag)
			flag.DefValue = strings.Trim(fmt.Sprint(v.kind), `"`)
			if _, yes := v.kind.(bool); yes {
				flag.NoOptDefVal = "true"
			}
			help.Group(f, g.title, of.flag)
		}
	}
	return func() []string {
		var settings []string
		for _, v := range values {
			if f.Changed(v.flag) {
				settings = append(settings, v.setting())
			}
		}
		return settings
	}
}
