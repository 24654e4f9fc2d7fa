package packed

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

var (
	ints   = tfrecord.Int64Feature
	floats = tfrecord.FloatFeature
)

// readOne returns the only example of a record.
func readOne(t *testing.T, cfg Config, rec []byte) (*dataset.Batch, error) {
	t.Helper()
	if err := cfg.Validate(1); err != nil {
		t.Fatal(err)
	}
	a := cfg.Assemblers()()
	if err := a.Add(dataset.RecordID{Record: 1}, rec); err != nil {
		// What was added before and comes afterwards is what it is without the record.
		good := rowtest.SampleRecord(t, 0)
		if err := a.Add(dataset.RecordID{}, good); err == nil {
			b := a.Batch()
			if got := unpack(t, b); cfg.RowLength == 0 && !reflect.DeepEqual(got, []Example{sample(0)}) {
				t.Errorf("behind a record that is refused, the example is %v", got)
			}
		}
		return nil, err
	}
	return a.Batch(), nil
}

func TestRecordForms(t *testing.T) {
	want := Example{IDs: []int32{101, 7, 8, 102}, TypeIDs: []int32{0, 0, 1, 1}, Label: 1, Labeled: true}
	for _, c := range []struct {
		name     string
		cfg      Config
		features []tfrecord.Feature
		want     Example
	}{
		{"own names", Config{}, []tfrecord.Feature{ints("input_ids", 101, 7, 8, 102), ints("segment_ids", 0, 0, 1, 1), ints("label_ids", 1), ints("example_id", 9)}, want},
		{"names of Hugging Face", Config{}, []tfrecord.Feature{ints("input_ids", 101, 7, 8, 102, 0), ints("token_type_ids", 0, 0, 1, 1, 0), ints("attention_mask", 1, 1, 1, 1, 0), ints("labels", 1)}, want},
		{"names of TensorFlow 2", Config{}, []tfrecord.Feature{ints("input_word_ids", 101, 7, 8, 102, 0), ints("input_type_ids", 0, 0, 1, 1, 0), ints("input_mask", 1, 1, 1, 1, 0), ints("label", 1)}, want},
		{"the first name counts", Config{}, []tfrecord.Feature{ints("input_word_ids", 5), ints("input_ids", 101, 7, 8, 102), ints("segment_ids", 0, 0, 1, 1), ints("label", 0), ints("label_ids", 1)}, want},
		{"a name without a list does not count", Config{}, []tfrecord.Feature{{Name: "input_ids"}, ints("input_word_ids", 101, 7, 8, 102), ints("segment_ids", 0, 0, 1, 1), ints("label_ids", 1)}, want},
		{"a mask with holes", Config{}, []tfrecord.Feature{ints("input_ids", 101, 0, 7, 0, 8, 102), ints("segment_ids", 0, 5, 0, 5, 1, 1), ints("input_mask", 1, 0, 1, 0, 1, 1), ints("label_ids", 1)}, want},
		{"padding of any id", Config{VocabSize: 103, NumTypes: 2}, []tfrecord.Feature{ints("input_ids", 101, 7, 8, 102, -1), ints("segment_ids", 0, 0, 1, 1, 99), ints("input_mask", 1, 1, 1, 1, 0), ints("label_ids", 1)}, want},
		{"names of the user", Config{Features: FeatureNames{InputIDs: []string{"x"}, TypeIDs: []string{"y"}, Label: []string{"z"}}}, []tfrecord.Feature{ints("x", 101, 7, 8, 102), ints("y", 0, 0, 1, 1), ints("z", 1), ints("input_ids", 3)}, want},
		{"no types", Config{Features: FeatureNames{TypeIDs: []string{}}}, []tfrecord.Feature{ints("input_ids", 101, 102), ints("label_ids", 1)}, Example{IDs: []int32{101, 102}, TypeIDs: []int32{0, 0}, Label: 1, Labeled: true}},
		{"types in no record", Config{}, []tfrecord.Feature{ints("input_ids", 101, 102, 0), ints("attention_mask", 1, 1, 0), ints("label_ids", 1)}, Example{IDs: []int32{101, 102}, TypeIDs: []int32{0, 0}, Label: 1, Labeled: true}},
		{"mask not read", Config{Features: FeatureNames{Mask: []string{}}}, []tfrecord.Feature{ints("input_ids", 101, 102), ints("segment_ids", 0, 0), ints("input_mask", 1, 0), ints("label_ids", 1)}, Example{IDs: []int32{101, 102}, TypeIDs: []int32{0, 0}, Label: 1, Labeled: true}},
		{"label optional and there", Config{Labels: LabelsOptional}, []tfrecord.Feature{ints("input_ids", 101, 7, 8, 102), ints("segment_ids", 0, 0, 1, 1), ints("label_ids", 1)}, want},
		{"label optional and missing", Config{Labels: LabelsOptional}, []tfrecord.Feature{ints("input_ids", 101), ints("segment_ids", 0)}, Example{IDs: []int32{101}, TypeIDs: []int32{0}}},
		{"label optional and empty", Config{Labels: LabelsOptional}, []tfrecord.Feature{ints("input_ids", 101), ints("segment_ids", 0), ints("label_ids")}, Example{IDs: []int32{101}, TypeIDs: []int32{0}}},
		{"label not read", Config{Labels: LabelsNone, NumLabels: 2}, []tfrecord.Feature{ints("input_ids", 101), ints("segment_ids", 0), floats("label_ids", 0.5)}, Example{IDs: []int32{101}, TypeIDs: []int32{0}}},
		{"truncated", Config{RowLength: 3, Truncate: true}, []tfrecord.Feature{ints("input_ids", 101, 7, 8, 9, 102), ints("segment_ids", 0, 0, 0, 0, 1), ints("label_ids", 1)}, Example{IDs: []int32{101, 7, 102}, TypeIDs: []int32{0, 0, 1}, Label: 1, Labeled: true}},
		{"as long as a row", Config{RowLength: 4}, []tfrecord.Feature{ints("input_ids", 101, 7, 8, 102), ints("segment_ids", 0, 0, 1, 1), ints("label_ids", 1)}, want},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := readOne(t, c.cfg, rowtest.Record(t, c.features...))
			if err != nil {
				t.Fatal(err)
			}
			got := unpack(t, b)[0]
			got.Labeled = b.Labeled == 1
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("example is %+v, expected %+v", got, c.want)
			}
			if (b.Truncated == 1) != c.cfg.Truncate {
				t.Errorf("%d examples are truncated", b.Truncated)
			}
		})
	}
}

