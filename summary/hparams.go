package summary

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	summarypb "github.com/wamuir/graft/tensorflow/core/framework/summary_go_proto"
	tensorpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	shapepb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	typespb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	eventpb "github.com/wamuir/graft/tensorflow/core/util/event_go_proto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Tags and fields of HParamsPluginData, as tensorboard/plugins/hparams has them in metadata.py and
// plugin_data.proto. The version, 0, is left out.
const (
	sessionStartTag   = "_hparams_/session_start_info"
	sessionEndTag     = "_hparams_/session_end_info"
	sessionStartField = 3 // SessionStartInfo
	sessionEndField   = 4 // SessionEndInfo

	startHParamsField = 1 // map<string, google.protobuf.Value>
	startTimeField    = 5 // double, seconds since 1970
	endStatusField    = 1 // Status
	endTimeField      = 2
	statusSuccess     = 1
)

// SessionStart adds the hyperparameters of a run for TensorBoard's HParams tab. Booleans and numbers
// stay what they are, everything else becomes text. TensorBoard takes the scalars in the writer's
// folder and in folders below it as the run's metrics.
func (w *Writer) SessionStart(hparams map[string]any) error {
	var info []byte
	for _, name := range slices.Sorted(maps.Keys(hparams)) {
		value, err := proto.Marshal(hparam(hparams[name]))
		if err != nil {
			return fmt.Errorf("hyperparameter %s: %w", name, err)
		}
		var entry []byte
		entry = protowire.AppendTag(entry, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, strings.ToValidUTF8(name, "\ufffd"))
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, value)
		info = protowire.AppendTag(info, startHParamsField, protowire.BytesType)
		info = protowire.AppendBytes(info, entry)
	}
	info = appendSeconds(info, startTimeField, w.now())
	w.session(sessionStartTag, 0, sessionStartField, info)
	return nil
}

// SessionEnd says that the run of SessionStart was completed with the given step.
func (w *Writer) SessionEnd(step int64) {
	info := protowire.AppendTag(nil, endStatusField, protowire.VarintType)
	info = protowire.AppendVarint(info, statusSuccess)
	info = appendSeconds(info, endTimeField, w.now())
	w.session(sessionEndTag, step, sessionEndField, info)
}

// session adds an event of which only the plugin's data matter. The tensor is TensorBoard's own for
// such events: float32 [0].
func (w *Writer) session(tag string, step int64, field protowire.Number, info []byte) {
	content := protowire.AppendTag(nil, field, protowire.BytesType)
	content = protowire.AppendBytes(content, info)
	w.add(&eventpb.Event{
		Step: step,
		What: &eventpb.Event_Summary{Summary: &summarypb.Summary{Value: []*summarypb.Summary_Value{{
			Tag: tag,
			Value: &summarypb.Summary_Value_Tensor{Tensor: &tensorpb.TensorProto{
				Dtype:       typespb.DataType_DT_FLOAT,
				TensorShape: &shapepb.TensorShapeProto{Dim: []*shapepb.TensorShapeProto_Dim{{}}},
			}},
			Metadata: &summarypb.SummaryMetadata{PluginData: &summarypb.SummaryMetadata_PluginData{PluginName: "hparams", Content: content}},
		}}}},
	})
}

func appendSeconds(message []byte, field protowire.Number, at time.Time) []byte {
	message = protowire.AppendTag(message, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(message, math.Float64bits(float64(at.UnixMicro())/1e6))
}

// hparam returns the value of a hyperparameter.
func hparam(v any) *structpb.Value {
	switch v := v.(type) {
	case bool:
		return structpb.NewBoolValue(v)
	case int:
		return structpb.NewNumberValue(float64(v))
	case int64:
		return structpb.NewNumberValue(float64(v))
	case float64:
		return structpb.NewNumberValue(v)
	}
	return structpb.NewStringValue(strings.ToValidUTF8(fmt.Sprint(v), "\ufffd"))
}
