package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	graphs, bin := testkit.Made(t, exportTasks), newUser(t).bin
	testscript.Run(t, testscript.Params{
		Dir: "testdata/texttasks",
		Setup: func(env *testscript.Env) error {
			asElsewhere(env)
			env.Setenv("GRAPHS", graphs)
			env.Setenv("PATH", env.Getenv("PATH")+string(filepath.ListSeparator)+bin) // which has gorbit-predict
			env.Setenv("GIVEN", given)
			env.Setenv("ADDRESS", freeAddresses(t, 1)[0])
			env.Setenv("WEIGHTS", filepath.Join(testkit.Root(), "tools/tests/goldens/seq2seq/t5.safetensors"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitCodeIs, "losses": lossesMatch, "sameloss": lossesAreSame, "listens": awaitListener, "post": postJSON, "vectors": vectorsAre, "sentences": sentencesAre, "await": awaitFile, "samerun": runsAreSame},
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

// lossesAreSame compares the losses of two evaluations, whose sums may be rounded in another way.
// sameloss EVALUATION EVALUATION
func lossesAreSame(ts *testscript.TestScript, _ bool, args []string) {
	var losses []float64
	for _, file := range args {
		e, err := evaluation.Read(ts.MkAbs(file))
		ts.Check(err)
		losses = append(losses, e.Metrics["loss"])
	}
	if len(losses) != 2 || !(math.Abs(losses[0]-losses[1]) <= 1e-3*losses[0]) {
		ts.Fatalf("losses are %v; expected the same twice", losses)
	}
}

// vectorsAre compares the vectors of the last response of /v1/embeddings with those of predictions, or
// with their first numbers, as a vector of length 1.
// vectors [-dimensions N] PREDICTIONS
func vectorsAre(ts *testscript.TestScript, _ bool, args []string) {
	n := 0
	if args[0] == "-dimensions" {
		var err error
		n, err = strconv.Atoi(args[1])
		ts.Check(err)
		args = args[2:]
	}
	var response struct {
		Data []struct{ Embedding json.RawMessage }
	}
	ts.Check(json.Unmarshal([]byte(strings.TrimPrefix(ts.ReadFile("stdout"), "200 ")), &response))
	lines := slices.Collect(strings.Lines(ts.ReadFile(args[0])))
	if len(response.Data) == 0 || n == 0 && len(response.Data) != len(lines) {
		ts.Fatalf("%d vectors; expected %d", len(response.Data), len(lines))
	}
	for i, d := range response.Data {
		var want struct{ Embedding []float64 }
		ts.Check(json.Unmarshal([]byte(lines[i]), &want))
		var got []float32
		if text := ""; json.Unmarshal(d.Embedding, &text) == nil {
			raw, err := base64.StdEncoding.DecodeString(text)
			ts.Check(err)
			got = make([]float32, len(raw)/4)
			_, err = binary.Decode(raw, binary.LittleEndian, got)
			ts.Check(err)
		} else {
			ts.Check(json.Unmarshal(d.Embedding, &got))
		}
		expected, squares := want.Embedding, 0.0
		if n > 0 {
			expected = expected[:n]
		}
		for _, v := range expected {
			squares += v * v
		}
		if len(got) != len(expected) || n == 0 && math.Abs(squares-1) > 1e-5 {
			ts.Fatalf("vector %d has %d numbers; expected %d of length 1", i, len(got), len(expected))
		}
		for k, v := range expected {
			if math.Abs(float64(got[k])-v/math.Sqrt(squares)) > 1e-5 {
				ts.Fatalf("vector %d is %v; expected %v", i, got, expected)
			}
		}
	}
}

// sentenceTransformers names a Python that has sentence-transformers, which is too large to install for a
// test.
const sentenceTransformers = "GORBIT_SENTENCE_TRANSFORMERS"

// sentencesAre compares the vectors that sentence-transformers makes of texts with those of predictions.
// sentences MODEL PREDICTIONS TEXT...
func sentencesAre(ts *testscript.TestScript, _ bool, args []string) {
	python := os.Getenv(sentenceTransformers)
	if python == "" {
		ts.Logf("%s is not set; expected a Python with sentence-transformers", sentenceTransformers)
		return
	}
	const script = "import json, sys; from sentence_transformers import SentenceTransformer as S\n" +
		"for v in S(sys.argv[1], device='cpu').encode(sys.argv[2:]).tolist(): print(json.dumps({'embedding': v}))"
	ts.Check(ts.Exec(python, append([]string{"-c", script, ts.MkAbs(args[0])}, args[2:]...)...))
	theirs, ours := strings.Split(ts.ReadFile("stdout"), "\n"), strings.Split(ts.ReadFile(args[1]), "\n")
	for i := range args[2:] {
		var got, want struct{ Embedding []float64 }
		ts.Check(json.Unmarshal([]byte(theirs[i]), &got))
		ts.Check(json.Unmarshal([]byte(ours[i]), &want))
		for k, v := range want.Embedding {
			if len(got.Embedding) != len(want.Embedding) || math.Abs(got.Embedding[k]-v) > 1e-5 {
				ts.Fatalf("text %d: %v; expected %v", i, got.Embedding, want.Embedding)
			}
		}
	}
}

// awaitFile waits until there is a file: await FILE.
func awaitFile(ts *testscript.TestScript, _ bool, args []string) {
	for late := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		} else if time.Now().After(late) {
			ts.Fatalf("%v", err)
		}
	}
}

// runsAreSame compares the tensors of two runs at a step, bit for bit, and their metrics: samerun RUN RUN STEP.
func runsAreSame(ts *testscript.TestScript, _ bool, args []string) {
	step, err := strconv.Atoi(args[2])
	ts.Check(err)
	want, wantMetrics, err := stateOf(ts.MkAbs(args[0]), step)
	ts.Check(err)
	got, metrics, err := stateOf(ts.MkAbs(args[1]), step)
	ts.Check(err)
	if len(want) < 3 || !maps.Equal(got, want) {
		ts.Fatalf("the %d tensors of %s are not those of %s, which has %d", len(got), args[1], args[0], len(want))
	}
	if metrics != wantMetrics {
		ts.Fatalf("the metrics are\n%s\nexpected\n%s", metrics, wantMetrics)
	}
}

// exportTasks exports each task for the vocabulary and the labels of the scripts.
const exportTasks = `import dataclasses, json, pathlib, sys
import gorbit_export
import tensorflow as tf
from gorbit_export import causal, seq2seq_task
from gorbit_export.__main__ import main
out = pathlib.Path(sys.argv[1])
config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
          "intermediate_size": 64, "vocab_size": 14, "max_position_embeddings": 32}
(out / "config.json").write_text(json.dumps(config))
tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film plot ##s Ann Rome in ."
for task, labels in {"regression": [], "multilabel": ["film", "plot"], "tokens": ["B-LOC", "B-PER", "O"], "qa": [], "mlm": [], "choices": ["0", "1", "2"]}.items():
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
for name, flags in {"embed": [], "embed-scores": ["--loss", "cosine"], "embed-three": ["--texts", "3", "--cache-rows", "1"]}.items():
    if code := main(["bert", "--task", "embed", "--config", str(out / "config.json"), "--out", str(out / name), *flags]):
        sys.exit(code)
llama = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 64, "vocab_size": 14, "max_position_embeddings": 32}
(out / "llama.json").write_text(json.dumps(llama))
if code := main(["causal", "--config", str(out / "llama.json"), "--data", str(out / "data-mlm"), "--out", str(out / "lm")]):
    sys.exit(code)
if code := main(["bert", "--task", "regression", "--lora-rank", "4", "--lora-targets", "query,value,intermediate",
                 "--config", str(out / "config.json"), "--out", str(out / "regression-lora")]):
    sys.exit(code)
t5 = str(pathlib.Path(gorbit_export.__file__).parents[1] / "tests/goldens/seq2seq/t5.json")
if code := main(["seq2seq", "--config", t5, "--out", str(out / "seq2seq")]):
    sys.exit(code)

# Models whose functions of generation write a file.
def writes(function):
    def written(*args, **named):
        tf.io.write_file("written", "x")
        return function(*args, **named)
    return written
def next_writes(task, made=causal.LanguageModel.generation):
    made = made(task)
    return dataclasses.replace(made, next_logits=writes(made.next_logits))
def encode_writes(task, made=seq2seq_task.Seq2Seq.generation):
    made = made(task)
    return dataclasses.replace(made, source=dataclasses.replace(made.source, write=writes(made.source.write)))
causal.LanguageModel.generation, seq2seq_task.Seq2Seq.generation = next_writes, encode_writes
if code := main(["causal", "--config", str(out / "llama.json"), "--data", str(out / "data-mlm"), "--out", str(out / "unsafe-lm")]):
    sys.exit(code)
if code := main(["seq2seq", "--config", t5, "--out", str(out / "unsafe-seq2seq")]):
    sys.exit(code)
`
