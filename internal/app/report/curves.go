package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	ticks "github.com/gorbit-ml/gorbit/internal/app/chart"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/summary"
)

// mostPoints is the number of points of a curve that is drawn: about one for every two pixels.
const mostPoints = 240

// mostLoaded is the number of points of a logged curve that the script has, to draw a part of the steps.
const mostLoaded = 3 * mostPoints

// mostMarkers is the number of points up to which each has a marker.
const mostMarkers = 40

// mostMore is the number of charts of lesser interest.
const mostMore = 24

// chart is a chart of one quantity over the steps.
type chart struct {
	ID          int
	Title, Unit string
	XTicks      []tick
	// Plots are the linear scale and, where it is useful, the logarithmic one.
	Plots []*plot
	// wide says that values of the quantity often differ by factors; useLog that a logarithmic scale
	// is of use if they do.
	wide, useLog bool
	x            ticks.Scale
	Legend       []legend
	// Named says that the legend is shown: there is more than one line, or one of evaluations.
	Named bool
	// Summary says the chart in words; Note says what it leaves out.
	Summary, Note string

	lines []line
}

// plot is a chart on one scale.
type plot struct {
	Log    bool
	XTicks []tick
	YTicks []tick
	// Lines are further lines of the grid, without labels.
	Lines  []string
	Curves []curve
}

// tick is a position in percent and its label.
type tick struct{ At, Label string }

// curve is a line of a plot: SVG paths in a square of 1000 by 1000.
type curve struct {
	Class      string
	Path, Band string
	Dots       []dot
}

// dot is a marker, in percent.
type dot struct{ X, Y, Class string }

// legend is an entry of the legend.
type legend struct{ Class, Name string }

// line is a series of a chart.
type line struct {
	run     int
	name    string
	eval    bool
	best    int64 // step of the best value; -1 for none
	buckets []ticks.Bucket
	loaded  []ticks.Bucket // for the script
	// lost are the numbers of points that are not finite.
	lost int
}

// chartData is what the script needs of a chart.
type chartData struct {
	X     [2]number  `json:"x"`
	Lines []lineData `json:"lines"`
}

// lineData are the points of a line. Low and High are empty if each point is one value.
type lineData struct {
	Run   int      `json:"run"`
	Name  string   `json:"name"`
	Eval  bool     `json:"eval,omitempty"`
	Best  *number  `json:"best,omitempty"`
	Steps []number `json:"steps"`
	Mean  []number `json:"mean"`
	Low   []number `json:"low,omitempty"`
	High  []number `json:"high,omitempty"`
}

// number is a value in the page's data, with five digits. One that is not finite is null.
type number float64

// MarshalJSON encodes the number.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	if v := float64(n); v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.AppendInt(nil, int64(v), 10), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 5, 64), nil
}

