package graphs

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// conv is a contract of version 3 that has everything that dense models can have.
const conv = `{
 "format": "gorbit", "version": 3, "task": "", "input": "dense", "additive": false,
 "best": {"metric": "accuracy", "better": "higher"},
 "model": {"architecture": "conv", "flops": {}, "config": {"width": 2}},
 "optimizer": {"name": "mixed", "iterations": "optimizer/iterations", "hyperparameters": [{"name": "beta", "default": 0.9, "help": "decay", "minimum": 0, "below": 1}]},
 "state": "runner_state",
 "hyperparameters": [],
 "features": [{"name": "image", "dtype": "uint8", "axes": ["examples", "height", "width"], "shape": [null, 4, 5], "role": "input", "minimum": 0, "below": 256, "make": ""},
              {"name": "words", "dtype": "int64", "axes": ["examples", "length"], "role": "input", "below": 9, "pad": 8},
              {"name": "real", "dtype": "bool", "axes": ["examples", "length"], "role": "input", "make": "mask"},
              {"name": "digit", "dtype": "int32", "axes": ["examples"], "shape": [null], "role": "label", "minimum": -1, "below": 10},
              {"name": "example_weights", "dtype": "float32", "axes": ["examples"]},
              {"name": "key", "dtype": "int64", "axes": ["examples"], "role": "id"}],
 "updates": {"update_0": {"slots": [{"name": "r", "initial": 0.5}, {"name": "c"}]}, "update_1": {"slots": []}},
 "variables": [{"name": "model/conv/kernel", "shape": [3, 2], "dtype": "float32", "weight_decay": 0.5, "learning_rate": 0.1, "update": "update_0", "slot_shapes": {"r": [3], "c": [2]}},
               {"name": "model/conv/bias", "shape": [2], "dtype": "float32", "update": "update_1"}],
 "states": [{"name": "model/norm/moving_mean", "shape": [2], "dtype": "float32", "updated": true},
            {"name": "model/table", "shape": [], "dtype": "int64", "foreign": ["table"]}],
 "merge": ["model/conv/kernel"],
 "generation": {"max_length": 8, "vocab_size": 10, "caches": [{"name": "layer_0/key", "dtype": "float32", "shape": [4]}, {"name": "layer_0/value", "dtype": "bfloat16", "shape": [2, 3]}]},
 "metrics": [{"name": "accuracy", "better": "higher"}, {"name": "entropy", "better": ""}],
 "results": ["metric/accuracy/total", "metric/accuracy/count"],
 "outputs": [{"name": "probabilities", "dtype": "float32", "axes": ["examples", "classes"], "kind": "probabilities", "of": "digit"}]
}`

// convModel makes the model of the contract conv.
func convModel(t testing.TB) (*Contract, *spb.SavedModel) {
	t.Helper()
	c, err := parseContract([]byte(conv))
	if err != nil {
		t.Fatal(err)
	}
	m := new(modelBuilder)
	variable := func(shape ...int64) int32 { return m.variable(dtpb.DataType_DT_FLOAT, shape...) }
	object := func(name string, id int32) int32 { return m.object(map[string]int32{name: id}) }
	kernel, bias, mean, table := variable(3, 2), variable(2), variable(2), m.variable(dtpb.DataType_DT_INT64)
	r, col := variable(3), variable(2)
	arg := func(name string, dtype dtpb.DataType, shape ...int64) Arg {
		return Arg{Name: name, DType: dtype, Shape: shape, Ranked: true}
	}
	float := func(name string, shape ...int64) Arg { return arg(name, dtpb.DataType_DT_FLOAT, shape...) }
	handle := func(name string) Arg { return scalar(name, dtpb.DataType_DT_RESOURCE) }
	inputs := []Arg{arg("image", dtpb.DataType_DT_UINT8, -1, 4, 5), arg("words", dtpb.DataType_DT_INT64, -1, -1), arg("real", dtpb.DataType_DT_BOOL, -1, -1)}
	features := append(slices.Clone(inputs), arg("digit", dtpb.DataType_DT_INT32, -1), float("example_weights", -1))
	sums := []Arg{float("loss_sum"), float("metric/accuracy/count"), float("metric/accuracy/total"), float("weight_sum")}
	gradients := append([]Arg{float("gradient/model/conv/bias", 2), float("gradient/model/conv/kernel", 3, 2)}, sums...)
	gradients = append(gradients, float("state/model/norm/moving_mean", 2))
	slices.SortFunc(gradients, func(a, b Arg) int { return strings.Compare(a.Name, b.Name) })
	scalars := []Arg{float("gradient_scale"), arg("iteration", dtpb.DataType_DT_INT64), float("learning_rate"), float("weight_decay"), float("beta")}
	gradient := Arg{Name: "gradient", DType: dtpb.DataType_DT_FLOAT}
	children := map[string]int32{
		"model": m.object(map[string]int32{
			"conv":  m.object(map[string]int32{"kernel": kernel, "bias": bias}),
			"norm":  object("moving_mean", mean),
			"table": table,
		}),
		"optimizer": m.object(map[string]int32{
			"iterations": m.variable(dtpb.DataType_DT_INT64),
			"r":          object("model", object("conv", object("kernel", r))),
			"c":          object("model", object("conv", object("kernel", col))),
		}),
		"runner_state": m.variable(dtpb.DataType_DT_STRING),
		"gradients":    m.function("gradients", append(slices.Clone(features), arg("seed", dtpb.DataType_DT_INT64, 2)), gradients, []int32{kernel, bias, mean, table}),
		"update_0":     m.function("update_0", append([]Arg{handle("variable"), handle("r"), handle("c"), gradient}, scalars...), nil, nil),
		"update_1":     m.function("update_1", append([]Arg{handle("variable"), gradient}, scalars...), nil, nil),
		"evaluate":     m.function("evaluate", features, sums, []int32{kernel, mean}),
		"predict":      m.function("predict", append(slices.Clone(inputs), arg("key", dtpb.DataType_DT_INT64, -1)), []Arg{float("probabilities", -1, 10)}, []int32{kernel, mean}),
		"results":      m.function("results", []Arg{float("sum_0"), float("sum_1")}, []Arg{float("accuracy"), float("entropy")}, nil),
		"merge":        m.function("merge", nil, []Arg{float("model/conv/kernel", 3, 2)}, []int32{kernel, mean}),
		"generate": m.function("generate", []Arg{handle("cache_layer_0_key"), handle("cache_layer_0_value"), arg("context", dtpb.DataType_DT_INT32, -1, -1), arg("input_ids", dtpb.DataType_DT_INT32, -1, -1),
			arg("last", dtpb.DataType_DT_INT32, -1), arg("position_ids", dtpb.DataType_DT_INT32, -1, -1), arg("slots", dtpb.DataType_DT_INT32, -1, -1)}, []Arg{float("logits", -1, 10)}, []int32{kernel, table}),
		"train_step": m.function("train_step", features, sums, []int32{kernel}),
	}
	for _, name := range sortedKeys(children) {
		m.root.Children = append(m.root.Children, child(name, children[name]))
	}
	return c, m.model()
}

