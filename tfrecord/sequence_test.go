package tfrecord

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	examplepb "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// TestGoldenSequences reads SequenceExamples that TensorFlow wrote, and writes the same bytes.
func TestGoldenSequences(t *testing.T) {
	text, err := os.ReadFile("testdata/sequences.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		Context map[string]heldValue
		Lists   map[string][]heldValue
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	rd, err := Open("testdata/sequences.tfrecord")
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	steps := 0
	for i, w := range want {
		record, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		var context []Feature
		for name, f := range w.Context {
			context = append(context, Feature{name, f.value(t)})
		}
		var lists []FeatureList
		for name, list := range w.Lists {
			l := FeatureList{Name: name}
			for _, f := range list {
				l.Steps = append(l.Steps, f.value(t))
				steps++
			}
			lists = append(lists, l)
		}
		if written, err := AppendSequenceExample([]byte("x"), context, lists...); err != nil || !bytes.Equal(written[1:], record) {
			t.Errorf("record %d: wrote %x, %v; TensorFlow wrote %x", i, written, err, record)
		}
		gotContext, gotLists, err := ParseSequenceExample(record)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(context, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
		if !equalFeatures(gotContext, context) {
			t.Errorf("record %d: context %+v, want %+v", i, gotContext, context)
		}
		slices.SortFunc(lists, func(a, b FeatureList) int { return strings.Compare(a.Name, b.Name) })
		if !equalLists(gotLists, lists) {
			t.Errorf("record %d: lists %+v, want %+v", i, gotLists, lists)
		}
	}
	if steps < 12 {
		t.Errorf("the golden file has %d steps", steps)
	}
}

// equalLists compares lists. A step without elements is equal to one of any kind: the kind is that of
// the list.
func equalLists(a, b []FeatureList) bool {
	return slices.EqualFunc(a, b, func(a, b FeatureList) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Steps, b.Steps, func(x, y Value) bool {
			if x.Len() == 0 && y.Len() == 0 {
				return true
			}
			return equalFeatures([]Feature{{"", x}}, []Feature{{"", y}})
		})
	})
}

func TestSequenceDecoder(t *testing.T) {
	record, err := AppendSequenceExample(nil, []Feature{Int64Feature("id", 4), FloatFeature("skipped", 1)},
		FeatureList{"ids", []Value{Int64Feature("", 1, 2).Value, Int64Feature("", 3).Value}},
		FeatureList{"none", nil},
		FeatureList{"mixed", []Value{{}, FloatFeature("", 1).Value, Int64Feature("", 3).Value}})
	if err != nil {
		t.Fatal(err)
	}
	d := NewSequenceDecoder("ids", "id", "none", "mixed", "absent", "ids")
	var v Values
	for range 2 { // memory is reused
		if err := d.Decode(record, &v); err != nil {
			t.Fatal(err)
		}
		if l := v.List(0); !l.Found || !slices.Equal(l.Int64s, []int64{1, 2, 3}) || !slices.Equal(l.Ends, []int{2, 3}) || v.List(5) != l {
			t.Errorf("ids: %+v", l)
		}
		if l := v.List(2); !l.Found || len(l.Ends) != 0 {
			t.Errorf("none: %+v", l)
		}
		if l := v.List(3); l.Mixed != 2 {
			t.Errorf("mixed: %+v", l)
		}
		if v.List(4).Found || v.List(1).Found || v.At(0).Kind != KindNone || !slices.Equal(v.At(1).Int64s, []int64{4}) {
			t.Errorf("context and lists are confused: %+v", v.values)
		}
	}
	plain, err := AppendExample(nil, Int64Feature("ids", 9))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(plain, &v); err != nil || v.List(0).Found || !slices.Equal(v.At(0).Int64s, []int64{9}) {
		t.Errorf("an Example: %v, %+v", err, v.List(0))
	}
	if _, _, err := ParseSequenceExample(record); err == nil || !strings.Contains(err.Error(), `step 2 of the list "mixed" has int64 values`) {
		t.Errorf("a list of two kinds: %v", err)
	}
	for _, lists := range [][]FeatureList{{{Name: "a"}, {Name: "a"}}, {{Name: "\xff"}}} {
		if _, err := AppendSequenceExample(nil, nil, lists...); err == nil {
			t.Errorf("no error for lists %+v", lists)
		}
	}
}

