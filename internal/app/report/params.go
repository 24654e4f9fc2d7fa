package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// param is a param with its value and its default.
type param struct{ Name, Value, Default string }

// differing is a param with its value in each run.
type differing struct {
	Name   string
	Values []runValue
}

// runValue is the value of a param in a run. Short is what fits a table: numbers have six digits.
type runValue struct{ Full, Short string }

// describeParams lists the params that are not at their defaults, and all of them.
func (r *runView) describeParams(defaults map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(r.Run.Params)) {
		p := param{name, r.Run.Params[name], defaults[name]}
		r.All = append(r.All, p)
		if p.Value != p.Default {
			r.Params = append(r.Params, p)
		}
	}
}

// differ returns the params that are not the same in all runs.
func differ(runs []*runView) []differing {
	all := map[string]bool{}
	for _, r := range runs {
		for name := range r.Run.Params {
			all[name] = true
		}
	}
	var out []differing
	for _, name := range slices.Sorted(maps.Keys(all)) {
		values := make([]string, len(runs))
		same := true
		for i, r := range runs {
			values[i] = r.Run.Params[name]
			same = same && values[i] == values[0]
		}
		if !same {
			out = append(out, differing{name, shorten(values)})
		}
	}
	return out
}

// shorten shortens the numbers of a row of a table, unless different ones would look the same.
func shorten(values []string) []runValue {
	out := make([]runValue, len(values))
	full := map[string]string{} // by the short form
	for i, v := range values {
		out[i] = runValue{v, v}
		if x, err := strconv.ParseFloat(v, 64); err == nil && strings.Contains(v, ".") {
			if short := strconv.FormatFloat(x, 'g', 6, 64); len(short) < len(v) {
				out[i].Short = short
			}
		}
		if other, ok := full[out[i].Short]; ok && other != v {
			for i, v := range values {
				out[i] = runValue{v, v}
			}
			return out
		}
		full[out[i].Short] = v
	}
	return out
}

// describeMachine lists what the run trained on, from its last process.
func (r *runView) describeMachine() {
	if len(r.Processes) == 0 {
		r.Missing = append(r.Missing, missing{"The machine and the versions are not known: the run has no journal. Runs of this version have one.", ""})
		return
	}
	s := r.Processes[len(r.Processes)-1].Start
	add := func(label, value string) {
		if value != "" && value != "0" {
			r.Env = append(r.Env, fact{label, value})
		}
	}
	add("gorbit", s.Gorbit)
	add("TensorFlow", s.TensorFlow)
	add("Go", s.Go)
	add("host", s.Host)
	add("processor", s.Processor)
	add("cores", fmt.Sprint(s.Cores))
	if s.MemoryMiB > 0 {
		add("memory", fmt.Sprintf("%.1f GiB", float64(s.MemoryMiB)/1024))
	}
	add("devices", strings.Join(s.Devices, ", "))
	add("kernels", cmp.Or(s.Kernels, "those of TensorFlow"))
	add("precision", s.Precision)
	add("model", s.Model)
	if s.Parameters > 0 {
		add("parameters", count(s.Parameters))
	}
}

// ProcessRow is a process as a row of a table.
type processRow struct{ Began, Outcome, Steps, Time, Memory, Error string }

// Journal returns the processes that trained, if there was more than one.
func (r *runView) Journal() []processRow {
	if len(r.Processes) < 2 {
		return nil
	}
	var out []processRow
	for i, p := range r.Processes {
		row := processRow{Began: p.Start.Time.Format(time.DateTime), Outcome: "killed", Steps: count(p.Start.Step) + " –"}
		switch {
		case p.End != nil:
			row.Outcome, row.Error = string(p.End.Outcome), clip(p.End.Error, 200)
			row.Steps = fmt.Sprintf("%s – %s", count(p.Start.Step), count(p.End.Step))
			row.Time = (time.Duration(p.End.Seconds) * time.Second).String()
			row.Memory = count(p.End.PeakMemoryMiB) + " MiB"
		case i == len(r.Processes)-1 && r.State == "running":
			row.Outcome = "running"
		}
		out = append(out, row)
	}
	return out
}
