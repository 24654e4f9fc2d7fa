package graphs

import (
	"io"
	"testing"

	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

func FuzzContract(f *testing.F) {
	f.Add([]byte(miniatureContract))
	f.Add([]byte(`{"format": "gorbit", "version": 1, "variables": [{"shape": [9223372036854775807, 2]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseContract(data)
		if err != nil {
			return
		}
		if c.Parameters() < 1 {
			t.Errorf("%d parameters", c.Parameters())
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
		model, err := parseModel(data)
		if err != nil {
			return
		}
		for _, m := range model.GetMetaGraphs() {
			unsafeServing(m.GetGraphDef().GetNode(), m.GetGraphDef().GetLibrary(), m.GetSaverDef().GetSaveTensorName(), m.GetSaverDef().GetRestoreOpName())
			if e, err := newExport("fuzz", contract, m); err == nil {
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
			for _, name := range functionNames {
				o.function(name, names)
			}
		}
	})
}

// drive does with an export what a run and the command line do.
func drive(t *testing.T, e *Export) {
	if err := Inspect(e).Write(io.Discard); err != nil {
		t.Error(err)
	}
	if err := e.Dot(io.Discard); err != nil {
		t.Error(err)
	}
	b := e.NewBuilder(functionNames...)
	for _, name := range functionNames {
		b.Call(name, e.Functions[name], nil, nil)
	}
	if _, err := b.Marshal(); err != nil {
		t.Error(err)
	}
}
