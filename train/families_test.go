package train

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// familyGoldens has small models that transformers wrote, and their logits.
const familyGoldens = "../tools/tests/goldens/families"

// modernCls is a ModernBERT beside familyGoldens, whose window is narrower than its sequences.
const modernCls = "../modernbert/cls"

// debertaCls is a DeBERTa beside familyGoldens, whose words are narrower than its layers.
const debertaCls = "../deberta/narrow"

// familyExport returns the export of a model of familyGoldens.
func familyExport(t *testing.T, kind string) string {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(familyGoldens, kind+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Export(t, string(config), "--num-labels", "3")
}

// release makes a folder as Hugging Face's: model.safetensors, and config.json with changes.
func release(t *testing.T, kind string, change map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	weights, err := os.ReadFile(filepath.Join(familyGoldens, kind+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	config := make(map[string]any)
	readGoldens(t, kind+".json", &config)
	for name, value := range change {
		config[name] = value
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"model.safetensors": weights, loop.ReleaseConfig: data} {
		writeFile(t, filepath.Join(dir, name), content)
	}
	return dir
}

func readGoldens(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(familyGoldens, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

// TestInitFromRelativesOfBERT trains a step of no length from weights of transformers, on records
// with ids alone, and answers as transformers does.
func TestInitFromRelativesOfBERT(t *testing.T) {
	long(t)
	for _, kind := range []string{"distilbert", "electra", "roberta", modernCls, "../modernbert/mean", debertaCls} {
		t.Run(kind, func(t *testing.T) {
			folder, name := filepath.Split(kind)
			var goldens map[string]json.RawMessage
			readGoldens(t, folder+"cases.json", &goldens)
			var want struct {
				IDs    [][]int32   `json:"input_ids"`
				Logits [][]float64 `json:"logits"`
			}
			if err := json.Unmarshal(goldens[name], &want); err != nil {
				t.Fatal(err)
			}
			p := testParams(t)
			p.Graph, p.Data.Dir = familyExport(t, kind), t.TempDir()
			examples := make([]text.Encoding, len(want.IDs))
			write := func(name string) {
				writeExamples(t, filepath.Join(p.Data.Dir, name), len(examples), func(i int) []tfrecord.Feature {
					examples[i].IDs = want.IDs[i]
					ids := make([]int64, len(want.IDs[i]))
					for j, id := range want.IDs[i] {
						ids[j] = int64(id)
					}
					return []tfrecord.Feature{tfrecord.Int64Feature("input_ids", ids...),
						tfrecord.Int64Feature("segment_ids", make([]int64, len(ids))...), tfrecord.Int64Feature("label_ids", 0)}
				})
			}
			write("train-00000-of-00001.tfrecord")
			write("dev-00000-of-00001.tfrecord")
			p.Init, p.Strict = release(t, kind, nil), true
			p.Data.RowLength, p.Train.Steps, p.Train.BatchSize = 0, 1, 3
			for _, ids := range want.IDs {
				p.Data.RowLength = max(p.Data.RowLength, len(ids))
			}
			p.Optimizer.LearningRate, p.Optimizer.WeightDecay = 1e-30, 0
			run := filepath.Join(t.TempDir(), "run")
			mustTrain(t, p, run)
			predictor, err := loaded(t, run, quiet()).Predictor(nil)
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			if _, err := predictor.EachEncoded(t.Context(), windowsOf(examples, nil, len(examples)), func(a predict.Answer) error {
				for j, got := range a.(predict.Label).Logits {
					if math.Abs(got-want.Logits[i][j]) > 1e-5 {
						t.Errorf("logit %d of example %d is %v, expected %v", j, i, got, want.Logits[i][j])
					}
				}
				i++
				return nil
			}); err != nil || i != len(examples) {
				t.Errorf("%d answers: %v", i, err)
			}
		})
	}
}

// TestInitRefusesModelsComputedInAnotherWay has weights of which most or all fit, and whose model
// is not the graph's.
func TestInitRefusesModelsComputedInAnotherWay(t *testing.T) {
	load := func(t *testing.T, kind string, change func(*graphs.Contract), from string) error {
		t.Helper()
		export, err := graphs.Open(familyExport(t, kind))
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(export.Contract)
		}
		_, _, err = loop.Init{From: from}.Load(t.Context(), export.Contract)
		return err
	}
	alone := func(t *testing.T, kind string) string { return filepath.Join(familyGoldens, kind+".safetensors") }
	// A BERT of 18 positions: all of RoBERTa's tensors fit.
	bert := func(c *graphs.Contract) {
		c.Model.Weights = &graphs.Weights{ModelType: "bert", Prefix: "bert.", Others: []string{"roberta."}, Fit: c.Model.Weights.Fit}
	}
	for _, c := range []struct {
		name, kind, from, want string
		change                 func(*graphs.Contract)
	}{
		{"prefix", "roberta", alone(t, "roberta"), `names of tensors begin with "roberta."; expected weights of model bert`, bert},
		{"positions", "roberta", alone(t, "roberta"), "roberta.embeddings.position_embeddings.weight is [18 8]; expected [16 8]", func(c *graphs.Contract) {
			for i := range c.Variables {
				if v := &c.Variables[i]; v.Name == c.Model.Weights.Fit[0] {
					v.Shape = []int64{16, 8}
				}
			}
		}},
		{"model type", "electra", release(t, "electra", map[string]any{"model_type": "bert"}), `model_type is "bert"; expected "electra"`, nil},
		{"heads", "distilbert", release(t, "distilbert", map[string]any{"n_heads": 4}), "n_heads is 4; expected 2", nil},
		{"padding", "roberta", release(t, "roberta", map[string]any{"pad_token_id": 0}), "pad_token_id is 0; expected 1", nil},
		{"window", modernCls, release(t, modernCls, map[string]any{"local_attention": 16}), "local_attention is 16; expected 8", nil},
		{"period", modernCls, release(t, modernCls, map[string]any{"global_attn_every_n_layers": 2}), "global_attn_every_n_layers is 2; expected 3", nil},
		{"rotary", modernCls, release(t, modernCls, map[string]any{"local_rope_theta": 160000}), "local_rope_theta is 160000; expected 10000", nil},
		{"buckets", debertaCls, release(t, debertaCls, map[string]any{"position_buckets": 4}), "position_buckets is 4; expected 8", nil},
		{"distances", debertaCls, release(t, debertaCls, map[string]any{"max_relative_positions": -1}), "max_relative_positions is -1; expected 20", nil},
		{"epsilon", "roberta", release(t, "roberta", map[string]any{"layer_norm_eps": 1e-12}), "layer_norm_eps is 1e-12; expected 0.00001", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := load(t, c.kind, c.change, c.from)
			if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, expected %q", err, c.want)
			}
		})
	}
	t.Run("before anything runs", func(t *testing.T) {
		p := testParams(t)
		p.Init = alone(t, "roberta")
		p.InitPartial = true
		_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
		if err == nil || !strings.Contains(err.Error(), `begin with "roberta."`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("without config.json", func(t *testing.T) {
		if err := load(t, "roberta", nil, alone(t, "roberta")); err != nil {
			t.Error(err)
		}
	})
	t.Run("run of another kind", func(t *testing.T) {
		from, run := familyExport(t, "distilbert"), t.TempDir()
		copyFolder(t, filepath.Join(run, runfolder.GraphFolder, "assets"), filepath.Join(from, "assets"))
		copyFolder(t, filepath.Join(run, runfolder.Checkpoints), filepath.Join(from, "variables"))
		prefix := filepath.Join(run, runfolder.Checkpoints, "variables")
		if err := load(t, "distilbert", nil, prefix); err != nil {
			t.Error(err)
		}
		for want, change := range map[string]func(*graphs.Weights){
			`gorbit.json: model_type is "distilbert"; expected "bert", as in the graph`: func(w *graphs.Weights) { w.ModelType = "bert" },
			`gorbit.json: n_heads is 2; expected 4, as in the graph`:                    func(w *graphs.Weights) { w.Config["n_heads"] = 4.0 },
		} {
			for _, from := range []string{prefix, from} { // the run's own copy, and the export itself
				err := load(t, "distilbert", func(c *graphs.Contract) { change(c.Model.Weights) }, from)
				if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, expected %q", from, err, want)
				}
			}
		}
	})
	t.Run("checkpoint beside a config.json", func(t *testing.T) {
		export, err := graphs.Open(familyExport(t, "roberta"))
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := checkpoint.OpenBundle(filepath.Join(export.Path, "variables", "variables"))
		if err != nil {
			t.Fatal(err)
		}
		if err := loop.CheckForm(bundle, &checkpoint.LoadReport{}, export.Contract, false); err != nil {
			t.Error(err)
		}
	})
}
