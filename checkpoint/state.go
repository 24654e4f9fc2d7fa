package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// StateName is the file in which TensorFlow keeps the names of a folder's checkpoints.
const StateName = "checkpoint"

// folderState is TensorFlow's CheckpointState: the newest checkpoint, those that a manager
// keeps (oldest first, with the times of their saves), and when one was last kept for
// good.
type folderState struct {
	latest    string
	all       []string
	times     []time.Time
	preserved time.Time
}

func seconds(t time.Time) float64     { return float64(t.UnixMicro()) / 1e6 }
func fromSeconds(s float64) time.Time { return time.UnixMicro(int64(s * 1e6)) }

// text returns the state as a text protobuf.
func (s folderState) text() []byte {
	var b strings.Builder
	number := func(name string, t time.Time) {
		fmt.Fprintf(&b, "%s: %s\n", name, strconv.FormatFloat(seconds(t), 'f', 6, 64))
	}
	fmt.Fprintf(&b, "model_checkpoint_path: %s\n", quoteText(s.latest))
	for _, p := range s.all {
		fmt.Fprintf(&b, "all_model_checkpoint_paths: %s\n", quoteText(p))
	}
	for _, t := range s.times {
		number("all_model_checkpoint_timestamps", t)
	}
	if !s.preserved.IsZero() {
		number("last_preserved_timestamp", s.preserved)
	}
	return []byte(b.String())
}

// quoteText quotes a string for a text protobuf. Bytes beyond ASCII are octal, as in
// Python's output.
func quoteText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// stateMessage describes CheckpointState, which is not in the binding.
func stateMessage() (protoreflect.MessageDescriptor, error) {
	field := func(name string, number int32, label descriptorpb.FieldDescriptorProto_Label, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(number), Label: label.Enum(), Type: kind.Enum(),
		}
	}
	const (
		one  = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		many = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		text = descriptorpb.FieldDescriptorProto_TYPE_STRING
		real = descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
	)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("checkpoint_state.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: proto.String("CheckpointState"),
			Field: []*descriptorpb.FieldDescriptorProto{
				field("model_checkpoint_path", 1, one, text),
				field("all_model_checkpoint_paths", 2, many, text),
				field("all_model_checkpoint_timestamps", 3, many, real),
				field("last_preserved_timestamp", 4, one, real),
			},
		}},
	}, nil)
	if err != nil {
		return nil, err
	}
	return file.Messages().Get(0), nil
}

// parseState reads a state file.
func parseState(data []byte) (s folderState, err error) {
	desc, err := stateMessage()
	if err != nil {
		return s, err
	}
	m := dynamicpb.NewMessage(desc)
	if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return s, fmt.Errorf("checkpoint state: %w", err)
	}
	field := func(n protoreflect.FieldNumber) protoreflect.Value { return m.Get(desc.Fields().ByNumber(n)) }
	s.latest = field(1).String()
	for i, list := 0, field(2).List(); i < list.Len(); i++ {
		s.all = append(s.all, list.Get(i).String())
	}
	for i, list := 0, field(3).List(); i < list.Len(); i++ {
		s.times = append(s.times, fromSeconds(list.Get(i).Float()))
	}
	if v := field(4).Float(); v != 0 {
		s.preserved = fromSeconds(v)
	}
	return s, nil
}
