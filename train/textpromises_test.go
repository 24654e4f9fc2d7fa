package train

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
)

// textTasks exports a small BERT for each task of texts but classification and answers to questions, which
// other tests have, a small Llama, and the T5, BART and Marian of the goldens, as seq2seq-KIND.
const textTasks = `
import pathlib, sys
import gorbit_export
from gorbit_export import bert, causal, causal_config, config, encoded, export, mlm, multilabel, optimizers, regression, seq2seq, seq2seq_config, seq2seq_task, tokens

build = encoded.Build(config.BertConfig(8, 1, 2, 12, vocab_size=30, max_position_embeddings=32))
for made in (
    tokens.Tokens(build, 3),
    regression.Regression(build),
    multilabel.MultiLabel(build, 4),
    mlm.MaskedLM(build, mlm.Special(mask=4, all=(0, 1, 2, 3, 4))),
    causal.LanguageModel(causal.Build(causal_config.CausalConfig(
        "llama", 8, 1, 4, 12, vocab_size=30, max_position_embeddings=32, num_key_value_heads=2, tied=False))),
):
    export.write(made, optimizers.AdamW(), f"{sys.argv[1]}/{made.name}")
goldens = pathlib.Path(gorbit_export.__file__).parents[1] / "tests/goldens/seq2seq"
for kind in ("t5", "bart", "marian"):
    made = seq2seq_task.Seq2Seq(seq2seq.Build(seq2seq_config.load(str(goldens / f"{kind}.json"))))
    export.write(made, optimizers.AdamW(), f"{sys.argv[1]}/seq2seq-{kind}")
`

// textExample returns the features of a record of a task.
func textExample(task string, r *rand.Rand) []tfrecord.Feature {
	n := 2 + r.IntN(9)
	ids, each, many := []int64{2}, []int64{-1}, []int64{}
	for range n {
		ids, each = append(ids, 5+r.Int64N(25)), append(each, r.Int64N(3))
	}
	for label := range int64(4) {
		if r.IntN(2) == 0 {
			many = append(many, label)
		}
	}
	ids, each = append(ids, 3), append(each, -1)
	if strings.HasPrefix(task, "seq2seq") {
		target := make([]int64, 1+r.IntN(6))
		for i := range ids {
			ids[i] %= 20
		}
		for i := range target {
			target[i] = 3 + r.Int64N(15)
		}
		return []tfrecord.Feature{tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("target_ids", target...)}
	}
	out := []tfrecord.Feature{tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("segment_ids", make([]int64, len(ids))...)}
	switch task {
	case "tokens":
		out = append(out, tfrecord.Int64Feature("label_ids", each...))
	case "regression":
		out = append(out, tfrecord.FloatFeature("label", r.Float32()))
	case "multilabel":
		out = append(out, tfrecord.Int64Feature("label_ids", many...))
	}
	return out
}

// TestTextTasksKeepPromises trains for each task of texts: one row per example, replicas and accumulation
// change nothing but rounding. For the tasks of tokens, a run that is stopped continues as if it had
// not been, and a damaged record is named.
func TestTextTasksKeepPromises(t *testing.T) {
	long(t)
	for _, task := range []string{"tokens", "regression", "multilabel", "mlm", "lm", "seq2seq-t5", "seq2seq-bart", "seq2seq-marian"} {
		t.Run(task, func(t *testing.T) {
			p, dir := params.Defaults(), t.TempDir()
			p.Graph, p.Data.Dir = filepath.Join(testkit.Made(t, textTasks), task), t.TempDir()
			for split, n := range map[string]int{"train": 40, "dev": 12} {
				r := rand.New(rand.NewPCG(7, uint64(n)))
				writeExamples(t, filepath.Join(p.Data.Dir, split+"-00000-of-00001.tfrecord"), n, func(int) []tfrecord.Feature { return textExample(task, r) })
			}
			p.Train.BatchSize, p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval, p.Checkpoint.Interval = 8, 8, 2, 4, 2
			p.Data.RowLength, p.Optimizer.LearningRate, p.Runtime.Lanes = 16, 1e-2, 1
			p.Optimizer.Hyperparameters = map[string]float64{"hidden_dropout": 0, "attention_dropout": 0}
			switch task {
			case "mlm":
				p.Train.BatchWarmup = "0:2,2:4,4:8"
			case "lm":
				p.Train.LengthWarmup = "0:4,2:8,5:16"
			case "seq2seq-t5", "seq2seq-bart", "seq2seq-marian":
				p.Optimizer.Hyperparameters["activation_dropout"] = 0
			default:
				p.Optimizer.Hyperparameters["classifier_dropout"] = 0
			}
			whole, again := filepath.Join(dir, "whole"), filepath.Join(dir, "again")
			steps := mustTrain(t, p, whole)
			perToken := task == "tokens" || task == "mlm" || task == "lm" || strings.HasPrefix(task, "seq2seq") // the others have what classification has
			if perToken {
				stopAt(t, p, again, 3)
				mustTrain(t, p, again)
				sameRuns(t, again, whole)
			}
			changes := map[string]func(*params.Params){
				"one per row":           func(p *params.Params) { p.Data.Packing = string(packed.PackNone) },
				"2 devices, accumulate": func(p *params.Params) { p.Strategy.Devices, p.Strategy.Accumulate = "cpu:2", 2 },
			}
			if task == "mlm" || task == "lm" || task == "seq2seq-t5" { // batches that grow, rows that grow, and rows in pairs
				workers := startWorkers(t, "cpu:1", "", "")
				changes["2 workers, fed"] = func(p *params.Params) { p.Strategy.Workers = workers }
				if task != "lm" { // workers that read do not know the step, by which its rows grow
					changes["2 workers that read"] = func(p *params.Params) { p.Strategy.Workers, p.Strategy.Input = workers, params.InputLocal }
				}
			}
			for name, change := range changes {
				t.Run(name, func(t *testing.T) {
					other, run := p, filepath.Join(dir, name)
					change(&other)
					got := mustTrain(t, other, run)
					if !slices.Equal(got, steps) {
						t.Errorf("steps are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(steps, "\n"))
					}
					alike(t, run, whole)
				})
			}
			if !perToken {
				return
			}
			damaged := filepath.Join(p.Data.Dir, "train-00000-of-00001.tfrecord")
			flip(t, damaged)
			_, err := Train(t.Context(), p, filepath.Join(dir, "damaged"), quiet())
			if !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), filepath.Base(damaged)) || !strings.Contains(err.Error(), "record") {
				t.Errorf("got %v, expected the damaged record", err)
			}
		})
	}
}
