package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Change is a param whose value was changed when the run continued.
type Change struct {
	// Step is the number of steps made with the old value.
	Step  int64  `json:"step"`
	Param string `json:"param"`
	// Old is null if the param did not exist before, New if it no longer exists.
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new"`
}

// String returns the change as a clause of a message.
func (c Change) String() string {
	switch {
	case c.Old == nil:
		return fmt.Sprintf("%s is now %s", c.Param, c.New)
	case c.New == nil:
		return fmt.Sprintf("%s was %s", c.Param, c.Old)
	}
	return fmt.Sprintf("%s was %s and is %s", c.Param, c.Old, c.New)
}

// ListChanges joins changes into a clause of a message.
func ListChanges(changes []Change) string {
	clauses := make([]string, len(changes))
	for i, c := range changes {
		clauses[i] = c.String()
	}
	return strings.Join(clauses, "; ")
}

// Values holds params by name, each as JSON.
type Values map[string]string

// ValuesOf returns the params as recorded in a history. Params that mean the same for a task are equal.
func ValuesOf(p params.Params, of task.Task) (Values, error) {
	if order, err := p.BestOrder(of); p.Checkpoint.Best == "" || err == nil && p.Checkpoint.BestMode == params.BestModes[order] {
		p.Checkpoint.BestMode = ""
	}
	if p.Checkpoint.BestMode == "" {
		p.Checkpoint.BestMode = params.ModeAuto
	}
	out := make(Values)
	for name, v := range p.Flat() {
		switch w := v.(type) {
		case string:
			text, err := strconv.Unquote(w)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			v = text
		case time.Duration:
			v = w.String()
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = strings.TrimSpace(b.String())
	}
	return out, nil
}

// Changes returns the params that differ, sorted by name, as changes after the given step.
func (before Values) Changes(after Values, step int64) []Change {
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []Change
	for _, name := range names {
		if before[name] != after[name] {
			out = append(out, Change{step, name, raw(before[name]), raw(after[name])})
		}
	}
	return out
}

// raw returns the value of a param as JSON, or nil if the param does not exist.
func raw(value string) json.RawMessage {
	if value == "" {
		return nil
	}
	return json.RawMessage(value)
}

// Differences returns those between two params of a task as changes after the given step.
func Differences(of task.Task, before, after params.Params, step int64) ([]Change, error) {
	was, err := ValuesOf(before, of)
	if err != nil {
		return nil, err
	}
	is, err := ValuesOf(after, of)
	if err != nil {
		return nil, err
	}
	return was.Changes(is, step), nil
}

// Changes is the list of a run's changed params, oldest first.
type Changes []Change

// ReadChanges reads the history of a run folder. It returns nil if the folder has none, and
// with an error the changes before it.
func ReadChanges(folder string) (Changes, error) {
	path := filepath.Join(folder, History)
	content, err := vfs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var h Changes
	for d := json.NewDecoder(bytes.NewReader(content)); ; {
		var c Change
		switch err := d.Decode(&c); {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return h, fmt.Errorf("%s: change %d: %w", path, len(h)+1, err)
		}
		if string(c.Old) == "null" {
			c.Old = nil
		}
		if string(c.New) == "null" {
			c.New = nil
		}
		h = append(h, c)
	}
}

// Write replaces the history of a run folder.
func (h Changes) Write(folder string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, c := range h {
		if err := e.Encode(c); err != nil {
			return err
		}
	}
	return vfs.ReplaceFile(filepath.Join(folder, History), b.Bytes())
}

// Settled returns the history without the changes that are missing from params.yaml. The history
// is written before params.yaml, so these changes come from a process that was killed between the
// two and trained nothing.
func (h Changes) Settled(params Values) Changes {
	for end := len(h); end > 0; {
		last := h[end-1]
		if params[last.Param] == string(last.New) {
			break
		}
		end--
		h = h[:end]
	}
	return h
}

// At returns the params with which the run's steps up to the given one were made, derived from
// the params now. Changes after a later step led to checkpoints that are lost.
func (h Changes) At(step int64, now Values) Values {
	var led []Change // changes that led to the current state of the run
	for _, c := range h {
		led = slices.DeleteFunc(led, func(l Change) bool { return l.Step > c.Step })
		led = append(led, c)
	}
	then := maps.Clone(now)
	for _, c := range slices.Backward(led) {
		if c.Step <= step {
			break
		}
		if then[c.Param] = string(c.Old); c.Old == nil {
			delete(then, c.Param)
		}
	}
	return then
}
