package servable

import (
	"strings"
	"testing"

	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// TestOlderGraph describes a model that makes texts, with a graph that has no signatures for that.
func TestOlderGraph(t *testing.T) {
	o := Options{Maker: new(predict.Maker)}
	err := o.describeGeneration(new(layout.Description), new(spb.MetaGraphDef))
	// So the run's description of its data, its best checkpoint and its averages are taken as before.
	if want := "gorbit export --run RUN --set graph=GRAPH"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error is %v; expected one that ends with %q", err, want)
	}
}
