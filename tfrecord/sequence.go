package tfrecord

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of the messages that only a SequenceExample has. Its context has the number of an
// Example's features, so that an Example is a SequenceExample without lists.
const (
	sequenceLists = 2 // SequenceExample.feature_lists
	listsEntry    = 1 // FeatureLists.feature_list
	listFeature   = 1 // FeatureList.feature
)

// List is a list of features of a SequenceExample: a value for each step.
type List struct {
	// Value holds the elements of all steps, one step after the other. Its Kind is KindNone if no
	// step has a kind.
	Value
	// Ends has the number of elements up to the end of each step.
	Ends []int
	// Found says that the record has the list. It may have no steps all the same.
	Found bool
	// Mixed is the first step whose kind differs from that of the steps before it, or 0. The Value is
	// not defined then.
	Mixed int

	step Value // while a step is decoded
}

func (l *List) reset() {
	l.Value.reset(KindNone)
	l.Ends, l.Found, l.Mixed = l.Ends[:0], false, 0
}

// Step returns the elements of one step. They share the memory of the list.
func (l *List) Step(i int) Value {
	from := 0
	if i > 0 {
		from = l.Ends[i-1]
	}
	to := l.Ends[i]
	if from == to {
		return Value{Kind: l.Kind}
	}
	switch l.Kind {
	case KindInt64:
		return Value{Kind: l.Kind, Int64s: l.Int64s[from:to:to]}
	case KindFloat:
		return Value{Kind: l.Kind, Floats: l.Floats[from:to:to]}
	}
	return Value{Kind: l.Kind, Bytes: l.Bytes[from:to:to]}
}

// add appends the step that was decoded.
func (l *List) add() {
	s := &l.step
	if s.Kind != KindNone && s.Kind != l.Kind {
		if l.Kind != KindNone && l.Mixed == 0 {
			l.Mixed = len(l.Ends)
		}
		l.Kind = s.Kind
	}
	l.Int64s, l.Floats, l.Bytes = append(l.Int64s, s.Int64s...), append(l.Floats, s.Floats...), append(l.Bytes, s.Bytes...)
	l.Ends = append(l.Ends, l.Len())
}

// NewSequenceDecoder returns a decoder of the named features of SequenceExamples: those of the context,
// and the lists of features. An Example is a SequenceExample without lists, so it reads both.
func NewSequenceDecoder(features ...string) *Decoder {
	d := NewDecoder(features...)
	d.lists = true
	return d
}

// List returns the list of features at position i, which is not Found if it is missing. It is valid
// until the next Decode, of a decoder that NewSequenceDecoder has made.
func (v *Values) List(i int) *List { return &v.lists[v.decoder.slots[i]] }

func (p *parser) featureLists(pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		if f.is(listsEntry, protowire.BytesType) {
			if err := p.listEntry(f.start, f.end); err != nil {
				return err
			}
		}
		pos = f.end
	}
	return nil
}

// listEntry parses one entry of the map of lists.
func (p *parser) listEntry(start, end int) error {
	key, _, _, err := p.keyValue(start, end)
	if err != nil {
		return err
	}
	l := p.to.list(key)
	if l == nil {
		return nil
	}
	if err := p.take(start, sizeOfName); err != nil {
		return err
	}
	l.reset()
	l.Found = true
	return p.eachValue(start, end, func(f field) error { return p.steps(l, f.start, f.end) })
}

func (p *parser) steps(l *List, pos, end int) error {
	for pos < end {
		f, err := p.field(pos, end)
		if err != nil {
			return err
		}
		if f.is(listFeature, protowire.BytesType) {
			l.step.reset(KindNone)
			if err := p.feature(&l.step, f.start, f.end); err != nil {
				return err
			}
			// The elements of the step are copied to those of the list.
			s := &l.step
			if err := p.take(f.start, sizeOfStep+len(s.Int64s)*sizeOfInt64+len(s.Floats)*sizeOfFloat+len(s.Bytes)*sizeOfString); err != nil {
				return err
			}
			l.add()
		}
		pos = f.end
	}
	return nil
}

