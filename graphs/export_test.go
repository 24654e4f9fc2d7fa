package graphs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// exportScript writes a small classifier, and next to it how often each operation
// is in the functions that the contract's lead to, as TensorFlow sees them.
const exportScript = `
import collections, json, sys
import tensorflow as tf
from gorbit_export import classifier, config, export, optimizers
from tensorflow.core.protobuf import saved_model_pb2

out = sys.argv[1]
c = config.BertConfig(32, 2, 4, 64, vocab_size=50, max_position_embeddings=16)
module = export.write(classifier.Classification(c, 3, "first"), optimizers.AdamW(), out + "/graph")
model = saved_model_pb2.SavedModel()
model.ParseFromString(open(out + "/graph/saved_model.pb", "rb").read())
library = {f.signature.name: f for f in model.meta_graphs[0].graph_def.library.function}
seen = set()

def visit(name):
    if name in library and name not in seen:
        seen.add(name)
        for node in library[name].node_def:
            visit(node.op)
            for attr in node.attr.values():
                visit(attr.func.name)

for name in ("gradients", "update", "evaluate", "predict"):
    (found,) = [n for n in library if n.startswith(f"__inference_{name}_")]
    visit(found)
ops = collections.Counter(n.op for name in seen for n in library[name].node_def if n.op not in library)
json.dump({"ops": ops, "parameters": export.parameters(module)}, open(out + "/facts.json", "w"))
`

// exported returns the folder of an export that the exporter wrote, once for all tests,
// which must not change it.
func exported(t testing.TB) string {
	t.Helper()
	return filepath.Join(testkit.Made(t, exportScript), "graph")
}

// exportedModel returns the parsed saved_model.pb and gorbit.json of the export.
func exportedModel(t testing.TB) (*Contract, *spb.SavedModel) {
	t.Helper()
	dir := exported(t)
	contract, err := ReadContract(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, modelFile))
	if err != nil {
		t.Fatal(err)
	}
	model, err := parseModel(data)
	if err != nil {
		t.Fatal(err)
	}
	return contract, model
}

