package task

import (
	"fmt"
	"regexp"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// Counts are weighted counts of one class: of what is predicted and true, of what is predicted, and of
// what is true.
type Counts struct{ Right, Predicted, True float64 }

// CountsOf takes the counts of each class out of a sum of shape [classes, 3]. name is that of the sum.
func CountsOf(name string, flat []float64) ([]Counts, error) {
	if len(flat)%3 != 0 {
		return nil, fmt.Errorf("output %q has %d elements; expected 3 for each class", name, len(flat))
	}
	out := make([]Counts, len(flat)/3)
	for i := range out {
		out[i] = Counts{flat[3*i], flat[3*i+1], flat[3*i+2]}
	}
	return out, nil
}

// Total returns the counts of all classes together, for micro averages.
func Total(all []Counts) (sum Counts) {
	for _, c := range all {
		sum.Right, sum.Predicted, sum.True = sum.Right+c.Right, sum.Predicted+c.Predicted, sum.True+c.True
	}
	return sum
}

// MacroF1 returns the unweighted mean of the classes' F1 over those that occur or are predicted; 0 if
// none does.
func MacroF1(all []Counts) float64 {
	var sum, n float64
	for _, c := range all {
		if c.Predicted != 0 || c.True != 0 {
			sum, n = sum+c.F1(), n+1
		}
	}
	return Ratio(sum, n)
}

// Precision returns right / predicted, or 0.
func (c Counts) Precision() float64 { return Ratio(c.Right, c.Predicted) }

// Recall returns right / true, or 0.
func (c Counts) Recall() float64 { return Ratio(c.Right, c.True) }

// F1 returns 2 right / (predicted + true), or 0.
func (c Counts) F1() float64 { return Ratio(2*c.Right, c.Predicted+c.True) }

// Table returns the table of classes of which the counts are known. of is one of the values of
// evaluation.Classes.Of.
func Table(of string, all []Counts, names []string) *evaluation.Classes {
	row := func(name string, c Counts) evaluation.Class {
		return evaluation.Class{Name: name, Precision: c.Precision(), Recall: c.Recall(), F1: c.F1(), Support: c.True, Predicted: c.Predicted, Right: c.Right}
	}
	total := Total(all)
	macro, weighted := row(evaluation.Macro, Counts{}), row(evaluation.Weighted, Counts{})
	out := &evaluation.Classes{Of: of, Each: []evaluation.Class{}}
	var occurring float64
	for i, c := range all {
		r := row(evaluation.ClassName(names, i), c)
		out.Each = append(out.Each, r)
		addMean(&weighted, r, Ratio(c.True, total.True))
		if c.Predicted != 0 || c.True != 0 {
			addMean(&macro, r, 1)
			occurring++
		}
	}
	macro.Precision, macro.Recall, macro.F1 = Ratio(macro.Precision, occurring), Ratio(macro.Recall, occurring), Ratio(macro.F1, occurring)
	for _, a := range []*evaluation.Class{&macro, &weighted} {
		a.Support, a.Predicted, a.Right = total.True, total.Predicted, total.Right
	}
	out.Averages = []evaluation.Class{row(evaluation.Micro, total), macro, weighted}
	return out
}

// addMean adds a share of a row's values to those of a mean.
func addMean(mean *evaluation.Class, row evaluation.Class, share float64) {
	mean.Precision += share * row.Precision
	mean.Recall += share * row.Recall
	mean.F1 += share * row.F1
}

// Ratio returns a/b, or 0 if b is 0.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// mostNamed is the maximum number of classes that have metrics of their own.
const mostNamed = 50

var plain = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// F1Prefix is the prefix of the metrics that AddF1 adds.
const F1Prefix = "f1_"

// AddF1 adds the F1 of each class, as F1Prefix and its name, unless there are many classes. A class without a name
// of letters, digits and _.- has its number.
func AddF1(out runner.Outputs, all []Counts, names []string) {
	if len(all) > mostNamed {
		return
	}
	for i, c := range all {
		name := fmt.Sprint(i)
		if i < len(names) && plain.MatchString(names[i]) {
			name = names[i]
		}
		out[F1Prefix+name] = c.F1()
	}
}

// Names returns the list of texts that the contract's model has under a name, such as labels; nil if it
// has none.
func Names(c *graphs.Contract, key string) []string {
	if c == nil {
		return nil
	}
	list, _ := c.Model.Config[key].([]any)
	var out []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		out = append(out, s)
	}
	return out
}
