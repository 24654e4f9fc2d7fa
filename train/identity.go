package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// graphIdentity is what a checkpoint says of the graph that it is of. Variables
// of equal names and shapes are not enough: models that pool differently, or
// have another number of heads, may share them.
type graphIdentity graphs.Model

// savedIdentity is the form in which an identity is saved.
type savedIdentity struct {
	Architecture string         `json:"architecture"`
	Pooling      string         `json:"pooling"`
	NumLabels    int            `json:"num_labels"`
	Config       map[string]any `json:"config"`
}

// State implements runner.Persistent.
func (g graphIdentity) State() (json.RawMessage, error) {
	return json.Marshal(savedIdentity{g.Architecture, g.Pooling, g.NumLabels, g.Config})
}

// Restore implements runner.Persistent. The identity was checked before the
// variables were restored.
func (g graphIdentity) Restore(json.RawMessage) error { return nil }

// check returns an error where a run's state belongs to another graph. States
// that say nothing of their graph are let pass.
func (g graphIdentity) check(state []byte) error {
	run, err := runner.ParseRunState(state)
	if err != nil || run.Persistent[graphState] == nil {
		return nil // whoever needs the state says what is wrong with it
	}
	var saved savedIdentity
	if err := json.Unmarshal(run.Persistent[graphState], &saved); err != nil {
		return fmt.Errorf("identity of the graph: %w", err)
	}
	var d []string
	differ := func(what string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			d = append(d, fmt.Sprintf("%s was %v and is %v", what, was, is))
		}
	}
	differ("the architecture", saved.Architecture, g.Architecture)
	differ("the pooling", saved.Pooling, g.Pooling)
	differ("the number of labels", saved.NumLabels, g.NumLabels)
	for _, name := range slices.Sorted(maps.Keys(saved.Config)) {
		if is, ok := g.Config[name]; ok {
			differ(name, saved.Config[name], is)
		}
	}
	if len(d) > 0 {
		return fmt.Errorf("it is of another graph: %s", strings.Join(d, "; "))
	}
	return nil
}
