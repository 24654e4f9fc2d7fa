package prepare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/train/params"
)

// ClassLabel is the label of a graph whose classes a param is about.
type ClassLabel struct {
	// Feature is the label.
	Feature *graphs.Feature
	record  string // its name in records
	// classes is their number, or 0 if the graph has no limit, and names are their names, or nil.
	classes int
	names   []string
}

// ClassLabelOf returns the label of a graph that gives each example one class, or an error that says why
// there is none. m may be nil.
func ClassLabelOf(p params.Params, c *graphs.Contract, m *convert.Manifest) (ClassLabel, error) {
	var labels []string
	for _, f := range c.Features {
		if f.Role == graphs.RoleLabel {
			labels = append(labels, f.Name)
		}
	}
	if len(labels) != 1 {
		return ClassLabel{}, fmt.Errorf("the graph has %d labels (%s); expected one, the class of an example", len(labels), strings.Join(labels, ", "))
	}
	f := c.Feature(labels[0])
	if f.Make != "" || f.DType == "float32" || !onePerExample(f) {
		made := ""
		if f.Make != "" {
			made = ", made as " + f.Make
		}
		return ClassLabel{}, fmt.Errorf("label %s of the graph is %s on the axes %s%s; expected one integer for each example, its class", f.Name, f.DType, strings.Join(f.Axes, ", "), made)
	}
	l := ClassLabel{Feature: f, record: cmp.Or(p.Data.Features[f.Name], f.Name), classes: f.Classes()}
	l.names = ClassesOf(c, f.Name, l.record, m)
	return l, nil
}

// onePerExample reports whether a feature has one value for each example.
func onePerExample(f *graphs.Feature) bool {
	for i, n := range f.Shape {
		if i > 0 && n != 1 {
			return false
		}
	}
	return f.Axes[0] == AxisExamples
}

// name returns what messages call a class.
func (l ClassLabel) name(class int) string {
	if class < len(l.names) {
		return l.names[class]
	}
	return strconv.Itoa(class)
}

// class returns the number of a class that is given by its name, or else by its number.
func (l ClassLabel) class(given string) (int, error) {
	if i := slices.Index(l.names, given); i >= 0 {
		return i, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 0 || n > maxClass || l.classes > 0 && n >= l.classes {
		switch {
		case l.names != nil:
			return 0, fmt.Errorf("there is no class %q; expected one of %s, or 0 to %d%s", given, strings.Join(l.names, ", "), l.classes-1, words.DidYouMean(given, l.names))
		case l.classes > 0:
			return 0, fmt.Errorf("there is no class %q; expected 0 to %d, because the data do not name the classes", given, l.classes-1)
		}
		return 0, fmt.Errorf("there is no class %q; expected a number of 0 to %d, because the data do not name the classes", given, maxClass)
	}
	return n, nil
}

// maxClass is the greatest class that may be given a number.
const maxClass = dataset.MaxClass

// numbers returns the numbers that are given for classes, by class. Classes without one have 1.
func (l ClassLabel) numbers(given map[string]float64) ([]float64, error) {
	out := slices.Repeat([]float64{1}, l.classes)
	by := make(map[int]string)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		class, err := l.class(key)
		if err != nil {
			return nil, err
		}
		if other, twice := by[class]; twice {
			return nil, fmt.Errorf("%s and %s are the same class; expected it once", other, key)
		}
		by[class] = key
		for len(out) <= class {
			out = append(out, 1)
		}
		out[class] = given[key]
	}
	return out, nil
}

// counts returns the numbers of examples of each class of a split by the manifest, or nil if it does
// not say them.
func (l ClassLabel) counts(m *convert.Manifest, split string) []int64 {
	if m == nil || m.Splits[split] == nil || l.names == nil {
		return nil
	}
	s := m.Splits[split]
	if of := s.Features[l.record]; of != nil {
		return of.Counts
	}
	return s.LabelCounts
}