func TestVersion3(t *testing.T) {
	contract, model := convModel(t)
	e, err := newExport("conv", contract, model.MetaGraphs[0])
	if err != nil {
		t.Fatal(err)
	}
	c := e.Contract
	image, words, digit := c.Feature("image"), c.Feature("words"), c.Label()
	if c.Feature("none") != nil || !slices.Equal(image.Shape, []int64{-1, 4, 5}) || image.Classes() != 256 || image.Role != RoleInput {
		t.Errorf("image is %+v", image)
	}
	if !slices.Equal(words.Shape, []int64{-1, -1}) || *words.Minimum != 0 || words.Pad != 8 {
		t.Errorf("words is %+v", words)
	}
	if digit.Name != "digit" || *digit.Minimum != -1 || digit.Classes() != 10 || c.Feature("example_weights").Role != RoleWeight {
		t.Errorf("digit is %+v", digit)
	}
	kernel, bias := c.Variables[0], c.Variables[1]
	if kernel.Decay != 0.5 || kernel.LearningRate != 0.1 || bias.Decay != 0 || bias.LearningRate != 1 {
		t.Errorf("factors: %+v, %+v", kernel, bias)
	}
	if got := fmt.Sprint(c.SlotsOf(kernel), c.SlotsOf(bias), c.SlotNames()); got != "[{r 0.5 [3]} {c 0 [2]}] [] [r c]" {
		t.Errorf("slots %s", got)
	}
	if states := c.UpdatedStates(); c.Additive || len(states) != 1 || states[0].Name != "model/norm/moving_mean" {
		t.Errorf("additive %v, updated states %v", c.Additive, states)
	}
	if n := len(e.Library("update_0", "update_1", "results").GetFunction()); n != 3 {
		t.Errorf("%d functions", n)
	}
	report := Inspect(e)
	if report.SlotBytes != 20 || report.StateBytes != 16 || report.VariableBytes != 32 || report.DecayedParameters != 6 {
		t.Errorf("%d bytes of slots, %d of states, %d of variables; %d decayed parameters", report.SlotBytes, report.StateBytes, report.VariableBytes, report.DecayedParameters)
	}
	var text strings.Builder
	if err := report.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n  model       conv\n  input       dense batches; the sums of parts of a batch are not those of the whole\n  best        accuracy, higher is better\n",
		"\n  states      2 variables, 16 B\n",
		"\n  image            uint8    [examples,height=4,width=5]  input, 0 to 255\n",
		"\n  real             bool     [examples,length]            input, made: mask\n",
		"\n  digit            int32    [examples]                   label, -1 to 9\n",
		"\n  model/conv/kernel  float32  [3,2]  6  0.5 times the decay, 0.1 times the learning rate, update_0\n",
		"\n  out  state/...              float32  of 1 state\n",
		"\nstates\n  model/norm/moving_mean  float32  [2]  2  updated\n  model/table             int64    []   1  fixed\n",
		"\nmetrics\n  accuracy  higher is better\n  entropy\n",
		"\nfunction update_1: ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if err := e.Dot(io.Discard); err != nil {
		t.Error(err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := parseContract(data); err != nil || !reflect.DeepEqual(c, back) {
		t.Errorf("%s gives back %+v, %v", data, back, err)
	}
}

// TestVersion2 checks what the older version means in terms of the present one.
func TestVersion2(t *testing.T) {
	c, err := parseContract([]byte(strings.NewReplacer(`"regression"`, `"classification"`, `"x", "dtype": "float32", "axes": ["examples"]`, `"input_ids", "dtype": "int32", "axes": ["rows", "length"]`,
		`"y", "dtype": "float32"`, `"labels", "dtype": "int32"`, `"architecture"`, `"num_labels": 3, "pooling": "mean", "recompute": "none", "architecture"`,
		`"max_position`, `"vocab_size": 50, "max_position`,
		`"features": [`, `"features": [{"name": "cls_positions", "dtype": "int32", "axes": ["examples"]}, {"name": "sequence_ids", "dtype": "int32", "axes": ["rows", "length"]},
		{"name": "example_weights", "dtype": "float32", "axes": ["examples"], "label": true}, `).Replace(miniatureContract)))
	if err != nil {
		t.Fatal(err)
	}
	if c.Input != InputPacked || !c.Additive || c.Best != (Best{"accuracy", Higher}) || len(c.Results) != 0 {
		t.Errorf("got %+v", c)
	}
	if got := fmt.Sprint(c.Metrics, c.Updates, c.SlotsOf(c.Variables[0]), c.Variables[0].Decay, c.Variables[0].LearningRate); got != "[{accuracy higher}] map[update:{[{m 0}] false}] [{m 0 [2]}] 1 1" {
		t.Errorf("got %s", got)
	}
	if config := c.Model.Config; config["pooling"] != "mean" || c.Model.ConfigInt("num_labels") != 3 || config["recompute"] != nil || config["architecture"] != nil {
		t.Errorf("configuration %v", config)
	}
	if ids, label := c.Feature("input_ids"), c.Label(); ids.Classes() != 50 || ids.Role != RoleInput || label.Name != "labels" || label.Classes() != 3 || !slices.Equal(ids.Shape, []int64{-1, -1}) {
		t.Errorf("input_ids %+v, labels %+v", ids, label)
	}
	if got := c.Feature("cls_positions").Make + " " + c.Feature("sequence_ids").Make + " " + c.Feature("example_weights").Role; got != "starts sequence_ids weight" {
		t.Errorf("got %s", got)
	}
	if len(c.Outputs) != 2 || c.Outputs[1].Of != "labels" {
		t.Errorf("outputs %+v", c.Outputs)
	}
	if c, err = parseContract([]byte(miniatureContract)); err != nil || c.Best != (Best{"loss", Lower}) || c.Metrics != nil || c.Outputs != nil {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestVersion3Errors changes one thing of the contract at a time.
func TestVersion3Errors(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{`"version": 3`, `"version": 4`, "version is 4; expected 2 or 3"},
		{`"input": "dense"`, `"input": "ragged"`, `input is "ragged"; expected packed or dense`},
		{`"input": "dense"`, `"input": "packed"`, `feature real has make "mask" and input is "packed"; expected input "dense"`},
		{`"additive": false`, `"loss": "pairs"`, `loss is "pairs"; expected each_example or across_examples`},
		{`"make": "mask"`, `"make": "text_position_ids"`, `expected input "packed"`},
		{`"additive": false`, `"additive": 0`, "field additive is a JSON number; expected bool"},
		{`"better": "higher"}`, `"better": "more"}`, `best is the "more" value of metric "accuracy"; expected a metric, higher or lower`},
		{`"better": "higher"}`, `"better": "lower"}`, `metric accuracy gets better "higher" and best has "lower"; expected the same`},
		{`{"metric": "accuracy"`, `{"metric": "loss"`, "best is the higher loss; expected lower"},
		{`"name": "image"`, `"name": "seed"`, `feature name "seed" is not valid`},
		{`"name": "image"`, `"name": "my image"`, `feature name "my image" is not valid`},
		{`"uint8"`, `"uint16"`, "feature image has dtype uint16; expected uint8, int32, int64, float32 or bool"},
		{`"role": "id"`, `"role": "key"`, `feature key has role "key"; expected input, label, weight or id`},
		{`[null, 4, 5]`, `[null, 4]`, "feature image has a shape of 2 sizes; expected 3"},
		{`[null, 4, 5]`, `[null, 4, 0]`, "feature image has shape [?,4,0]; expected sizes of 1 or more"},
		{`[null, 4, 5]`, `[null, 4, -1]`, "feature image has shape [?,4,0]; expected sizes of 1 or more"},
		{`[null, 4, 5]`, `[null, 9223372036854775807, 5]`, "feature image has shape [?,9223372036854775807,5]; expected"},
		{`[null, 4, 5]`, `[null, 4, "5"]`, "is a JSON string; expected int64"},
		{`[null, 4, 5]`, `[1, 4, 5]`, "feature image has axes [examples height width] of shape [1,4,5]; expected the open axis examples first"},
		{`"name": "digit", "dtype": "int32", "axes": ["examples"], "shape": [null]`, `"name": "digit", "dtype": "int32", "axes": ["examples", "height"], "shape": [null, 5]`, "axis height is 4 in feature image and 5 in feature digit; expected one size"},
		{`"height"`, `""`, `expected at most 8, each with a name`},
		{`"axes": ["examples", "height", "width"]`, `"axes": ["height", "examples", "width"]`, "feature image has axes [height examples width] of shape [?,4,5]; expected the open axis examples first"},
		{`"examples", "length"], "role": "input", "below"`, `"examples", "letters"], "role": "input", "below"`, "axes letters and length are open; expected at most one"},
		{`"examples", "length"], "role": "input", "below"`, `"examples", "length", "length"], "role": "input", "below"`, "feature words has the open axis length twice; expected at most one"},
		{`"name": "key", "dtype": "int64", "axes": ["examples"]`, `"name": "key", "dtype": "int64", "axes": []`, "feature key has axes [] of shape []; expected the open axis examples first"},
		{`"below": 256`, `"below": 257`, "feature image has below 257; expected a number of dtype uint8"},
		{`"below": 256`, `"below": 0`, "feature image has below 0; expected"},
		{`"minimum": 0, "below": 256`, `"minimum": -1`, "feature image has minimum -1; expected a number of dtype uint8"},
		{`"below": 256`, `"below": 2.5`, "is a JSON number 2.5; expected int64"},
		{`"dtype": "float32", "axes": ["examples"]`, `"dtype": "float32", "axes": ["examples"], "below": 2`, "feature example_weights has bounds and dtype float32"},
		{`"pad": 8`, `"pad": 0.5`, "feature words has pad 0.5; expected a number of dtype int64"},
		{`"make": "mask"`, `"make": "mask", "pad": 2`, "feature real has pad 2; expected a number of dtype bool"},
		{`"make": "mask"`, `"make": "magic"`, `feature real has make "magic"; expected none or one of [example_ids`},
		{`"make": "mask"`, `"make": "length"`, `feature real has make "length", dtype bool and axes [examples length]; expected dtype [int32 int64 float32] and axes [examples]`},
		{`"make": "mask"`, `"make": "masked_labels"`, `expected input "packed"`},
		{`"features"`, `"masking": {"mask_token": 1, "vocab_size": 9}, "features"`, `input is "dense" with masking; expected "packed"`},
		{`"name": "beta"`, `"name": "clip_norm"`, `hyperparameter "clip_norm" has no name or is declared twice`},
		{`"update_1": {`, `"predict": {`, `update "predict" has no valid name`},
		{`"update_1": {`, `"merge": {`, `update "merge" has no valid name`},
		{`"update_1": {`, `"generate": {`, `update "generate" has no valid name`},
		{`"max_length": 8`, `"max_length": 1`, "generation has max_length 1; expected 2 to"},
		{`"vocab_size": 10`, `"vocab_size": 0`, "generation has vocab_size 0; expected 1 to"},
		{`"caches": [`, `"caches": [], "other": [`, "generation has no caches; expected one or more"},
		{`"caches": [`, `"source": {"max_length": 0}, "caches": [`, "generation has a source with max_length 0; expected 1 to"},
		{`"caches": [`, `"source": {"max_length": 3}, "caches": [`, "generation has a source without caches; expected one or more"},
		{`"caches": [`, `"source": {"max_length": 3, "caches": [{}]}, "caches": [`, "generation has one of source and decoder_start_token_id; expected both or neither"},
		{`"caches": [`, `"decoder_start_token_id": 1, "caches": [`, "generation has one of source and decoder_start_token_id; expected both or neither"},
		{`"caches": [`, `"source": {"max_length": 3, "caches": [{"name": "layer_0/key"}]}, "decoder_start_token_id": 1, "caches": [`, `cache "layer_0/key" has no valid name or is declared twice`},
		{`"caches": [`, `"source": {"max_length": 3, "caches": [{}]}, "decoder_start_token_id": 10, "caches": [`, "generation has decoder_start_token_id 10; expected 0 to 9, as vocab_size says"},
		{`"caches": [`, `"eos_token_ids": [1, -1], "caches": [`, "generation has eos_token_ids -1; expected 0 to 9"},
		{`"caches": [`, `"bad_words_ids": [[1], []], "caches": [`, "generation has bad_words_ids with an empty word; expected one token or more"},
		{`"layer_0/key"`, `"layer_0_value"`, `cache "layer_0/value" has no valid name or is declared twice`},
		{`"layer_0/key"`, `"layer 0"`, `cache "layer 0" has no valid name`},
		{`"layer_0/key"`, `""`, `cache "" has no valid name`},
		{`"dtype": "bfloat16"`, `"dtype": "int32"`, `cache layer_0/value has dtype "int32"; expected float32, bfloat16 or float16`},
		{`"shape": [4]`, `"shape": [0]`, "cache layer_0/key has shape [0]; expected dimensions of 1 or more"},
		{`"update_1": {`, `"update 1": {`, `update "update 1" has no valid name`},
		{`{"name": "c"}`, `{"name": "r"}`, `slot "r" has no name or is declared twice`},
		{`{"name": "c"}`, `{"name": "beta"}`, `slot name "beta" of update_0 is not valid`},
		{`"initial": 0.5`, `"initial": 1e300`, "slot r of update_0 is 1e+300 at first; expected a float32"},
		{`"weight_decay": 0.5`, `"weight_decay": "yes"`, `field weight_decay of variable "model/conv/kernel" is "yes"; expected true, false or a factor`},
		{`"weight_decay": 0.5`, `"weight_decay": -0.5`, "variable model/conv/kernel has weight_decay -0.5; expected a factor of 0 or more"},
		{`"learning_rate": 0.1`, `"learning_rate": 1e300`, "variable model/conv/kernel has learning_rate 1e+300; expected a factor"},
		{`"update": "update_1"`, `"update": "update_2"`, `variable model/conv/bias has update "update_2"; expected one of [update_0 update_1]`},
		{`"update": "update_1"`, `"update": "update_1", "initializer": {"kind": "cauchy", "scale": 1}`, `variable model/conv/bias has the initializer cauchy of mean 0 and scale 1; expected normal, truncated_normal`},
		{`"update": "update_1"`, `"update": "update_1", "initializer": {"kind": "normal"}`, `of mean 0 and scale 0; expected normal, truncated_normal, uniform or unknown, and a scale above 0`},
		{`, "update": "update_1"`, ``, `variable model/conv/bias has update "update"; expected one of`},
		{`"merge": ["model/conv/kernel"]`, `"merge": ["model/table"]`, `merge names "model/table"; expected a float32 variable or state`},
		{`"merge": ["model/conv/kernel"]`, `"merge": ["model/conv/kernel", "model/conv/kernel"]`, `merge names "model/conv/kernel"; expected a float32 variable or state, each once`},
		{`{"r": [3], "c": [2]}`, `{"q": [3]}`, `variable model/conv/kernel has the shape of a slot "q"; expected a slot of update_0`},
		{`{"r": [3], "c": [2]}`, `{"r": [-3]}`, "slot r of variable model/conv/kernel has shape [-3]"},
		{`"model/table"`, `"model/conv/bias"`, "state model/conv/bias is declared twice"},
		{`"model/table"`, `"a table"`, `state name "a table" is not valid in TensorFlow`},
		{`{"name": "c"}]`, `{"name": "c"}], "elementwise": true`, `variable model/conv/kernel has the shape of a slot "c"; expected the variable's own of an elementwise update_0`},
		{`"shape": [], "dtype": "int64"`, `"shape": [0], "dtype": "int64"`, "state model/table has shape [0]"},
		{`"shape": [], "dtype": "int64"`, `"shape": [], "dtype": "string"`, "state model/table has dtype string; expected float32, int32, int64 or bool"},
		{`"shape": [], "dtype": "int64"`, `"shape": [], "dtype": "int64", "updated": true`, "state model/table has dtype int64 and is updated; expected float32"},
		{`{"name": "entropy"`, `{"name": "loss"`, `metric "loss" has no name, is declared twice or is the loss`},
		{`"name": "entropy", "better": ""`, `"name": "entropy", "better": "near"`, `metric entropy gets better "near"`},
		{`"metrics": [`, `"metrics": [], "old": [`, "results has sums and there are no metrics"},
		{`["metric/accuracy/total", `, `["metric/accuracy/count", `, `the sum "metric/accuracy/count" of results has no name or is declared twice`},
		{`"kind": "probabilities"`, `"kind": "odds"`, `output probabilities has kind "odds"; expected one of [probabilities`},
		{`"axes": ["examples", "classes"]`, `"axes": ["classes"]`, "output probabilities has axes [classes]; expected examples, rows or predictions first"},
		{`"of": "digit"`, `"of": "image"`, `output probabilities is of "image"; expected a feature that is a label`},
		{`{"name": "probabilities", "dtype": "float32"`, `{"name": "probabilities", "dtype": "float16"`, "output probabilities has dtype float16"},
	} {
		if strings.Count(conv, test.old) == 0 {
			t.Fatalf("%s is not in the contract", test.old)
		}
		_, err := parseContract([]byte(strings.Replace(conv, test.old, test.new, 1)))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s for %s: got %v, want %s", test.new, test.old, err, test.want)
		}
	}
}

// packedFeatures is the part of a contract with the features of a masked language model.
const packedFeatures = `"input": "packed", "masking": {"mask_token": 4, "vocab_size": 9, "special": [0]}, "features": [
 {"name": "tokens", "dtype": "int32", "axes": ["rows", "length"]},
 {"name": "at", "dtype": "int32", "axes": ["predictions"], "make": "masked_positions"},
 {"name": "tags", "dtype": "float32", "axes": ["examples", "classes"], "shape": [null, 3], "make": "multi_hot", "role": "label"}`

func TestPackedErrors(t *testing.T) {
	base := strings.NewReplacer(`"version": 2`, `"version": 3`, `"features": [`, packedFeatures+",").Replace(miniatureContract)
	if c, err := parseContract([]byte(base)); err != nil || c.Masking.MaskToken != 4 || c.Feature("tags").Shape[1] != 3 {
		t.Fatalf("got %+v, %v", c, err)
	}
	for _, test := range []struct{ old, new, want string }{
		{`"special": [0]`, `"special": [9]`, "masking has the token 9; expected a token of 0 to 8"},
		{`"mask_token": 4`, `"mask_token": -4`, "masking has the token -4; expected a token of 0 to 8"},
		{`"masking"`, `"marking"`, `feature at has make "masked_positions"; expected masking`},
		{`["rows", "length"]`, `["rows", "words"]`, "feature tokens has axes [rows words] of shape [?,?]; expected the open axes rows and length, or rows and target_length, first"},
		{`["rows", "length"]`, `["rows", "length"], "shape": [null, 9]`, "expected the open axes rows and length, or rows and target_length, first"},
		{`["rows", "length"]`, `["words"]`, "expected an open axis examples, rows or predictions first"},
		{`["predictions"], "make"`, `["examples"], "make"`, `feature at has make "masked_positions", dtype int32 and axes [examples]; expected dtype [int32] and axes [predictions]`},
		{`"shape": [null, 3], "make"`, `"shape": [null, null], "make"`, ""},
		{`["examples", "classes"], "shape": [null, 3]`, `["examples"]`, `expected dtype [float32] and axes [examples] and another axis`},
	} {
		_, err := parseContract([]byte(strings.Replace(base, test.old, test.new, 1)))
		if test.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %s: got %v, want %s", test.new, test.old, err, test.want)
		}
	}
}

