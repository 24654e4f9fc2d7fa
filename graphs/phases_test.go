package graphs

import (
	"strings"
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
)

// inPhases replaces parts of the contract conv so that its two variables are in two phases.
var inPhases = strings.NewReplacer(
	`"state": "runner_state"`, `"phases": [{"name": "first"}, {"name": "second", "every": 3, "offset": 2}], "state": "runner_state"`,
	`"update": "update_0"`, `"phase": "first", "update": "update_0"`,
	`"update": "update_1"`, `"phase": "second", "update": "update_1"`,
)

func TestPhasesOfContract(t *testing.T) {
	c, err := parseContract([]byte(inPhases.Replace(conv)))
	if err != nil {
		t.Fatal(err)
	}
	first, second := c.Phases[0], c.Phases[1]
	if own := second.Of(c.Variables); len(own) != 1 || own[0].Name != "model/conv/bias" || first.Gradients() != "gradients_first" {
		t.Errorf("the phase %+v has the variables %v", second, own)
	}
	for step := range int64(9) {
		if !first.Due(step) || second.Due(step) != (step%3 == 2) {
			t.Errorf("in step %d the phases are due: %v, %v", step, first.Due(step), second.Due(step))
		}
	}
	for _, test := range []struct{ old, new, want string }{
		{`{"name": "first"}`, `{"name": "first"}, {"name": "first"}`, `phase name "first" is not valid or is declared twice`},
		{`"name": "second"`, `"name": "a/b"`, `variable model/conv/bias has phase "second"; expected one of phases`},
		{`"every": 3`, `"every": -3`, "phase second has every -3 and offset 2; expected every 1 or more"},
		{`"offset": 2`, `"offset": 3`, "phase second has every 3 and offset 3; expected every 1 or more"},
		{`{"name": "first"}`, `{"name": "first", "every": 2}`, "no phase has every 1; expected one at least that each step has"},
		{`"phase": "second", `, ``, "variable model/conv/bias has no phase; expected one of phases"},
		{`"phase": "second"`, `"phase": "first"`, "phase second has no variables; expected one at least"},
		{`"phase": "second"`, `"assigned": true, "phase": "second"`, "variable model/conv/bias is assigned, and there are phases"},
		{`"task": ""`, `"task": "", "xla": true`, "xla is true, and there are phases; expected one of the two"},
		{`"update_1": {`, `"gradients_second": {"slots": []}, "update_1": {`, "update gradients_second has the name of the gradients of phase second"},
	} {
		text := inPhases.Replace(conv)
		changed := strings.Replace(text, test.old, test.new, 1)
		if changed == text {
			t.Fatalf("%s is not in the contract", test.old)
		}
		if _, err := parseContract([]byte(changed)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.new, err, test.want)
		}
	}
}

// TestPhasesOfFunctions wants a count and a function of each phase, which gives the gradients of its own
// variables alone.
func TestPhasesOfFunctions(t *testing.T) {
	contract, err := parseContract([]byte(inPhases.Replace(conv)))
	if err != nil {
		t.Fatal(err)
	}
	_, model := convModel(t)
	nodes := model.MetaGraphs[0].ObjectGraphDef
	find := func(parent int32, name string) int32 {
		for _, c := range nodes.Nodes[parent].Children {
			if c.LocalName == name {
				return c.NodeId
			}
		}
		t.Fatalf("no %s", name)
		return 0
	}
	opens := func(want string) {
		t.Helper()
		if _, err := newExport("conv", contract, model.MetaGraphs[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	opens("variable optimizer/phases/first is not in the object graph")

	m := modelBuilder{nodes: nodes.Nodes[1:]}
	counts := m.object(map[string]int32{"first": m.variable(dtpb.DataType_DT_INT64), "second": m.variable(dtpb.DataType_DT_INT64)})
	nodes.Nodes = append(nodes.Nodes[:1:1], m.nodes...)
	optimizer := nodes.Nodes[find(0, "optimizer")]
	optimizer.Children = append(optimizer.Children, child("phases", counts))
	opens("no function gradients_first")

	gradients := find(0, "gradients")
	for _, name := range []string{"gradients_first", "gradients_second"} {
		nodes.Nodes[0].Children = append(nodes.Nodes[0].Children, child(name, gradients))
	}
	opens("function gradients_first: output gradient/model/conv/bias is of a variable that the phase does not update")
}

// TestPhasesCost reports no cost of a training step that nobody knows.
func TestPhasesCost(t *testing.T) {
	for _, c := range []struct {
		phases []Phase
		want   string
	}{{nil, "training  3 k\n"}, {[]Phase{{Name: "first", Every: 1}}, "training  not known of phases\n"}} {
		var text strings.Builder
		if err := (&Report{FLOPsPerExample: 1000, Phases: c.phases}).Write(&text); err != nil || !strings.Contains(text.String(), c.want) {
			t.Errorf("%v; expected %q in\n%s", err, c.want, &text)
		}
	}
}
