// Package watch shows a run in a terminal while another process trains it: its state, and the curves
// of the loss and of the metric that is best.
package watch

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/app/chart"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// Config says what is shown, and where.
type Config struct {
	// Folder is that of the run.
	Folder string
	// Metric is the metric of the second curve; "" is the one that is best.
	Metric string
	// Out is the terminal, or anything else.
	Out io.Writer
	// Size returns the columns and rows of the terminal; nil if Out is none. Then a picture is
	// printed once or, with Follow, a line for each line of metrics.
	Size   func() (columns, rows int)
	Follow bool
	// Resized tells that the size has changed; nil for never.
	Resized <-chan os.Signal
	// Every is the time between two looks at the run.
	Every time.Duration
}

// Control sequences of terminals: another screen without cursor and back, to the first place, and
// erasing to the end of a line and of the screen.
const (
	enter     = "\x1b[?1049h\x1b[?25l"
	leave     = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	eraseLine = "\x1b[K"
	eraseRest = "\x1b[J"
)

// columns and rows are the size of a picture that is not on a terminal.
const columns, rows = 80, 30

// Watch shows the run until it ends or the context is cancelled, which is no error: the run is not
// touched.
func Watch(ctx context.Context, c Config) error {
	r, err := runfolder.Read(c.Folder, false, time.Now())
	if err != nil {
		return err
	}
	if c.Metric != "" && r.Log.Eval[c.Metric] == nil && r.Log.Train[c.Metric] == nil && len(r.Log.Eval)+len(r.Log.Train) > 0 {
		return &MetricError{c.Metric, metrics(r)}
	}
	switch {
	case c.Size == nil && c.Follow:
		return c.lines(ctx, r)
	case c.Size == nil || r.State != runfolder.Running:
		return c.print(r)
	}
	return c.live(ctx, r)
}

// MetricError says that a run has no metric of a name.
type MetricError struct {
	Name  string
	Known []string
}

func (e *MetricError) Error() string {
	return fmt.Sprintf("the run has no metric %q; %s", e.Name, words.OneOf(e.Name, e.Known))
}

