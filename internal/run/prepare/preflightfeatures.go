package prepare

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// featureCheck compares the features of data made by a schema with those that a graph takes.
type featureCheck struct {
	params   params.Params
	contract *graphs.Contract
	records  *Data
	found    []string
}

// add adds a finding.
func (f *featureCheck) add(format string, args ...any) {
	f.found = append(f.found, fmt.Sprintf(format, args...))
}

// features reports features that data made by a schema lack, or have in another form than the graph
// takes them. splits are those that are read; labels says whether their labels are.
func (f *featureCheck) features(labels bool, splits ...string) {
	m := f.records.Manifest
	if m == nil || len(m.Features) == 0 || TakesTokens(f.contract) {
		return
	}
	var names []string
	for _, made := range m.Features {
		names = append(names, made.Name)
	}
	for _, want := range f.contract.Features {
		if want.Make != "" || want.Role == graphs.RoleLabel && !labels || want.Role == graphs.RoleID {
			continue
		}
		record := cmp.Or(f.params.Data.Features[want.Name], want.Name)
		made := m.Feature(record)
		switch {
		case made == nil && want.Role == graphs.RoleWeight:
		case made == nil:
			f.add("data %s has no feature %s, which the graph takes; expected one of %s; name it with --set data.features.%s=NAME", f.records.Dir, record, strings.Join(names, ", "), want.Name)
		default:
			f.form(want, made)
			for _, split := range splits {
				f.values(want, made, split)
			}
		}
	}
}

// form reports a feature of another dtype, size or number of categories than the graph takes.
func (f *featureCheck) form(want graphs.Feature, made *convert.Feature) {
	whole := made.DType != "float32"
	switch {
	case made.DType == "string":
		f.add("feature %s of data %s has bytes; expected values of %s, as in the graph", made.Name, f.records.Dir, want.DType)
	case !whole && want.DType != "float32":
		f.add("feature %s of data %s has values of %s; expected %s, as in the graph; convert it with another dtype", made.Name, f.records.Dir, made.DType, want.DType)
	}
	got, gotOpen := sizeOf(made.Shape)
	expected, open := sizeOf(want.Shape[min(1, len(want.Shape)):])
	if got != expected || gotOpen && !open {
		f.add("feature %s of data %s has shape %v; expected %v, as in the graph", made.Name, f.records.Dir, made.Shape, convert.Shape(want.Shape[min(1, len(want.Shape)):]))
	}
	n, most := len(made.Categories), want.Classes()
	switch {
	case n == 0 || most == 0:
	case want.Role == graphs.RoleLabel && n != most:
		f.add("feature %s of data %s has %d categories; expected %d, as in the graph; export the graph for %[3]d, or list the categories in the schema", made.Name, f.records.Dir, n, most)
	case n > most:
		f.add("feature %s of data %s has %d categories; expected at most %d, as in the graph", made.Name, f.records.Dir, n, most)
	}
}

// sizeOf returns the number of values of a shape without its open axes, and whether it has any.
func sizeOf(shape []int64) (n int64, open bool) {
	n = 1
	for _, d := range shape {
		if d < 0 {
			open = true
			continue
		}
		n *= d
	}
	return n, open
}

// values reports a split whose values are out of the graph's bounds, or lack labels.
func (f *featureCheck) values(want graphs.Feature, made *convert.Feature, split string) {
	s := f.records.Manifest.Splits[split]
	if s == nil || s.Features[made.Name] == nil {
		return
	}
	of := s.Features[made.Name]
	if missing := s.Records - of.Records; missing > 0 && want.Role != graphs.RoleWeight {
		f.add("data %s: %d of the %d examples of split %s have no %s; expected one in each", f.records.Dir, missing, s.Records, split, made.Name)
	}
	if len(made.Categories) > 0 {
		return // their number was compared
	}
	if want.Minimum != nil && of.Min != nil && *of.Min < float64(*want.Minimum) {
		f.add("data %s: split %s has %v in feature %s; expected %d or more, as in the graph", f.records.Dir, split, *of.Min, made.Name, *want.Minimum)
	}
	if want.Below != nil && of.Max != nil && *of.Max >= float64(*want.Below) {
		f.add("data %s: split %s has %v in feature %s; expected less than %d, as in the graph", f.records.Dir, split, *of.Max, made.Name, *want.Below)
	}
}
