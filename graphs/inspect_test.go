package graphs

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

const miniatureReport = `  graph       mini
  model       regression, line
  input       packed batches
  best        loss, lower is better
  precision   float32
  TensorFlow  2.18.1, contract version 2, saved_model.pb 1.23 kB
  parameters  2 in 1 variable, 8 B; weight decay on 2
  optimizer   momentum, slots m: 8 B

FLOPs per token
  row length  forward  training
  64          72       216
  128         136      408

features
  x  float32  [examples]  input
  y  float32  [examples]  label

hyperparameters
  noise  0    added to x
  beta   0.9  decay of m

function gradients: captures 1 variable, 5 nodes in 2 functions
  in   x             float32  [?]
  in   y             float32  [?]
  in   seed          int64    [2]
  in   noise         float32  []
  out  loss_sum      float32  []
  out  weight_sum    float32  []
  out  gradient/...  float32  of 1 variable

function update: captures 0 variables, 1 node in 1 function
  in  variable        resource  []
  in  m               resource  []
  in  gradient        float32   any shape
  in  gradient_scale  float32   []
  in  iteration       int64     []
  in  learning_rate   float32   []
  in  weight_decay    float32   []
  in  beta            float32   []

function evaluate: captures 1 variable, 3 nodes in 2 functions
  in   x           float32  [?]
  in   y           float32  [?]
  out  loss_sum    float32  []
  out  weight_sum  float32  []

function predict: captures 1 variable, 2 nodes in 1 function
  in   x      float32  [?]
  out  value  float32  [?]

function train_step: captures 3 variables, 8 nodes in 4 functions
  in   x              float32  [?]
  in   y              float32  [?]
  in   seed           int64    [2]
  in   noise          float32  []
  in   learning_rate  float32  []
  in   weight_decay   float32  []
  in   beta           float32  []
  in   clip_norm      float32  []
  out  loss_sum       float32  []
  out  weight_sum     float32  []

variables
  model/w  float32  [2]  2  decay

operations
  Mul                      3
  ReadFile                 1
  ResourceApplyMomentum    1
  Square                   1
  StatefulPartitionedCall  2
  Sub                      1

operations that reach beyond the graph
  ReadFile  in predict  reads files
`

// openMiniature opens the miniature with an unsafe operation in it.
func openMiniature(t testing.TB) *Export {
	t.Helper()
	contract, model := miniature(t)
	for _, f := range model.GetMetaGraphs()[0].GetGraphDef().GetLibrary().GetFunction() {
		if f.GetSignature().GetName() == "__inference_predict_1" {
			f.NodeDef = append(f.NodeDef, node("ReadFile"))
		}
	}
	e, err := newExport("mini", contract, model.GetMetaGraphs()[0])
	if err != nil {
		t.Fatal(err)
	}
	e.ModelBytes = 1234
	return e
}

func TestReport(t *testing.T) {
	r := Inspect(openMiniature(t))
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	if text.String() != miniatureReport {
		t.Errorf("got\n%s\nwant\n%s", text.String(), miniatureReport)
	}

	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), ":null") != strings.Contains(string(data), `"dtype":"float32","shape":null`) {
		t.Errorf("a list is null: %s", data)
	}
	for _, want := range []string{
		`"path":"mini"`, `"parameters":2`, `"slot_bytes":8`, `"saved_model_bytes":1234`,
		`{"row_length":64,"forward_per_token":72,"training_per_token":216}`,
		`{"name":"gradient","dtype":"float32","shape":null}`,
		`{"name":"loss_sum","dtype":"float32","shape":[]}`,
		`{"name":"x","dtype":"float32","shape":[-1]}`,
		`{"name":"model/w","dtype":"float32","shape":[2],"parameters":2,"weight_decay":true,"decay":1,"learning_rate":1,"update":"update"}`,
		`{"op":"Mul","count":3}`,
		`{"function":"predict","op":"ReadFile","reason":"reads files"}`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(*r, back) {
		t.Errorf("JSON gives back %+v, %v", back, err)
	}
}