// targetFeatures is the part of a contract with the features of an encoder-decoder model.
const targetFeatures = `"input": "packed", "features": [
 {"name": "input_ids", "dtype": "int32", "axes": ["rows", "length"]},
 {"name": "sequence_ids", "dtype": "int32", "axes": ["rows", "length"], "make": "sequence_ids"},
 {"name": "target_ids", "dtype": "int32", "axes": ["rows", "target_length"], "below": 9},
 {"name": "at", "dtype": "int32", "axes": ["rows", "target_length"], "make": "target_position_ids"},
 {"name": "numbers", "dtype": "int32", "axes": ["rows", "target_length"], "make": "target_sequence_ids"},
 {"name": "examples_of", "dtype": "int32", "axes": ["rows", "target_length"], "make": "target_example_ids", "role": "id"},
 {"name": "target_weights", "dtype": "float32", "axes": ["rows", "target_length"], "role": "weight"}`

func TestTargetErrors(t *testing.T) {
	base := strings.NewReplacer(`"version": 2`, `"version": 3`, `"regression"`, `"seq2seq"`, `"features": [`, targetFeatures+",").Replace(miniatureContract)
	c, err := parseContract([]byte(base))
	if err != nil || !c.Feature("at").OfTarget() || c.Feature("sequence_ids").OfTarget() {
		t.Fatalf("got %+v, %v", c, err)
	}
	for _, test := range []struct{ old, new, want string }{
		{`"name": "target_ids"`, `"name": "answer"`, "task is seq2seq; expected a feature target_ids of dtype int32, role input, axes [rows target_length] and no make"},
		{`"name": "target_ids", "dtype": "int32"`, `"name": "target_ids", "dtype": "int64"`, "expected a feature target_ids of dtype int32"},
		{`"below": 9`, `"role": "label"`, "expected a feature target_ids of dtype int32, role input"},
		{`"name": "input_ids"`, `"name": "source"`, "task is seq2seq; expected a feature input_ids of dtype int32, role input, axes [rows length] and no make"},
		{`"input": "packed"`, `"input": "dense"`, `feature sequence_ids has make "sequence_ids" and input is "dense"; expected input "packed"`},
		{`"features": [`, `"masking": {"mask_token": 4, "vocab_size": 9}, "features": [`, "task is seq2seq and there is masking; expected none"},
		{`["rows", "target_length"], "make": "target_position_ids"`, `["rows", "length"], "make": "target_position_ids"`, `feature at has make "target_position_ids", dtype int32 and axes [rows length]; expected dtype [int32] and axes [rows target_length]`},
		{`["rows", "length"], "make": "sequence_ids"`, `["rows", "target_length"], "make": "sequence_ids"`, `feature sequence_ids has make "sequence_ids", dtype int32 and axes [rows target_length]; expected dtype [int32] and axes [rows length]`},
		{`"name": "numbers", "dtype": "int32"`, `"name": "numbers", "dtype": "int64"`, `feature numbers has make "target_sequence_ids", dtype int64`},
		{`"axes": ["rows", "target_length"], "role"`, `"axes": ["target_length", "rows"], "role"`, "expected an open axis examples, rows or predictions first"},
		{`"axes": ["rows", "target_length"], "role"`, `"axes": ["rows", "target_length"], "shape": [null, 4], "role"`, "axis target_length is open in feature examples_of and 4 in feature target_weights; expected one size"},
		{`"seq2seq"`, `""`, ""},
	} {
		if strings.Count(base, test.old) == 0 {
			t.Fatalf("%s is not in the contract", test.old)
		}
		_, err := parseContract([]byte(strings.Replace(base, test.old, test.new, 1)))
		if test.want == "" && err == nil {
			continue
		}
		if err == nil || test.want == "" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %s: got %v, want %s", test.new, test.old, err, test.want)
		}
	}
	other := strings.NewReplacer(`"seq2seq"`, `""`, `"name": "target_ids"`, `"name": "answer"`).Replace(base)
	if _, err := parseContract([]byte(other)); err == nil || !strings.Contains(err.Error(), "feature answer has axes [rows target_length]; expected a feature target_ids") {
		t.Errorf("got %v", err)
	}
}

