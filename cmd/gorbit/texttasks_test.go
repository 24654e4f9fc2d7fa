package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestTextTasks converts, trains, evaluates and predicts for each task of texts. Scripts find the
// exports in $GRAPHS/TASK.
func TestTextTasks(t *testing.T) {
	t.Parallel()
	graphs := testkit.Made(t, exportTasks)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/texttasks",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GRAPHS", graphs)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitCodeIs},
	})
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
if code := main(["bert", "--task", "regression", "--lora-rank", "4", "--lora-targets", "query,value,intermediate",
                 "--config", str(out / "config.json"), "--out", str(out / "regression-lora")]):
    sys.exit(code)
`