// compareSequence compares what this package and protobuf read.
func compareSequence(t *testing.T, record []byte) {
	var pb examplepb.SequenceExample
	pbErr := proto.Unmarshal(record, &pb)
	context, lists, err := ParseSequenceExample(record)
	if pbErr == nil && mixes(&pb) {
		if err == nil {
			t.Fatal("a list of several kinds has no error")
		}
		return
	}
	if (err == nil) != (pbErr == nil) {
		t.Fatalf("ParseSequenceExample: %v; protobuf: %v", err, pbErr)
	}
	if err != nil {
		if !errors.As(err, new(*ExampleError)) {
			t.Fatalf("%v is no ExampleError", err)
		}
		return
	}
	if want := fromProto(&examplepb.Example{Features: pb.Context}); !equalFeatures(context, want) {
		t.Fatalf("context: %+v\nprotobuf: %+v", context, want)
	}
	var want []FeatureList
	for name, l := range pb.GetFeatureLists().GetFeatureList() {
		one := FeatureList{Name: name}
		for _, f := range l.GetFeature() {
			one.Steps = append(one.Steps, fromProto(&examplepb.Example{Features: &examplepb.Features{Feature: map[string]*examplepb.Feature{"": f}}})[0].Value)
		}
		want = append(want, one)
	}
	slices.SortFunc(want, func(a, b FeatureList) int { return strings.Compare(a.Name, b.Name) })
	if !equalLists(lists, want) {
		t.Fatalf("lists: %+v\nprotobuf: %+v", lists, want)
	}
	again, err := AppendSequenceExample(nil, context, lists...)
	if err != nil {
		t.Fatal(err)
	}
	if _, l, err := ParseSequenceExample(again); err != nil || !equalLists(l, lists) {
		t.Fatalf("written and read again: %+v, %v", l, err)
	}
}

func mixes(pb *examplepb.SequenceExample) bool {
	for _, l := range pb.GetFeatureLists().GetFeatureList() {
		kinds := map[Kind]bool{}
		for _, f := range l.GetFeature() {
			switch f.GetKind().(type) {
			case *examplepb.Feature_Int64List:
				kinds[KindInt64] = true
			case *examplepb.Feature_FloatList:
				kinds[KindFloat] = true
			case *examplepb.Feature_BytesList:
				kinds[KindBytes] = true
			}
		}
		if len(kinds) > 1 {
			return true
		}
	}
	return false
}

// FuzzSequence holds that this package and protobuf agree on any bytes.
func FuzzSequence(f *testing.F) {
	for _, c := range wireCases {
		f.Add(c.record)
		f.Add([]byte(message{}.bytes(2, message{}.bytes(1, entry("l", message{}.bytes(1, c.record))))))
	}
	for _, c := range malformed {
		f.Add(c.record)
	}
	step := func(feature message) message { return message{}.bytes(1, feature) }
	ints := int64s(message{}.varint(1, 300).bytes(1, []byte{1, 2}))
	list := func(value message) []byte {
		return message{}.bytes(2, message{}.bytes(1, message{}.bytes(1, []byte("l")).bytes(2, value)))
	}
	f.Add(list(append(step(ints), step(nil)...)))
	f.Add(list(append(step(ints), step(floats(message{}.fixed32(1, 1)))...)))
	f.Add(append(list(step(ints)), list(step(ints))...))
	f.Add(list(step(ints).junk()))
	f.Fuzz(compareSequence)
}
