package tfrecord

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	examplepb "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// message builds wire format by hand, field by field.
type message []byte

func (m message) bytes(num protowire.Number, b []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, num, protowire.BytesType), b)
}

func (m message) varint(num protowire.Number, v uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, num, protowire.VarintType), v)
}

func (m message) fixed32(num protowire.Number, v uint32) message {
	return protowire.AppendFixed32(protowire.AppendTag(m, num, protowire.Fixed32Type), v)
}

func (m message) fixed64(num protowire.Number, v uint64) message {
	return protowire.AppendFixed64(protowire.AppendTag(m, num, protowire.Fixed64Type), v)
}

func (m message) group(num protowire.Number, inner message) message {
	m = protowire.AppendTag(m, num, protowire.StartGroupType)
	return protowire.AppendTag(append(m, inner...), num, protowire.EndGroupType)
}

// junk adds a field of each type that no message here knows.
func (m message) junk() message {
	return m.varint(100, 1<<63).fixed32(101, 1).fixed64(102, 1).bytes(103, []byte("junk")).
		group(104, message{}.varint(1, 7).group(5, message{}.bytes(9, []byte("deep"))))
}

func entry(key string, feature message) message {
	return message{}.bytes(1, []byte(key)).bytes(2, feature)
}

func int64s(list message) message { return message{}.bytes(3, list) }
func floats(list message) message { return message{}.bytes(2, list) }
func strs(list message) message   { return message{}.bytes(1, list) }

// example makes an Example of map entries.
func example(entries ...message) message {
	var features message
	for _, e := range entries {
		features = features.bytes(1, e)
	}
	return message{}.bytes(1, features)
}

func bitsOf(f float32) uint32 { return math.Float32bits(f) }

// wireCases are Examples that no serializer of today writes and every parser
// must understand, with what they hold. FuzzExample starts from them too.
var wireCases = []struct {
	name   string
	record []byte
	want   []Feature
}{
	{"nothing", nil, []Feature{}},
	{"no features", message{}.bytes(1, nil), []Feature{}},
	{"packed", example(entry("x", int64s(message{}.bytes(1, []byte{1, 0xac, 2, 3})))), []Feature{Int64Feature("x", 1, 300, 3)}},
	{"unpacked", example(entry("x", int64s(message{}.varint(1, 1).varint(1, 300).varint(1, 3)))), []Feature{Int64Feature("x", 1, 300, 3)}},
	{"both", example(entry("x", int64s(message{}.varint(1, 1).bytes(1, []byte{0xac, 2}).varint(1, 3).bytes(1, nil)))), []Feature{Int64Feature("x", 1, 300, 3)}},
	{"negative", example(entry("x", int64s(message{}.varint(1, math.MaxUint64).varint(1, 1<<63)))), []Feature{Int64Feature("x", -1, math.MinInt64)}},
	{"long varint", example(entry("x", int64s(message{}.bytes(1, []byte{0x81, 0x80, 0})))), []Feature{Int64Feature("x", 1)}},
	{"unpacked floats", example(entry("x", floats(message{}.fixed32(1, bitsOf(1.5)).fixed32(1, bitsOf(-2))))), []Feature{FloatFeature("x", 1.5, -2)}},
	{"bytes", example(entry("x", strs(message{}.bytes(1, []byte("a")).bytes(1, nil)))), []Feature{BytesFeature("x", []byte("a"), []byte{})}},
	{"repeated key", example(entry("x", int64s(message{}.varint(1, 1))), entry("y", int64s(nil)), entry("x", int64s(message{}.varint(1, 2)))), []Feature{Int64Feature("x", 2), Int64Feature("y")}},
	{"repeated key of other kind", example(entry("x", int64s(message{}.varint(1, 1))), entry("x", floats(message{}.fixed32(1, 0)))), []Feature{FloatFeature("x", 0)}},
	{"repeated key without value", example(entry("x", int64s(message{}.varint(1, 1))), message{}.bytes(1, []byte("x"))), []Feature{{Name: "x"}}},
	{"two Features", append(example(entry("x", int64s(message{}.varint(1, 1))), entry("y", int64s(nil))), example(entry("x", int64s(message{}.varint(1, 2))))...), []Feature{Int64Feature("x", 2), Int64Feature("y")}},
	{"two values in an entry", example(entry("x", int64s(message{}.varint(1, 1))).bytes(2, int64s(message{}.varint(1, 2)))), []Feature{Int64Feature("x", 1, 2)}},
	{"two kinds in an entry", example(entry("x", int64s(message{}.varint(1, 1))).bytes(2, floats(message{}.fixed32(1, 0)))), []Feature{FloatFeature("x", 0)}},
	{"there and back", example(entry("x", append(append(int64s(message{}.varint(1, 1)), floats(nil)...), int64s(message{}.varint(1, 2))...))), []Feature{Int64Feature("x", 2)}},
	{"two lists in a feature", example(entry("x", append(int64s(message{}.varint(1, 1)), int64s(message{}.varint(1, 2))...))), []Feature{Int64Feature("x", 1, 2)}},
	{"value before key", example(message{}.bytes(2, int64s(message{}.varint(1, 1))).bytes(1, []byte("x"))), []Feature{Int64Feature("x", 1)}},
	{"two keys in an entry", example(entry("x", int64s(message{}.varint(1, 1))).bytes(1, []byte("y"))), []Feature{Int64Feature("y", 1)}},
	{"no key", example(message{}.bytes(2, int64s(message{}.varint(1, 1)))), []Feature{Int64Feature("", 1)}},
	{"empty entry", example(message{}), []Feature{{Name: ""}}},
	{"empty feature", example(entry("x", nil)), []Feature{{Name: "x"}}},
	{"unknown fields", append(example(append(message{}.junk(), entry("x", append(message{}.junk(), int64s(message{}.junk().varint(1, 1).junk())...))...).junk()), message{}.junk()...), []Feature{Int64Feature("x", 1)}},
	{"unexpected wire types", append(message{}.varint(1, 5).fixed64(1, 1), example(message{}.varint(1, 3).bytes(1, []byte("x")).fixed32(2, 1).bytes(2, message{}.varint(3, 1).bytes(3, message{}.fixed64(1, 9).varint(1, 1))))...), []Feature{Int64Feature("x", 1)}},
	{"fixed in an int64 list", example(entry("x", int64s(message{}.fixed32(1, 1)))), []Feature{Int64Feature("x")}},
	{"varint in a float list", example(entry("x", floats(message{}.varint(1, 1)))), []Feature{FloatFeature("x")}},
}

