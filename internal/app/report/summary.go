package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	ticks "github.com/gorbit-ml/gorbit/internal/app/chart"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/summary"
)

// summarize fills in the figures at the top, and the next command.
func (r *runView) summarize() {
	add := func(label, value, note, class string) { r.Tiles = append(r.Tiles, tile{label, value, note, class}) }
	if r.Best.Known {
		add("best "+r.Best.Metric, value(r.Best.Value), fmt.Sprintf("at step %s", count(r.Best.Step)), "best")
	} else if last, step, ok := r.Log.Eval["loss"].End(); ok {
		add("loss in evaluation", value(last), fmt.Sprintf("at step %s, the last; the run does not say what is best", count(step)), "")
	} else if last, step, ok := r.Log.Train["loss"].End(); ok {
		add("loss in training", value(last), fmt.Sprintf("at step %s; not evaluated", count(step)), "")
	}
	note := r.Reason
	add("state", string(r.State), clip(note, 160), "state-"+string(r.State))
	steps, note := count(r.Step), ""
	if r.Steps > 0 {
		steps += " of " + count(r.Steps)
	}
	if n := len(r.Processes); n > 0 && r.Processes[n-1].Start.StepsPerEpoch > 0 {
		note = strconv.FormatFloat(float64(r.Step)/float64(r.Processes[n-1].Start.StepsPerEpoch), 'g', 3, 64) + " epochs"
		if note == "1 epochs" {
			note = "1 epoch"
		}
	}
	add("steps", steps, note, "")
	note = ""
	if len(r.Processes) > 1 {
		note = fmt.Sprintf("in %d processes", len(r.Processes))
	}
	if r.Seconds > 0 {
		add("time", runfolder.Duration(r.Seconds), note, "")
	}
	if speed, ok := median(r.event("examples_per_second")); ok {
		add("examples/s", value(speed), "median of the loops", "")
	}
	if s := r.Spent(runfolder.Training); s.FLOPs > 0 && s.Seconds > 0 {
		note := "of the examples' tokens, without padding"
		if peak := r.Processes[len(r.Processes)-1].Start.PeakFLOPS; peak > 0 {
			note = "faster than the machine's peak: measure it again with gorbit doctor --measure"
			if share, ok := s.MFU(peak); ok {
				note = percent(share) + " of the machine's peak (MFU)"
			}
		}
		add("FLOP/s", words.Scaled(s.PerSecond(s.FLOPs), "", "k", "M", "G", "T", "P"), note, "")
	}
	switch points := r.event("memory_mib"); {
	case r.PeakMemoryMiB > 0:
		add("peak memory", fmt.Sprintf("%s MiB", count(r.PeakMemoryMiB)), "", "")
	case len(points) > 0:
		add("memory", fmt.Sprintf("%s MiB", value(points[len(points)-1].Value)), "now", "")
	}
	if n := len(r.Processes); n > 0 && r.Processes[n-1].Start.Parameters > 0 {
		add("parameters", ticks.Label(float64(roundTo3(r.Processes[n-1].Start.Parameters))), r.Processes[n-1].Start.Model, "")
	}
	r.Next, r.NextFor = r.next()
}

// roundTo3 keeps three digits of a number.
func roundTo3(n int64) int64 {
	unit := int64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return n / unit * unit
}

// next returns the command to type next, and what it does.
func (r *runView) next() (command, what string) {
	run := quote(r.Folder)
	which := "latest"
	if r.Best.Known {
		which = "best"
	}
	detailed := len(r.Evaluations) > 0
	switch r.State {
	case runfolder.Running:
		return "gorbit watch " + run, "shows the curves in the terminal while the run trains"
	case runfolder.Failed:
		return fmt.Sprintf("gorbit train --params %s --run %s", quote(r.Folder+"/params.yaml"), run), "continues from the last checkpoint, once the cause is mended"
	case runfolder.Stopped:
		return fmt.Sprintf("gorbit train --params %s --run %s", quote(r.Folder+"/params.yaml"), run), "continues the run where it stopped"
	}
	if !detailed {
		return fmt.Sprintf("gorbit evaluate --run %s --checkpoint %s", run, which), "evaluates the run's checkpoint"
	}
	return fmt.Sprintf("gorbit export --run %s --checkpoint %s --out served/%s", run, which, quote(r.Name)), "writes the model that gorbit-predict serves"
}

// quote writes a word as a shell reads it.
func quote(word string) string {
	for _, c := range word {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=@%+-", c) {
			return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return word
}

// event returns the points of a tag of the events of training. The tag may stand in a group.
func (r *runView) event(name string) []summary.Point {
	for _, tag := range slices.Sorted(maps.Keys(r.TrainEvents)) {
		if tag == name || lastPart(tag) == name && !strings.HasPrefix(tag, "replica_") && !strings.HasPrefix(tag, "worker_") {
			return r.TrainEvents[tag]
		}
	}
	return nil
}

// lastPart returns what stands after the last slash.
func lastPart(tag string) string { return tag[strings.LastIndexByte(tag, '/')+1:] }

// median returns the median of points.
func median(points []summary.Point) (float64, bool) {
	if len(points) == 0 {
		return 0, false
	}
	values := make([]float64, len(points))
	for i, p := range points {
		values[i] = p.Value
	}
	slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(a, b) })
	return values[len(values)/2], true
}

// value writes a number with four digits.
func value(v float64) string { return ticks.Value(v) }

// percent writes a share as a percentage.
func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// count writes a whole number with groups of three digits.
func count[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// clip cuts a text after n characters.
func clip(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return strings.TrimSpace(string(runes[:n])) + "…"
}
