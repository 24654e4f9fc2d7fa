package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"strconv"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/runner"
)

// TrainerState is the content of trainer_state.json: what a run has done, in the form of class
// TrainerState of Hugging Face's transformers, which its load_from_json reads. It has the names of that
// class and no others.
type TrainerState struct {
	// BestCheckpoint is the prefix of a checkpoint within the run's folder, and BestStep is its step.
	BestCheckpoint *string  `json:"best_model_checkpoint"`
	BestMetric     *float64 `json:"best_metric"`
	BestStep       *int64   `json:"best_global_step"`
	// Epoch is the number of epochs done, with its fraction.
	Epoch        float64          `json:"epoch"`
	EvalSteps    int64            `json:"eval_steps"`
	GlobalStep   int64            `json:"global_step"`
	HyperSearch  bool             `json:"is_hyper_param_search"`
	LocalZero    bool             `json:"is_local_process_zero"`
	WorldZero    bool             `json:"is_world_process_zero"`
	LogHistory   []map[string]any `json:"log_history"`
	LoggingSteps int64            `json:"logging_steps"`
	MaxSteps     int64            `json:"max_steps"`
	Tokens       int64            `json:"num_input_tokens_seen"`
	Epochs       int64            `json:"num_train_epochs"`
	SaveSteps    int64            `json:"save_steps"`
	Callbacks    map[string]any   `json:"stateful_callbacks"`
	FLOPs        float64          `json:"total_flos"`
	BatchSize    int64            `json:"train_batch_size"`
	TrialName    *string          `json:"trial_name"`
	TrialParams  map[string]any   `json:"trial_params"`
}

// Epochs are the training data.
type Epochs interface {
	// EpochsAt returns how many epochs a number of batches are.
	EpochsAt(batches int64) float64
}

// Course is what a trainer state needs to know of a run in addition to what its folder says: its
// intervals in steps, 0 for never, and its batch size.
type Course struct {
	MaxSteps                       int64
	LogEvery, EvalEvery, SaveEvery int64
	BatchSize                      int64
	Data                           Epochs
	// Evaluates says that the run is complete only when its last step was evaluated.
	Evaluates bool
}

// WriteTrainerState writes trainer_state.json of a run, durably and at once. It is made of the state of
// the run's newest checkpoint, and of the metrics and the journal in the folder, so that it can be made
// again at any time.
func WriteTrainerState(folder string, c Course, state runner.RunState) error {
	made, err := newTrainerState(folder, c, state)
	if err != nil {
		return err
	}
	content, err := made.text()
	if err != nil {
		return err
	}
	to := filepath.Join(folder, Trainer)
	if before, err := vfs.ReadFile(to); err == nil && bytes.Equal(before, content) {
		return nil
	}
	return vfs.ReplaceFile(to, content)
}

// text returns the content of the file.
func (t *TrainerState) text() ([]byte, error) {
	content, err := json.MarshalIndent(t, "", "  ")
	return append(content, '\n'), err
}

func newTrainerState(folder string, c Course, state runner.RunState) (*TrainerState, error) {
	lines, err := readLines(folder, state.Persistent["metrics"])
	if err != nil {
		return nil, err
	}
	processes, _, err := readJournal(folder)
	if err != nil {
		return nil, err
	}
	evaluations := map[int64]Phase{}
	for _, p := range processes {
		addEvaluations(evaluations, p.Phases)
	}
	out, done := c.withoutHistory(state)
	loss := 0.0 // the sum of the steps' losses
	counted := int64(0)
	for _, l := range lines {
		if v, ok := l.Outputs["loss"]; ok && l.Phase != "eval" && *l.Step > counted {
			loss += float64(v) * float64(*l.Step-counted)
			counted = *l.Step
		}
		out.LogHistory = append(out.LogHistory, c.entry(l, evaluations))
	}
	if state.Complete(c.MaxSteps, c.Evaluates) && state.Step > 0 {
		end := map[string]any{"step": state.Step, "epoch": out.Epoch, "total_flos": out.FLOPs}
		if counted > 0 {
			end["train_loss"] = orText(loss / float64(counted))
		}
		addTraining(end, processes, state.Step, done)
		out.LogHistory = append(out.LogHistory, end)
	}
	return out, nil
}

// withoutHistory returns the trainer state without its log, and what the run has done.
func (c Course) withoutHistory(state runner.RunState) (*TrainerState, runner.Done) {
	out := &TrainerState{GlobalStep: state.Step, Epoch: c.Data.EpochsAt(state.Step), MaxSteps: c.MaxSteps, BatchSize: c.BatchSize,
		Epochs:       int64(math.Ceil(c.Data.EpochsAt(c.MaxSteps))),
		LoggingSteps: c.LogEvery, EvalSteps: c.EvalEvery, SaveSteps: c.SaveEvery,
		LocalZero: true, WorldZero: true, Callbacks: map[string]any{}, LogHistory: []map[string]any{}}
	var trainer runner.TrainerState
	_ = json.Unmarshal(state.Trainer, &trainer) // another program's checkpoint has none
	if trainer.Done.Steps == state.Step {
		out.Tokens, out.FLOPs = trainer.Done.Tokens, trainer.Done.FLOPs
	}
	out.best(state.Persistent["best"])
	return out, trainer.Done
}