// metrics returns the names of all metrics of a run.
func metrics(r *runfolder.Run) []string {
	all := map[string]bool{}
	for _, of := range []map[string]*runfolder.Series{r.Log.Train, r.Log.Eval} {
		for name := range of {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// print prints a picture once.
func (c Config) print(r *runfolder.Run) error {
	w, h := columns, rows
	if c.Size != nil {
		w, h = c.Size()
	}
	_, err := fmt.Fprintln(c.Out, strings.Join(Frame(r, c.Metric, w, h), "\n"))
	return err
}

// live draws pictures over each other, and the last one below what was on the terminal before.
func (c Config) live(ctx context.Context, r *runfolder.Run) (err error) {
	if _, err := io.WriteString(c.Out, enter); err != nil {
		return err
	}
	defer func() {
		if _, left := io.WriteString(c.Out, leave); err == nil {
			err = left
		}
		if err == nil {
			err = c.print(r)
		}
	}()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for r.State == runfolder.Running {
		w, h := c.Size()
		picture := home + strings.Join(Frame(r, c.Metric, w, h), eraseLine+"\r\n") + eraseLine + eraseRest
		if _, err := io.WriteString(c.Out, picture); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Resized:
			continue
		case <-tick.C:
		}
		if err := r.Refresh(time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// lines prints a line for each line of metrics, until the run ends.
func (c Config) lines(ctx context.Context, r *runfolder.Run) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	said := int64(-1)
	for {
		for _, line := range linesAfter(r.Log, said) {
			if _, err := fmt.Fprintln(c.Out, line); err != nil {
				return err
			}
		}
		if damage := r.Log.News(); damage != "" {
			if _, err := fmt.Fprintln(c.Out, damage); err != nil {
				return err
			}
		}
		said = r.Log.Step
		if r.State != runfolder.Running {
			last := []string{Status(r)}
			for _, p := range r.Problems {
				if said := r.Log.Problem(); said == "" || !strings.HasPrefix(p, said) { // which News has told
					last = append(last, shown.Text(p))
				}
			}
			_, err := fmt.Fprintln(c.Out, strings.Join(last, "\n"))
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.Refresh(time.Now()); err != nil {
			return err
		}
	}
}

// linesAfter returns what was logged after a step, a line for each step and phase.
func linesAfter(l *runfolder.Log, step int64) []string {
	type key struct {
		step int64
		eval bool
	}
	values := map[key][]string{}
	for eval, of := range map[bool]map[string]*runfolder.Series{false: l.Train, true: l.Eval} {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			s := of[name]
			from, _ := slices.BinarySearch(s.Steps, step+1)
			for i := from; i < len(s.Steps); i++ {
				k := key{s.Steps[i], eval}
				values[k] = append(values[k], name+" "+chart.Value(s.Values[i]))
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(values), func(a, b key) int {
		if a.step == b.step && a.eval != b.eval {
			return map[bool]int{true: 1, false: -1}[a.eval]
		}
		return cmp.Compare(a.step, b.step)
	})
	var out []string
	for _, k := range keys {
		phase := "train"
		if k.eval {
			phase = "eval"
		}
		out = append(out, fmt.Sprintf("%-5s step %d: %s", phase, k.step, strings.Join(values[k], ", ")))
	}
	return out
}

// Status says in a line how a run is.
func Status(r *runfolder.Run) string {
	parts := []string{r.Folder, string(r.State)}
	step := fmt.Sprintf("step %d", r.Step)
	if r.Steps > 0 {
		step = fmt.Sprintf("step %d of %d", r.Step, r.Steps)
	}
	parts = append(parts, step)
	if n := len(r.Processes); n > 0 && r.State == runfolder.Running {
		start := r.Processes[n-1].Start
		if seconds := r.Written.Sub(start.Time).Seconds(); seconds > 0 && r.Step > start.Step {
			speed := float64(r.Step-start.Step) / seconds
			parts = append(parts, chart.Value(speed)+" steps/s")
			if r.Steps > r.Step {
				parts = append(parts, runfolder.Duration(float64(r.Steps-r.Step)/speed)+" left")
			}
		}
	}
	if r.Best.Known {
		parts = append(parts, fmt.Sprintf("best %s %s at %d", r.Best.Metric, chart.Value(r.Best.Value), r.Best.Step))
	}
	line := strings.Join(parts, "  ")
	if r.Reason != "" && r.State != runfolder.Running {
		line += ": " + strings.Join(strings.Fields(r.Reason), " ")
	}
	return shown.Text(line)
}

// Frame returns the lines of a picture of a run, none of them longer than the columns, at most rows of
// them.
func Frame(r *runfolder.Run, metric string, columns, rows int) []string {
	if metric == "" {
		metric = r.Best.Metric
	}
	names := []string{"loss"}
	if metric != "" && metric != "loss" {
		names = append(names, metric)
	}
	out := wrap(Status(r), columns)
	for _, p := range r.Problems {
		out = append(out, wrap(shown.Text(p), columns)...)
	}
	// A curve has a title and two lines of steps.
	height := min(12, (rows-1-len(out))/len(names)-3)
	for _, name := range names {
		train, eval := r.Log.Train[name], r.Log.Eval[name]
		title := name
		if v, _, ok := train.End(); ok {
			title += "  train " + chart.Value(v)
		}
		if v, step, ok := eval.End(); ok {
			title += fmt.Sprintf("  eval (o) %s at %d", chart.Value(v), step)
		}
		out = append(out, cut(shown.Text(title), columns))
		if height >= 2 {
			out = append(out, chart.Terminal(points(train), points(eval), max(r.Steps, r.Step), columns, height)...)
		}
	}
	return out[:min(len(out), max(rows-1, 1))]
}

// points returns the points of a series; nil has none.
func points(s *runfolder.Series) chart.Points {
	if s == nil {
		return chart.Points{}
	}
	return chart.Points{Steps: s.Steps, Values: s.Values}
}

// cut cuts a line at the right.
func cut(line string, columns int) string {
	if r := []rune(line); len(r) > columns {
		return string(r[:columns])
	}
	return line
}

// wrap breaks a line between words, into at most three.
func wrap(line string, columns int) []string {
	var out []string
	now := ""
	for _, word := range strings.Split(line, "  ") {
		switch {
		case now == "":
			now = word
		case len([]rune(now))+2+len([]rune(word)) <= columns:
			now += "  " + word
		default:
			out = append(out, cut(now, columns))
			now = word
		}
	}
	out = append(out, cut(now, columns))
	return out[:min(len(out), 3)]
}
