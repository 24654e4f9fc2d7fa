package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// comparison is the table of all runs: their metrics at the best step next to the params that differ.
type comparison struct {
	Groups  []group
	Columns []column
	Rows    []comparedRun
	// Differ says that a param is not the same in all runs.
	Differ bool
}

// group is a heading over neighbouring columns.
type group struct {
	Name string
	Span int
}

// column is a column of the table. Class is "n" for numbers.
type column struct{ Name, Class string }

// comparedRun is a row of the table.
type comparedRun struct {
	*runView
	Cells []comparedCell
}

// comparedCell is what a run has in a column; Text is "–" for nothing. Key is what the column is sorted by: a
// number if it is one, otherwise a text.
type comparedCell struct{ Text, Key, Title, Class string }

// atStep is the step at which the metrics of a run are compared: that of its best evaluation, or else the
// last one.
func (r *runView) atStep() (step int64, known bool) {
	if r.Best.Known {
		return r.Best.Step, true
	}
	for _, s := range r.Log.Eval {
		if _, last, ok := s.End(); ok && last >= step {
			step, known = last, true
		}
	}
	return step, known
}

// metrics returns the metrics of a run at a step: those of the evaluations while it trained, and of later ones,
// whose names begin with the split if that is not the run's first.
func (r *runView) metrics(step int64) map[string]float64 {
	out := make(map[string]float64)
	own := r.Run.EvalSplits().First()
	for _, e := range r.Evaluations {
		if e.Step != step {
			continue
		}
		for name, v := range e.Metrics {
			if e.Split != own {
				name = e.Split + "/" + name
			}
			out[name] = v
		}
	}
	for name, s := range r.Log.Eval {
		if v, ok := s.At(step); ok {
			out[name] = v
		}
	}
	if s := r.Log.Train["loss"]; s.Len() > 0 {
		// Of the loop that ended at the step, or of the last one before it.
		if i, exact := slices.BinarySearch(s.Steps, step); exact || i > 0 {
			if !exact {
				i--
			}
			out[trainLoss] = s.Values[i]
		}
	}
	return out
}

// trainLoss is the name of the training's loss among the metrics of evaluations.
const trainLoss = "training loss"

// better returns which of two values of a metric is better: "max", "min", or "" if the runs do not say it.
func (v *view) better(metric string) string {
	mode := ""
	for _, r := range v.Runs {
		if r.Best.Metric == metric {
			if mode != "" && mode != r.Best.Mode {
				return ""
			}
			mode = r.Best.Mode
		}
	}
	if mode == "" && metric == "loss" {
		return "min"
	}
	return mode
}

// compare fills in the table.
func (v *view) compare() {
	c := &comparison{}
	for _, r := range v.Runs {
		c.Rows = append(c.Rows, comparedRun{runView: r})
	}
	begin := func(name string) { c.Groups = append(c.Groups, group{Name: name}) }
	add := func(name, class string, cells []comparedCell) {
		of := &c.Groups[len(c.Groups)-1]
		if of.Span++; of.Span == 1 {
			class = strings.TrimSpace(class + " begins")
		}
		c.Columns = append(c.Columns, column{name, class})
		for i, cell := range cells {
			if cell.Text == "" {
				cell.Text = "–"
			}
			cell.Class = strings.TrimSpace(class + " " + cell.Class)
			c.Rows[i].Cells = append(c.Rows[i].Cells, cell)
		}
	}
	begin("at the best step")
	v.compareMetrics(add)
	if differ := differ(v.Runs); len(differ) > 0 {
		c.Differ = true
		begin("params that differ")
		for _, p := range differ {
			cells, class := make([]comparedCell, len(p.Values)), "n"
			for i, value := range p.Values {
				cells[i] = comparedCell{Text: value.Short, Key: value.Full, Title: value.Full}
				if value.Short == value.Full {
					cells[i].Title = ""
				}
				if _, err := strconv.ParseFloat(value.Full, 64); err != nil && value.Full != "" {
					class = ""
				}
			}
			add(p.Name, class, cells)
		}
	}
	begin("the run")
	v.compareFigures(add)
	v.Compared = c
}

// compareMetrics adds the columns of the metrics, first that by which the runs choose their best step.
func (v *view) compareMetrics(add func(name, class string, cells []comparedCell)) {
	values, names := make([]map[string]float64, len(v.Runs)), make(map[string]bool)
	steps := make([]comparedCell, len(v.Runs))
	for i, r := range v.Runs {
		step, known := r.atStep()
		if !known {
			continue
		}
		steps[i] = figure(float64(step), count(step))
		values[i] = r.metrics(step)
		for name := range values[i] {
			names[name] = true
		}
	}
	best := v.Runs[0].Best.Metric
	order := func(name string) int { return slices.Index([]string{trainLoss, "loss", best}, name) }
	for i, name := range slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(order(b)-order(a), cmp.Compare(a, b)) }) {
		cells := make([]comparedCell, len(v.Runs))
		top, mode := -1, v.better(name)
		for i, of := range values {
			x, ok := of[name]
			if !ok {
				continue
			}
			cells[i] = figure(x, value(x))
			if top < 0 || mode == "max" && x > values[top][name] || mode == "min" && x < values[top][name] {
				top = i
			}
		}
		for i, of := range values {
			if x, ok := of[name]; ok && mode != "" && x == values[top][name] {
				cells[i].Class = "top"
			}
		}
		add(name, "n", cells)
		if i == 0 {
			add("step", "n", steps)
		}
	}
	if len(names) == 0 {
		add("step", "n", steps)
	}
}

// compareFigures adds the columns of what the runs took.
func (v *view) compareFigures(add func(name, class string, cells []comparedCell)) {
	n := len(v.Runs)
	state, steps, times, speeds := make([]comparedCell, n), make([]comparedCell, n), make([]comparedCell, n), make([]comparedCell, n)
	for i, r := range v.Runs {
		state[i] = comparedCell{Text: string(r.State), Key: string(r.State), Class: "state state-" + string(r.State)}
		steps[i] = figure(float64(r.Step), count(r.Step))
		if r.Steps > 0 {
			steps[i].Text += " / " + count(r.Steps)
		}
		if r.Seconds > 0 {
			times[i] = figure(r.Seconds, runfolder.Duration(r.Seconds))
		}
		if speed, ok := median(r.event("examples_per_second")); ok {
			speeds[i] = figure(speed, value(speed))
		}
	}
	add("state", "", state)
	add("steps", "n", steps)
	add("time", "n", times)
	add("examples/s", "n", speeds)
}

// figure is a cell with a number.
func figure(x float64, text string) comparedCell {
	return comparedCell{Text: text, Key: fmt.Sprint(x)}
}
