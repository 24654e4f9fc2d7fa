package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// seen answers with the features as the model gets them.
type seen struct{ of []string }

func (s seen) PredictBatch(_ context.Context, b *dataset.Batch) ([]predict.Result, error) {
	out := make([]predict.Result, b.Examples)
	for i := range out {
		for _, name := range s.of {
			f := b.Feature(name)
			var v predict.Values
			for _, x := range f.Float32 {
				v.Data = append(v.Data, float64(x))
			}
			for _, x := range f.Int64 {
				v.Data = append(v.Data, float64(x))
			}
			for _, x := range f.Uint8 {
				v.Data = append(v.Data, float64(x))
			}
			v.Data = v.Data[i*len(v.Data)/b.Examples : (i+1)*len(v.Data)/b.Examples]
			v.Shape = []int{len(v.Data)}
			out[i] = append(out[i], v)
		}
	}
	return out, nil
}

// An example may have the columns of a table, as the rows of gorbit predict: names of categories, texts,
// and images of any size, in base64 alone. Features as numbers are taken as before.
func TestRowsOverHTTP(t *testing.T) {
	missing := "0"
	rows := []convert.Feature{
		{Name: "sizes", Kind: convert.KindNumber, DType: "float32", Shape: convert.Shape{2}, Role: convert.RoleInput, Columns: []string{"w", "h"}, Missing: &missing},
		{Name: "colour", Kind: convert.KindCategory, DType: "int64", Role: convert.RoleInput, Columns: []string{"colour"}, Categories: []string{"red", "blue"}},
		{Name: "words", Kind: convert.KindText, DType: "int64", Shape: convert.Shape{-1}, Role: convert.RoleInput, Columns: []string{"note"}, MaxLength: 4},
		{Name: "photo", Kind: convert.KindImage, DType: "uint8", Shape: convert.Shape{1, 1, 1}, Role: convert.RoleInput, Columns: []string{"photo"}, Resize: "bilinear", Encoding: "raw"},
	}
	specs := []dataset.Spec{{Name: "sizes", DType: dataset.Float32, Shape: []int{2}}, {Name: "colour", DType: dataset.Int64},
		{Name: "words", DType: dataset.Int64, Shape: []int{-1}}, {Name: "photo", DType: dataset.Uint8, Shape: []int{1, 1, 1}}}
	m := Model{Name: "rows", Lanes: 1, Features: &Features{Layout: dense.Config{Features: specs, Labels: dataset.LabelsNone}, Specs: specs, Rows: rows, Tokenizer: texts(t, textModel{}).Texts.Tokenizer}}
	var model seen
	var outputs []predict.OutputSpec
	for _, s := range specs {
		model.of, outputs = append(model.of, s.Name), append(outputs, predict.OutputSpec{Name: s.Name, Kind: predict.ManyValues})
		m.Outputs = append(m.Outputs, Tensor{Name: s.Name, DType: s.DType})
	}
	m.Features.Model = model
	var err error
	if m.Renderer, err = predict.NewRenderer("", outputs); err != nil {
		t.Fatal(err)
	}
	gray := image.NewGray(image.Rect(0, 0, 3, 2))
	for i := range gray.Pix {
		gray.Pix[i] = 7
	}
	gray.Set(0, 0, color.Gray{7})
	var file bytes.Buffer
	if err := png.Encode(&file, gray); err != nil {
		t.Fatal(err)
	}
	photo := fmt.Sprintf(`{"b64": %q}`, base64.StdEncoding.EncodeToString(file.Bytes()))
	s := start(t, config(), m)
	for body, want := range map[string]string{
		`{"w": 1, "h": "2", "colour": "blue", "note": "a b", "photo": PHOTO}`:                         `{"sizes":[1,2],"colour":[1],"words":[2,5,6,3],"photo":[7]}`,
		`{"w": 1, "h": null, "colour": "red", "note": "a b c", "photo": PHOTO}`:                       `{"sizes":[1,0],"colour":[0],"words":[2,5,6,3],"photo":[7]}`,
		`{"sizes": [1, 2], "colour": 1, "words": [2, 3], "photo": PHOTO}`:                             `{"sizes":[1,2],"colour":[1],"words":[2,3],"photo":[7]}`,
		`{"sizes": [1, 2], "colour": 1, "words": [2, 3], "photo": [[[9]]]}`:                           `{"sizes":[1,2],"colour":[1],"words":[2,3],"photo":[9]}`,
		`{"w": 1, "h": 2, "colour": "green", "note": "a b", "photo": PHOTO}`:                          `example 1: column \"colour\" is \"green\"; expected one of \"red\", \"blue\"`,
		`{"w": 1, "h": 2, "colour": "red", "note": " ", "photo": PHOTO}`:                              `example 1: column \"note\" is empty`,
		`{"w": 1, "h": 2, "colour": "red", "note": "a", "photo": "/etc/passwd"}`:                      `example 1: \"photo\" is \"/etc/passwd\"; expected an object with \"b64\"`,
		`{"w": 1, "h": 2, "colour": "red", "note": "a"}`:                                              `example 1: \"photo\" is missing`,
		`{"w": 1, "h": 2, "colour": "red", "note": "a", "photo": {"b64": "AAAA"}}`:                    `example 1: column \"photo\": the image is not a PNG or JPEG file`,
		`{"w": 1, "h": 2, "colour": "red", "note": "a", "photo": {"b64": "AAAA"}, "size": "unknown"}`: `example 1 has the field \"`,
	} {
		body = `{"examples": [` + strings.Replace(body, "PHOTO", photo, 1) + `]}`
		if code, got := ask(s, "POST", "/v1/models/rows:answer", body); (code == 200) != strings.HasPrefix(want, "{") || !strings.Contains(got, want) {
			t.Errorf("%s: status %d, %s; expected %s", body, code, got, want)
		}
	}
}
