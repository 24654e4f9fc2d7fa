package loop

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// GraphIdentity identifies the graph of a checkpoint. Names and shapes of variables are not enough:
// models that differ in pooling or in the number of heads may share them.
type GraphIdentity graphs.Model

// Names is a checksum of what the numbers of a run's records stand for: labels, categories and settings of
// the tokenizer; "" if that is not known. A run's description of its data lies next to its checkpoints, which
// have this checksum, so that other names are noticed.
type Names string

// State implements runner.Persistent.
func (n Names) State() (json.RawMessage, error) { return json.Marshal(string(n)) }

// Restore implements runner.Persistent. It does nothing because the names were checked before the variables
// were restored.
func (n Names) Restore(json.RawMessage) error { return nil }

// NamesIn returns the names that a run's state was saved with, or "": older ones have none.
func NamesIn(run runner.RunState) Names {
	var saved string
	_ = json.Unmarshal(run.Persistent[NamesState], &saved) // none
	return Names(saved)
}

// Check returns an error of class fault.Damaged if a run's state was saved with other names.
func (n Names) Check(state []byte) error {
	run, err := runner.ParseRunState(state)
	if err != nil {
		return nil // an invalid state is reported by its users
	}
	if saved := NamesIn(run); n != "" && saved != "" && n != saved {
		return fault.Damagedf("data.json has other labels, categories or settings of the tokenizer than those that the run was trained with; restore it, or continue the run on its data, which writes it again")
	}
	return nil
}

// AveragedFrom are the paths of the checkpoints that a checkpoint is the mean of. It has no slots of an
// optimizer.
type AveragedFrom []string

// State implements runner.Persistent.
func (a AveragedFrom) State() (json.RawMessage, error) { return json.Marshal([]string(a)) }

// Restore implements runner.Persistent. Nothing is trained from a mean.
func (a AveragedFrom) Restore(json.RawMessage) error { return nil }

// averagedIn returns the checkpoints that the one with a run's state is the mean of, or nil.
func averagedIn(state []byte) (out AveragedFrom) {
	if run, err := runner.ParseRunState(state); err == nil {
		_ = json.Unmarshal(run.Persistent[AveragedState], &out) // none
	}
	return out
}

// savedIdentity is the saved form of an identity. Older runs have two fields of the configuration
// next to it.
type savedIdentity struct {
	Architecture string         `json:"architecture"`
	Config       map[string]any `json:"config"`
	Pooling      any            `json:"pooling,omitempty"`
	NumLabels    any            `json:"num_labels,omitempty"`
}

// State implements runner.Persistent.
func (g GraphIdentity) State() (json.RawMessage, error) {
	return json.Marshal(savedIdentity{Architecture: g.Architecture, Config: g.Config})
}

// Restore implements runner.Persistent. It does nothing because the identity was checked before the
// variables were restored.
func (g GraphIdentity) Restore(json.RawMessage) error { return nil }

// Check returns an error if a run's state belongs to another graph. It accepts states without an
// identity.
func (g GraphIdentity) Check(state []byte) error {
	run, err := runner.ParseRunState(state)
	if err != nil || run.Persistent[GraphState] == nil {
		return nil // an invalid state is reported by its users
	}
	var saved savedIdentity
	if err := json.Unmarshal(run.Persistent[GraphState], &saved); err != nil {
		return fmt.Errorf("graph identity: %w", err)
	}
	var d []string
	differ := func(what string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			d = append(d, fmt.Sprintf("%s was %v and is %v", what, was, is))
		}
	}
	differ("the architecture", saved.Architecture, g.Architecture)
	for name, value := range map[string]any{"pooling": saved.Pooling, "num_labels": saved.NumLabels} {
		if value == nil {
			continue
		}
		if saved.Config == nil {
			saved.Config = make(map[string]any)
		}
		saved.Config[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(saved.Config)) {
		if is, ok := g.Config[name]; ok {
			differ(name, saved.Config[name], is)
		}
	}
	if len(d) > 0 {
		return fmt.Errorf("it belongs to another graph: %s", strings.Join(d, "; "))
	}
	return nil
}