// writeExport writes the two files of an export to a new folder.
func writeExport(t testing.TB, contract *Contract, model *spb.SavedModel) string {
	t.Helper()
	dir := t.TempDir()
	json, err := json.Marshal(contract)
	if err != nil {
		t.Fatal(err)
	}
	pb, err := proto.Marshal(model)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, modelFile), pb)
	write(t, filepath.Join(dir, ContractFile), json)
	return dir
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	e, err := Open(exported(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(e.TensorFlow, "2.18.") {
		t.Errorf("TensorFlow %s", e.TensorFlow)
	}
	gradients := e.Functions["gradients"]
	if n := len(e.Contract.Variables); n != 41 || len(gradients.Captures) != n || len(gradients.Outputs) != n+3 {
		t.Errorf("%d variables, gradients captures %d and gives %d", n, len(gradients.Captures), len(gradients.Outputs))
	}
	if i := gradients.Output("loss_sum"); i < 0 || gradients.Outputs[i].String() != "loss_sum float32 []" {
		t.Errorf("loss_sum is output %d", i)
	}
	if i := gradients.Output("mean_loss"); i != -1 {
		t.Errorf("mean_loss is output %d", i)
	}
	if got := fmt.Sprint(e.Functions["update"].Inputs); got != "[variable resource [] m resource [] v resource [] gradient float32 any shape gradient_scale float32 [] iteration int64 [] "+
		"learning_rate float32 [] weight_decay float32 [] beta_1 float32 [] beta_2 float32 [] epsilon float32 []]" {
		t.Errorf("update takes %s", got)
	}
	if got := e.Contract.Model.ConfigInt("hidden_size"); got != 32 {
		t.Errorf("hidden_size %d", got)
	}
	if got := e.Contract.Model.ConfigInt("hidden_act"); got != 0 {
		t.Errorf("hidden_act is the number %d", got)
	}
}

// TestLibrary holds what a composed graph takes of the library against the whole.
func TestLibrary(t *testing.T) {
	e, err := Open(exported(t))
	if err != nil {
		t.Fatal(err)
	}
	names := func(functions ...string) string {
		var out []string
		for _, f := range e.Library(functions...).GetFunction() {
			out = append(out, shortName(f.GetSignature().GetName()))
		}
		return strings.Join(out, " ")
	}
	for _, test := range []struct{ functions, want string }{
		{"", ""},
		{"no such function", ""},
		{"update", "update"},
		{"predict", "attention gelu layer residual_norm predict"},
		{"evaluate predict", "attention gelu layer residual_norm evaluate predict"},
		{"gradients", "layer backward__layer attention_dropout attention_dropout_gradient gelu gelu_gradient " +
			"residual_norm_dropout residual_norm_dropout_gradient gradients"},
	} {
		if got := names(strings.Split(test.functions, " ")...); got != test.want {
			t.Errorf("%s: got %s, want %s", test.functions, got, test.want)
		}
	}
	if all := len(e.library.functions); len(e.Library(functionNames...).GetFunction()) >= all {
		t.Errorf("all %d functions are loaded, those that save the variables too", all)
	}

	// What only Python uses is left out.
	file, err := os.ReadFile(filepath.Join(exported(t), "saved_model.pb"))
	if err != nil {
		t.Fatal(err)
	}
	var nodes, args int
	for _, f := range e.Library(functionNames...).GetFunction() {
		for _, node := range f.GetNodeDef() {
			nodes++
			if node.GetAttr()[outputShapes] != nil {
				t.Fatalf("node %s of %s has %s", node.GetName(), f.GetSignature().GetName(), outputShapes)
			}
		}
		for i, arg := range f.GetArgAttr() {
			args++
			if arg.GetAttr()[pythonsName] != nil {
				t.Fatalf("argument %d of %s has %s", i, f.GetSignature().GetName(), pythonsName)
			}
		}
	}
	for _, attribute := range []string{outputShapes, pythonsName} {
		if nodes == 0 || args == 0 || !bytes.Contains(file, []byte(attribute)) {
			t.Errorf("%d nodes, %d arguments; the export has no %s", nodes, args, attribute)
		}
	}
}

// found is the objects of a model that mutations change.
type found struct {
	t     *testing.T
	model *spb.MetaGraphDef
}

// object returns the node at a path.
func (f found) object(path string) *spb.SavedObject {
	f.t.Helper()
	o, err := readObjects(f.model.GetObjectGraphDef())
	if err != nil {
		f.t.Fatal(err)
	}
	id, ok := o.lookup(path)
	if !ok {
		f.t.Fatalf("no object %s", path)
	}
	return f.model.GetObjectGraphDef().GetNodes()[id]
}

// rename gives a child of the object at a path another name.
func (f found) rename(path, name, to string) {
	f.t.Helper()
	object := f.model.GetObjectGraphDef().GetNodes()[0]
	if path != "" {
		object = f.object(path)
	}
	for _, c := range object.GetChildren() {
		if c.GetLocalName() == name {
			c.LocalName = to
			return
		}
	}
	f.t.Fatalf("%s has no child %s", path, name)
}

func (f found) graphName(function string) string {
	f.t.Helper()
	return f.object(function).GetFunction().GetConcreteFunctions()[0]
}

func (f found) concrete(function string) *spb.SavedConcreteFunction {
	f.t.Helper()
	return f.model.GetObjectGraphDef().GetConcreteFunctions()[f.graphName(function)]
}

func (f found) def(function string) *fpb.FunctionDef {
	f.t.Helper()
	name := f.graphName(function)
	for _, def := range f.model.GetGraphDef().GetLibrary().GetFunction() {
		if def.GetSignature().GetName() == name {
			return def
		}
	}
	f.t.Fatalf("no function %s", name)
	return nil
}

// input returns an argument as the object graph and as the library have it.
func (f found) input(function, name string) (*spb.TensorSpecProto, *opb.OpDef_ArgDef) {
	f.t.Helper()
	args := f.concrete(function).GetCanonicalizedInputSignature().GetTupleValue().GetValues()[0].GetTupleValue().GetValues()
	for i, a := range args {
		if a.GetTensorSpecValue().GetName() == name {
			return a.GetTensorSpecValue(), f.def(function).GetSignature().GetInputArg()[i]
		}
	}
	f.t.Fatalf("function %s has no input %s", function, name)
	return nil, nil
}

func (f found) outputs(function string) map[string]*spb.StructuredValue {
	f.t.Helper()
	return f.concrete(function).GetOutputSignature().GetDictValue().GetFields()
}

// TestOpenRefuses breaks one thing of a real export at a time.
func TestOpenRefuses(t *testing.T) {
	const table = "model/encoder/embeddings/word/table"
	for _, test := range []struct {
		name     string
		model    func(found)
		contract func(*Contract)
		want     string
	}{
		{"missing function", func(f found) { f.rename("", "evaluate", "evaluation") }, nil,
			"no function evaluate"},
		{"function that is a variable", func(f found) { f.rename("", "evaluate", "e"); f.rename("", "runner_state", "evaluate") },
			func(c *Contract) { c.State = "evaluate" }, "evaluate is not a traced function"},
		{"function traced twice", func(f found) {
			fn := f.object("predict").GetFunction()
			fn.ConcreteFunctions = append(fn.ConcreteFunctions, f.graphName("evaluate"))
		}, nil, "function predict was traced 2 times; expected once"},
		{"function never traced", func(f found) { f.object("predict").GetFunction().ConcreteFunctions = nil }, nil,
			"predict is not a traced function"},
		{"function without signature", func(f found) {
			delete(f.model.GetObjectGraphDef().GetConcreteFunctions(), f.graphName("update"))
		}, nil, "function update: the object graph has no concrete function __inference_update_"},
		{"function not in the library", func(f found) { f.def("predict").GetSignature().Name = "other" }, nil,
			"is not in the function library"},

		{"input of another dtype", func(f found) {
			spec, arg := f.input("gradients", "labels")
			spec.Dtype, arg.Type = dtpb.DataType_DT_INT64, dtpb.DataType_DT_INT64
		}, nil, "function gradients: input labels: the graph has labels int64 [?]; expected labels int32 [?]"},
		{"input of another rank", func(f found) {
			spec, _ := f.input("evaluate", "input_ids")
			spec.Shape = shapeProto([]int64{-1})
		}, nil, "function evaluate: input input_ids: the graph has input_ids int32 [?]; expected input_ids int32 [?,?]"},
		{"input of fixed size", func(f found) {
			spec, _ := f.input("gradients", "seed")
			spec.Shape = shapeProto([]int64{3})
		}, nil, "function gradients: input seed: the graph has seed int64 [3]; expected seed int64 [2]"},
		{"input that the contract has not", nil, func(c *Contract) { c.Hyperparameters = c.Hyperparameters[1:] },
			"function gradients: input hidden_dropout is not declared in assets/gorbit.json"},
		{"hyperparameter that the graph has not", nil, func(c *Contract) {
			c.Optimizer.Hyperparameters = append(c.Optimizer.Hyperparameters, Hyperparameter{Name: "momentum"})
		}, "function update: input momentum is missing; expected momentum float32 []"},
		{"feature that the graph has not", nil, func(c *Contract) {
			c.Features[0].Name = "token_ids"
			for i := range c.Variables {
				c.Variables[i].Rows = ""
			}
		}, "function gradients: input token_ids is missing; expected token_ids int32 [?,?]"},
		{"rows by a feature that is not there", nil, func(c *Contract) { c.Features[0].Name = "token_ids" },
			`variable model/encoder/embeddings/word/table of shape [50 32] has rows "input_ids"; expected an int32 feature`},
		{"prediction from labels", nil, func(c *Contract) {
			for i := range c.Features {
				c.Features[i].Role = RoleInput
			}
			c.Outputs = nil
		}, "function predict: input labels is missing; expected labels int32 [?]"},

		{"missing loss_sum", func(f found) {
			out := f.outputs("gradients")
			out["loss"] = out["loss_sum"]
			delete(out, "loss_sum")
		}, nil, "function gradients: output loss_sum is missing; expected loss_sum float32 []"},
		{"loss that is a vector", func(f found) {
			f.outputs("evaluate")["loss_sum"].GetTensorSpecValue().Shape = shapeProto([]int64{-1})
		}, nil, "function evaluate: output loss_sum: the graph has loss_sum float32 [?]; expected loss_sum float32 []"},
		{"missing gradient", func(f found) {
			out := f.outputs("gradients")
			out["gradient/x"] = out["gradient/"+table]
			delete(out, "gradient/"+table)
		}, nil, "function gradients: output gradient/" + table + " is missing; expected gradient/" + table + " float32 [50,32]"},
		{"gradient of another shape", func(f found) {
			f.outputs("gradients")["gradient/"+table].GetTensorSpecValue().Shape = shapeProto([]int64{32, 50})
		}, nil, "function gradients: output gradient/" + table + ": the graph has gradient/" + table + " float32 [32,50]; expected gradient/" + table + " float32 [50,32]"},
		{"prediction of nothing", func(f found) {
			f.concrete("predict").OutputSignature = dict(nil)
			f.def("predict").GetSignature().OutputArg = nil
		}, func(c *Contract) { c.Outputs = nil }, "function predict has no outputs"},
		{"output that is a string", func(f found) {
			f.outputs("predict")["logits"] = &spb.StructuredValue{Kind: &spb.StructuredValue_StringValue{StringValue: "x"}}
		}, nil, "function predict: outputs: a StringValue is neither a tensor nor a structure of tensors"},
		{"outputs of one name", func(f found) {
			f.outputs("predict")["logits"] = dict(map[string]*spb.StructuredValue{"x": f.outputs("predict")["logits"]})
			f.outputs("predict")["probabilities"] = dict(map[string]*spb.StructuredValue{"x": f.outputs("predict")["probabilities"]})
		}, nil, "function predict: outputs: x is declared twice"},
		{"outputs nested deep", func(f found) {
			v := f.outputs("predict")["logits"]
			for range 500 {
				v = tuple(v)
			}
			f.outputs("predict")["logits"] = v
		}, nil, "function predict: outputs: nested more than 64 deep"},

		{"graph with fewer arguments", func(f found) {
			s := f.def("predict").GetSignature()
			s.InputArg = s.InputArg[1:]
		}, nil, "takes 45 arguments; the object graph declares 46"},
		{"graph with fewer outputs", func(f found) {
			s := f.def("predict").GetSignature()
			s.OutputArg = s.OutputArg[1:]
		}, nil, "returns 1 outputs; the object graph declares 2"},
		{"graph with another argument", func(f found) {
			_, arg := f.input("predict", "type_ids")
			arg.Type = dtpb.DataType_DT_STRING
		}, nil, "argument type_ids has dtype string in __inference_predict_"},
		{"graph with another output", func(f found) {
			f.def("predict").GetSignature().GetOutputArg()[0].Type = dtpb.DataType_DT_DOUBLE
		}, nil, "output logits has dtype float64 in __inference_predict_"},
		{"graph that captures a value", func(f found) {
			f.def("predict").GetSignature().GetInputArg()[5].Type = dtpb.DataType_DT_FLOAT
		}, nil, "argument of captured variable model/"},

		{"missing variable", func(f found) { f.rename("model/encoder/embeddings/word", "table", "matrix") }, nil,
			"variable " + table + " is not in the object graph"},
		{"missing module", func(f found) { f.rename("model/encoder", "embeddings", "e") }, nil,
			"variable model/encoder/embeddings/norm/bias is not in the object graph"},
		{"variable that is a constant", func(f found) {
			f.object(table).Kind = &spb.SavedObject_Constant{Constant: &spb.SavedConstant{}}
		}, nil, "variable " + table + " is not in the object graph"},
		{"variable of another shape", func(f found) { f.object(table).GetVariable().Shape = shapeProto([]int64{51, 32}) }, nil,
			"variable " + table + ": the graph has " + table + " float32 [51,32]; expected " + table + " float32 [50,32]"},
		{"variable of another dtype", func(f found) { f.object(table).GetVariable().Dtype = dtpb.DataType_DT_BFLOAT16 }, nil,
			"variable " + table + ": the graph has " + table + " bfloat16 [50,32]; expected " + table + " float32 [50,32]"},
		{"missing slot", nil, func(c *Contract) {
			c.Updates["update"] = Update{Slots: append(c.Updates["update"].Slots, UpdateSlot{Name: "w"})}
		},
			"slot optimizer/w/model/classifier/bias is not in the object graph"},
		{"slot of another shape", func(f found) { f.object("optimizer/v/" + table).GetVariable().Shape = shapeProto([]int64{50}) }, nil,
			"slot optimizer/v/" + table + ": the graph has optimizer/v/" + table + " float32 [50]; expected optimizer/v/" + table + " float32 [50,32]"},
		{"slot that is the variable", func(f found) {
			for i, o := range f.model.GetObjectGraphDef().GetNodes() {
				if o == f.object("model/classifier/bias") {
					for _, c := range f.object("optimizer/m/model/classifier").GetChildren() {
						if c.GetLocalName() == "bias" {
							c.NodeId = int32(i)
						}
					}
				}
			}
		}, nil, "slot optimizer/m/model/classifier/bias is the same variable as model/classifier/bias"},
		{"missing iterations", nil, func(c *Contract) { c.Optimizer.Iterations = "optimizer/steps" },
			"variable optimizer/steps is not in the object graph"},
		{"iterations of another dtype", func(f found) { f.object("optimizer/iterations").GetVariable().Dtype = dtpb.DataType_DT_INT32 }, nil,
			"variable optimizer/iterations: the graph has optimizer/iterations int32 []; expected optimizer/iterations int64 []"},
		{"missing state", func(f found) { f.rename("", "runner_state", "state") }, nil,
			"variable runner_state is not in the object graph"},

		{"captured constant", func(f found) {
			g, gradients := f.model.GetObjectGraphDef(), f.concrete("gradients")
			g.Nodes[0].Children = append(g.Nodes[0].Children, child("prior", int32(len(g.Nodes))))
			gradients.BoundInputs = append(gradients.BoundInputs, int32(len(g.Nodes)))
			g.Nodes = append(g.Nodes, &spb.SavedObject{Kind: &spb.SavedObject_Constant{Constant: &spb.SavedConstant{}}})
		}, nil, "function gradients captures constant prior, which is not among the variables of assets/gorbit.json (constants and tables cannot be captured)"},
		{"captured node that is not there", func(f found) { f.concrete("gradients").BoundInputs[0] = 1 << 30 }, nil,
			"function gradients captures node 1073741824 of "},
		{"captured variable that is no model's", func(f found) {
			for i, o := range f.model.GetObjectGraphDef().GetNodes() {
				if o == f.object("optimizer/v/"+table) {
					f.concrete("predict").BoundInputs[0] = int32(i)
				}
			}
		}, nil, "function predict captures optimizer/v/" + table + "; expected only variables and states of the model"},
		{"update that captures", func(f found) {
			f.concrete("update").BoundInputs = f.concrete("predict").GetBoundInputs()[:1]
			s := f.def("update").GetSignature()
			s.InputArg = append(s.InputArg, &opb.OpDef_ArgDef{Type: dtpb.DataType_DT_RESOURCE})
		}, nil, "function update captures model/"},

		{"child that is not there", func(f found) { f.model.GetObjectGraphDef().GetNodes()[0].GetChildren()[0].NodeId = 1 << 20 }, nil,
			"the object graph refers to node 1048576 of "},
		{"child before the first", func(f found) { f.model.GetObjectGraphDef().GetNodes()[0].GetChildren()[0].NodeId = -1 }, nil,
			"the object graph refers to node -1 of "},
		{"no object graph, as TensorFlow 1 writes", func(f found) { f.model.ObjectGraphDef = nil }, nil,
			"not written by TensorFlow 2's tf.saved_model.save (it has no object graph)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			contract, model := exportedModel(t)
			if test.model != nil {
				test.model(found{t, model.GetMetaGraphs()[0]})
			}
			if test.contract != nil {
				test.contract(contract)
			}
			dir := writeExport(t, contract, model)
			_, err := Open(dir)
			var refused *ContractError
			if !errors.As(err, &refused) || refused.Path != dir {
				t.Fatalf("got %v, want a ContractError", err)
			}
			if !strings.Contains(refused.Reason, test.want) {
				t.Errorf("got %s\nwant %s", refused.Reason, test.want)
			}
			if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), dir+" does not meet the training contract: ") {
				t.Errorf("not one sentence: %s", err)
			}
		})
	}
}

