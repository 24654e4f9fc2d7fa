package report

import (
	"math"
	"sort"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// pageData is what the script needs of a page.
type pageData struct {
	Runs   []runData   `json:"runs"`
	Charts []chartData `json:"charts"`
}

// runData says what else than steps the curves of a run may be drawn by. Between the points it is a
// straight line; before the first of them is 0 at step 0.
type runData struct {
	// StepsPerEpoch is 0 if it is not known.
	StepsPerEpoch number   `json:"epoch,omitempty"`
	Steps         []number `json:"steps,omitempty"`
	Seconds       []number `json:"seconds,omitempty"`
	Examples      []number `json:"examples,omitempty"`
}

// progress is how far a run was at a step: after so much time, evaluations included, and so many examples.
type progress struct {
	step              int64
	seconds, examples float64
}

// axes returns what the curves of a run may be drawn by, from the journal of the processes that trained.
func (r *runView) axes() runData {
	var out runData
	var points []progress
	var before float64 // seconds of earlier processes
	for _, p := range r.Processes {
		out.StepsPerEpoch = number(p.Start.StepsPerEpoch)
		// A process that continues from an earlier step makes the later ones again.
		points = points[:sort.Search(len(points), func(i int) bool { return points[i].step > p.Start.Step })]
		examples := 0.0
		if n := len(points); n > 0 {
			examples = points[n-1].examples
		}
		if p.Start.Step > 0 {
			points = append(points, progress{p.Start.Step, before, examples})
		}
		var last float64
		for _, f := range p.Phases {
			last = max(last, f.Elapsed)
			if f.Kind != runfolder.Training {
				continue
			}
			examples += float64(f.Examples)
			points = append(points, progress{f.Step, before + f.Elapsed, examples})
		}
		if p.End != nil {
			last = max(last, p.End.Seconds)
		}
		before += last
	}
	for i := range min(len(points), mostPoints) {
		p := points[(i+1)*len(points)/min(len(points), mostPoints)-1]
		out.Steps, out.Seconds, out.Examples = append(out.Steps, number(p.step)), append(out.Seconds, number(p.seconds)), append(out.Examples, number(math.Round(p.examples)))
	}
	return out
}