// balanced returns the weights with which all classes together weigh the same: n/(k·count) for a class
// of count examples among n, where k classes have examples, as in scikit-learn.
func balanced(counts []int64) []float64 {
	var n, k float64
	for _, c := range counts {
		if c > 0 {
			n, k = n+float64(c), k+1
		}
	}
	out := make([]float64, len(counts))
	for i, c := range counts {
		if out[i] = 1; c > 0 {
			out[i] = n / (k * float64(c))
		}
	}
	return out
}

// ClassWeightsOf returns what data.class_weights makes of a graph's training examples, or nil. m is the
// manifest of the data, or nil.
func ClassWeightsOf(p params.Params, c *graphs.Contract, m *convert.Manifest) (*dataset.ClassWeights, error) {
	if p.Data.ClassWeights.Rule == params.ClassesNone {
		return nil, nil
	}
	bad := func(err error) error { return params.Errorf("data.class_weights", ": %w", err) }
	label, err := ClassLabelOf(p, c, m)
	if err != nil {
		return nil, bad(err)
	}
	out := &dataset.ClassWeights{Label: label.Feature.Name}
	for _, f := range c.Features {
		if f.Role == graphs.RoleWeight && f.Make == "" && onePerExample(&f) {
			out.Weight = f.Name
		}
	}
	if out.Weight == "" {
		return nil, bad(fmt.Errorf("the graph has no feature with a weight for each example; expected one of role %s", graphs.RoleWeight))
	}
	if p.Data.ClassWeights.Rule == params.ClassesBalanced {
		counts := label.counts(m, p.Data.Train)
		if len(counts) == 0 {
			return nil, bad(fmt.Errorf("%s needs the number of examples of each class, which data %s do not say for split %s; expected data with named classes that gorbit convert wrote; give the weights instead, as in --set data.class_weights.0=2",
				params.ClassesBalanced, p.Data.Dir, p.Data.Train))
		}
		if s := m.Splits[p.Data.Train]; p.Data.TrainExamples > 0 && p.Data.TrainExamples < s.Records {
			return nil, params.Errorf("data.class_weights", "is %s, which counts all %d examples of split %s, and data.train_examples is %d; give the weights instead, as in --set data.class_weights.0=2, or leave out one of them",
				params.ClassesBalanced, s.Records, p.Data.Train, p.Data.TrainExamples).And("data.train_examples")
		}
		out.Of = balanced(counts)
	} else if out.Of, err = label.numbers(p.Data.ClassWeights.Of); err != nil {
		return nil, bad(err)
	}
	return out, nil
}

// samplingOf returns what data.sampling makes of a graph's training examples, or nil. m is the manifest of
// the data, or nil.
func samplingOf(p params.Params, c *graphs.Contract, m *convert.Manifest) (*dataset.Sampling, error) {
	if p.Data.Sampling.Rule == params.ClassesUniform {
		return nil, nil
	}
	label, err := ClassLabelOf(p, c, m)
	if err != nil {
		return nil, params.Errorf("data.sampling", ": %w", err)
	}
	out := &dataset.Sampling{Label: []string{label.record}}
	if _, named := p.Data.Features[label.Feature.Name]; !named && TakesTokens(c) && label.Feature.Name == packed.LabelIDs {
		out.Label = packed.DefaultFeatureNames().Label
	}
	if p.Data.Sampling.Rule == params.ClassesBalanced {
		return out, nil
	}
	if out.Of, err = label.numbers(p.Data.Sampling.Of); err != nil {
		return nil, params.Errorf("data.sampling", ": %w", err)
	}
	return out, nil
}

// Listed returns numbers of classes as a clause of a message.
func (l ClassLabel) Listed(numbers []float64) string {
	const most = 20
	words := make([]string, 0, most)
	for class, n := range numbers {
		if class == most {
			return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), len(numbers)-most)
		}
		words = append(words, fmt.Sprintf("%s %.4g", l.name(class), n))
	}
	return strings.Join(words, ", ")
}