// place writes a share as a percentage for SVG.
func place(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" }

// known are the quantities that are drawn first, in this order, with their titles. System says that a quantity
// is of the machine's work, not of what is learned.
var known = []struct {
	name, title, unit string
	system            bool
}{
	{"loss", "Loss", "", false},
	{"*", "", "", false}, // the other metrics of evaluations
	{"learning_rate", "Learning rate", "", false},
	{"gradient_norm", "Gradient norm", "", false},
	{"examples_per_second", "Throughput", "examples/s", true},
	{"tokens_per_second", "Throughput in tokens", "tokens/s", true},
	{"memory_mib", "Memory", "MiB", true},
	{"padding_percent", "Padding in rows", "%", true},
	{"loop_overhead_percent", "Time outside of steps", "%", true},
}

// drawCharts draws the curves of all runs.
func (v *view) drawCharts() {
	logged, events := map[string]bool{}, map[string]bool{}
	for _, r := range v.Runs {
		for _, of := range []map[string]*runfolder.Series{r.Log.Train, r.Log.Eval} {
			for name := range of {
				logged[name] = true
			}
		}
		for tag := range r.TrainEvents {
			events[tag] = true
		}
	}
	drawn := map[string]bool{"steps_per_second": true}
	x := v.steps()
	add := func(to *[]*chart, name, title, unit string) {
		drawn[name] = true
		c := &chart{ID: len(v.Data.Charts), Title: title, Unit: unit, useLog: logged[name], wide: name == "loss" || name == "gradient_norm" || name == "learning_rate", x: x}
		for _, r := range v.Runs {
			c.lines = append(c.lines, r.lines(name, logged[name])...)
		}
		if c.draw(v) {
			*to = append(*to, c)
			v.Data.Charts = append(v.Data.Charts, c.data())
			v.Bands = v.Bands || slices.ContainsFunc(c.Plots[0].Curves, func(c curve) bool { return c.Band != "" })
		}
	}
	best := v.Runs[0].Best.Metric
	for _, k := range known {
		if k.name != "*" {
			to := &v.Charts
			if k.name == "loss" {
				to = &v.Main
			} else if k.system {
				to = &v.System
			}
			if !drawn[k.name] {
				add(to, k.name, k.title, k.unit)
			}
			continue
		}
		if best != "" && logged[best] && !drawn[best] {
			add(&v.Main, best, capital(best), "")
		}
		for _, name := range slices.Sorted(maps.Keys(logged)) {
			if name != "learning_rate" && name != "gradient_norm" && !drawn[name] {
				add(&v.Charts, name, capital(name), "")
			}
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(events)) {
		if name := lastPart(tag); !drawn[tag] && (!drawn[name] || strings.HasPrefix(tag, "replica_") || strings.HasPrefix(tag, "worker_")) && len(v.More) < mostMore {
			add(&v.More, tag, tag, "")
		}
	}
}

// steps returns the scale of the steps, which all charts share.
func (v *view) steps() ticks.Scale {
	x := ticks.Scale{High: 1}
	for _, r := range v.Runs {
		x.High = max(x.High, float64(r.Log.Step))
		for _, points := range r.TrainEvents {
			if n := len(points); n > 0 {
				x.High = max(x.High, float64(points[n-1].Step))
			}
		}
	}
	return x
}

// capital writes a metric's name as a title. The name of a split is left as it is.
func capital(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	if len(name) <= 4 && name != "loss" { // f1, mcc, rmse
		return strings.ToUpper(name)
	}
	return strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "_", " ")
}

// lines returns the series of a quantity in a run: from its metrics if they have it, otherwise from
// the events.
func (r *runView) lines(name string, logged bool) []line {
	var out []line
	add := func(of string, eval bool, steps []int64, values []float64) {
		l := line{run: r.Number, name: of, eval: eval, best: -1, buckets: ticks.Downsample(steps, values, mostPoints)}
		if l.loaded = l.buckets; logged {
			l.loaded = ticks.Downsample(steps, values, mostLoaded)
		}
		for _, v := range values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				l.lost++
			}
		}
		if eval && r.Best.Known && r.Best.Metric == name {
			l.best = r.Best.Step
		}
		out = append(out, l)
	}
	if logged {
		if s := r.Log.Train[name]; s.Len() > 0 {
			add("train", false, s.Steps, s.Values)
		}
		if s := r.Log.Eval[name]; s.Len() > 0 {
			split, _ := r.Run.EvalSplits().Cut(name)
			add(split, true, s.Steps, s.Values)
		}
		return out
	}
	points := r.TrainEvents[name]
	if points == nil {
		points = r.event(name)
	}
	if len(points) > 0 {
		steps, values := split(points)
		add("train", false, steps, values)
	}
	return out
}

// split returns the steps, which rise, and the values of points.
func split(points []summary.Point) (steps []int64, values []float64) {
	for _, p := range points {
		if n := len(steps); n > 0 && steps[n-1] >= p.Step {
			continue
		}
		steps, values = append(steps, p.Step), append(values, p.Value)
	}
	return steps, values
}

// span returns the least and the greatest finite value of all lines, and whether there is one.
func (c *chart) span() (low, high float64, ok bool) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range c.lines {
		for _, b := range l.buckets {
			if !math.IsNaN(b.Mean) {
				low, high, ok = min(low, b.Min), max(high, b.Max), true
			}
		}
	}
	return low, high, ok
}