// FeatureList is a named list of features of a SequenceExample.
type FeatureList struct {
	Name  string
	Steps []Value
}

// ParseSequenceExample decodes all features of a SequenceExample: those of its context and its lists,
// both sorted by name. Byte strings share the memory of the record. An error is an ExampleError.
func ParseSequenceExample(record []byte) (context []Feature, lists []FeatureList, err error) {
	m := allLists{allFeatures{}, map[string]*List{}}
	if err := parseExample(record, m); err != nil {
		return nil, nil, err
	}
	for name, l := range m.lists {
		one := FeatureList{Name: name}
		if l.Mixed > 0 {
			return nil, nil, &ExampleError{Reason: fmt.Sprintf("step %d of the list %q has %v values, unlike the steps before it", l.Mixed, name, l.Kind)}
		}
		if most := maxDecoded(len(record)) / int(unsafe.Sizeof(Value{})); len(l.Ends) > most {
			return nil, nil, &ExampleError{TooLarge: true, Reason: fmt.Sprintf("the list %q has %d steps; expected at most %d of a record of %d bytes", name, len(l.Ends), most, len(record))}
		}
		for i := range l.Ends {
			one.Steps = append(one.Steps, l.Step(i))
		}
		lists = append(lists, one)
	}
	slices.SortFunc(lists, func(a, b FeatureList) int { return strings.Compare(a.Name, b.Name) })
	return m.sorted(), lists, nil
}

// allLists collects everything that a SequenceExample has.
type allLists struct {
	allFeatures
	lists map[string]*List
}

func (m allLists) wantsLists() bool { return true }

func (m allLists) list(name []byte) *List {
	l, ok := m.lists[string(name)]
	if !ok {
		l = new(List)
		m.lists[string(name)] = l
	}
	return l
}

// AppendSequenceExample appends a serialized tf.train.SequenceExample, as AppendExample appends an
// Example: the features of its context and its lists, each in the order of their names.
func AppendSequenceExample(dst []byte, context []Feature, lists ...FeatureList) ([]byte, error) {
	from := len(dst)
	dst, err := AppendExample(dst, context...)
	if err != nil {
		return dst[:from], err
	}
	if len(context) == 0 {
		dst = dst[:from]
	}
	byName := func(a, b FeatureList) int { return strings.Compare(a.Name, b.Name) }
	lists = slices.SortedFunc(slices.Values(lists), byName)
	var all []byte
	for i, l := range lists {
		switch {
		case !utf8.ValidString(l.Name):
			return dst[:from], fmt.Errorf("name of a list of features %q is not valid UTF-8", l.Name)
		case i > 0 && lists[i-1].Name == l.Name:
			return dst[:from], fmt.Errorf("list of features %q is given twice", l.Name)
		}
		var steps []byte
		for _, v := range l.Steps {
			steps = protowire.AppendTag(steps, listFeature, protowire.BytesType)
			steps = protowire.AppendBytes(steps, appendFeature(nil, &v))
		}
		entry := protowire.AppendString(protowire.AppendTag(nil, entryKey, protowire.BytesType), l.Name)
		entry = protowire.AppendBytes(protowire.AppendTag(entry, entryValue, protowire.BytesType), steps)
		all = protowire.AppendBytes(protowire.AppendTag(all, listsEntry, protowire.BytesType), entry)
	}
	if len(lists) == 0 {
		return dst, nil
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, sequenceLists, protowire.BytesType), all), nil
}

// appendFeature appends a Feature message without a name.
func appendFeature(dst []byte, v *Value) []byte {
	if v.Kind == KindNone {
		return dst
	}
	of := sizesOf(&Feature{Value: *v})
	return appendList(appendLength(dst, protowire.Number(v.Kind), of.list), v, of.packed)
}