// TestOpenRefusesVersion3 breaks one thing of the functions at a time.
func TestOpenRefusesVersion3(t *testing.T) {
	for _, test := range []struct {
		name     string
		model    func(found)
		contract func(*Contract)
		want     string
	}{
		{"missing update", func(f found) { f.rename("", "update_1", "update_2") }, nil, "no function update_1"},
		{"elementwise of one shape", func(f found) {
			spec, _ := f.input("update_1", "gradient")
			spec.Shape = shapeProto([]int64{2})
		}, func(c *Contract) { c.Updates["update_1"] = Update{Elementwise: true} }, "function update_1: input gradient float32 [2]; expected any shape of an elementwise update"},
		{"missing results", func(f found) { f.rename("", "results", "result") }, nil, "no function results"},
		{"missing state", func(f found) { f.rename("model/norm", "moving_mean", "mean") }, nil, "state model/norm/moving_mean is not in the object graph"},
		{"state of another shape", nil, func(c *Contract) { c.States[0].Shape = []int64{3} }, "state model/norm/moving_mean: the graph has model/norm/moving_mean float32 [2]; expected model/norm/moving_mean float32 [3]"},
		{"slot of another shape", nil, func(c *Contract) { c.Variables[0].SlotShapes = nil }, "slot optimizer/r/model/conv/kernel: the graph has optimizer/r/model/conv/kernel float32 [3]; expected optimizer/r/model/conv/kernel float32 [3,2]"},
		{"state that is not declared", nil, func(c *Contract) { c.States = c.States[:1] }, "function gradients captures variable model/table, which is not among the variables"},
		{"state that is not updated", nil, func(c *Contract) { c.States[0].Updated = false }, "function gradients: output state/model/norm/moving_mean is of a state that is not declared as updated"},
		{"state that is never changed", nil, func(c *Contract) { c.States[1] = State{Name: "model/table", DType: "float32", Updated: true} }, "state model/table: the graph has model/table int64 []; expected model/table float32 []"},
		{"change of another shape", func(f found) {
			f.outputs("gradients")["state/model/norm/moving_mean"].GetTensorSpecValue().Shape = shapeProto([]int64{1})
		}, nil, "function gradients: output state/model/norm/moving_mean: the graph has state/model/norm/moving_mean float32 [1]; expected"},
		{"axis fixed in the graph", func(f found) {
			spec, _ := f.input("evaluate", "words")
			spec.Shape = shapeProto([]int64{-1, 7})
		}, nil, "function evaluate: input words: the graph has words int64 [?,7]; expected the open axis length"},
		{"axis of another size", nil, func(c *Contract) { c.Features[0].Shape[2] = 6 }, "function gradients: input image: the graph has image uint8 [?,4,5]; expected image uint8 [?,4,6]"},
		{"prediction from a weight", nil, func(c *Contract) { c.Features[4].Role = RoleInput }, "function predict: input example_weights is missing"},
		{"missing output", nil, func(c *Contract) { c.Outputs[0].Name = "odds" }, "function predict: output odds is missing; expected odds float32 [?,?]"},
		{"missing merge", func(f found) { f.rename("", "merge", "fuse") }, nil, "no function merge"},
		{"merged kernel of another shape", func(f found) {
			f.outputs("merge")["model/conv/kernel"].GetTensorSpecValue().Shape = shapeProto([]int64{2, 3})
		}, nil, "function merge: output model/conv/kernel: the graph has model/conv/kernel float32 [2,3]; expected model/conv/kernel float32 [3,2]"},
		{"missing generate", func(f found) { f.rename("", "generate", "make") }, nil, "no function generate"},
		{"generate without a cache", nil, func(c *Contract) { c.Generation.Caches[0].Name = "layer_1/key" }, "function generate: input cache_layer_1_key is missing; expected cache_layer_1_key resource []"},
		{"generate with more caches", nil, func(c *Contract) { c.Generation.Caches = c.Generation.Caches[:1] }, "function generate: input cache_layer_0_value is not declared in"},
		{"logits of another vocabulary", nil, func(c *Contract) { c.Generation.VocabSize = 9 }, "function generate: output logits: the graph has logits float32 [?,10]; expected logits float32 [?,9]"},
		{"generate of one batch", func(f found) {
			spec, _ := f.input("generate", "slots")
			spec.Shape = shapeProto([]int64{2, -1})
		}, nil, "function generate: input slots: the graph has slots int32 [2,?]; expected open axes"},
		{"generate that captures a slot", func(f found) {
			f.concrete("generate").BoundInputs[0] = f.concrete("gradients").BoundInputs[3]
		}, func(c *Contract) { c.States = c.States[:1]; c.States[0].Updated = true }, "function gradients captures variable model/table"},
		{"missing sum", nil, func(c *Contract) { c.Results[1] = "metric/x" }, "function evaluate: output metric/x is missing; expected it, because results takes it"},
		{"sum of open shape", func(f found) {
			f.outputs("evaluate")["metric/accuracy/count"].GetTensorSpecValue().Shape = shapeProto([]int64{-1})
		}, nil, "function evaluate: output metric/accuracy/count: the graph has metric/accuracy/count float32 [?]; expected a float32 of fixed shape"},
		{"values of examples in training", func(f found) {
			out := f.outputs("gradients")
			out["each/weight"] = out["metric/accuracy/count"]
			delete(out, "metric/accuracy/count")
		}, nil, "function gradients: output each/weight is not a sum; expected outputs each/... of evaluate only"},
		{"half of the sums in training", func(f found) {
			out := f.outputs("gradients")
			out["metric/accuracy/half"] = out["metric/accuracy/count"]
			delete(out, "metric/accuracy/count")
		}, nil, "function gradients gives 1 of the 2 sums that results takes; expected all or none"},
		{"missing metric", nil, func(c *Contract) { c.Metrics[1].Name = "perplexity" }, "function results: output perplexity is missing; expected perplexity float32 []"},
		{"sum that results does not take", nil, func(c *Contract) { c.Results = c.Results[:1] }, "function results: input sum_1 is not declared"},
		{"results that captures", func(f found) {
			f.concrete("results").BoundInputs = f.concrete("evaluate").BoundInputs[:1]
			def := f.def("results").GetSignature()
			captured := f.def("evaluate").GetSignature().GetInputArg()
			def.InputArg = append(def.InputArg, captured[len(captured)-1])
		}, nil, "function results captures model/conv/kernel; expected sums as arguments only"},
	} {
		t.Run(test.name, func(t *testing.T) {
			contract, saved := convModel(t)
			model := proto.CloneOf(saved).MetaGraphs[0]
			if test.model != nil {
				test.model(found{t, model})
			}
			if test.contract != nil {
				test.contract(contract)
			}
			if _, err := newExport("conv", contract, model); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestAcross reads what a loss that compares examples, and examples of several texts, mean.
func TestAcross(t *testing.T) {
	c, err := parseContract([]byte(strings.Replace(miniatureContract, `"format"`, `"loss": "across_examples", "additive": true, "format"`, 1)))
	if err != nil || c.Additive || c.Loss != LossAcross || c.Texts() != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	two, rows := int64(2), []string{"rows", "length"}
	types := Feature{Name: "type_ids", DType: "int32", Role: RoleInput, Axes: rows, Shape: []int64{-1, -1}, Below: &two}
	positions := Feature{Name: "position_ids", DType: "int32", Role: RoleInput, Axes: rows, Shape: []int64{-1, -1}, Make: MakeTextPositions}
	c.Features = []Feature{types, positions}
	if err := c.checkFeatures(); err != nil || c.Texts() != 2 {
		t.Errorf("%d texts, %v", c.Texts(), err)
	}
	for _, features := range [][]Feature{{positions}, {types}} {
		c.Features = append(features[:len(features):len(features)], positions)
		c.Features[0].Below = nil
		if err := c.checkMake(positions); err == nil || !strings.Contains(err.Error(), "expected it of position_ids, and a feature type_ids of dtype int32 with below 2 or more") {
			t.Errorf("%v: %v", features, err)
		}
	}
}
