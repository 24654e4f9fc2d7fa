package predict

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
)

// TestRender makes answers of outputs of all kinds.
func TestRender(t *testing.T) {
	two := []string{"no", "yes"}
	for _, test := range []struct {
		name             string
		outputs          []OutputSpec
		result           Result
		json, text, row  string
		columns, refused string
	}{
		{name: "probabilities and logits", outputs: []OutputSpec{{Name: "l", Kind: Logits, Of: "y"}, {Name: "p", Kind: Probabilities, Of: "y", Classes: two}},
			result: Result{{[]int{2}, []float64{-1, 1}}, {[]int{2}, []float64{0.25, 0.75}}},
			json:   `{"label":"yes","index":1,"score":0.75,"probabilities":[0.25,0.75],"logits":[-1,1]}`,
			text:   "yes (75.0 %)", row: "yes 0.750000", columns: "label score probability_no probability_yes"},
		{name: "a probability of the second of two", outputs: []OutputSpec{{Name: "p", Kind: Probabilities, Classes: two}}, result: Result{{nil, []float64{0.25}}},
			json: `{"label":"no","index":0,"score":0.75,"probabilities":[0.75,0.25]}`, text: "no (75.0 %)", row: "no 0.750000", columns: "label score probability_no probability_yes"},
		{name: "a number", outputs: []OutputSpec{{Name: "price", Kind: OneValue}}, result: Result{{nil, []float64{float64(float32(0.1))}}},
			json: `{"price":0.10000000149011612}`, text: "0.1", row: "0.1", columns: "price"},
		{name: "several", outputs: []OutputSpec{{Name: "p", Kind: Probabilities, Of: "y"}, {Name: "x", Kind: ManyValues}, {Name: "grid", Kind: ManyValues}, {Name: "tags", Kind: Tokens}},
			result: Result{{[]int{2}, []float64{0.5, 0.5}}, {[]int{2}, []float64{1, 2}}, {[]int{2, 2}, []float64{1, 2, 3, 4}}, {[]int{3}, []float64{7, 8, 9}}},
			json:   `{"p":{"label":"0","index":0,"score":0.5,"probabilities":[0.5,0.5]},"x":[1,2],"grid":[[1,2],[3,4]],"tags":[7,8,9]}`,
			text:   "p 0 (50.0 %), x [1 2], grid [[1 2] [3 4]], tags [7 8 9]", row: "0 0.500000 0.500000 0.500000 1 2 [[1,2],[3,4]] [7,8,9]",
			columns: "p_label p_score p_0 p_1 x_0 x_1 grid tags"},
		{name: "another number of outputs", outputs: []OutputSpec{{Name: "x"}}, result: Result{{}, {}}, refused: "the model returned 2 outputs; expected 1"},
	} {
		r, err := NewRenderer("of no package", test.outputs)
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.Render(Example{}, test.result)
		if test.refused != "" {
			if err == nil || err.Error() != test.refused {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		line, jsonErr := json.Marshal(Object(a.Fields()))
		var columns []string
		for _, c := range a.Columns() {
			columns = append(columns, heads(c)...)
		}
		if err != nil || jsonErr != nil || string(line) != test.json || a.Text() != test.text || strings.Join(a.Row(), " ") != test.row || strings.Join(columns, " ") != test.columns {
			t.Errorf("%s: %s; %s; %v; %v; %v", test.name, line, a.Text(), a.Row(), columns, err)
		}
	}
	if _, err := NewRenderer("", nil); err == nil {
		t.Error("a model without outputs is accepted")
	}
}

// sum is a BatchModel that adds up the values of feature x.
type sum struct{}

func (sum) PredictBatch(_ context.Context, b *dataset.Batch) ([]Result, error) {
	var out []Result
	x := b.Feature("x")
	for i := range b.Examples {
		s := 0.0
		for _, v := range x.Float32[i*x.Shape[1] : (i+1)*x.Shape[1]] {
			s += float64(v)
		}
		out = append(out, Result{{nil, []float64{s}}})
	}
	return out, nil
}

// TestRows answers the rows of tables whose columns make features.
func TestRows(t *testing.T) {
	features := []convert.Feature{{Name: "x", Kind: convert.KindNumber, DType: "float32", Shape: convert.Shape{2}, Role: convert.RoleInput, Columns: []string{"a", "b"}}}
	layout := dense.Config{Labels: dataset.LabelsNone, Features: []dataset.Spec{{Name: "x", DType: dataset.Float32, Shape: []int{2}}}}
	renderer, err := NewRenderer("", []OutputSpec{{Name: "sum", Kind: OneValue}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, content, want, refused string }{
		{name: "t.csv", content: "id,b,a\n1,2,3\n2,0.5,0\n3,-1,1\n", want: "id,b,a,sum\n1,2,3,5\n2,0.5,0,0.5\n3,-1,1,0\n"},
		{name: "taken.csv", content: "a,b,sum\n1,2,9\n", want: "a,b,sum,predicted_sum\n1,2,9,3\n"},
		{name: "t.jsonl", content: `{"a": 1, "b": 2}` + "\n", want: `{"a": 1, "b": 2,"sum":3}` + "\n"},
		{name: "wrong.csv", content: "a,b\n1,2\n1,x\n", refused: `wrong.csv:3: column "b" is "x"; expected a finite number`},
		{name: "empty.csv", content: "a,b\n1,\n", refused: `empty.csv:2: column "b" is empty; expected a value of x`},
		{name: "none.csv", content: "a,c\n1,2\n", refused: `none.csv:1: has no column "b"`},
	} {
		path := filepath.Join(t.TempDir(), test.name)
		if err := os.WriteFile(path, []byte(test.content), 0o666); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := func() error {
			records, err := convert.NewRowRecords(features, filepath.Dir(path), nil)
			if err != nil {
				return err
			}
			rows, err := OpenRows(t.Context(), path, nil, Columns{}, records, layout, 2)
			if err != nil {
				return err
			}
			defer rows.Close()
			write, _, err := Writer(&out, rows.Table, "", renderer)
			if err != nil {
				return err
			}
			done, err := Batches(t.Context(), sum{}, renderer, ReadBatches(t.Context(), rows), write)
			if _, end := rows.Next(t.Context()); err == nil && end != io.EOF {
				t.Errorf("%s: %d answers, and then %v", test.name, done.Answers, end)
			}
			return err
		}()
		if test.refused != "" {
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		if err != nil || out.String() != test.want {
			t.Errorf("%s: %v\n%s", test.name, err, out.String())
		}
	}
}
