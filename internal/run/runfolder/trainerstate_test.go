package runfolder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
)

// names are those of class TrainerState of transformers 4.50 and later. Its load_from_json takes no
// others.
var names = strings.Fields(`best_global_step best_metric best_model_checkpoint epoch eval_steps global_step is_hyper_param_search
	is_local_process_zero is_world_process_zero log_history logging_steps max_steps num_input_tokens_seen num_train_epochs save_steps
	stateful_callbacks total_flos train_batch_size trial_name trial_params`)

// perEpoch are data with as many batches in every epoch.
type perEpoch float64

func (p perEpoch) EpochsAt(batches int64) float64 { return float64(batches) / float64(p) }

// TestTrainerState makes the state of a checkpoint in the middle of a run, of its end, and of a run of
// an older version.
//
// Long: the lines of a folder and what they become, side by side.
func TestTrainerState(t *testing.T) {
	const (
		line1 = `{"phase":"train","step":10,"outputs":{"loss":0.7,"gradient_norm":2,"learning_rate":0.1}}` + "\n"
		line2 = `{"phase":"eval","step":10,"outputs":{"accuracy":0.5,"loss":"NaN"}}` + "\n"
		line3 = `{"phase":"train","step":14,"outputs":{"loss":0.35}}` + "\n"
		later = `{"phase":"train","step":20,"outputs":{"loss":0.1}}` + "\n"
		begin = `{"event":"start","process":7,"step":0,"steps":14,"peak_flops":1e9,"memory_before":100,"memory_after":300,"memory_peak":350}` + "\n"
		train = `{"event":"phase","process":7,"phase":"train","step":10,"seconds":8,"elapsed":8,"steps":10,"examples":80,"tokens":800,"flops":2e9}` + "\n"
		eval  = `{"event":"phase","process":7,"phase":"eval","step":10,"seconds":2,"elapsed":10,"steps":4,"examples":32,"memory_before":300,"memory_after":310,"memory_peak":330}` + "\n"
		rest  = `{"event":"phase","process":7,"phase":"train","step":14,"seconds":4,"elapsed":14,"steps":4,"examples":32,"tokens":320,"flops":1e9}` + "\n"
		end   = `{"event":"end","process":7,"outcome":"finished","step":14,"seconds":14.5,"peak_memory_mib":1,"memory_after":400}` + "\n"
	)
	state := func(step int64, size int, evaluated int64) runner.RunState {
		text, err := json.Marshal(runner.TrainerState{Done: runner.Done{Steps: step, Examples: 8 * step, Tokens: 80 * step, FLOPs: 2e8 * float64(step)}})
		if err != nil {
			t.Fatal(err)
		}
		length, err := json.Marshal(size)
		if err != nil {
			t.Fatal(err)
		}
		return runner.RunState{Version: 1, Step: step, Trainer: text, Evaluated: &runner.Evaluation{Step: evaluated},
			Persistent: map[string]json.RawMessage{"metrics": length, "best": json.RawMessage(`{"value":0.5,"step":10,"metric":"accuracy"}`)}}
	}
	course := Course{MaxSteps: 14, Data: perEpoch(5), LogEvery: 10, EvalEvery: 10, SaveEvery: 10, BatchSize: 8, Evaluates: true}
	first := map[string]any{"step": 10.0, "epoch": 2.0, "loss": 0.7, "grad_norm": 2.0, "learning_rate": 0.1}
	second := map[string]any{"step": 10.0, "epoch": 2.0, "eval_accuracy": 0.5, "eval_loss": "NaN", "eval_runtime": 2.0, "eval_samples_per_second": 16.0,
		"eval_steps_per_second": 2.0, "eval_mem_cpu_alloc_delta": 10.0, "eval_mem_cpu_peaked_delta": 20.0}
	dir := t.TempDir()
	read := func(journal string, s runner.RunState) (out TrainerState) {
		t.Helper()
		fill(t, dir, map[string]string{Metrics: line1 + line2 + line3 + later, Journal: journal})
		if err := WriteTrainerState(dir, course, s); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, Trainer))
		if err != nil {
			t.Fatal(err)
		}
		var all map[string]any
		if err := json.Unmarshal(content, &all); err != nil {
			t.Fatal(err)
		}
		var got []string
		for name := range all {
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			t.Errorf("the file has %v; expected %v", got, names)
		}
		if err := json.Unmarshal(content, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	check := func(what string, got, want []map[string]any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: log_history is\n%v\nexpected\n%v", what, got, want)
		}
	}

	// The checkpoint of step 10: lines after it do not belong to it.
	s := read(begin+train+eval, state(10, len(line1+line2), 10))
	check("step 10", s.LogHistory, []map[string]any{first, second})
	if s.GlobalStep != 10 || s.Epoch != 2 || s.Epochs != 3 || s.Tokens != 800 || s.FLOPs != 2e9 || *s.BestMetric != 0.5 || *s.BestCheckpoint != "checkpoints/ckpt-10" {
		t.Errorf("step 10: %+v", s)
	}

	s = read(begin+train+eval+rest+end, state(14, len(line1+line2+line3), 14))
	third := map[string]any{"step": 14.0, "epoch": 2.8, "loss": 0.35}
	last := map[string]any{"step": 14.0, "epoch": 2.8, "total_flos": 2.8e9, "train_loss": 0.6, "train_runtime": 14.5,
		"train_steps_per_second": 0.966, "train_samples_per_second": 7.724, "train_tokens_per_second": 77.241, "train_flops_per_second": 2.5e8, "train_mfu": 0.25,
		"before_init_mem_cpu": 100.0, "init_mem_cpu_alloc_delta": 200.0, "init_mem_cpu_peaked_delta": 50.0,
		"train_mem_cpu_alloc_delta": 100.0, "train_mem_cpu_peaked_delta": float64(1<<20 - 400)}
	check("complete", s.LogHistory, []map[string]any{first, second, third, last})

	// A stretch was faster than the peak, which was measured while the machine was busy.
	delete(last, "train_mfu")
	s = read(strings.Replace(begin, "1e9", "2.5e8", 1)+train+eval+strings.Replace(rest, `"seconds":4`, `"seconds":3`, 1)+end, state(14, len(line1+line2+line3), 14))
	last["train_flops_per_second"] = 272727273.0
	check("a wrong peak", s.LogHistory, []map[string]any{first, second, third, last})
	last["train_flops_per_second"], last["train_mfu"] = 2.5e8, 0.25

	// A run of a version that counted nothing, whose journal is lost.
	old := state(14, len(line1), 14)
	old.Trainer = nil
	s = read("", old)
	check("old", s.LogHistory, []map[string]any{first, {"step": 14.0, "epoch": 2.8, "total_flos": 0.0, "train_loss": 0.7}})
	if s.Tokens != 0 || s.FLOPs != 0 {
		t.Errorf("%d tokens and %v FLOPs of a run that counted none", s.Tokens, s.FLOPs)
	}
}