// TestTypesInSomeRecords refuses records of which some have types and others do not.
func TestTypesInSomeRecords(t *testing.T) {
	ids, types, label := ints("input_ids", 101, 7), ints("segment_ids", 0, 1), ints("label_ids", 1)
	with, without := rowtest.Record(t, ids, types, label), rowtest.Record(t, ids, label)
	for want, records := range map[string][2][]byte{"is missing, and records before it have it": {with, without}, "is in the record, and not in those before it": {without, with}} {
		a := Config{}.Assemblers()()
		if err := a.Add(dataset.RecordID{}, records[0]); err != nil {
			t.Fatal(err)
		}
		if err := a.Add(dataset.RecordID{Record: 1}, records[1]); err == nil || err.Feature != "segment_ids" || !strings.Contains(err.Reason, want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestRecordErrors(t *testing.T) {
	ids, types, label := ints("input_ids", 101, 7, 102), ints("segment_ids", 0, 1, 1), ints("label_ids", 1)
	many := []tfrecord.Feature{types, label}
	for i := range 30 {
		many = append(many, ints(fmt.Sprintf("x%02d", i), 1))
	}
	for _, c := range []struct {
		name     string
		cfg      Config
		features []tfrecord.Feature
		feature  string
		reason   string
	}{
		{"no ids", Config{}, []tfrecord.Feature{types, label, ints("ids", 1)}, "input_ids", `is missing (also tried input_word_ids); the record has "ids", "label_ids", "segment_ids"`},
		{"no features at all", Config{}, nil, "input_ids", `is missing (also tried input_word_ids); the record has no features`},
		{"a record of many features", Config{}, many, "input_ids", `"x17" and 12 more`},
		{"no types under the user's name", Config{Features: FeatureNames{TypeIDs: []string{"y"}}}, []tfrecord.Feature{ids, label}, "y", `is missing; the record has "input_ids", "label_ids"`},
		{"no label", Config{}, []tfrecord.Feature{ids, types}, "label_ids", `is missing (also tried label, labels); the record has "input_ids", "segment_ids"`},
		{"one name only", Config{Features: FeatureNames{Label: []string{"class"}}}, []tfrecord.Feature{ids, types, label}, "class", `is missing; the record has "input_ids", "label_ids", "segment_ids"`},
		{"ids as text", Config{}, []tfrecord.Feature{tfrecord.BytesFeature("input_ids", []byte("a")), types, label}, "input_ids", "has bytes values; expected int64"},
		{"label as a float", Config{}, []tfrecord.Feature{ids, types, floats("label", 0.5)}, "label", "has float values; expected int64"},
		{"two labels", Config{}, []tfrecord.Feature{ids, types, ints("label_ids", 1, 0)}, "label_ids", "has 2 values; expected one label"},
		{"two optional labels", Config{Labels: LabelsOptional}, []tfrecord.Feature{ids, types, ints("label_ids", 1, 0)}, "label_ids", "has 2 values; expected one label"},
		{"an empty label", Config{}, []tfrecord.Feature{ids, types, ints("label_ids")}, "label_ids", "has 0 values; expected one label"},
		{"label out of range", Config{NumLabels: 2}, []tfrecord.Feature{ids, types, ints("label_ids", 2)}, "label_ids", "is 2; expected a label of 0 to 1"},
		{"optional label out of range", Config{NumLabels: 2, Labels: LabelsOptional}, []tfrecord.Feature{ids, types, ints("label_ids", -1)}, "label_ids", "is -1; expected a label of 0 to 1"},
		{"negative label", Config{}, []tfrecord.Feature{ids, types, ints("label_ids", -1)}, "label_ids", "is -1; expected a label of 0 or more"},
		{"huge label", Config{}, []tfrecord.Feature{ids, types, ints("label_ids", 1<<40)}, "label_ids", "expected a 32-bit label"},
		{"id outside the vocabulary", Config{VocabSize: 102}, []tfrecord.Feature{ids, types, label}, "input_ids", "has 102 at position 2; expected 0 to 101, because the size of the vocabulary is 102"},
		{"negative id", Config{}, []tfrecord.Feature{ints("input_ids", -5, 1, 1), types, label}, "input_ids", "has -5 at position 0; expected 0 to 2147483647"},
		{"huge id", Config{}, []tfrecord.Feature{ints("input_ids", 1, 1<<33, 1), types, label}, "input_ids", "has 8589934592 at position 1"},
		{"type out of range", Config{NumTypes: 1}, []tfrecord.Feature{ids, types, label}, "segment_ids", "has 1 at position 1; expected 0 to 0, because the number of token types is 1"},
		{"fewer types than ids", Config{}, []tfrecord.Feature{ids, ints("segment_ids", 0), label}, "segment_ids", "has 1 values; expected 3, one for each of the input_ids"},
		{"empty types", Config{}, []tfrecord.Feature{ids, ints("segment_ids"), label}, "segment_ids", "has 0 values; expected 3, one for each of the input_ids"},
		{"a shorter mask", Config{}, []tfrecord.Feature{ids, types, label, ints("input_mask", 1, 1)}, "input_mask", "has 2 values; expected 3, one for each of the input_ids"},
		{"an empty mask", Config{}, []tfrecord.Feature{ids, types, label, ints("input_mask")}, "input_mask", "has 0 values; expected 3, one for each of the input_ids"},
		{"a mask of other numbers", Config{}, []tfrecord.Feature{ids, types, label, ints("input_mask", 1, 2, 1)}, "input_mask", "has 2 at position 1; expected 1 for a token or 0 for padding"},
		{"a mask of floats", Config{}, []tfrecord.Feature{ids, types, label, floats("input_mask", 1, 1, 1)}, "input_mask", "has float values; expected int64"},
		{"no tokens", Config{}, []tfrecord.Feature{ints("input_ids"), ints("segment_ids"), label}, "input_ids", "has no tokens; expected at least one"},
		{"nothing but padding", Config{}, []tfrecord.Feature{ids, types, label, ints("input_mask", 0, 0, 0)}, "input_ids", "has no tokens; expected at least one"},
		{"too long", Config{RowLength: 2}, []tfrecord.Feature{ids, types, label}, "input_ids", "has 3 tokens, more than the row length of 2"},
		{"filling mark of text", Config{}, []tfrecord.Feature{ids, types, label, tfrecord.BytesFeature("is_real_example", []byte("1"))}, "is_real_example", "has bytes values; expected int64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readOne(t, c.cfg, rowtest.Record(t, c.features...))
			if e := asRecordError(t, err); e.Feature != c.feature || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("error is %+v, expected feature %q and %q", e, c.feature, c.reason)
			}
		})
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(rowtest.SampleRecord(f, 1))
	f.Add(rowtest.Record(f, ints("input_ids", 1, 2, 0), ints("segment_ids", 0, 1, 0), ints("input_mask", 1, 1, 0), ints("label", 1)))
	f.Add(rowtest.Record(f, ints("input_ids"), ints("segment_ids"), ints("label_ids", -1), ints("is_real_example", 0)))
	f.Fuzz(func(t *testing.T, rec []byte) {
		for _, cfg := range []Config{{}, {Truncate: true, RowLength: 3, Labels: LabelsOptional, VocabSize: 1000}} {
			b, err := readOne(t, cfg, rec)
			if err != nil {
				asRecordError(t, err)
				continue
			}
			if b.Examples > 0 {
				unpack(t, b)
			}
		}
	})
}
