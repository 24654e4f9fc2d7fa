package servable

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

//go:embed testdata/transformers.py
var transformersScript string

// transformersPython names a Python that has torch and transformers, which are too large to install
// for a test.
const transformersPython = "GORBIT_TRANSFORMERS"

func TestWriteHuggingFace(t *testing.T) {
	dir, o := fixture(t)
	if err := WriteHuggingFace(context.Background(), o, map[string]float64{"accuracy": 0.875}); err != nil {
		t.Fatal(err)
	}
	t.Run("weights", func(t *testing.T) { holdWeights(t, o) })
	t.Run("files", func(t *testing.T) {
		var config struct {
			Architectures []string          `json:"architectures"`
			Hidden        int               `json:"hidden_size"`
			Names         map[string]string `json:"id2label"`
			Numbers       map[string]int    `json:"label2id"`
		}
		readJSON(t, filepath.Join(o.Out, "config.json"), &config)
		if config.Architectures[0] != "BertForSequenceClassification" || config.Hidden != 32 || config.Names["1"] != "fair" || config.Numbers["good"] != 2 {
			t.Errorf("config is %+v", config)
		}
		tokenizer := make(map[string]any)
		readJSON(t, filepath.Join(o.Out, "tokenizer_config.json"), &tokenizer)
		if tokenizer["do_lower_case"] != true || tokenizer["model_max_length"] != 16.0 {
			t.Errorf("tokenizer is %v", tokenizer)
		}
		card, err := os.ReadFile(filepath.Join(o.Out, "README.md"))
		if err != nil || !bytes.Contains(card, []byte("| accuracy | 0.875 |")) || !bytes.Contains(card, []byte("Labels: bad, fair, good.")) {
			t.Errorf("%v: card is\n%s", err, card)
		}
	})
	t.Run("replaced only if asked", func(t *testing.T) {
		if err := WriteHuggingFace(context.Background(), o, nil); !errors.Is(err, fault.Usage) {
			t.Errorf("got %v, expected a usage error", err)
		}
		again := o
		again.Overwrite = true
		if err := WriteHuggingFace(context.Background(), again, nil); err != nil {
			t.Error(err)
		}
		foreign := again // downloaded, or saved by transformers
		foreign.Out = t.TempDir()
		f, err := os.Create(filepath.Join(foreign.Out, HuggingFaceWeights))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(checkpoint.WriteSafetensors(f, nil, map[string]string{"format": "pt"}), f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := WriteHuggingFace(context.Background(), foreign, nil); err == nil || !strings.Contains(err.Error(), "is not a model written by gorbit export") {
			t.Errorf("over a model from elsewhere: %v", err)
		}
		if err := Write(context.Background(), again); err == nil || !strings.Contains(err.Error(), "is not a model written by gorbit export") {
			t.Errorf("a served model over it: %v", err)
		}
	})
	t.Run("transformers", func(t *testing.T) {
		python := os.Getenv(transformersPython)
		if python == "" {
			t.Skipf("%s is not set; expected a Python that has torch and transformers", transformersPython)
		}
		out, err := testkit.Command(t, python, "-c", transformersScript, o.Out, filepath.Join(dir, "golden.json")).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var probabilities [][]float32
		if err := json.Unmarshal(out, &probabilities); err != nil {
			t.Fatal(err)
		}
		sameProbabilities(t, probabilities, readGolden(t, dir).Probabilities)
	})
}

// holdWeights holds the weights of a folder against the variables that they were written from.
func holdWeights(t *testing.T, o Options) {
	t.Helper()
	source, err := checkpoint.OpenSafetensors(filepath.Join(o.Out, HuggingFaceWeights))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if format := source.Metadata()["format"]; format != "pt" {
		t.Errorf("format %q", format)
	}
	var wanted []checkpoint.Wanted
	for _, v := range o.Export.Contract.Variables {
		wanted = append(wanted, checkpoint.Wanted{Name: v.Name, DType: tf.Float, Shape: v.Shape,
			Foreign: []checkpoint.Candidate{{Name: o.Export.Contract.Model.HuggingFace.TensorName(v.Foreign[0].Name), Transpose: v.Transpose}}})
	}
	got, report, err := checkpoint.Load(t.Context(), source, wanted)
	if err != nil || report.Strict() != nil || len(report.Unused) > 0 || report.Prefix != "" {
		t.Fatalf("%v\n%s", err, report)
	}
	for name, value := range got {
		var a, b bytes.Buffer
		if _, err := value.WriteContentsTo(&a); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Variables[name].WriteContentsTo(&b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s has other values", name)
		}
	}
}

func TestWriteHuggingFaceRefuses(t *testing.T) {
	_, o := fixture(t)
	o.Export.Contract.Model.HuggingFace = nil
	if err := WriteHuggingFace(context.Background(), o, nil); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "mean pooling has none") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(o.Out); err == nil {
		t.Error("something was written")
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// A causal language model's texts begin and end with tokens of those names, and generation stops by the
// number of the last.
func TestBeginAndEnd(t *testing.T) {
	content, err := os.ReadFile("../../../text/tokenizerjson/testdata/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := tokenizerjson.Parse(content, "llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	special := map[string]string{"cls_token": "<|begin_of_text|>", "sep_token": "<|endoftext|>"}
	config, settings := map[string]any{"eos_token_id": nil}, map[string]any{"cls_token": "<|begin_of_text|>", "sep_token": "<|endoftext|>"}
	beginAndEnd(config, settings, special, tokenizer)
	if want := map[string]string{"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}; !maps.Equal(special, want) {
		t.Errorf("special tokens %v, expected %v", special, want)
	}
	if len(settings) != 2 || settings["eos_token"] != "<|endoftext|>" || config["eos_token_id"] != int32(1) {
		t.Errorf("settings %v, config %v", settings, config)
	}
	config["eos_token_id"] = 7.0
	if beginAndEnd(config, settings, special, tokenizer); config["eos_token_id"] != 7.0 {
		t.Errorf("the model's own number became %v", config["eos_token_id"])
	}
}
