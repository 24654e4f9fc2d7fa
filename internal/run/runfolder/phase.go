package runfolder

import "encoding/json"

// Kind is what a process did for a while.
type Kind string

// The kinds of phases.
const (
	Training   Kind = "train" // updates, their input, and waiting for checkpoints
	Evaluating Kind = "eval"
	Saving     Kind = "save" // of a checkpoint, in the background of what follows
)

// Phase is a line of the journal: a stretch of training, an evaluation or a save has ended.
type Phase struct {
	Event   string `json:"event"` // "phase"
	Process int    `json:"process"`
	Kind    Kind   `json:"phase"`
	// Step is the global step at the end.
	Step int64 `json:"step"`
	// Seconds is how long it took, and Elapsed is the time from the process's first step to the end.
	Seconds float64 `json:"seconds"`
	Elapsed float64 `json:"elapsed"`
	// Steps is the number of updates, or of batches that were evaluated.
	Steps    int64 `json:"steps,omitempty"`
	Examples int64 `json:"examples,omitempty"`
	Tokens   int64 `json:"tokens,omitempty"`
	// FLOPs is what the updates cost in floating point operations; 0 if unknown.
	FLOPs float64 `json:"flops,omitempty"`
	// Padding is the share of the positions in the rows that had no token, from 0 to 1.
	Padding float64 `json:"padding,omitempty"`
	// Accumulate is the number of micro-batches, one after the other, of an update at the end.
	Accumulate int64 `json:"accumulate,omitempty"`
	Memory
}

// Memory is what a process had of a machine's memory in a phase, in bytes.
type Memory struct {
	Before int64 `json:"memory_before,omitempty"`
	After  int64 `json:"memory_after,omitempty"`
	// Peak is the most within the phase; 0 if the process had had more before, so that it is not
	// known.
	Peak int64 `json:"memory_peak,omitempty"`
}

// Delta returns by how much the memory grew, and how much more than at the end there was in
// between; known is false if that is not known.
func (m Memory) Delta() (grown, peaked int64, known bool) {
	return m.After - m.Before, max(0, m.Peak-m.After), m.Peak > 0
}

// AppendPhases adds lines to the journal of a folder.
func AppendPhases(folder string, phases []Phase) error {
	var text []byte
	for _, p := range phases {
		p.Event = "phase"
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	if len(text) == 0 {
		return nil
	}
	return appendText(folder, text)
}

// Spent sums phases.
type Spent struct {
	// Seconds is the time of the phases.
	Seconds                 float64
	Steps, Examples, Tokens int64
	FLOPs                   float64
	// Fastest is the highest rate of a phase, in FLOPs per second.
	Fastest float64
}

// Spent sums the phases of a kind of all processes.
func (r *Run) Spent(kind Kind) Spent { return spent(r.Processes, kind) }

func spent(processes []Process, kind Kind) (s Spent) {
	for _, p := range processes {
		for _, f := range p.Phases {
			if f.Kind == kind {
				s.Add(f)
			}
		}
	}
	return s
}

// Add adds a phase. Phases of a run know their FLOPs all, or none does.
func (s *Spent) Add(f Phase) {
	s.Seconds += f.Seconds
	s.Steps, s.Examples, s.Tokens = s.Steps+f.Steps, s.Examples+f.Examples, s.Tokens+f.Tokens
	s.FLOPs += f.FLOPs
	if f.Seconds > 0 {
		s.Fastest = max(s.Fastest, f.FLOPs/f.Seconds)
	}
}

// MFU returns the share of a machine's peak, in FLOPs per second, that the phases reached (model FLOPs
// utilization), from 0 to 1. It returns false if a phase was faster than the peak, which was measured
// wrongly then, and if the FLOPs or the peak, 0, are not known.
func (s Spent) MFU(peak float64) (share float64, ok bool) {
	share = s.PerSecond(s.FLOPs) / peak
	return share, peak > 0 && share > 0 && max(share, s.Fastest/peak) <= 1
}

// PerSecond returns a rate, or 0 if the time is not known.
func (s Spent) PerSecond(n float64) float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return n / s.Seconds
}
