package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestTokenizersOfTasks goes with each kind of tokenizer through the tasks, from texts to a server. Scripts
// find the tokenizer in $TOKENIZER, the name of its copies in $KEPT, its mask in $MASK, and the exports in
// $GRAPHS/TASK.
func TestTokenizersOfTasks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs commands in processes of their own")
	}
	graphs := testkit.Made(t, exportTokenizers, filepath.Join(given, "tokenizers"))
	for name, kept := range map[string]string{"bpe": "tokenizer.json", "xlmr": "tokenizer.json", "plain.model": "tokenizer.model"} {
		t.Run(name, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir: "testdata/tokenizers",
				Setup: func(env *testscript.Env) error {
					asElsewhere(env)
					env.Setenv("TOKENIZER", filepath.Join(given, "tokenizers", name))
					env.Setenv("KEPT", kept)
					env.Setenv("GRAPHS", filepath.Join(graphs, name))
					env.Setenv("ADDRESS", freeAddresses(t, 1)[0])
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exitcode": exitCodeIs, "listens": awaitListener, "post": postJSON,
				},
			})
		})
	}
}

// exportTokenizers exports each task for each tokenizer, with more rows than any has tokens.
const exportTokenizers = `import json, pathlib, shutil, sys
from gorbit_export import vocabulary
from gorbit_export.__main__ import main
out, given = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
          "intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 48}
(out / "config.json").write_text(json.dumps(config))
for name in ("bpe", "xlmr", "plain.model"):
    data = out / name / "data"
    data.mkdir(parents=True)
    if name == "xlmr": # what becomes of it: the special tokens first, and the mask last
        size = vocabulary.load(given / name / "sentencepiece.bpe.model").size + 2
        pieces = [[str(i), 0.0] for i in range(size - 1)]
        special = [{"id": i, "content": str(i), "special": True} for i in range(4)]
        special.append({"id": size - 1, "content": "<mask>", "special": True})
        (data / "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}, "added_tokens": special}))
    elif name == "bpe":
        shutil.copy(given / name / "tokenizer.json", data)
    else:
        shutil.copy(given / name, data / "tokenizer.model")
    file, = (f.name for f in data.iterdir())
    vocab = {"file": file, "size": vocabulary.load(data / file).size}
    for task, labels in {"multilabel": ["film", "plot"], "tokens": ["B-LOC", "B-PER", "O"], "qa": [], "mlm": []}.items():
        manifest = {"format": "gorbit-dataset", "version": 1, "labels": labels, "vocab": vocab}
        (data / "manifest.json").write_text(json.dumps(manifest))
        if code := main(["bert", "--task", task, "--config", str(out / "config.json"), "--data", str(data), "--out", str(out / name / task)]):
            sys.exit(code)
`