// TestReportOfExport holds a report against what TensorFlow says of the export.
func TestReportOfExport(t *testing.T) {
	e, err := Open(exported(t))
	if err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Ops        map[string]int
		Parameters int64
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(exported(t)), "facts.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &facts); err != nil {
		t.Fatal(err)
	}
	r := Inspect(e)
	ops := make(map[string]int)
	for i, op := range r.Ops {
		ops[op.Op] = op.Count
		if i > 0 && r.Ops[i-1].Op >= op.Op {
			t.Errorf("%s is not in order", op.Op)
		}
	}
	if !reflect.DeepEqual(ops, facts.Ops) {
		t.Errorf("operations %v\nTensorFlow's %v", ops, facts.Ops)
	}
	if r.Parameters != facts.Parameters || r.SlotBytes != 8*facts.Parameters || r.VariableBytes != 4*facts.Parameters {
		t.Errorf("%d parameters in %d bytes, slots %d; TensorFlow has %d", r.Parameters, r.VariableBytes, r.SlotBytes, facts.Parameters)
	}
	info, err := os.Stat(filepath.Join(e.Path, modelFile))
	if err != nil || r.SavedModelBytes != info.Size() {
		t.Errorf("%d bytes, the file has %d (%v)", r.SavedModelBytes, info.Size(), err)
	}
	if len(r.FLOPs) != 0 {
		t.Errorf("rows of %d for a model of 16 positions", r.FLOPs[0].RowLength)
	}
	// Two layers of hidden 32 and 64 between, as matrix products.
	if got, want := e.Contract.Model.FLOPs.Forward(16), 2.0*(4*2*32*32+2*2*32*64+2*2*16*32); got != want {
		t.Errorf("%v FLOPs a token, want %v", got, want)
	}
	contract, images := *e.Contract, *e
	contract.Model.FLOPs, images.Contract = FLOPs{PerExample: 12e6}, &contract
	var text strings.Builder
	if err := Inspect(&images).Write(&text); err != nil || !strings.Contains(text.String(), "FLOPs per example") || !strings.Contains(text.String(), "36 M") {
		t.Errorf("%v: %s", err, text.String())
	}
	for range 3 {
		if again := Inspect(e); !reflect.DeepEqual(r, again) {
			t.Fatal("two reports of one export differ")
		}
	}
}

type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