// entry returns the entry of the log for a line of metrics, given the last evaluation at each step.
func (c Course) entry(l line, evaluations map[int64]Phase) map[string]any {
	entry := map[string]any{"step": *l.Step, "epoch": c.Data.EpochsAt(*l.Step)}
	for name, v := range l.Outputs {
		entry[l.name(name)] = orText(float64(v))
	}
	if p, ok := evaluations[*l.Step]; ok && l.Phase == "eval" && p.Seconds > 0 {
		entry["eval_runtime"] = p.Seconds
		entry["eval_samples_per_second"] = perSecond(p.Examples, p.Seconds)
		entry["eval_steps_per_second"] = perSecond(p.Steps, p.Seconds)
		addMemory(entry, "eval", p.Memory)
	}
	return entry
}

// addEvaluations adds the evaluations among phases, by their steps.
func addEvaluations(to map[int64]Phase, phases []Phase) {
	for _, p := range phases {
		if p.Kind == Evaluating {
			to[p.Step] = p
		}
	}
}

// best sets the best evaluation from the state of a runner.NewBestMetric.
func (t *TrainerState) best(raw json.RawMessage) {
	tracked := runner.NewBest("", runner.HigherIsBetter)
	if raw == nil || tracked.Restore(raw) != nil {
		return
	}
	if value, step, ok := tracked.Best(); ok && !math.IsInf(value, 0) {
		prefix := path.Join(Checkpoints, "ckpt-"+strconv.FormatInt(step, 10))
		t.BestMetric, t.BestStep, t.BestCheckpoint = &value, &step, &prefix
	}
}

// addTraining adds the speed and the memory of the whole training to its entry. As with Hugging Face's
// Trainer, the time includes evaluations and saves, and the rates are those of that time.
func addTraining(entry map[string]any, processes []Process, steps int64, done runner.Done) {
	seconds := 0.0
	for _, p := range processes {
		seconds += p.seconds()
	}
	if len(processes) == 0 || seconds <= 0 {
		return
	}
	entry["train_runtime"] = seconds
	entry["train_steps_per_second"] = perSecond(steps, seconds)
	if done.Steps == steps {
		entry["train_samples_per_second"] = perSecond(done.Examples, seconds)
		entry["train_tokens_per_second"] = perSecond(done.Tokens, seconds)
	}
	last := processes[len(processes)-1]
	start := last.Start.Memory
	if start.Before > 0 {
		entry["before_init_mem_cpu"] = start.Before
		addMemory(entry, "init", start)
	}
	if last.End != nil && last.End.MemoryAfter > 0 {
		addMemory(entry, "train", Memory{Before: start.After, After: last.End.MemoryAfter, Peak: last.End.PeakMemoryMiB << 20})
	}
	if s := spent(processes, Training); s.FLOPs > 0 {
		entry["train_flops_per_second"] = words.Rounded(s.PerSecond(s.FLOPs), 0)
		if share, ok := s.MFU(last.Start.PeakFLOPS); ok {
			entry["train_mfu"] = words.Rounded(share, 4)
		}
	}
}

// addMemory adds by how many bytes the memory grew in a phase, and how much more there was in between
// if that is known.
func addMemory(entry map[string]any, phase string, m Memory) {
	if m.Before == 0 || m.After == 0 {
		return
	}
	grown, peaked, known := m.Delta()
	entry[phase+"_mem_cpu_alloc_delta"] = grown
	if known {
		entry[phase+"_mem_cpu_peaked_delta"] = peaked
	}
}

// name returns Hugging Face's name of a metric.
func (l line) name(metric string) string {
	switch {
	case l.Phase == "eval":
		return "eval_" + metric
	case metric == "gradient_norm":
		return "grad_norm"
	}
	return metric
}

// readLines returns the lines of a run's metrics, in the order of the file, up to the size that a
// checkpoint's state has; all of them if it has none.
func readLines(folder string, size json.RawMessage) ([]line, error) {
	at := filepath.Join(folder, Metrics)
	content, err := vfs.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if n, ok := sizeOf(size); ok && n < int64(len(content)) {
		content = content[:n]
	}
	return parseLines(content), nil
}

// sizeOf returns the size of the metrics that a checkpoint's state has; ok is false if it has none.
func sizeOf(size json.RawMessage) (n int64, ok bool) {
	if size == nil || json.Unmarshal(size, &n) != nil {
		return 0, false
	}
	return n, n >= 0
}

// parseLines returns the whole lines of metrics that are not damaged.
func parseLines(content []byte) (out []line) {
	for text := range bytes.Lines(content) {
		if l, ok := parseLine(text); ok && bytes.HasSuffix(text, []byte("\n")) {
			out = append(out, l)
		}
	}
	return out
}

// orText returns a number as JSON can have it: one that is not finite as metrics.jsonl writes it.
func orText(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return v
}

func perSecond(n int64, seconds float64) float64 { return words.Rounded(float64(n)/seconds, 3) }