func TestWire(t *testing.T) {
	for _, tt := range wireCases {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseExample(tt.record)
			if err != nil || !equalFeatures(got, tt.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
			compareWithProto(t, tt.record)
		})
	}
}

// malformed are records that are no Example.
var malformed = []struct {
	name   string
	record []byte
	offset int
	reason string
}{
	{"text", []byte("This is no Example"), 1, "field 10: proto"}, // T is the tag of field 10, a group's end
	{"field number 0", []byte{0x02, 0}, 0, "field number 0 is invalid"},
	{"field number too large", protowire.AppendVarint(nil, 1<<32), 0, "field number 536870912 is invalid"},
	{"cut tag", []byte{0x80}, 0, "field tag: unexpected EOF"},
	{"cut length", []byte{0x0a, 0x80}, 1, "length of field 1: unexpected EOF"},
	{"length beyond the end", []byte{0x0a, 5, 0}, 2, "field 1 is 5 bytes long, but its message ends after 1"},
	{"length of 2^63", append([]byte{0x0a}, protowire.AppendVarint(nil, 1<<63)...), 11, "but its message ends after 0"},
	{"length beyond the outer message", example(append(entry("x", nil), 0x12, 3)), 11, "but its message ends after 0"},
	{"cut varint", example(entry("x", int64s(message{}.bytes(1, []byte{1, 0x80})))), 14, "unexpected EOF"},
	{"varint overflow", example(entry("x", int64s(message{}.bytes(1, bytes.Repeat([]byte{0xff}, 10))))), 13, "variable length integer overflow"},
	{"packed floats", example(entry("x", floats(message{}.bytes(1, []byte{1, 2, 3})))), 13, "packed floats have 3 bytes; expected a multiple of 4"},
	{"name not UTF-8", example(entry("x\xff", nil)), 6, `feature name "x\xff" is not valid UTF-8`},
	{"open group", message{}.group(7, nil)[:1], 1, "field 7: "},
	{"wrong end of group", []byte{7<<3 | 3, 6<<3 | 4}, 1, "field 7: "},
	{"reserved wire type", []byte{7<<3 | 6}, 1, "field 7: "},
}

func TestMalformed(t *testing.T) {
	for _, tt := range malformed {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseExample(tt.record)
			var e *ExampleError
			if !errors.As(err, &e) || e.Offset != tt.offset || !strings.Contains(strings.ReplaceAll(e.Reason, "\u00a0", " "), tt.reason) {
				t.Errorf("error %v, want %q at %d", err, tt.reason, tt.offset)
			}
			compareWithProto(t, tt.record)
		})
	}
}

