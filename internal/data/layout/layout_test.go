package layout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func valid() *Description {
	return &Description{
		Format: Format, Version: Version, Task: "classification",
		Labels: []string{"no", "yes"}, Vocab: "vocab.txt", Lowercase: true, MaxLength: 128,
		Inputs:  map[string]string{InputIDs: "serving_default_input_ids:0", AttentionMask: "serving_default_attention_mask:0", TokenTypeIDs: "serving_default_token_type_ids:0"},
		Outputs: map[string]string{Probabilities: "StatefulPartitionedCall:1", Logits: "StatefulPartitionedCall:0"},
		Answers: []Answer{{Name: Probabilities, Kind: Probabilities}, {Name: Logits, Kind: Logits}},
		Model:   json.RawMessage(`{"num_labels":2}`),
	}
}

// dense makes the description that of a model without texts.
func dense(d *Description) {
	d.Vocab, d.MaxLength, d.Labels = "", 0, nil
	d.Features = []Feature{{Name: "x", Record: "x", DType: "float32", Axes: []string{"examples", "features"}, Shape: []int64{-1, 30}}}
	d.Inputs = map[string]string{"x": "serving_default_x:0"}
}

// makesTexts makes the description that of a model that makes texts of sources.
func makesTexts(d *Description) {
	d.Labels, d.Answers = nil, nil
	d.Inputs = map[string]string{InputIDs: "x:0", "decoder_input_ids": "x:1"}
	d.Generation = json.RawMessage(`{"max_length":8}`)
	d.Calls = map[string]Call{
		MakeCaches: {map[string]string{Slots: "m:0"}, map[string]string{"made": "m:1"}},
		Generate:   {map[string]string{InputIDs: "g:0"}, map[string]string{Logits: "g:1"}},
	}
}

func TestParse(t *testing.T) {
	data, err := json.Marshal(valid())
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(d)
	if err != nil || string(again) != string(data) {
		t.Errorf("parsed and written again it reads %s (%v), before %s", again, err, data)
	}
}

