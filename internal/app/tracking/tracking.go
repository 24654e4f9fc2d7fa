package tracking

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// Point is a value of a metric.
type Point struct {
	// Phase is train or eval.
	Phase  string
	Metric string
	Step   int64
	Value  float64
}

// Sink is a tracker.
type Sink interface {
	// Begin is told of the run before anything else, and returns the last steps by phase that the
	// tracker has; none for a new run. It is called again after an error.
	Begin(ctx context.Context, run *runfolder.Run) (sent map[string]int64, err error)
	// Points sends points, in the order of their steps. If there is an error, the same points, or more,
	// are sent again.
	Points(ctx context.Context, points []Point) error
	// End is told how the run ended, or that no more is sent while it runs.
	End(ctx context.Context, run *runfolder.Run) error
}

// atOnce is the largest number of points that are sent at a time, which is MLflow's limit.
const atOnce = 1000

// Tracker sends one run to one tracker.
type Tracker struct {
	// Folder is the run's.
	Folder string
	Sink   Sink
	Log    *slog.Logger
	// Poll is the time between two looks at the folder; that of an attempt at a tracker that is away.
	Poll time.Duration

	run   *runfolder.Run   // nil before the first look at the folder
	sent  map[string]int64 // nil before the tracker has taken the run
	count int
}

// Count returns the number of points that were sent.
func (t *Tracker) Count() int { return t.count }

// Send sends what the folder has now, and how the run ended.
func (t *Tracker) Send(ctx context.Context) error {
	run, err := t.sendPoints(ctx)
	if err != nil {
		return err
	}
	return t.Sink.End(ctx, run)
}

// sendPoints sends the points that the folder has now. It returns the run, also with an error of the
// tracker.
func (t *Tracker) sendPoints(ctx context.Context) (*runfolder.Run, error) {
	var err error
	if t.run == nil {
		t.run, err = runfolder.Read(t.Folder, false, time.Now())
	} else {
		err = t.run.Refresh(time.Now())
	}
	if err != nil {
		return nil, err
	}
	if damage := t.run.Log.News(); damage != "" {
		t.Log.Warn("the rest of the metrics is sent", "run", t.Folder, "damage", damage)
	}
	if t.sent == nil {
		sent, err := t.Sink.Begin(ctx, t.run)
		if err != nil {
			return t.run, err
		}
		if t.sent = maps.Clone(sent); t.sent == nil {
			t.sent = make(map[string]int64)
		}
	}
	for _, points := range batches(t.points()) {
		if err := t.Sink.Points(ctx, points); err != nil {
			t.sent = nil // begin again with what the tracker has
			return t.run, err
		}
		t.count += len(points)
		for _, p := range points {
			t.sent[p.Phase] = max(t.sent[p.Phase], p.Step)
		}
	}
	return t.run, nil
}

// batches divides points for the tracker. Values of one step and phase stay together, so that the
// last step sent says which points were.
func batches(points []Point) [][]Point {
	var all [][]Point
	from, whole := 0, 0 // the start of the batch, and the end of the last whole step in it
	for i := range points {
		if i > 0 && (points[i].Step != points[i-1].Step || points[i].Phase != points[i-1].Phase) {
			whole = i
		}
		if i-from == atOnce && whole > from {
			all, from = append(all, points[from:whole]), whole
		}
	}
	if from < len(points) {
		all = append(all, points[from:])
	}
	return all
}

// points returns what was not sent yet, in the order of the steps.
func (t *Tracker) points() []Point {
	var points []Point
	for phase, series := range map[string]map[string]*runfolder.Series{"train": t.run.Log.Train, "eval": t.run.Log.Eval} {
		last, some := t.sent[phase]
		for metric, s := range series {
			for i, step := range s.Steps {
				if !some || step > last {
					points = append(points, Point{phase, metric, step, s.Values[i]})
				}
			}
		}
	}
	slices.SortFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Metric, b.Metric))
	})
	return points
}

// Follow sends what the run's training writes until it has ended, or ended is closed. A tracker that
// is away is tried again at every look; once the run has ended, for as long as patience. The error is
// then that of the last attempt.
func (t *Tracker) Follow(ctx context.Context, ended <-chan struct{}, patience time.Duration) error {
	var deadline time.Time
	said := false
	for {
		over := false
		select {
		case <-ended:
			over = true
		default:
		}
		run, err := t.sendPoints(ctx)
		if err == nil {
			if said {
				t.Log.Info("the tracker is back, and has what waited for it")
				said = false
			}
			if over || run.State != runfolder.Running {
				err = t.Sink.End(ctx, run)
				if err == nil {
					return nil
				}
				over = true
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			if !said {
				t.Log.Warn("the tracker is away; what it misses is in metrics.jsonl, and it is tried again", "error", err)
				said = true
			}
			if over = over || run != nil && run.State != runfolder.Running; over {
				if deadline.IsZero() {
					deadline = time.Now().Add(patience)
				}
				if time.Now().After(deadline) {
					return fmt.Errorf("%w; the run is complete without it, and the same command sends what is missing", err)
				}
			}
		}
		poll := time.After(t.Poll)
		wake := ended
		if over {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wake:
		case <-poll:
		}
	}
}
