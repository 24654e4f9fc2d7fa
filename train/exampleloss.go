package train

import (
	"math"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/task"
)

// integers returns the values of a feature of integers.
func integers(f *dataset.Feature) []int64 {
	out := slices.Clone(f.Int64)
	for _, v := range f.Int32 {
		out = append(out, int64(v))
	}
	for _, v := range f.Uint8 {
		out = append(out, int64(v))
	}
	return out
}

// oneLoss is answer for one label of several.
func oneLoss(row *evaluation.Row, y int64, p, logits []float64, name func(int) string) (float64, bool) {
	if len(p) == 1 { // of the second of two
		p, logits = []float64{1 - p[0], p[0]}, nil
	}
	row.Label, row.Prediction = name(int(y)), name(largest(p))
	row.Probabilities = make(runner.Outputs, len(p))
	for i, v := range p {
		row.Probabilities[name(i)] = v
	}
	if y < 0 || y >= int64(len(p)) {
		return math.NaN(), true
	}
	return crossEntropy(int(y), p, logits), true
}

// severalLoss is answer for any number of labels: the mean of the labels' cross entropies.
func severalLoss(row *evaluation.Row, y []float32, p []float64, name func(int) string) (float64, bool) {
	labels, predicted := []string{}, []string{}
	row.Probabilities = make(runner.Outputs, len(p))
	var sum float64
	for i, v := range p {
		row.Probabilities[name(i)] = v
		if y[i] != 0 {
			labels = append(labels, name(i))
			sum -= math.Log(v)
		} else {
			sum -= math.Log1p(-v)
		}
		if v >= 0.5 {
			predicted = append(predicted, name(i))
		}
	}
	row.Label, row.Prediction = labels, predicted
	return sum / float64(len(p)), true
}

// tagLoss is answer for a label of each token, less than 0 for tokens that do not count: the mean of
// the tokens' cross entropies.
func tagLoss(row *evaluation.Row, y []int32, p, logits []float64, name func(int) string) (float64, bool) {
	labels, predicted := []string{}, []string{}
	var sum float64
	n := 0
	for _, v := range [][]float64{p, logits} {
		if n == 0 && len(v) > 0 {
			n = len(p) / max(1, len(y))
		}
	}
	if n == 0 || len(p) < n*len(y) {
		return 0, false
	}
	for i, label := range y {
		if label < 0 || int(label) >= n {
			continue
		}
		mine := p[i*n : (i+1)*n]
		var l []float64
		if len(logits) == len(p) {
			l = logits[i*n : (i+1)*n]
		}
		labels, predicted = append(labels, name(int(label))), append(predicted, name(largest(mine)))
		sum += crossEntropy(int(label), mine, l)
	}
	row.Label, row.Prediction = labels, predicted
	return sum / float64(len(labels)), len(labels) > 0
}

// crossEntropy returns -log of the probability of a class, of logits if they are given, which do not
// round it to 0.
func crossEntropy(y int, p, logits []float64) float64 {
	if len(logits) != len(p) {
		return -math.Log(p[y])
	}
	most, sum := slices.Max(logits), 0.0
	for _, l := range logits {
		sum += math.Exp(l - most)
	}
	return most + math.Log(sum) - logits[y]
}

// largest returns the index of the largest value, the first of several.
func largest(p []float64) int {
	best := 0
	for i, v := range p {
		if v > p[best] {
			best = i
		}
	}
	return best
}

// answer sets the label and the prediction of an example, and returns its loss by the formula of the
// usual head for such answers, if there is one.
func (e *examples) answer(row *evaluation.Row, b *dataset.Batch, r predict.Result) (loss float64, known bool) {
	var labels []graphs.Feature
	for _, f := range e.run.Export.Contract.Features {
		if f.Role == graphs.RoleLabel && f.Make != "masked_labels" && b.Feature(f.Name) != nil {
			labels = append(labels, f)
		}
	}
	switch {
	case len(labels) == 0:
		return 0, false
	case e.run.Export.Contract.Task == task.QuestionAnswering:
		return e.span(row, b, r)
	case len(labels) == 1:
		loss, known = e.head(row, labels[0].Name, b.Feature(labels[0].Name), r)
	}
	if row.Label == nil {
		e.values(row, labels, b, r)
	}
	return loss, known
}

// head is answer for a label of the usual heads.
func (e *examples) head(row *evaluation.Row, label string, want *dataset.Feature, r predict.Result) (loss float64, known bool) {
	var p, logits []float64
	var names []string
	var value *float64
	chance := false // value is the probability of the second of two classes
	for i, o := range e.outputs {
		switch {
		case o.Kind == predict.Probabilities && p == nil:
			p, names = r[i].Data, o.Classes
		case o.Kind == predict.Logits && logits == nil:
			logits = r[i].Data
		case o.Kind == predict.OneValue && len(r[i].Data) == 1 && value == nil:
			value, chance = &r[i].Data[0], strings.HasSuffix(o.Name, "probability")
		}
	}
	whole := integers(want)
	if p == nil && value != nil && chance {
		if len(want.Float32) == 1 && (want.Float32[0] == 0 || want.Float32[0] == 1) {
			whole = []int64{int64(want.Float32[0])}
		}
		if len(whole) == 1 {
			p, names = []float64{*value}, e.pair(label)
		}
	}
	name := func(i int) string { return evaluation.ClassName(names, i) }
	switch {
	case e.run.Export.Contract.Task == task.Tokens:
		return tagLoss(row, want.Int32, p, logits, name)
	case p != nil && len(whole) == 1:
		return oneLoss(row, whole[0], p, logits, name)
	case p != nil && len(whole) == len(p):
		some := make([]float32, len(p))
		for i, y := range whole {
			some[i] = float32(y)
		}
		return severalLoss(row, some, p, name)
	case p != nil && len(want.Float32) == len(p):
		return severalLoss(row, want.Float32, p, name)
	case p == nil && value != nil && len(want.Float32) == 1:
		y := float64(want.Float32[0])
		row.Label, row.Prediction = runner.Number(y), runner.Number(*value)
		return (*value - y) * (*value - y), true
	}
	return 0, false
}

