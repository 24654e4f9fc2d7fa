package graphs

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func FuzzContract(f *testing.F) {
	f.Add([]byte(miniatureContract))
	f.Add([]byte(conv))
	f.Add([]byte(`{"format": "gorbit", "version": 2, "variables": [{"shape": [9223372036854775807, 2]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseContract(data)
		if err != nil {
			return
		}
		if c.Parameters() < 1 {
			t.Errorf("%d parameters", c.Parameters())
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseContract(again); err != nil || !reflect.DeepEqual(c, back) {
			t.Errorf("%s gives back %+v, %v", again, back, err)
		}
		for _, f := range c.Features {
			if len(f.Shape) != len(f.Axes) {
				t.Errorf("feature %s has axes %v and shape %v", f.Name, f.Axes, f.Shape)
			}
		}
		for _, v := range c.Variables {
			for _, s := range c.SlotsOf(v) {
				if s.Elements() < 1 {
					t.Errorf("slot %s of %s has shape %v", s.Name, v.Name, s.Shape)
				}
			}
		}
		for _, h := range c.AllHyperparameters() {
			if err := h.Check(h.Default); err != nil {
				t.Errorf("a default is refused: %v", err)
			}
		}
	})
}

// FuzzModel reads bytes as saved_model.pb, under a contract that the seed has.
func FuzzModel(f *testing.F) {
	contract, model := miniature(f)
	model.MetaGraphs[0].SaverDef = &spb.SaverDef{SaveTensorName: "a:0", RestoreOpName: "b"}
	seed, err := proto.MarshalOptions{Deterministic: true}.Marshal(model)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if model, err := parseModel(data); err == nil {
			readHostile(t, contract, model)
		}
	})
}

// readHostile reads all that can be read of a model, and lets nothing but errors come of it.
// It says whether the model was found good.
func readHostile(t *testing.T, contract *Contract, model *spb.SavedModel) (good bool) {
	if err := describeModel("fuzz", model, 1).Write(io.Discard); err != nil {
		t.Error(err)
	}
	for _, m := range model.GetMetaGraphs() {
		if e, err := newExport("fuzz", contract, m); err == nil {
			good = true
			drive(t, e)
		}
		o, err := readObjects(m.GetObjectGraphDef())
		if err != nil {
			continue
		}
		names := make(map[int32]string)
		for id := range min(int32(len(m.GetObjectGraphDef().GetNodes())), 100) {
			names[id] = o.describe(id)
		}
		for _, name := range contract.functions() {
			o.function(name, names)
		}
	}
	return good
}

// TestMutatedModels changes a few fields of the miniature at random: what bytes
// changed at random seldom are, a message that parses.
func TestMutatedModels(t *testing.T) {
	contract, model := miniature(t)
	random := rand.New(rand.NewPCG(1, 2))
	var good, bad int
	for range 1500 {
		m := proto.CloneOf(model)
		for range 1 + random.IntN(3) {
			mutate(random, m.ProtoReflect())
		}
		if readHostile(t, contract, m) {
			good++
		} else {
			bad++
		}
	}
	if good < 100 || bad < 100 {
		t.Errorf("%d models were good and %d bad: the test shows little", good, bad)
	}
}

// mutate changes one field of a message, or of one inside it.
func mutate(random *rand.Rand, m protoreflect.Message) {
	type place struct {
		message protoreflect.Message
		field   protoreflect.FieldDescriptor
	}
	var places []place
	protorange.Options{Stable: true}.Range(m, func(v protopath.Values) error {
		if at := v.Index(-1); at.Step.Kind() == protopath.FieldAccessStep {
			places = append(places, place{v.Index(-2).Value.Message(), at.Step.FieldDescriptor()})
		}
		return nil
	}, nil)
	if len(places) == 0 {
		return
	}
	p := places[random.IntN(len(places))]
	value := p.message.Get(p.field)
	switch {
	case p.field.IsList() && value.List().Len() > 0 && random.IntN(2) == 0:
		list := value.List()
		list.Append(list.Get(random.IntN(list.Len())))
	case p.field.IsList() || p.field.IsMap() || random.IntN(4) == 0:
		p.message.Clear(p.field)
	case p.field.Kind() == protoreflect.Int32Kind:
		p.message.Set(p.field, protoreflect.ValueOfInt32(random.Int32N(24)-2))
	case p.field.Kind() == protoreflect.Int64Kind:
		p.message.Set(p.field, protoreflect.ValueOfInt64(random.Int64N(7)-3))
	case p.field.Kind() == protoreflect.StringKind:
		p.message.Set(p.field, protoreflect.ValueOfString("__inference_loss_7"))
	}
}

// TestLongChains reads graphs that are deeper than a stack should be.
func TestLongChains(t *testing.T) {
	const length = 200_000
	contract, model := miniature(t)
	m := model.GetMetaGraphs()[0]
	objects, library := m.GetObjectGraphDef(), m.GetGraphDef().GetLibrary()
	last := int32(len(objects.Nodes))
	objects.Nodes[0].Children = append(objects.Nodes[0].Children, child("chain", last))
	b := modelBuilder{functions: library.Function}
	for i := range length {
		next := last + 1
		if i == length-1 {
			next = 0
		}
		objects.Nodes = append(objects.Nodes, &spb.SavedObject{Children: []*spb.TrackableObjectGraph_TrackableObject_ObjectReference{child("a", next)}})
		last = next
		b.functionDef(fmt.Sprint("f", i), nil, nil, 0, node(fmt.Sprint("f", i+1)))
	}
	b.functionDef(fmt.Sprint("f", length), nil, nil, 0, node("ReadFile"), node("f0"))
	library.Function = b.functions
	for _, f := range library.Function {
		if f.GetSignature().GetName() == "__inference_predict_1" {
			f.NodeDef = append(f.NodeDef, node("f0"))
		}
	}
	e, err := newExport("chain", contract, m)
	if err != nil {
		t.Fatal(err)
	}
	if uses := e.Unsafe(); len(uses) != 1 || uses[0].Op != "ReadFile" {
		t.Errorf("unsafe: %v", uses)
	}
	if n := len(e.Library("predict").GetFunction()); n != length+2 {
		t.Errorf("%d functions", n)
	}
	o, err := readObjects(objects)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.path(int32(len(objects.Nodes) - 1)); strings.Count(got, "/") != length-1 {
		t.Errorf("the last node's path has %d names", strings.Count(got, "/")+1)
	}
}

// drive does with an export what a run and the command line do.
func drive(t *testing.T, e *Export) {
	if err := Inspect(e).Write(io.Discard); err != nil {
		t.Error(err)
	}
	if err := e.Dot(io.Discard); err != nil {
		t.Error(err)
	}
	if _, err := proto.Marshal(e.Library(e.Contract.functions()...)); err != nil {
		t.Error(err)
	}
}
