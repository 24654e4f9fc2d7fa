package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// TestTextTasks converts, trains, evaluates and predicts for each task of texts. Scripts find the
// exports in $GRAPHS/TASK.
func TestTextTasks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs commands in processes of their own")
	}
	graphs := testkit.Made(t, exportTasks)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/texttasks",
		Setup: func(env *testscript.Env) error {
			asElsewhere(env)
			env.Setenv("GRAPHS", graphs)
			env.Setenv("GIVEN", given)
			env.Setenv("ADDRESS", freeAddresses(t, 1)[0])
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitCodeIs, "losses": lossesMatch, "listens": awaitListener, "post": postJSON},
	})
}

// lossesMatch compares a file of predictions with the file of the same evaluation: each example is
// there, in order, and the mean of their losses is the loss, of tokens weighted by their number.
// losses PREDICTIONS EVALUATION [tokens]
func lossesMatch(ts *testscript.TestScript, _ bool, args []string) {
	e, err := evaluation.Read(ts.MkAbs(args[1]))
	ts.Check(err)
	var sum, weight float64
	n := int64(0)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var row evaluation.Row
		ts.Check(json.Unmarshal([]byte(line), &row))
		if want := fmt.Sprintf("dev-00000-of-00001.tfrecord:%d", n); row.Record != want {
			ts.Fatalf("line %d is record %s; expected %s", n+1, row.Record, want)
		}
		w := row.Weight
		if labels, ok := row.Label.([]any); ok && len(args) > 2 {
			w *= float64(len(labels))
		}
		sum, weight, n = sum+w*float64(row.Loss), weight+w, n+1
	}
	if want := e.Metrics["loss"]; n != e.Examples || !(math.Abs(sum/weight-want) <= 1e-4*max(1, want)) {
		ts.Fatalf("%d examples with a mean loss of %v; expected %d with %v", n, sum/weight, e.Examples, want)
	}
}

// exportTasks exports each task for the vocabulary and the labels of the scripts.
const exportTasks = `import json, pathlib, sys
from gorbit_export.__main__ import main
out = pathlib.Path(sys.argv[1])
config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
          "intermediate_size": 64, "vocab_size": 14, "max_position_embeddings": 32}
(out / "config.json").write_text(json.dumps(config))
tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film plot ##s Ann Rome in ."
for task, labels in {"regression": [], "multilabel": ["film", "plot"], "tokens": ["B-LOC", "B-PER", "O"], "qa": [], "mlm": []}.items():
    data = out / ("data-" + task)
    data.mkdir()
    (data / "vocab.txt").write_text(tokens.replace(" ", "\n").lower().replace("[pad]", "[PAD]").replace("[unk]", "[UNK]")
        .replace("[cls]", "[CLS]").replace("[sep]", "[SEP]").replace("[mask]", "[MASK]") + "\n")
    vocab = {"file": "vocab.txt", "size": 14}
    manifest = {"format": "gorbit-dataset", "version": 1, "labels": labels, "vocab": vocab}
    (data / "manifest.json").write_text(json.dumps(manifest))
    code = main(["bert", "--task", task, "--config", str(out / "config.json"), "--data", str(data), "--out", str(out / task)])
    if code:
        sys.exit(code)
llama = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 64, "vocab_size": 14, "max_position_embeddings": 32}
(out / "llama.json").write_text(json.dumps(llama))
if code := main(["causal", "--config", str(out / "llama.json"), "--data", str(out / "data-mlm"), "--out", str(out / "lm")]):
    sys.exit(code)
if code := main(["bert", "--task", "regression", "--lora-rank", "4", "--lora-targets", "query,value,intermediate",
                 "--config", str(out / "config.json"), "--out", str(out / "regression-lora")]):
    sys.exit(code)
`