// pair returns the names of the two classes of a label whose number of classes the graph does not say;
// nil if the data do not name two.
func (e *examples) pair(label string) []string {
	if names := e.run.Classes(label); names != nil || e.manifest == nil {
		return names
	}
	names := e.manifest.Labels
	if made := e.manifest.Feature(e.run.recordName(label)); made != nil {
		names = made.Categories
	}
	if len(names) != 2 {
		return nil
	}
	return names
}

// mostNumbers is the most numbers of a label or an output that a row has.
const mostNumbers = 100

// values sets the label and the prediction of an example to what the labels and the outputs have: the
// one there is, or several by name. What an output is about gives it its name, or else its own.
func (e *examples) values(row *evaluation.Row, labels []graphs.Feature, b *dataset.Batch, r predict.Result) {
	want, got := map[string]any{}, map[string]any{}
	for _, f := range labels {
		v := b.Feature(f.Name)
		names := e.run.Classes(f.Name)
		var all []any
		for _, y := range integers(v) {
			if y >= 0 && y < int64(len(names)) {
				all = append(all, names[y])
			} else {
				all = append(all, runner.Number(y))
			}
		}
		for _, y := range v.Float32 {
			all = append(all, runner.Number(y))
		}
		put(want, f.Name, all)
	}
	for i, o := range e.outputs {
		if o.Kind == predict.Logits && slices.ContainsFunc(e.outputs, func(p output) bool { return p.Kind == predict.Probabilities && p.Of == o.Of }) {
			continue
		}
		name := o.Name
		if o.Of != "" {
			name = o.Of
		}
		put(got, name, predicted(o, r[i]))
	}
	row.Label, row.Prediction = alone(want), alone(got)
}

// put adds a value, or several, under a name. Too many are left out.
func put(to map[string]any, name string, all []any) {
	switch {
	case len(all) == 1:
		to[name] = all[0]
	case len(all) > 1 && len(all) <= mostNumbers:
		to[name] = all
	}
}

// alone returns the only value of some, all of them by name, or nil if there is none.
func alone(values map[string]any) any {
	switch len(values) {
	case 0:
		return nil
	case 1:
		for _, v := range values {
			return v
		}
	}
	return values
}

// predicted returns what an output says: the names of classes, or its numbers.
func predicted(o output, v predict.Values) (all []any) {
	classes := len(v.Data)
	switch {
	case o.Kind == predict.Probabilities && len(v.Data) == 1:
		v.Data, classes = []float64{1 - v.Data[0], v.Data[0]}, 2
	case o.Kind == predict.Tokens && len(v.Shape) == 2:
		classes = v.Shape[1]
	case (o.Kind == predict.Probabilities || o.Kind == predict.Logits) && len(v.Data) > 1 && len(v.Shape) <= 1:
	default:
		for _, x := range v.Data {
			all = append(all, runner.Number(x))
		}
		return all
	}
	for p := range slices.Chunk(v.Data, max(1, classes)) {
		all = append(all, evaluation.ClassName(o.Classes, largest(p)))
	}
	return all
}

// span is answer for a window of a question's context: the answer that is in the window, and the one that
// the model finds there, both "" for none. The loss is the mean of the cross entropies of its first and
// its last token.
func (e *examples) span(row *evaluation.Row, b *dataset.Batch, r predict.Result) (loss float64, known bool) {
	var logits [][]float64
	for i, o := range e.outputs {
		if o.Kind == predict.Spans {
			logits = append(logits, r[i].Data)
		}
	}
	one := func(name string) int {
		if f := b.Feature(name); f != nil && len(f.Int32) == 1 {
			return int(f.Int32[0])
		}
		return -1
	}
	starts, ends := b.Feature(convert.TokenStarts), b.Feature(convert.TokenEnds)
	first, last, question := one(convert.StartPositions), one(convert.EndPositions), one(convert.QuestionID)
	if len(logits) != 2 || starts == nil || ends == nil || question < 0 || question >= len(e.questions) {
		return 0, false
	}
	n := len(logits[0])
	if first < 0 || last < 0 || first >= n || last >= n || len(logits[1]) != n || len(starts.Int32) < n || len(ends.Int32) < n {
		return 0, false
	}
	context := e.questions[question].Context
	row.Label, row.Prediction = "", ""
	if to := int(ends.Int32[last]); to > 0 {
		row.Label = qa.Slice(context, int(starts.Int32[first]), to)
	}
	c := qa.Judge(logits[0], logits[1], starts.Int32[:n], ends.Int32[:n], 1, qa.MaxAnswer)
	if len(c.Best) > 0 && !c.NoAnswer(e.run.Params.Eval.NullThreshold) {
		row.Prediction = qa.Slice(context, c.Best[0].Start, c.Best[0].End)
	}
	return (crossEntropy(first, logits[0], logits[0]) + crossEntropy(last, logits[1], logits[1])) / 2, true
}
