package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	ticks "github.com/gorbit-ml/gorbit/internal/app/chart"
)

// dataView is the data of a run.
type dataView struct {
	Facts    []fact
	Splits   []splitView
	Features []featureView
	Warnings []string
}

// splitView is a split of the data.
type splitView struct {
	Name, Records, Lengths string
	Bars                   []bar
	XTicks                 []tick
	Labels                 []labelCount
	Left                   int // labels that are left out
	// Limit is the position of the row length in the histogram; "" if it lies beyond.
	Limit, LimitLabel string
	// Summary says the histogram in words.
	Summary string
}

// bar is a bar of a histogram, in percent of its width and height.
type bar struct{ X, Y, Width, Height, Title string }

// labelCount is the number of examples with a label.
type labelCount struct{ Name, Count, Share, Width string }

// mostLabels is the number of labels that the page lists.
const mostLabels = 20

// describeData describes the data from the manifest that the run has a copy of.
func (r *runView) describeData() {
	m := r.Manifest
	if m == nil {
		r.Missing = append(r.Missing, missing{"Lengths and labels of the data: they have no manifest, which gorbit convert writes.", ""})
		return
	}
	d := &dataView{Warnings: m.Warnings}
	add := func(label, value string) { d.Facts = append(d.Facts, fact{label, value}) }
	add("folder", r.Run.Params["data.dir"])
	add("task", m.Task)
	if m.HasVocab() {
		add("vocabulary", fmt.Sprintf("%s tokens", count(m.Vocab.Size)))
	}
	if length := r.Run.Params["data.row_length"]; length != "" && length != "0" {
		add("row length", length)
	}
	if points := r.event("padding_percent"); len(points) > 0 {
		sum := 0.0
		for _, p := range points {
			sum += p.Value
		}
		add("padding in training", fmt.Sprintf("%.1f %% of the positions in the rows", sum/float64(len(points))))
	}
	if s := m.Splits[r.Run.Params["data.train"]]; s != nil && s.Lengths.Max > 0 {
		add("without packing", fmt.Sprintf("%.1f %% would be padding if each example had a row of the longest one's length, %d", 100*(1-s.Lengths.Mean/float64(s.Lengths.Max)), s.Lengths.Max))
	}
	limit, _ := strconv.Atoi(r.Run.Params["data.row_length"])
	evaluated := r.Run.EvalSplits()
	order := func(name string) int { // training, evaluation, the others
		if i := slices.Index(append([]string{r.Run.Params["data.train"]}, evaluated...), name); i >= 0 {
			return i
		}
		return 1 + len(evaluated)
	}
	splits := slices.SortedFunc(maps.Keys(m.Splits), func(a, b string) int { return cmp.Or(order(a)-order(b), strings.Compare(a, b)) })
	d.describeFeatures(m, splits)
	for _, name := range splits {
		s := m.Splits[name]
		v := splitView{Name: name, Records: count(s.Records)}
		if l := s.Lengths; l.Max > 0 && l.Step > 0 {
			v.Lengths = fmt.Sprintf("%d to %d tokens, %.1f on average", l.Min, l.Max, l.Mean)
			if s.Truncated > 0 {
				v.Lengths += fmt.Sprintf("; %s were shortened", count(s.Truncated))
			}
			v.histogram(l.Step, l.Histogram, limit)
		}
		var all int64
		for _, n := range s.LabelCounts {
			all += n
		}
		most := slices.Max(append([]int64{1}, s.LabelCounts...))
		for i, n := range first(mostLabels, s.LabelCounts) {
			label := fmt.Sprint(i)
			if i < len(m.Labels) {
				label = m.Labels[i]
			}
			v.Labels = append(v.Labels, labelCount{label, count(n), percent(float64(n) / math.Max(1, float64(all))), place(float64(n) / float64(most))})
		}
		v.Left = max(0, len(s.LabelCounts)-mostLabels)
		d.Splits = append(d.Splits, v)
	}
	r.Data = d
}

// histogram draws the lengths: counts of 1 to step tokens, and so on.
func (v *splitView) histogram(step int, counts []int64, limit int) {
	const mostBars = 64
	for len(counts) > mostBars { // neighbours together
		var half []int64
		for i := 0; i < len(counts); i += 2 {
			n := counts[i]
			if i+1 < len(counts) {
				n += counts[i+1]
			}
			half = append(half, n)
		}
		counts, step = half, 2*step
	}
	var most, all int64
	for _, n := range counts {
		most, all = max(most, n), all+n
	}
	if most == 0 {
		return
	}
	width, at := 1/float64(len(counts)), 0
	for i, n := range counts {
		if n > counts[at] {
			at = i
		}
		height := float64(n) / float64(most)
		v.Bars = append(v.Bars, bar{place(float64(i)*width + width/20), place(1 - height), place(width * 0.9), place(height),
			fmt.Sprintf("%d to %d tokens: %s records, %s", i*step+1, (i+1)*step, count(n), percent(float64(n)/float64(all)))})
	}
	end := float64(step * len(counts))
	for _, x := range ticks.Steps(0, end, 5) {
		v.XTicks = append(v.XTicks, tick{place(x / end), ticks.Label(x)})
	}
	if limit > 0 && float64(limit) <= end {
		v.Limit, v.LimitLabel = place(float64(limit)/end), fmt.Sprintf("row length %d", limit)
	}
	v.Summary = fmt.Sprintf("Lengths of %s: most records, %s, have %d to %d tokens.", v.Name, count(counts[at]), at*step+1, (at+1)*step)
}
