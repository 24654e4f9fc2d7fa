package train

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
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// change is a param whose value was changed when the run continued.
type change struct {
	// Step is the number of steps made with the old value.
	Step  int64  `json:"step"`
	Param string `json:"param"`
	// Old is null if the param did not exist before, New if it no longer exists.
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new"`
}

// String returns the change as a clause of a message.
func (c change) String() string {
	switch {
	case c.Old == nil:
		return fmt.Sprintf("%s is now %s", c.Param, c.New)
	case c.New == nil:
		return fmt.Sprintf("%s was %s", c.Param, c.Old)
	}
	return fmt.Sprintf("%s was %s and is %s", c.Param, c.Old, c.New)
}

// list joins changes into a clause of a message.
func list(changes []change) string {
	clauses := make([]string, len(changes))
	for i, c := range changes {
		clauses[i] = c.String()
	}
	return strings.Join(clauses, "; ")
}

// values holds params by name, each as JSON.
type values map[string]string

// valuesOf returns the params as recorded in a history. Params that mean the same for a task are equal.
func valuesOf(p params.Params, of task.Task) (values, error) {
	if order, err := p.Checkpoint.BestOrder(of); p.Checkpoint.Best == "" || err == nil && p.Checkpoint.BestMode == params.BestModes[order] {
		p.Checkpoint.BestMode = ""
	}
	if p.Checkpoint.BestMode == "" {
		p.Checkpoint.BestMode = params.ModeAuto
	}
	out := make(values)
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

// changes returns the params that differ, sorted by name, as changes after the given step.
func (before values) changes(after values, step int64) []change {
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []change
	for _, name := range names {
		if before[name] != after[name] {
			out = append(out, change{step, name, raw(before[name]), raw(after[name])})
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

// changes returns the differences between two params of a task as changes after the given step.
func changes(of task.Task, before, after params.Params, step int64) ([]change, error) {
	was, err := valuesOf(before, of)
	if err != nil {
		return nil, err
	}
	is, err := valuesOf(after, of)
	if err != nil {
		return nil, err
	}
	return was.changes(is, step), nil
}

// history is the list of a run's changed params, oldest first.
type history []change

// readHistory reads the history of a run folder. It returns nil if the folder has none.
func readHistory(folder string) (history, error) {
	path := filepath.Join(folder, runfolder.History)
	content, err := vfs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var h history
	for d := json.NewDecoder(bytes.NewReader(content)); ; {
		var c change
		switch err := d.Decode(&c); {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return nil, fmt.Errorf("%s: change %d: %w", path, len(h)+1, err)
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

// write replaces the history of a run folder.
func (h history) write(folder string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, c := range h {
		if err := e.Encode(c); err != nil {
			return err
		}
	}
	return runfolder.Replace(filepath.Join(folder, runfolder.History), b.Bytes())
}

// settled returns the history without the changes that are missing from params.yaml. The history
// is written before params.yaml, so these changes come from a process that was killed between the
// two and trained nothing.
func (h history) settled(params values) history {
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

// at returns the params with which the run's steps up to the given one were made, derived from
// the params now. Changes after a later step led to checkpoints that are lost.
func (h history) at(step int64, now values) values {
	var led []change // changes that led to the current state of the run
	for _, c := range h {
		led = slices.DeleteFunc(led, func(l change) bool { return l.Step > c.Step })
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
