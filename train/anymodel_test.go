package train

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// anyModel is a model of testkit.Models, with records that it can learn from.
type anyModel struct {
	name   string
	record func(r *rand.Rand) []tfrecord.Feature
	// change changes the params of a run.
	change func(*params.Params)
	// metrics are those of an evaluation, and better says whether training improved them.
	metrics []string
	better  func(before, after map[string]float64) bool
	// answer is an answer in JSON, with numbers cut.
	fields []string
}

var anyModels = []anyModel{
	{
		name: "flowers",
		record: func(r *rand.Rand) []tfrecord.Feature {
			kind := r.Int64N(3)
			sizes := make([]float32, 4)
			for i := range sizes {
				sizes[i] = r.Float32() + 2*float32((int(kind)*(i+1))%3)
			}
			return []tfrecord.Feature{tfrecord.FloatFeature("sizes", sizes...), tfrecord.Int64Feature("kind", kind), tfrecord.BytesFeature("note", []byte("x"))}
		},
		change:  func(p *params.Params) { p.Data.Features["measures"] = "sizes" },
		metrics: []string{"found", "loss", "margin"},
		better: func(before, after map[string]float64) bool {
			return after["found"] > before["found"] && after["found"] > 0.9
		},
		fields: []string{"label", "index", "score", "probabilities", "logits"},
	},
	{
		name: "words",
		record: func(r *rand.Rand) []tfrecord.Feature {
			words, sum := make([]int64, 1+r.IntN(9)), float32(0)
			for i := range words {
				words[i] = r.Int64N(20)
				sum += float32(words[i]%3) - 1
			}
			return []tfrecord.Feature{tfrecord.Int64Feature("words", words...), tfrecord.FloatFeature("sum", sum)}
		},
		metrics: []string{"loss"},
		better:  func(before, after map[string]float64) bool { return after["loss"] < 0.1*before["loss"] },
		fields:  []string{"sum", "worths"},
	},
	{
		name: "weather",
		record: func(r *rand.Rand) []tfrecord.Feature {
			a, b := 5+r.Float32(), -3+r.Float32()
			rained := int64(0)
			if a-5 > b+3 {
				rained = 1
			}
			return []tfrecord.Feature{tfrecord.FloatFeature("measures", a, b), tfrecord.Int64Feature("rained", rained), tfrecord.FloatFeature("degrees", a-b-8.5),
				tfrecord.FloatFeature("example_weights", 0.5+r.Float32())}
		},
		metrics: []string{"loss", "warmth_error"},
		better:  func(before, after map[string]float64) bool { return after["warmth_error"] < 0.1*before["warmth_error"] },
		fields:  []string{"rain", "warmth", "centered"},
	},
	{
		name: "plants", // records as those of TensorFlow's own data sets of images
		record: func(r *rand.Rand) []tfrecord.Feature {
			kind, photo := r.IntN(3), image.NewNRGBA(image.Rect(0, 0, 5+r.IntN(4), 6))
			for i := range photo.Pix {
				photo.Pix[i] = uint8(r.IntN(100))
				if i%4 == 3 {
					photo.Pix[i] = 255
				} else if i%4 == kind {
					photo.Pix[i] += 150
				}
			}
			var file bytes.Buffer
			if err := png.Encode(&file, photo); err != nil {
				panic(err) // memory does not fail
			}
			return []tfrecord.Feature{tfrecord.BytesFeature("image/encoded", file.Bytes()), tfrecord.Int64Feature("image/class/label", int64(kind)),
				tfrecord.BytesFeature("image/format", []byte("png")), tfrecord.FloatFeature("measures", r.Float32(), r.Float32(), r.Float32(), r.Float32())}
		},
		change: func(p *params.Params) {
			p.Data.Features["image"], p.Data.Features["kind"], p.Data.Resize = "image/encoded", "image/class/label", "bilinear"
		},
		metrics: []string{"accuracy", "loss"},
		better: func(before, after map[string]float64) bool {
			return after["accuracy"] >= before["accuracy"] && after["accuracy"] > 0.9
		},
		fields: []string{"label", "index", "score", "probabilities", "logits"},
	},
}

// params writes records for the model and returns the params of a run of 40 steps.
func (m anyModel) params(t *testing.T) params.Params {
	t.Helper()
	p := params.Defaults()
	p.Graph, p.Data.Dir = filepath.Join(testkit.Models(t), m.name), t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for _, file := range []struct {
		name string
		n    int
	}{{"train-00000-of-00002", 61}, {"train-00001-of-00002", 60}, {"dev-00000-of-00001", 50}} {
		writeExamples(t, filepath.Join(p.Data.Dir, file.name+".tfrecord"), file.n, func(int) []tfrecord.Feature { return m.record(r) })
	}
	p.Train.BatchSize, p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval, p.Eval.BatchSize = 16, 60, 4, 12, 16
	p.Checkpoint.Interval, p.Optimizer.LearningRate, p.Optimizer.Schedule = 8, 0.1, "constant"
	if m.change != nil {
		m.change(&p)
	}
	return p
}

