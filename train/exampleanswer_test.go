package train

import (
	"fmt"
	"math"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Sigmoid outputs have a label and a prediction: one by the names of the two classes, whatever the label's
// type, and several by those of the labels or, where it is not known that they are such, as numbers.
func TestAnswersOfSigmoids(t *testing.T) {
	of := func(name string, kind predict.Kind, classes ...string) []output {
		return []output{{OutputSpec: predict.OutputSpec{Name: name, Kind: kind, Classes: classes}}}
	}
	for name, c := range map[string]struct {
		outputs []output
		label   dataset.Feature
		values  []float64
		want    string
		loss    float64
	}{
		"whole":   {of("probability", predict.OneValue), dataset.Feature{Int32: []int32{1}}, []float64{0.25}, "yes no map[no:0.75 yes:0.25]", -math.Log(0.25)},
		"float":   {of("y_probability", predict.OneValue), dataset.Feature{Float32: []float32{0}}, []float64{0.25}, "no no map[no:0.75 yes:0.25]", -math.Log(0.75)},
		"several": {of("probabilities", predict.Probabilities, "a", "b"), dataset.Feature{Int32: []int32{1, 0}}, []float64{0.5, 0.5}, "[a] [a b] map[a:0.5 b:0.5]", -math.Log(0.5)},
		"unnamed": {of("y", predict.ManyValues), dataset.Feature{Float32: []float32{1, 0}}, []float64{0.5, 0.25}, "[1 0] [0.5 0.25] map[]", math.NaN()},
	} {
		c.label.Name = "l"
		contract := &graphs.Contract{Features: []graphs.Feature{{Name: "l", Role: graphs.RoleLabel}}}
		e := &examples{run: &Run{Export: &graphs.Export{Contract: contract}}, outputs: c.outputs, manifest: &convert.Manifest{Labels: []string{"no", "yes"}}}
		var row evaluation.Row
		loss, known := e.answer(&row, &dataset.Batch{Features: []dataset.Feature{c.label}}, predict.Result{{Shape: []int{len(c.values)}, Data: c.values}})
		if got := fmt.Sprint(row.Label, " ", row.Prediction, " ", map[string]float64(row.Probabilities)); got != c.want || known == math.IsNaN(c.loss) || known && math.Abs(loss-c.loss) > 1e-9 {
			t.Errorf("%s: %s, loss %v; expected %s, %v", name, got, loss, c.want, c.loss)
		}
	}
}