func TestOpenUnchangedCopy(t *testing.T) {
	contract, model := exportedModel(t)
	if _, err := Open(writeExport(t, contract, model)); err != nil {
		t.Errorf("a copy is refused: %v", err)
	}
	contract, model = miniature(t)
	if _, err := Open(writeExport(t, contract, model)); err != nil {
		t.Errorf("the miniature is refused: %v", err)
	}
}

// TestOpenFiles has wrong files where an export is expected.
func TestOpenFiles(t *testing.T) {
	pb := func(dir string) string { return filepath.Join(dir, modelFile) }
	contract := func(dir string) string { return filepath.Join(dir, ContractFile) }
	grow := func(t *testing.T, path string, size int64) {
		if err := os.Truncate(path, size); err != nil {
			t.Skipf("no room for a file with a hole: %v", err)
		}
	}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, dir string) string
		want   string
	}{
		{"no folder", func(t *testing.T, dir string) string { return filepath.Join(dir, "other") }, "graph DIR/other: no such folder"},
		{"a file", func(t *testing.T, dir string) string { return pb(dir) },
			"graph DIR/saved_model.pb: not a SavedModel: it is a file, not a folder"},
		{"empty folder", func(t *testing.T, dir string) string { return t.TempDir() }, "graph DIR: not a SavedModel: it has no saved_model.pb"},
		{"empty model", func(t *testing.T, dir string) string { grow(t, pb(dir), 0); return dir },
			"graph DIR: not a SavedModel: saved_model.pb cannot be parsed: the file is empty"},
		{"truncated model", func(t *testing.T, dir string) string { grow(t, pb(dir), 1000); return dir },
			"graph DIR: not a SavedModel: saved_model.pb cannot be parsed: proto:"},
		{"text for a model", func(t *testing.T, dir string) string { write(t, pb(dir), []byte("hello, world\n")); return dir },
			"graph DIR: not a SavedModel: saved_model.pb cannot be parsed: proto:"},
		{"folder for a model", func(t *testing.T, dir string) string {
			os.Remove(pb(dir))
			os.Mkdir(pb(dir), 0o755)
			return dir
		}, "graph DIR: DIR/saved_model.pb is a folder; expected a file"},
		{"huge model", func(t *testing.T, dir string) string { grow(t, pb(dir), 3<<30); return dir },
			"graph DIR: DIR/saved_model.pb has 3221225472 bytes; expected at most 2147483647"},
		{"two graphs", func(t *testing.T, dir string) string {
			_, model := miniature(t)
			model.MetaGraphs = append(model.MetaGraphs, model.MetaGraphs[0])
			data, _ := proto.Marshal(model)
			write(t, pb(dir), data)
			return dir
		}, "DIR does not meet the training contract: not written by TensorFlow 2's tf.saved_model.save (it has no object graph)"},

		{"no contract", func(t *testing.T, dir string) string { os.Remove(contract(dir)); return dir },
			"DIR does not meet the training contract: no assets/gorbit.json; export it with python -m gorbit_export"},
		{"empty contract", func(t *testing.T, dir string) string { grow(t, contract(dir), 0); return dir },
			"DIR does not meet the training contract: assets/gorbit.json: invalid JSON at byte 0 of 0: unexpected end of JSON input"},
		{"truncated contract", func(t *testing.T, dir string) string { grow(t, contract(dir), 100); return dir },
			"DIR does not meet the training contract: assets/gorbit.json: invalid JSON at byte 100 of 100: unexpected end of JSON input"},
		{"huge contract", func(t *testing.T, dir string) string { grow(t, contract(dir), 1<<30); return dir },
			"graph DIR: DIR/assets/gorbit.json has 1073741824 bytes; expected at most 67108864"},

		{"broken serving model", func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, ServingFolder, modelFile), []byte("x"))
			return dir
		}, "graph DIR/serving: not a SavedModel: saved_model.pb cannot be parsed: proto:"},
		{"a function that calls itself", func(t *testing.T, dir string) string { write(t, pb(dir), recursive(t)); return dir },
			"DIR does not meet the training contract: function __inference_predict_1 is called by itself"},
		{"a serving function that calls itself", func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, ServingFolder, modelFile), recursive(t))
			return dir
		}, "DIR/serving does not meet the training contract: function __inference_predict_1 is called by itself"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, model := miniature(t)
			dir := writeExport(t, c, model)
			path := test.change(t, dir)
			_, err := Open(path)
			if err == nil {
				t.Fatal("opened")
			}
			base := dir
			if !strings.HasPrefix(path, dir) {
				base = path
			}
			// Protobuf's own words have a space that is now plain, now not.
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), base, "DIR"), "\u00a0", " ")
			if !strings.HasPrefix(got, test.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// recursive returns a model whose predictions call themselves.
func recursive(t *testing.T) []byte {
	t.Helper()
	_, model := miniature(t)
	for _, f := range model.MetaGraphs[0].GraphDef.Library.Function {
		if name := f.GetSignature().GetName(); name == "__inference_predict_1" {
			f.NodeDef = append(f.NodeDef, node(name))
		}
	}
	data, err := proto.Marshal(model)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestContractErrors(t *testing.T) {
	for _, test := range []struct {
		old, new, want string
	}{
		{`"gorbit"`, `"orbit"`, `format is "orbit"; expected "gorbit"`},
		{`"version": 2`, `"version": 1`, "version is 1; expected 2 or 3; export the graph again"},
		{`"version": 2`, `"version": "2"`, "field version is a JSON string; expected int"},
		{`"task"`, `"precision": "fp8", "task"`, `precision is "fp8"; expected float32, bf16 or fp16`},
		{`"task"`, `"precision": "fp16", "task"`, "precision is fp16; expected a hyperparameter loss_scale"},
		{`"task"`, `"precision": 16, "task"`, "field precision is a JSON number; expected string"},
		{`"optimizer/iterations"`, `""`, "optimizer.iterations is empty"},
		{`"runner_state"`, `null`, "state is empty"},
		{`"per_token": 8`, `"per_token": -8`, "model.flops has a negative count"},
		{`"name": "x", "dtype": "float32"`, `"name": "x", "dtype": "string"`, "feature x has dtype string; expected uint8, int32, int64, float32 or bool"},
		{`"name": "y"`, `"name": "x"`, `feature "x" has no name or is declared twice`},
		{`"name": "noise"`, `"name": "x"`, `hyperparameter "x" has no name or is declared twice`},
		{`"name": "beta"`, `"name": "noise"`, `hyperparameter "noise" has no name or is declared twice`},
		{`"default": 0.9`, `"default": 1`, "hyperparameter beta is 1; expected less than 1"},
		{`["m"]`, `["m", "m"]`, `slot "m" has no name or is declared twice`},
		{`[2]`, `[0]`, "variable model/w has shape [0]"},
		{`[2]`, `[-1]`, "variable model/w has shape [-1]"},
		{`[2]`, `[4294967296, 4294967296]`, "variable model/w has shape [4294967296 4294967296]"},
		{`[2]`, `[2.5]`, "field variables.shape is a JSON number 2.5; expected int64"},
		{`"shape": [2], "dtype": "float32"`, `"shape": [2], "dtype": "float16"`, "variable model/w has dtype float16; expected float32"},
		{`"model/w"`, `"model w"`, `variable name "model w" is not valid in TensorFlow`},
		{`"model/w"`, `"` + strings.Repeat("a/", 1000) + `"`, "is not valid in TensorFlow"},
		{`"variables": [`, `"variables": [null, `, `variable name "" is not valid in TensorFlow`},
		{`"variables": [`, `"variables": {`, "invalid JSON at byte "},
		{`"variables"`, `"weights"`, "no variables"},
		{`"features"`, `"inputs"`, "no features"},
		{`"weight_decay": true`, `"weight_decay": true, "rows": "x"`, `variable model/w of shape [2] has rows "x"; expected an int32 feature`},
	} {
		if strings.Count(miniatureContract, test.old) == 0 {
			t.Fatalf("%s is not in the contract", test.old)
		}
		_, err := parseContract([]byte(strings.Replace(miniatureContract, test.old, test.new, 1)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s for %s: got %v, want %s", test.new, test.old, err, test.want)
		}
	}
	c, err := parseContract([]byte(miniatureContract))
	if err != nil || c.Precision != Float32 {
		t.Errorf("a contract that names no precision has %+v, %v", c, err)
	}
	c, err = parseContract([]byte(strings.NewReplacer(`"task"`, `"precision": "fp16", "task"`, `"noise"`, `"loss_scale"`).Replace(miniatureContract)))
	if err != nil || c.Precision != FP16 {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := parseContract([]byte("null")); err == nil {
		t.Error("null is a contract")
	}
}

func TestHyperparameterCheck(t *testing.T) {
	zero, one := 0.0, 1.0
	rate := Hyperparameter{Name: "rate", Minimum: &zero, Below: &one}
	for _, test := range []struct {
		h     Hyperparameter
		value float64
		want  string
	}{
		{rate, 0, ""},
		{rate, 0.999, ""},
		{rate, 1, "rate is 1; expected less than 1"},
		{rate, -0.1, "rate is -0.1; expected 0 or more"},
		{rate, math.NaN(), "rate is NaN; expected a finite number"},
		{rate, math.Inf(1), "rate is +Inf; expected a finite number"},
		{Hyperparameter{Name: "free"}, -1e30, ""},
	} {
		got := ""
		if err := test.h.Check(test.value); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %v: got %q, want %q", test.h.Name, test.value, got, test.want)
		}
	}
}
