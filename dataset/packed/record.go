package packed

import (
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// records decodes the features of records.
type records struct {
	decoder                      *tfrecord.Decoder
	values                       tfrecord.Values
	ids, types, mask, label, yes fields
	weight                       fields
	typesOptional                bool     // all 0 where records have none
	typed                        presence // whether records have types
}

// fields holds the positions of a feature's names among the decoder's names.
type fields struct {
	names []string
	first int
}

// newRecords returns a decoder of the features of records, and of the extras and targets if there are
// any.
func newRecords(c *Config, e *extras, t *targets) *records {
	r, f := new(records), c.Features
	var names []string
	add := func(n []string) fields {
		names = append(names, n...)
		return fields{n, len(names) - len(n)}
	}
	r.ids, r.types, r.mask = add(f.InputIDs), add(f.TypeIDs), add(f.Mask)
	r.typesOptional = slices.Equal(f.TypeIDs, DefaultFeatureNames().TypeIDs)
	r.label, r.yes, r.weight = add(f.Label), add(f.Real), add(f.Weight)
	if e == nil && t == nil {
		r.decoder = tfrecord.NewDecoder(names...)
		return r
	}
	if e != nil {
		names = append(names, e.names(len(names))...)
	}
	if t != nil {
		names = append(names, t.names(len(names))...)
	}
	r.decoder = tfrecord.NewSequenceDecoder(names...)
	return r
}

// Add implements dataset.Assembler.
func (a *assembler) Add(id dataset.RecordID, data []byte) *dataset.RecordError {
	r := a.decoded
	bad := func(feature, reason string) *dataset.RecordError {
		a.dropExample()
		return &dataset.RecordError{Feature: feature, Reason: reason}
	}
	if err := r.decoder.Decode(data, &r.values); err != nil {
		return &dataset.RecordError{Reason: "is " + err.Error(), Err: err}
	}

	if name, v, reason := r.numbers(r.yes); reason != "" {
		return bad(name, reason)
	} else if len(v) == 1 && v[0] == 0 {
		return nil
	}

	idsName, ids, reason := r.numbers(r.ids)
	switch {
	case reason != "":
		return bad(idsName, reason)
	case ids == nil:
		return bad(idsName, columns.Missing(r.ids.names, data))
	}
	maskName, mask, reason := r.numbers(r.mask)
	if reason == "" && mask != nil {
		reason = checkMask(mask, len(ids), idsName)
	}
	if reason != "" {
		return bad(maskName, reason)
	}
	if reason := appendTokens(a, ids, mask, inputIDs); reason != "" {
		return bad(idsName, reason)
	}
	if len(r.types.names) > 0 {
		name, types, reason := r.numbers(r.types)
		switch {
		case reason != "":
		case !r.typed.agrees(types != nil):
			reason = disagrees(types != nil)
		case types == nil && r.typesOptional:
		case types == nil:
			reason = columns.Missing(r.types.names, data)
		case len(types) != len(ids):
			reason = reasonLength(len(types), len(ids), idsName)
		default:
			reason = appendTokens(a, types, mask, typeIDs)
		}
		if reason != "" {
			return bad(name, reason)
		}
	}

	if name, reason := a.readExtras(data, len(ids), mask); reason != "" {
		return bad(name, reason)
	}
	weight := float32(1)
	if len(r.weight.names) > 0 {
		w, name, reason := r.oneWeight()
		if reason != "" {
			return bad(name, reason)
		}
		weight = w
	}
	label, labeled, name, reason := a.readLabel(data)
	if reason != "" {
		return bad(name, reason)
	}
	if reason := a.end(id, int32(label), labeled, weight); reason != "" {
		return bad(idsName, reason)
	}
	return nil
}

// readExtras reads the extras and the target of the record that was decoded. It returns the feature that
// is not as expected and what is wrong with it.
func (a *assembler) readExtras(data []byte, tokens int, mask []int64) (name, reason string) {
	a.complete = true
	if a.extras != nil {
		if a.complete, name, reason = a.extras.read(&a.decoded.values, data, tokens, mask); reason != "" {
			return name, reason
		}
	}
	if a.targets != nil {
		labeled, name, reason := a.targets.read(&a.decoded.values, data)
		if reason != "" {
			return name, reason
		}
		a.complete = a.complete && labeled
	}
	return "", ""
}

// Assumed returns what is assumed of the records so far where they may be of two kinds.
func (a *assembler) Assumed() (said []string) {
	if r := a.decoded; r != nil && len(r.types.names) > 0 && r.typed == without {
		said = append(said, fmt.Sprintf("records have no %s; all are 0", r.types.names[0]))
	}
	if a.extras != nil && a.extras.masks != nil && a.extras.masks.labelled == with {
		said = append(said, fmt.Sprintf("records have %s: the tokens that they name are predicted, and none are masked here", a.extras.masks.Labels[0]))
	}
	return said
}

// readLabel returns the label of the record that was decoded, and whether it has one, or the feature
// that is not as expected and what is wrong with it.
func (a *assembler) readLabel(data []byte) (label int64, labeled bool, name, reason string) {
	r := a.decoded
	if a.cfg.Labels == LabelsNone || len(r.label.names) == 0 {
		return 0, a.cfg.Labels != LabelsNone && !a.cfg.wants(LabelIDs), "", ""
	}
	name, v, reason := r.numbers(r.label)
	switch {
	case reason != "":
	case v == nil && a.cfg.Labels == LabelsRequired:
		reason = columns.Missing(r.label.names, data)
	case len(v) > 1 || len(v) == 0 && a.cfg.Labels == LabelsRequired:
		reason = fmt.Sprintf("has %d values; expected one label", len(v))
	case len(v) == 1:
		return v[0], true, name, a.cfg.checkLabel(v[0])
	}
	return 0, false, name, reason
}

// oneWeight returns the weight of the example.
func (r *records) oneWeight() (weight float32, name, reason string) {
	for i, name := range r.weight.names {
		v := r.values.At(r.weight.first + i)
		switch {
		case v.Kind == tfrecord.KindNone:
			continue
		case v.Kind != tfrecord.KindFloat || len(v.Floats) != 1:
			return 0, name, fmt.Sprintf("has %d %v values; expected one float, the weight of the example", v.Len(), v.Kind)
		}
		return v.Floats[0], name, columns.CheckWeights(v)
	}
	return 1, "", ""
}

// numbers returns the name of the first of a feature's names that the record has, and
// its numbers. If the record has none, it returns the first name and nil. The reason is
// set if the values are not int64.
func (r *records) numbers(f fields) (name string, v []int64, reason string) {
	for i, name := range f.names {
		switch v := r.values.At(f.first + i); v.Kind {
		case tfrecord.KindNone:
		case tfrecord.KindInt64:
			if v.Int64s == nil {
				return name, none, ""
			}
			return name, v.Int64s, ""
		default:
			return name, nil, fmt.Sprintf("has %v values; expected int64", v.Kind)
		}
	}
	if len(f.names) == 0 {
		return "", nil, ""
	}
	return f.names[0], nil, ""
}

// none is an empty list, as opposed to no list.
var none = []int64{}

// checkMask returns what is wrong with a mask of n tokens, or "".
func checkMask(mask []int64, n int, of string) string {
	if len(mask) != n {
		return reasonLength(len(mask), n, of)
	}
	for i, m := range mask {
		if m != 0 && m != 1 {
			return fmt.Sprintf("has %d at position %d; expected 1 for a token or 0 for padding", m, i)
		}
	}
	return ""
}