func TestWritersGiveErrorsBack(t *testing.T) {
	e := openMiniature(t)
	for _, room := range []int{0, 100, 1000} {
		if err := Inspect(e).Write(&fullDisk{room}); err == nil || err.Error() != "full" {
			t.Errorf("room for %d bytes: Write gave %v", room, err)
		}
		if err := e.Dot(&fullDisk{room}); err == nil || err.Error() != "full" {
			t.Errorf("room for %d bytes: Dot gave %v", room, err)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{words.Thousands(0), "0"},
		{words.Thousands(999), "999"},
		{words.Thousands(1000), "1,000"},
		{words.Thousands(109482240), "109,482,240"},
		{words.Bytes(0), "0 B"},
		{words.Bytes(999), "999 B"},
		{words.Bytes(1000), "1 kB"},
		{words.Bytes(437928960), "438 MB"},
		{words.Bytes(5e17), "5e+05 TB"},
		{flopsText(21.4e6), "21.4 M"},
		{flopsText(7), "7"},
		{shapeText([]int64{-1, 3}), "[?,3]"},
		{shapeText(nil), "[]"},
		{listText(nil), "none"},
		{listText([]string{"m", "v"}), "m, v"},
		{shortName("__inference__layer_1982"), "layer"},
		{shortName("__forward_gradients_12_34"), "gradients"},
		{shortName("cond_true_3066"), "cond_true"},
		{shortName("_12"), "_12"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

// The part of Graphviz' grammar that Dot uses: one statement to a line.
var dotLine = regexp.MustCompile(`^ *(digraph gorbit \{|subgraph ID \{|\}|(graph|node|edge|ID|ID -> ID) \[A(, A)*\]|A)$`)

// checkDot checks a drawing's syntax: every line is a statement, braces match, and
// edges join nodes that are declared. It returns the number of nodes and edges.
func checkDot(t *testing.T, text string) (nodes, edges int) {
	t.Helper()
	id := regexp.MustCompile(`"(?:[^"\\]|\\["\\n])*"`)
	attr := regexp.MustCompile(`\b[a-z]+=(ID|[A-Za-z0-9]+)`)
	declared := make(map[string]bool)
	depth := 0
	var ends []string
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		shape := attr.ReplaceAllString(id.ReplaceAllString(line, "ID"), "A")
		if !dotLine.MatchString(shape) {
			t.Errorf("no statement: %s", line)
		}
		depth += strings.Count(shape, "{") - strings.Count(shape, "}")
		names := id.FindAllString(line, -1)
		switch {
		case strings.Contains(shape, "->"):
			ends = append(ends, names[0], names[1])
			edges++
		case strings.HasPrefix(strings.TrimSpace(shape), "ID ["):
			if declared[names[0]] {
				t.Errorf("node %s is declared twice", names[0])
			}
			declared[names[0]] = true
		}
	}
	if depth != 0 {
		t.Errorf("%d braces are left open", depth)
	}
	for _, end := range ends {
		if !declared[end] {
			t.Errorf("an edge joins %s, which is not declared", end)
		}
	}
	return len(declared), edges
}

func TestDot(t *testing.T) {
	e, err := Open(exported(t))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := e.Dot(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	// 4 embeddings, 8 modules a layer, pooler and classifier; 9 functions lead from
	// gradients, 5 from evaluate and predict each, 1 is update, 13 are train_step's.
	if nodes, _ := checkDot(t, text); nodes != 4+2*8+2+9+5+5+1+13 {
		t.Errorf("%d nodes", nodes)
	}
	for _, want := range []string{
		`label="intermediate\nbias [64]\nkernel [32,64]"`,
		`subgraph "cluster/model/encoder/layers/1/attention" {`,
		`[label="41 variables", ltail="cluster/model"]`,
		`[label="× 2"]`,
		`[label="× 41"]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not drawn", want)
		}
	}
	var again bytes.Buffer
	if err := e.Dot(&again); err != nil || again.String() != text {
		t.Error("two drawings of one export differ")
	}
}

// TestDotEscapes draws names that are not made for it.
func TestDotEscapes(t *testing.T) {
	contract, model := miniature(t)
	contract.Variables = append(contract.Variables, contract.Variables[0])
	contract.Variables[0].Name = "w"
	contract.Variables[1].Name = "model/10"
	contract.Variables = append(contract.Variables, Variable{Name: "model/2/x"}, Variable{Name: "model/10/x"}, Variable{Name: `a\b/c`})
	root := model.GetMetaGraphs()[0]
	for _, f := range root.GetGraphDef().GetLibrary().GetFunction() {
		if f.GetSignature().GetName() == "__inference_loss_7" {
			f.NodeDef = append(f.NodeDef, node("q\"\\ \n\x00{};->[]<b>"))
		}
	}
	var b modelBuilder
	b.functionDef("q\"\\ \n\x00{};->[]<b>", nil, nil, 0)
	root.GraphDef.Library.Function = append(root.GraphDef.Library.Function, b.functions...)
	e := openMiniature(t)
	e.Path = "a\"; b\\\n"
	e.Contract = contract
	e.library = newLibrary(root.GetGraphDef().GetLibrary())
	var text bytes.Buffer
	if err := e.Dot(&text); err != nil {
		t.Fatal(err)
	}
	checkDot(t, text.String())
	for _, want := range []string{`label="a\"; b\\\n"`, `"gradients:q\"\\ \n{};->[]<b>"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s is not in\n%s", want, text.String())
		}
	}
}