func TestValidate(t *testing.T) {
	model := valid()
	if err := model.Validate(); err != nil {
		t.Fatal(err)
	}
	if dense(model); model.Validate() != nil {
		t.Fatal(model.Validate())
	}
	model = valid()
	makesTexts(model)
	if err := model.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		change func(*Description)
		want   string
	}{
		{func(d *Description) { d.Format = "x" }, `format is "x"; expected "gorbit-serving"`},
		{func(d *Description) { d.Version = 3 }, "version is 3; expected 2; export the model again"},
		{func(d *Description) { d.Version, d.Labels = 1, d.Labels[:1] }, "number of labels is 1; expected 2 or more"},
		{func(d *Description) { d.Labels[1] = "no" }, `labels: "no" is declared twice`},
		{func(d *Description) { d.Labels[1] = "" }, `labels: "" is empty or has a tab or a line break`},
		{func(d *Description) { d.Answers[0].Name = "p" }, `outputs: p: tensor is ""; expected operation:index`},
		{func(d *Description) { d.Vocab, d.MaxLength = "", 0 }, "the model has neither a vocabulary nor features; expected one of them"},
		{func(d *Description) { dense(d); d.Features[0].DType = "string" }, `features: x is "string"; expected uint8, int32, int64, float32 or bool`},
		{func(d *Description) { dense(d); d.Features[0].Shape[1] = 1 << 40 }, "features: x has the shape [-1 1099511627776]; expected lengths of 1 or more, or -1, and at most 1073741824 values"},
		{func(d *Description) { dense(d); d.Features[0].Name = "y" }, `inputs: y: tensor is ""; expected operation:index`},
		{func(d *Description) { makesTexts(d); delete(d.Calls, Generate) }, "calls: there is no generate; expected those with which texts are made; make the graph and export the model again"},
		{func(d *Description) { makesTexts(d); d.Calls[Generate].Inputs[InputIDs] = "g" }, `calls: generate: inputs: input_ids: tensor is "g"; expected operation:index`},
		{func(d *Description) { makesTexts(d); d.Calls[Generate].Outputs["more"] = "g:2" }, "calls: generate has 2 outputs; expected one"},
		{func(d *Description) { d.MaxLength = 2 }, "max_length is 2; expected 3 or more"},
		{func(d *Description) { d.Vocab = "../../etc/passwd" }, `vocab is "../../etc/passwd"; expected the name of a file in assets`},
		{func(d *Description) { d.Vocab = ".." }, `vocab is ".."; expected the name of a file in assets`},
		{func(d *Description) { delete(d.Inputs, InputIDs) }, `inputs: input_ids: tensor is ""; expected operation:index`},
		{func(d *Description) { d.Outputs[Probabilities] = "x:-1" }, `outputs: probabilities: tensor is "x:-1"; expected operation:index`},
	} {
		d := valid()
		test.change(d)
		if err := d.Validate(); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

func TestParseTensor(t *testing.T) {
	if op, i, err := ParseTensor("StatefulPartitionedCall:1"); err != nil || op != "StatefulPartitionedCall" || i != 1 {
		t.Errorf("got %q %d %v", op, i, err)
	}
	for _, bad := range []string{"", "a", ":0", "a:", "a:b", "a:-1", "a:1x", "a:01", "a: 1"} {
		if _, _, err := ParseTensor(bad); err == nil {
			t.Errorf("%q was taken for a tensor", bad)
		}
	}
}

// TestRead removes one file after the other from a folder.
func TestRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	put := func(path string, data []byte) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		_, err := Read(dir)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want a sentence with: %s", err, want)
		}
	}
	remove := func(path string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}

	expect("no such folder")
	description, err := json.Marshal(valid())
	if err != nil {
		t.Fatal(err)
	}
	put(DescriptionFile, description)
	expect("not a SavedModel: it has no saved_model.pb")
	put(ModelFile, nil)
	expect("no variables/variables.index")
	put(VariablesPrefix+".index", nil)
	pipe := VariablesPrefix + ".data-00000-of-00001"
	if err := syscall.Mkfifo(filepath.Join(dir, pipe), 0o666); err != nil {
		t.Fatal(err)
	}
	expect(pipe + " is a pipe; expected a regular file")
	remove(pipe)
	expect("its vocabulary assets/vocab.txt is missing")
	put(VocabFile, []byte("[UNK]\n"))
	if d, err := Read(dir); err != nil || d.MaxLength != 128 {
		t.Errorf("got %+v, %v", d, err)
	}
	put(DescriptionFile, description[:20])
	expect("not a description of a model")
	remove(DescriptionFile)
	expect("not one written by gorbit export")
	put("assets/gorbit.json", nil)
	expect("a graph to train; expected a trained model")

	dir = filepath.Join(dir, ModelFile)
	expect("not a folder")
}

func FuzzParse(f *testing.F) {
	data, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":"gorbit-serving","version":1,"labels":["a","b"],"vocab":".","max_length":3}`))
	f.Add([]byte(`{"format":"gorbit-serving","version":2,"vocab":"0","max_length":7,"inputs":{"attention_mask":"0:0","input_ids":"0:0","token_type_ids":"0:0"}}`)) // no answers
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			return
		}
		var names []string
		for _, a := range d.Answers {
			names = append(names, d.Outputs[a.Name])
		}
		if d.Vocab != "" {
			names = append(names, d.Inputs[InputIDs])
		}
		for _, name := range names {
			op, i, err := ParseTensor(name)
			if err != nil || op == "" || i < 0 {
				t.Errorf("accepted the tensor %q", name)
			}
		}
		if d.Vocab != "" && filepath.Base(d.Vocab) != d.Vocab {
			t.Errorf("accepted the vocabulary %q outside the assets", d.Vocab)
		}
	})
}
