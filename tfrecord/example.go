package tfrecord

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Kind says which of the three lists a feature has.
type Kind uint8

// The kinds of a feature, numbered like the fields of its message. A feature of KindNone
// is present but has no list; TensorFlow treats it as missing.
const (
	KindNone Kind = iota
	KindBytes
	KindFloat
	KindInt64
)

// String returns "none", "bytes", "float" or "int64".
func (k Kind) String() string {
	switch k {
	case KindBytes:
		return "bytes"
	case KindFloat:
		return "float"
	case KindInt64:
		return "int64"
	}
	return "none"
}

// Value is the value of a feature: the list that Kind names. The other lists are empty.
type Value struct {
	Kind   Kind
	Int64s []int64
	Floats []float32
	Bytes  [][]byte
}

// Len returns the number of elements.
func (v *Value) Len() int { return len(v.Int64s) + len(v.Floats) + len(v.Bytes) }

// reset empties the value and keeps its memory.
func (v *Value) reset(k Kind) {
	v.Kind = k
	v.Int64s, v.Floats, v.Bytes = v.Int64s[:0], v.Floats[:0], v.Bytes[:0]
}

// Feature is a named value of an Example.
type Feature struct {
	Name string
	Value
}

// Int64Feature returns a feature that holds int64 numbers.
func Int64Feature(name string, values ...int64) Feature {
	return Feature{Name: name, Value: Value{Kind: KindInt64, Int64s: values}}
}

// FloatFeature returns a feature that holds float32 numbers.
func FloatFeature(name string, values ...float32) Feature {
	return Feature{Name: name, Value: Value{Kind: KindFloat, Floats: values}}
}

// BytesFeature returns a feature that holds byte strings.
func BytesFeature(name string, values ...[]byte) Feature {
	return Feature{Name: name, Value: Value{Kind: KindBytes, Bytes: values}}
}

// ExampleError reports a record that is not a serialized tf.train.Example.
type ExampleError struct {
	Offset int    // byte of the record where parsing failed
	Reason string // what is wrong there
	// TooLarge says that the record may be an Example, whose features take more memory than is allowed.
	TooLarge bool
}

// Error names the position in the record and the reason.
func (e *ExampleError) Error() string {
	if e.TooLarge {
		return fmt.Sprintf("a tf.train.Example that is too large: at byte %d of the record: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("not a tf.train.Example: at byte %d of the record: %s", e.Offset, e.Reason)
}

// Is reports whether the target is the error's class, fault.Damaged.
func (e *ExampleError) Is(target error) bool { return target == fault.Damaged }

// FeatureError reports a feature that does not have the requested kind.
type FeatureError struct {
	Feature string
	Want    Kind
	Got     Kind // KindNone if the feature is missing or has no list
}

// Error names the feature and the kinds.
func (e *FeatureError) Error() string {
	if e.Got == KindNone {
		return fmt.Sprintf("feature %q is missing; expected %v values", e.Feature, e.Want)
	}
	return fmt.Sprintf("feature %q has %v values; expected %v", e.Feature, e.Got, e.Want)
}

// Decoder decodes a fixed list of features of Examples. It is safe for concurrent use
// if each goroutine has its own Values.
type Decoder struct {
	names []string
	lists bool           // decode the lists of features of SequenceExamples, too
	slots []int          // by position; equal names share a slot
	index map[string]int // slot of a name
}

// NewDecoder returns a decoder of the named features. The methods of Values take the
// positions of the names.
func NewDecoder(features ...string) *Decoder {
	d := &Decoder{names: slices.Clone(features), index: make(map[string]int, len(features))}
	for _, n := range d.names {
		slot, ok := d.index[n]
		if !ok {
			slot = len(d.index)
			d.index[n] = slot
		}
		d.slots = append(d.slots, slot)
	}
	return d
}

// Decode reads the decoder's features of a record into v, and ignores all others.
// Missing features become KindNone. Decode allocates nothing once v has grown to the
// size of the records. An error is an ExampleError and leaves v undefined.
func (d *Decoder) Decode(record []byte, v *Values) error {
	if v.decoder != d {
		v.decoder, v.seen = d, v.seen[:0]
	}
	if len(v.values) != len(d.index) {
		v.values = make([]Value, len(d.index))
	}
	if d.lists && len(v.lists) != len(d.index) {
		v.lists = make([]List, len(d.index))
	}
	v.reset()
	if v.usual(record) {
		return nil
	}
	v.reset()
	return parseExample(record, v)
}

// Values holds the features of one Example in the order of a decoder's names. It and
// its memory are reused from record to record.
type Values struct {
	decoder *Decoder
	values  []Value
	lists   []List // of a decoder of SequenceExamples
	seen    []seen // by position in the record
}

func (v *Values) reset() {
	for i := range v.values {
		v.values[i].reset(KindNone)
	}
	for i := range v.lists {
		v.lists[i].reset()
	}
}

func (v *Values) slot(name []byte) *Value {
	if i, ok := v.decoder.index[string(name)]; ok {
		return &v.values[i]
	}
	return nil
}

func (v *Values) list(name []byte) *List {
	if i, ok := v.decoder.index[string(name)]; ok {
		return &v.lists[i]
	}
	return nil
}

func (v *Values) wantsLists() bool { return v.decoder.lists }

// At returns the feature at position i, of KindNone if it is missing. It is valid until
// the next Decode.
func (v *Values) At(i int) *Value { return &v.values[v.decoder.slots[i]] }

// Int64s returns the numbers of the feature at position i, or a FeatureError.
// They are valid until the next Decode.
func (v *Values) Int64s(i int) ([]int64, error) {
	if err := v.check(i, KindInt64); err != nil {
		return nil, err
	}
	return v.At(i).Int64s, nil
}

// Floats returns the numbers of the feature at position i, or a FeatureError.
// They are valid until the next Decode.
func (v *Values) Floats(i int) ([]float32, error) {
	if err := v.check(i, KindFloat); err != nil {
		return nil, err
	}
	return v.At(i).Floats, nil
}

// Bytes returns the byte strings of the feature at position i, or a FeatureError. They
// share the memory of the decoded record, and are valid as long as it is, and until the
// next Decode.
func (v *Values) Bytes(i int) ([][]byte, error) {
	if err := v.check(i, KindBytes); err != nil {
		return nil, err
	}
	return v.At(i).Bytes, nil
}

func (v *Values) check(i int, want Kind) error {
	if got := v.At(i).Kind; got != want {
		return &FeatureError{Feature: v.decoder.names[i], Want: want, Got: got}
	}
	return nil
}

// ParseExample decodes all features of a record, sorted by name. Byte strings share the
// memory of the record. An error is an ExampleError.
func ParseExample(record []byte) ([]Feature, error) {
	m := allFeatures{}
	if err := parseExample(record, m); err != nil {
		return nil, err
	}
	return m.sorted(), nil
}

type allFeatures map[string]*Value

func (m allFeatures) list([]byte) *List { return nil }
func (m allFeatures) wantsLists() bool  { return false }

func (m allFeatures) sorted() []Feature {
	features := make([]Feature, 0, len(m))
	for name, v := range m {
		features = append(features, Feature{Name: name, Value: *v})
	}
	slices.SortFunc(features, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
	return features
}

func (m allFeatures) slot(name []byte) *Value {
	v, ok := m[string(name)]
	if !ok {
		v = new(Value)
		m[string(name)] = v
	}
	return v
}
