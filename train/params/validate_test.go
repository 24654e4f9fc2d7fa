package params

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// TestValidate wants settings that cannot be to be errors of usage, whatever part finds them.
func TestValidate(t *testing.T) {
	for _, name := range []string{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"} {
		t.Setenv(name, "")
	}
	const tpu = "strategy.tpu=grpc://10.0.0.2:8470 "
	for _, test := range []struct{ settings, want string }{
		// Rows.
		{"data.rows=8", ""},
		{"data.rows=-1", "data.rows is -1"},
		{"data.rows=33", "data.rows is 33 and train.batch_size is 32"},
		{"data.row_examples=3", "the number of rows is not fixed"},
		{"data.rows=8 data.buckets=32,64", ""},
		{"data.buckets=32", ""}, // for graphs without rows
		{"data.rows=8 data.buckets=32;64", `data.buckets is "32;64"; expected lengths of rows, such as 32,64`},
		{"data.rows=8 data.row_length=64 data.buckets=32,64", "buckets of rows have [32 64] tokens; expected ascending numbers of 1 to 63"},
		{"data.rows=8 data.row_length=128 data.buckets=64,32", "ascending"},
		{"data.rows=8 data.packing=first-fit", `packing is "first-fit", which does not fix the number of rows`},
		{"data.rows=8 strategy.input=local strategy.workers=a:1", "strategy.input is local and data.rows is 8"},
		{"data.rows=100 train.batch_size=100 eval.batch_size=1", ""},
		{"train.batch_warmup=0:8,100:16,200:32", ""},
		{"train.batch_warmup=0:8,200:16", "train.batch_warmup ends with size 16 and train.batch_size is 32"},
		{"train.batch_warmup=8:0,32:100", `train.batch_warmup has "8:0"; expected STEP:SIZE`},
		{"train.batch_warmup=10:8,100:32", `train.batch_warmup begins with "10:8"; expected the size of the first step`},
		{"train.batch_warmup=0:8,100:8", `train.batch_warmup has "100:8" after 0:8; expected a later step and a larger size`},
		{"train.batch_warmup=0:8,100", `train.batch_warmup has "100"; expected STEP:SIZE`},
		{"train.length_warmup=0:32,100:128", ""},
		{"train.length_warmup=0:32,100:16", `train.length_warmup has "100:16" after 0:32; expected a later step and a larger size`},
		{"train.length_warmup=0:32,100:64 strategy.input=local strategy.workers=a:1", "train.length_warmup is given and strategy.input is local"},
		{"train.length_warmup=0:32,100:64 train.steps_per_call=4", "train.length_warmup is given and train.steps_per_call is 4"},
		{tpu + "train.length_warmup=0:32,100:64", "train.length_warmup is given, and a TPU's programs are for rows of one length"},
		// The input.
		{"runtime.lanes=-1", "runtime.lanes is -1; expected 0"},
		{"runtime.lanes=65", "runtime.lanes is 65; expected 0"},
		{"data.readers=100000", "data.readers is 100000; expected 0 (the default) to 1024"},
		{"runtime.intra_op_threads=100000", "runtime.intra_op_threads is 100000; expected 0 (by the cores) to 4096"},
		{"runtime.inter_op_threads=-1", "runtime.inter_op_threads is -1; expected 0 (by the cores) to 4096"},
		{"train.batch_size=16777217", "batch size is 16777217"},
		{"data.shuffle=None", `shuffle is "None"`},
		{"data.buffer=-1", "data.buffer is -1"},
		// Numbers that make no sense.
		{"checkpoint.keep_every_hours=1e300", "params: checkpoint.keep_every_hours is 1e+300; expected 0 (off) to 1000000"},
		{"checkpoint.keep_every_hours=2562048", "params: checkpoint.keep_every_hours is 2.562048e+06; expected 0 (off) to 1000000"},
		{"checkpoint.keep_every_hours=.inf", "params: checkpoint.keep_every_hours is +Inf; expected 0 (off) to 1000000"},
		{"checkpoint.best_mode=most", `params: checkpoint.best_mode is "most"; expected auto, max or min`},
		{"train.min_delta=-1", "train.min_delta is -1; expected a finite number"},
		{"train.min_delta=0.5", "train.min_delta is 0.5 and train.patience is 0; expected the number of evaluations"},
		// Schedules.
		{"optimizer.schedule=wsd optimizer.decay_ratio=0.9 optimizer.warmup_ratio=0.1", ""},
		{"optimizer.schedule=wsd optimizer.decay_ratio=0.9 optimizer.warmup_ratio=0.2", "warmup and decay are"},
		{"optimizer.schedule=points optimizer.points=0:0,5%:1,100%:0", ""},
		{"optimizer.schedule=points optimizer.points=100:0.5,2000:1", ""},
		{"optimizer.schedule=points", "optimizer.points is empty"},
		{"optimizer.points=0:1", `optimizer.points is "0:1", and optimizer.schedule is linear`},
		{"optimizer.schedule=points optimizer.points=0:0,100:1,50%:1", "expected steps or shares of all steps, not both"},
		{"optimizer.schedule=points optimizer.points=0:0,50%:1,100:1", "expected steps or shares of all steps, not both"},
		{"optimizer.schedule=points optimizer.points=0%:0,100:1", ""},
		{"optimizer.schedule=points optimizer.points=10%:0,5%:1", `optimizer.points has "5%:1"`},
		{"optimizer.schedule=points optimizer.points=ten:1", `optimizer.points has "ten:1"; expected STEP:FACTOR`},
		{"optimizer.schedule=points optimizer.points=101%:1", `optimizer.points has "101%:1"`},
		{"optimizer.schedule=points optimizer.points=0:1 optimizer.warmup_steps=5", "optimizer.warmup_steps is 5"},
		// A device is for one.
		{"runtime.device=/device:CPU:0", ""},
		{"strategy.name=one runtime.device=/device:CPU:0", ""},
		{"strategy.devices=cpu:2 runtime.device=/device:CPU:0", "runtime.device"},
		{"strategy.devices=cpu runtime.device=/device:CPU:0", "runtime.device"},
		{"strategy.workers=a:1 runtime.device=/device:CPU:0", "runtime.device"},
		{"strategy.name=mirrored runtime.device=/device:CPU:0", "runtime.device"},
		// What a TPU does not have, and what only a TPU has.
		{tpu, ""},
		{"strategy.tpu=local", ""},
		{"strategy.tpu=node-1 strategy.tpu_zone=us-central1-b strategy.tpu_project=p-1 strategy.tpu_wait=true strategy.tpu_ready_timeout=30m", ""},
		{"strategy.tpu=grpc://", `address is "grpc://" (no host)`},
		{"strategy.tpu=Node", `TPU name is "Node"`},
		{"strategy.name=tpu", "no TPU given; expected --tpu NAME"},
		{tpu + "strategy.name=mirrored strategy.devices=cpu:2", "strategy.tpu is set, which is only for strategy tpu"},
		{"strategy.tpu_zone=us-central1-b", "strategy.tpu_zone is set, which is only for strategy tpu; name a TPU with strategy.tpu, or leave it out"},
		{"strategy.tpu_wait=true", "strategy.tpu_wait is set, which is only for strategy tpu"},
		{"strategy.tpu_timeout=1m", "strategy.tpu_timeout is set, which is only for strategy tpu"},
		{tpu + "strategy.tpu_wait=true", "strategy.tpu_ready_timeout is 0; expected how long to wait"},
		{tpu + "strategy.tpu_timeout=10ms", "strategy.tpu_timeout is 10ms; expected 1s to 1h"},
		{tpu + "strategy.tpu_ready_timeout=-1s", "ready timeout is -1s"},
		{tpu + "strategy.devices=cpu:2", "strategy.devices is set, which is not for a TPU; leave it out"},
		{tpu + "strategy.workers=a:1", "workers is a:1, which is only for strategy multiworker"},
		{tpu + "strategy.accumulate=2", "strategy.accumulate is set"},
		{tpu + "strategy.elastic=true", "strategy.elastic is set"},
		{tpu + "strategy.shard_optimizer=true", "strategy.shard_optimizer is set"},
		{tpu + "strategy.bucket_mb=2", "strategy.bucket_mb is set"},
		{tpu + "runtime.device=/device:CPU:0", "runtime.device is"},
		{tpu + "runtime.lanes=2", "runtime.lanes is set"},
		{tpu + "runtime.kernels='off'", "runtime.kernels is set"},
		{tpu + "runtime.intra_op_threads=2", "runtime.intra_op_threads is set"},
	} {
		p := Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		err := p.Load(nil, strings.Fields(test.settings))
		if err == nil {
			err = p.Validate()
		}
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || !errors.Is(err, fault.Usage)) {
			t.Errorf("%s: error %v (%v), expected %q", test.settings, err, fault.Of(err), test.want)
		}
		if err == nil && p.Strategy.TPU != "" && p.Strategy.Kind() != devices.TPU {
			t.Errorf("%s: the strategy is %s", test.settings, p.Strategy.Kind())
		}
	}
	t.Setenv("TPU_NAME", strings.TrimSpace(strings.TrimPrefix(tpu, "strategy.tpu=")))
	p := Defaults()
	p.Graph, p.Data.Dir, p.Strategy.Name = "g", "d", "tpu"
	if err := p.Validate(); err != nil {
		t.Errorf("TPU_NAME is not taken: %v", err)
	}
}

// A run that began on CPUs continues on a TPU without their kernels and lanes.
func TestKeepOnTPU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "params.yaml")
	before := Defaults()
	before.Runtime.Lanes, before.Runtime.Kernels, before.Data.RowLength = 2, "off", 24
	text, err := before.YAML()
	if err == nil {
		err = os.WriteFile(path, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := Defaults()
	p.Strategy.TPU = "local"
	if kept := p.Keep(path); len(kept) > 0 || p.Runtime.Lanes != 0 || p.Runtime.Kernels != "on" || p.Data.RowLength != 24 {
		t.Errorf("kept %v: lanes %d, kernels %s, rows of %d", kept, p.Runtime.Lanes, p.Runtime.Kernels, p.Data.RowLength)
	}
	p.Strategy.TPU = ""
	if p.Keep(path); p.Runtime.Lanes != 2 || p.Runtime.Kernels != "off" {
		t.Errorf("on CPUs: lanes %d, kernels %s", p.Runtime.Lanes, p.Runtime.Kernels)
	}
}