// TestAnyModel trains, evaluates and predicts with models that the Go side knows nothing of.
func TestAnyModel(t *testing.T) {
	long(t)
	for _, m := range anyModels {
		t.Run(m.name, func(t *testing.T) {
			p, run := m.params(t), filepath.Join(t.TempDir(), "run")
			out, err := Train(t.Context(), p, run, quiet())
			if err != nil {
				t.Fatal(err)
			}
			all := evaluations(t, run)
			if first := all[0].Outputs; !m.better(first, out) {
				t.Errorf("training did not help: %v at first, %v at the end", first, out)
			}
			for _, name := range m.metrics {
				if v, ok := out[name]; !ok || math.IsNaN(v) || len(out) != len(m.metrics) {
					t.Errorf("metrics are %v, expected %v", out, m.metrics)
				}
			}
			r := loaded(t, run, quiet())
			again, err := r.Evaluate(t.Context(), "")
			if err != nil || fmt.Sprint(again) != fmt.Sprint(out) {
				t.Errorf("evaluated again %v, %v, expected %v", again, err, out)
			}
			rows := checkExamples(t, r, again)
			checkAnswered(t, m.name, rows[0])
			labels := m.name == "plants" // the exporter of Keras models adds what the table needs
			if labels {
				two := []evaluation.Row{rows[7], rows[2]}
				if err := r.DescribeInputs(t.Context(), "", two); err != nil {
					t.Fatal(err)
				}
				for _, row := range two {
					if in := row.Inputs; len(in) != 2 || in[0].Name != "image" || in[0].PNG == nil || in[1].Name != "measures" || len(strings.Fields(in[1].Value)) != 4 {
						t.Errorf("the inputs of %s are %+v; expected a picture and four measures", row.Record, in)
					}
				}
			}
			switch e, err := r.Evaluation(t.Context(), ""); {
			case err != nil || (e.Confusion != nil) != labels || (e.Classes != nil) != labels:
				t.Errorf("evaluated in detail: %+v, %v; expected a table of the classes only for models of one label", e, err)
			case labels && e.Confusion.Counts[0][0] == 0:
				t.Errorf("the confusion matrix is %v; expected that the first class is found", e.Confusion.Counts)
			}
			n := 0
			err = r.PredictSplit(context.Background(), "dev", func(a predict.Answer) error {
				n++
				line, err := json.Marshal(predict.Object(a.Fields()))
				if err != nil {
					return err
				}
				var names []string
				for _, f := range a.Fields() {
					names = append(names, f.Name)
				}
				if fmt.Sprint(names) != fmt.Sprint(m.fields) {
					return fmt.Errorf("answer %d is %s", n, line)
				}
				if n == 1 {
					t.Logf("%s; %s; %v", line, a.Text(), a.Row())
				}
				return nil
			})
			if err != nil || n != 50 {
				t.Errorf("%d answers, %v", n, err)
			}
			if m.name == "words" {
				answersAlone(t, run)
			}
		})
	}
}

// checkAnswered wants the label and the prediction of an example, of whatever labels and outputs.
func checkAnswered(t *testing.T, model string, row evaluation.Row) {
	t.Helper()
	keys := func(v any) []string {
		values, _ := v.(map[string]any)
		return slices.Sorted(maps.Keys(values))
	}
	ok := row.Label != nil && row.Prediction != nil
	switch model {
	case "weather": // two labels, one of them of a sigmoid, and three outputs, one of them of a label
		ok = slices.Equal(keys(row.Label), []string{"degrees", "rained"}) && slices.Equal(keys(row.Prediction), []string{"centered", "rained", "warmth"})
		rained, _ := row.Prediction.(map[string]any)
		ok = ok && (rained["rained"] == "0" || rained["rained"] == "1")
	case "flowers", "plants":
		_, ok = row.Prediction.(string)
	}
	if !ok {
		t.Errorf("the label is %v, and the prediction %v", row.Label, row.Prediction)
	}
}

// answersAlone answers examples together and one by one: neither the other examples of a batch nor its
// padding may show.
func answersAlone(t *testing.T, run string) {
	t.Helper()
	answers := func(setting string) (all []string) {
		err := loaded(t, run, quiet(), setting).PredictSplit(t.Context(), "dev", func(a predict.Answer) error {
			line, err := json.Marshal(predict.Object(a.Fields()))
			all = append(all, string(line))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	together, alone := answers("eval.batch_size=16"), answers("eval.batch_size=1")
	if len(together) != len(alone) {
		t.Fatalf("%d answers together, %d one by one", len(together), len(alone))
	}
	for i, want := range alone {
		nearJSON(t, fmt.Sprintf("answer %d", i), together[i], want)
	}
}
