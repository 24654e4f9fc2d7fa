package checkpoint

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	tfproto "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

func TestVariableKey(t *testing.T) {
	for name, want := range map[string]string{
		"a":                 "a/.ATTRIBUTES/VARIABLE_VALUE",
		"model/layers/0/w":  "model/layers/0/w/.ATTRIBUTES/VARIABLE_VALUE",
		"odd/a.b/.x":        "odd/a..b/..x/.ATTRIBUTES/VARIABLE_VALUE",
		"model/caf\u00e9/w": "model/caf\u00e9/w/.ATTRIBUTES/VARIABLE_VALUE",
	} {
		if got := VariableKey(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestBuildObjectGraph(t *testing.T) {
	names := []string{"save_counter", "model/layers/1/w", "model/layers/0/w", "model/a.b", "optimizer/m/model/layers/0/w"}
	data, err := BuildObjectGraph(names)
	if err != nil {
		t.Fatal(err)
	}
	g, err := ParseObjectGraph(data)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range g.Variables() {
		got = append(got, v.Name)
		if v.Key != VariableKey(v.Name) {
			t.Errorf("%s has key %s", v.Name, v.Key)
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("variables %q, want %q", got, names)
	}
	slices.Reverse(names)
	if again, err := BuildObjectGraph(names); err != nil || string(again) != string(data) {
		t.Errorf("another order of names gives another graph (error %v)", err)
	}
	for _, bad := range [][]string{{"a", "a"}, {"a", "a/b"}, {"a/b", "a"}, {"a-c", "a", "a/b"}, {""}, {"/a"}, {"a/"}, {"a//b"}} {
		if _, err := BuildObjectGraph(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func marshal(t testing.TB, g *tfproto.TrackableObjectGraph) []byte {
	t.Helper()
	data, err := proto.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type protoNode = tfproto.TrackableObjectGraph_TrackableObject

func child(name string, id int32) *tfproto.TrackableObjectGraph_TrackableObject_ObjectReference {
	return &tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{LocalName: name, NodeId: id}
}

func valued(key string, children ...*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference) *protoNode {
	return &protoNode{Children: children, Attributes: []*tfproto.TrackableObjectGraph_TrackableObject_SerializedTensor{{Name: variableValue, CheckpointKey: key}}}
}

func TestObjectGraphPaths(t *testing.T) {
	// 0 -> deep/deeper/x and 0 -> y, both node 3; 3 is also reached through a
	// cycle, and has a name with slashes at another node.
	g, err := ParseObjectGraph(marshal(t, &tfproto.TrackableObjectGraph{Nodes: []*protoNode{
		{Children: []*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{child("deep", 1), child("y", 3), child("y", 4), child("s/t", 2), child("s", 1)}},
		{Children: []*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{child("deeper", 2), child("up", 0)}},
		{Children: []*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{child("x", 3), child("z/z", 4)}},
		valued("three"),
		valued("four"),
		valued("alone"),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(g.Variables()); got != "[{y three} {y four}]" && got != "[{y three} {s/t/z/z four}]" {
		t.Errorf("variables %s", got)
	}
	for path, want := range map[string]string{
		"y": "three", "deep/deeper/x": "three", "deep/up/y": "three", "deep/up/deep/up/deep/deeper/x": "three",
		"s/t/x": "three", "s/t/z/z": "four", "s/deeper/x": "three", "deep/deeper/z/z": "four",
		"y/.ATTRIBUTES/VARIABLE_VALUE": "three", "y/.ATTRIBUTES/OTHER": "", "x": "", "": "", "deep": "", "deep/up": "", "s/t": "", "y/": "", "/y": "",
	} {
		if got, ok := g.Key(path); got != want || ok != (want != "") {
			t.Errorf("%q leads to %q, %v, want %q", path, got, ok, want)
		}
	}
}

func TestObjectGraphHostile(t *testing.T) {
	slot := func(of, node int32) *protoNode {
		return &protoNode{SlotVariables: []*tfproto.TrackableObjectGraph_TrackableObject_SlotVariableReference{{SlotName: "m", OriginalVariableNodeId: of, SlotVariableNodeId: node}}}
	}
	for name, g := range map[string]*tfproto.TrackableObjectGraph{
		"child outside":    {Nodes: []*protoNode{{Children: []*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{child("a", 1)}}}},
		"negative child":   {Nodes: []*protoNode{{Children: []*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{child("a", -1)}}}},
		"slot outside":     {Nodes: []*protoNode{slot(0, 1)}},
		"slot of nothing":  {Nodes: []*protoNode{slot(7, 0)}},
		"endless long way": longChain(),
	} {
		if _, err := ParseObjectGraph(marshal(t, g)); err == nil || !strings.HasPrefix(err.Error(), "object graph: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := ParseObjectGraph([]byte("\xff\xff")); err == nil {
		t.Error("garbage was accepted")
	}
	// A root that is its own optimizer and its own variable: asking for paths ends.
	self := slot(0, 0)
	self.Children = []*tfproto.TrackableObjectGraph_TrackableObject_ObjectReference{child("m", 0), child("m/m", 0)}
	g, err := ParseObjectGraph(marshal(t, &tfproto.TrackableObjectGraph{Nodes: []*protoNode{self}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g.Key(strings.Repeat("m/", 300) + "m"); ok {
		t.Error("found a value where there is none")
	}
}

// longChain has variables at the end of a path that repeats long names: as text
// its paths would take gigabytes.
func longChain() *tfproto.TrackableObjectGraph {
	name := strings.Repeat("n", 1<<10)
	g := &tfproto.TrackableObjectGraph{}
	for i := range int32(1000) {
		g.Nodes = append(g.Nodes, valued("k", child(name, i+1)))
	}
	g.Nodes = append(g.Nodes, valued("k"))
	return g
}

func FuzzObjectGraph(f *testing.F) {
	for _, name := range []string{"graph/ckpt-2", "root/ckpt-1", "keras/ckpt-1"} {
		b, err := OpenBundle("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		s, err := b.strings(ObjectGraphKey)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(s[0]), "model/me/layers/0/kernel")
	}
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		g, err := ParseObjectGraph(data)
		if err != nil {
			return
		}
		g.Key(name)
		for _, v := range g.Variables() {
			// An object with an empty name has the path of its parent.
			if strings.Contains(v.Name, "/.ATTRIBUTES/") || strings.Contains("/"+v.Name+"/", "//") {
				continue
			}
			if _, ok := g.Key(v.Name); !ok {
				t.Errorf("%q is listed and not found", v.Name)
			}
		}
	})
}

func TestState(t *testing.T) {
	data, err := os.ReadFile("testdata/graph/checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseState(data)
	if err != nil {
		t.Fatal(err)
	}
	if s.latest != "ckpt-2" || !slices.Equal(s.all, []string{"ckpt-1", "ckpt-2"}) || len(s.times) != 2 || !s.times[1].After(s.times[0]) || s.preserved.IsZero() {
		t.Errorf("state %+v", s)
	}
	odd := folderState{latest: "a \"b\" \\ \t caf\u00e9", all: []string{"x", "a \"b\" \\ \t caf\u00e9"}, times: s.times}
	for _, s := range []folderState{s, odd} {
		again, err := parseState(s.text())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(s) {
			t.Errorf("%+v came back as %+v, error %v", s, again, err)
		}
	}
	for _, bad := range []string{"model_checkpoint_path: ", "model_checkpoint_path: 7", "{", "\x00"} {
		if s, err := parseState([]byte(bad)); err == nil {
			t.Errorf("%q gave %+v", bad, s)
		}
	}
	if s, err := parseState([]byte("# by hand\nmodel_checkpoint_path : 'm-1' new_field: 3")); err != nil || s.latest != "m-1" {
		t.Errorf("a state of another writer: %+v, error %v", s, err)
	}
}

func FuzzState(f *testing.F) {
	data, err := os.ReadFile("testdata/graph/checkpoint")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseState(data)
		if err != nil || len(s.times) > 0 || !s.preserved.IsZero() {
			return
		}
		if again, err := parseState(s.text()); err != nil || again.latest != s.latest || !slices.Equal(again.all, s.all) {
			t.Errorf("%q came back as %+v, error %v", data, again, err)
		}
	})
}