// compareWithProto holds ParseExample, Decode and AppendExample against the
// protobuf library.
func compareWithProto(t *testing.T, record []byte) {
	t.Helper()
	var pb examplepb.Example
	pbErr := proto.Unmarshal(record, &pb)
	got, err := ParseExample(record)
	if (err == nil) != (pbErr == nil) {
		t.Fatalf("ParseExample: %v; protobuf: %v", err, pbErr)
	}
	if err != nil {
		if !errors.As(err, new(*ExampleError)) {
			t.Fatalf("%v is no ExampleError", err)
		}
		return
	}
	if want := fromProto(&pb); !equalFeatures(got, want) {
		t.Fatalf("ParseExample: %+v\nprotobuf: %+v", got, want)
	}

	var names []string
	for _, f := range got {
		names = append(names, f.Name)
	}
	names = append(names, "absent \xff")
	var v Values
	if err := NewDecoder(names...).Decode(record, &v); err != nil {
		t.Fatal(err)
	}
	decoded := make([]Feature, len(got))
	for i := range got {
		decoded[i] = Feature{names[i], *v.At(i)}
	}
	if !equalFeatures(decoded, got) || v.At(len(got)).Kind != KindNone {
		t.Fatalf("Decode: %+v\nParseExample: %+v", decoded, got)
	}

	again, err := AppendExample([]byte("prefix"), got...)
	if err != nil || !bytes.HasPrefix(again, []byte("prefix")) {
		t.Fatalf("AppendExample: %q, %v", again, err)
	}
	var pb2 examplepb.Example
	if err := proto.Unmarshal(again[6:], &pb2); err != nil || !equalFeatures(fromProto(&pb2), got) {
		t.Fatalf("protobuf reads %v, %v\nfrom %+v", &pb2, err, got)
	}
	if pb2.ProtoReflect().GetUnknown() != nil {
		t.Fatal("AppendExample writes unknown fields")
	}
	if want, _ := (proto.MarshalOptions{Deterministic: true}).Marshal(&pb2); !bytes.Equal(again[6:], want) {
		t.Fatalf("AppendExample: %x\nprotobuf: %x", again[6:], want)
	}
}