// draw makes the plots of the lines. It returns false if there is nothing to draw.
func (c *chart) draw(v *view) bool {
	low, high, ok := c.span()
	if !ok || c.Unit == "%" && low == 0 && high == 0 {
		return false
	}
	for _, t := range ticks.Steps(c.x.Low, c.x.High, 7) {
		c.XTicks = append(c.XTicks, tick{place(c.x.At(t)), ticks.Label(t)})
	}
	y, marks := ticks.Linear(low, high, 6)
	c.plot(v.Many, y, marks)
	if c.useLog && (c.wide || high > 1) && low > 0 && high/low >= 4 { // other metrics up to 1 are shares
		y, marks = ticks.Logarithmic(low, high)
		c.plot(v.Many, y, marks)
	}
	var said, lost []string
	for _, l := range c.lines {
		name := l.name
		if v.Many {
			name = v.Runs[l.run].Name + ", " + name
		}
		if c.Legend = append(c.Legend, legend{c.class(v.Many, l), name}); l.eval || len(c.lines) > 1 {
			c.Named = true
		}
		a, b := l.buckets[0], l.buckets[len(l.buckets)-1]
		said = append(said, fmt.Sprintf("%s from %s to %s", name, value(a.Mean), value(b.Mean)))
		if l.lost > 0 {
			lost = append(lost, fmt.Sprintf("%s has %s values that are not finite", name, count(l.lost)))
		}
	}
	c.Summary = fmt.Sprintf("%s by step: %s.", c.Title, strings.Join(said, "; "))
	c.Note = strings.Join(lost, "; ")
	return true
}

// class returns the classes of a line. In a page of one run colours tell training from evaluation, in
// one of several they tell the runs apart.
func (c *chart) class(many bool, l line) string {
	color := l.run
	if !many && l.eval {
		color = 1
	}
	kind := "train"
	if l.eval {
		kind = "eval"
	}
	return fmt.Sprintf("r%d c%d %s", l.run, color, kind)
}

// plot draws the lines on a scale.
func (c *chart) plot(many bool, y ticks.Scale, marks []float64) {
	p := &plot{Log: y.Log, XTicks: c.XTicks}
	for i, label := range ticks.Labels(marks) {
		p.YTicks = append(p.YTicks, tick{place(1 - y.At(marks[i])), label})
	}
	for _, at := range y.Between(marks) {
		p.Lines = append(p.Lines, place(1-y.At(at)))
	}
	for _, l := range c.lines {
		p.Curves = append(p.Curves, l.curve(c.x, y, c.class(many, l)))
	}
	c.Plots = append(c.Plots, p)
}

// curve draws a line as paths and markers.
func (l line) curve(x, y ticks.Scale, class string) curve {
	out := curve{Class: class}
	var path, upper []byte
	var lower []string
	at := func(b ticks.Bucket, v float64) (string, string) {
		return strconv.Itoa(int(math.Round(1000 * x.At(b.Middle())))), strconv.Itoa(int(math.Round(1000 * (1 - y.At(v)))))
	}
	wide, pen := false, byte('M')
	for _, b := range l.buckets {
		if math.IsNaN(b.Mean) { // a gap
			pen = 'M'
			continue
		}
		px, py := at(b, b.Mean)
		path = append(append(append(append(path, pen), px...), ' '), py...)
		pen = 'L'
		wide = wide || b.Min < b.Max
		_, top := at(b, b.Max)
		_, bottom := at(b, b.Min)
		mark := byte('L')
		if upper == nil {
			mark = 'M'
		}
		upper = append(append(append(append(upper, mark), px...), ' '), top...)
		lower = append(lower, "L"+px+" "+bottom)
	}
	out.Path = string(path)
	if wide {
		slices.Reverse(lower)
		out.Band = string(upper) + strings.Join(lower, "") + "Z"
	}
	for _, b := range l.buckets {
		isBest := l.best >= 0 && b.First <= l.best && l.best <= b.Last
		if math.IsNaN(b.Mean) || !isBest && (!l.eval && len(l.buckets) > 1 || len(l.buckets) > mostMarkers) {
			continue
		}
		kind := "dot"
		if isBest {
			kind = "dot best"
		}
		out.Dots = append(out.Dots, dot{place(x.At(b.Middle())), place(1 - y.At(b.Mean)), kind})
	}
	return out
}

// data returns the points for the script.
func (c *chart) data() chartData {
	d := chartData{X: [2]number{number(c.x.Low), number(c.x.High)}}
	for _, l := range c.lines {
		at := lineData{Run: l.run, Name: l.name, Eval: l.eval}
		if l.best >= 0 {
			best := number(l.best)
			at.Best = &best
		}
		wide := slices.ContainsFunc(l.loaded, func(b ticks.Bucket) bool { return b.Min < b.Max })
		for _, b := range l.loaded {
			at.Steps, at.Mean = append(at.Steps, number(math.Round(b.Middle()))), append(at.Mean, number(b.Mean))
			if wide {
				at.Low, at.High = append(at.Low, number(b.Min)), append(at.High, number(b.Max))
			}
		}
		d.Lines = append(d.Lines, at)
	}
	return d
}
