package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// historyFile is the log of what was changed in the middle of a run, a line per param.
const historyFile = "params-history.jsonl"

// change is a param that a run goes on with, and that was another before.
type change struct {
	// Step is how many steps were made with the old value.
	Step  int64  `json:"step"`
	Param string `json:"param"`
	// Old and New are null where the param was not, or is no longer, there.
	Old json.RawMessage `json:"old"`
	New json.RawMessage `json:"new"`
}

// String returns the change as a clause of a message.
func (c change) String() string {
	switch {
	case c.Old == nil:
		return fmt.Sprintf("%s is %s now", c.Param, c.New)
	case c.New == nil:
		return fmt.Sprintf("%s was %s", c.Param, c.Old)
	}
	return fmt.Sprintf("%s was %s and is %s", c.Param, c.Old, c.New)
}

// list joins changes to a clause of a message.
func list(changes []change) string {
	clauses := make([]string, len(changes))
	for i, c := range changes {
		clauses[i] = c.String()
	}
	return strings.Join(clauses, "; ")
}

// values are params by their names, each as JSON.
type values map[string]string

// values returns the params as a history holds them. Two ways to say the same are equal.
func (p Params) values() (values, error) {
	if order, err := p.Checkpoint.order(taskOfParams()); p.Checkpoint.Best == "" || err == nil && p.Checkpoint.BestMode == modes[order] {
		p.Checkpoint.BestMode = ""
	}
	if p.Checkpoint.BestMode == "" {
		p.Checkpoint.BestMode = modeAuto
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

// changes lists by name what differs of params, as changes after the given step.
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

// raw returns the value of a param, nil for one that is not there.
func raw(value string) json.RawMessage {
	if value == "" {
		return nil
	}
	return json.RawMessage(value)
}

// changes lists what differs between two params.
func changes(before, after Params, step int64) ([]change, error) {
	was, err := before.values()
	if err != nil {
		return nil, err
	}
	is, err := after.values()
	if err != nil {
		return nil, err
	}
	return was.changes(is, step), nil
}

// history is what a run folder tells of changed params, oldest first.
type history []change

// readHistory reads the history of a run folder. A folder without one is fine.
func readHistory(folder string) (history, error) {
	path := filepath.Join(folder, historyFile)
	content, err := os.ReadFile(path)
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
	return replaceFile(filepath.Join(folder, historyFile), b.Bytes())
}

// settled returns the history without the changes that the params.yaml beside it does not
// have. The history is written before it, so these are of a start that was killed between
// the two and trained nothing.
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

// at returns what the params were with which the first steps of a run were made, from
// those that it has now: changes after a later step led to checkpoints that are lost.
func (h history) at(step int64, now values) values {
	var led []change // to the state that the run is in
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