func fromProto(pb *examplepb.Example) []Feature {
	var features []Feature
	for name, f := range pb.GetFeatures().GetFeature() {
		switch k := f.GetKind().(type) {
		case *examplepb.Feature_Int64List:
			features = append(features, Int64Feature(name, k.Int64List.GetValue()...))
		case *examplepb.Feature_FloatList:
			features = append(features, FloatFeature(name, k.FloatList.GetValue()...))
		case *examplepb.Feature_BytesList:
			features = append(features, BytesFeature(name, k.BytesList.GetValue()...))
		default:
			features = append(features, Feature{Name: name})
		}
	}
	slices.SortFunc(features, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
	return features
}

// equalFeatures compares floats by their bits, for NaN's and zero's sake.
func equalFeatures(a, b []Feature) bool {
	return slices.EqualFunc(a, b, func(a, b Feature) bool {
		return a.Name == b.Name && a.Kind == b.Kind && slices.Equal(a.Int64s, b.Int64s) &&
			slices.EqualFunc(a.Floats, b.Floats, func(x, y float32) bool { return bitsOf(x) == bitsOf(y) }) &&
			slices.EqualFunc(a.Bytes, b.Bytes, bytes.Equal)
	})
}

func TestDecoder(t *testing.T) {
	record, err := AppendExample(nil,
		FloatFeature("weight", 0.5),
		Int64Feature("ids", 101, -7, 102),
		BytesFeature("text", []byte("one"), []byte("two")),
		Int64Feature("empty"),
		Int64Feature("other", 1))
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder("ids", "ids", "text", "weight", "absent", "empty")
	var v Values
	for range 2 { // values of one record must not leak into the next
		if err := d.Decode(record, &v); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, 1} {
			if ids, err := v.Int64s(i); err != nil || !slices.Equal(ids, []int64{101, -7, 102}) {
				t.Errorf("ids: %v, %v", ids, err)
			}
		}
		if s, err := v.Bytes(2); err != nil || len(s) != 2 || string(s[1]) != "two" {
			t.Errorf("text: %q, %v", s, err)
		}
		if w, err := v.Floats(3); err != nil || !slices.Equal(w, []float32{0.5}) {
			t.Errorf("weight: %v, %v", w, err)
		}
		if e, err := v.Int64s(5); err != nil || len(e) != 0 || v.At(5).Len() != 0 {
			t.Errorf("empty: %v, %v", e, err)
		}
		for i, want := range map[int]string{
			0: `feature "ids" has int64 values; expected float`,
			4: `feature "absent" is missing; expected float values`,
		} {
			_, err := v.Floats(i)
			var fe *FeatureError
			if !errors.As(err, &fe) || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	}
	if _, err := v.Int64s(2); err == nil {
		t.Error("text passes for int64")
	}
	if _, err := v.Bytes(3); err == nil {
		t.Error("weight passes for bytes")
	}
	if err := d.Decode(nil, &v); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if v.At(i).Kind != KindNone || v.At(i).Len() != 0 {
			t.Errorf("an empty record leaves %+v at %d", v.At(i), i)
		}
	}
	if err := NewDecoder("absent").Decode(record, &v); err != nil || v.At(0).Kind != KindNone {
		t.Errorf("another decoder: %+v, %v", v.At(0), err)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	record := bertRecord(t, 128)
	d := NewDecoder("input_ids", "input_mask", "segment_ids", "label_ids")
	var v Values
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(record, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
}

func TestAppendExampleErrors(t *testing.T) {
	for _, tt := range []struct {
		features []Feature
		want     string
	}{
		{[]Feature{Int64Feature("x"), FloatFeature("y"), Int64Feature("x")}, `feature "x" is given twice`},
		{[]Feature{Int64Feature("\xff")}, `feature name "\xff" is not valid UTF-8`},
	} {
		dst, err := AppendExample([]byte("kept"), tt.features...)
		if err == nil || err.Error() != tt.want || string(dst) != "kept" {
			t.Errorf("%q, %v, want %s", dst, err, tt.want)
		}
	}
	// The caller's slice stays in its own order.
	features := []Feature{Int64Feature("b"), Int64Feature("a")}
	if _, err := AppendExample(nil, features...); err != nil || features[0].Name != "b" {
		t.Errorf("%+v, %v", features, err)
	}
}

// heldValue is a feature in a golden file.
type heldValue struct {
	Kind  string
	Int64 []int64
	Float []uint32
	Bytes []string
}

func (f heldValue) value(t testing.TB) (v Value) {
	t.Helper()
	v.Kind = map[string]Kind{"none": KindNone, "int64": KindInt64, "float": KindFloat, "bytes": KindBytes}[f.Kind]
	v.Int64s = f.Int64
	for _, b := range f.Float {
		v.Floats = append(v.Floats, math.Float32frombits(b))
	}
	for _, s := range f.Bytes {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		v.Bytes = append(v.Bytes, b)
	}
	return v
}

// TestGoldenExamples reads what TensorFlow wrote, and writes the same bytes.
func TestGoldenExamples(t *testing.T) {
	text, err := os.ReadFile("testdata/examples.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]heldValue
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	rd, err := Open("testdata/examples.tfrecord")
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	for i, w := range want {
		record, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		var features []Feature
		for name, f := range w {
			v := Feature{Name: name, Value: f.value(t)}
			if v.Kind.String() != f.Kind {
				t.Errorf("%v prints as %q", f.Kind, v.Kind)
			}
			features = append(features, v)
		}
		slices.SortFunc(features, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
		got, err := ParseExample(record)
		if err != nil || !equalFeatures(got, features) {
			t.Errorf("Example %d: %+v, %v\nwant %+v", i, got, err, features)
		}
		wrote, err := AppendExample(nil, features...)
		if err != nil || !bytes.Equal(wrote, record) {
			t.Errorf("Example %d: wrote %x, %v\nTensorFlow wrote %x", i, wrote, err, record)
		}
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Errorf("after the last Example: %v", err)
	}
}

func FuzzExample(f *testing.F) {
	for _, tt := range wireCases {
		f.Add([]byte(tt.record))
	}
	for _, tt := range malformed {
		f.Add([]byte(tt.record))
	}
	f.Add(bertRecord(f, 16))
	f.Fuzz(compareWithProto)
}

// bertRecord returns a fixed-length record as Model Garden makes them.
func bertRecord(t testing.TB, n int) []byte {
	t.Helper()
	ids, mask, segments := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range n {
		ids[i], mask[i] = int64(100+i*211%30000), 1
	}
	record, err := AppendExample(nil, Int64Feature("input_ids", ids...), Int64Feature("input_mask", mask...),
		Int64Feature("segment_ids", segments...), Int64Feature("label_ids", 1))
	if err != nil {
		t.Fatal(err)
	}
	return record
}
