package params

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// Keep sets the params that a run, whose params.yaml is at path, has from its beginning: those that are
// Kept, and those that are Settled if they are 0. It returns a description of each value that it
// replaced.
//
// Train calls it, too. A program calls it first because TensorFlow reads the setting of oneDNN only
// once.
func (p *Params) Keep(path string) []string {
	before, err := Read(path)
	if err != nil {
		return nil
	}
	var kept []string
	old, now := before.byName(), p.byName()
	// A TPU has neither kernels nor lanes, and rounds in its own way.
	onTPU := p.Strategy.Kind() == devices.TPU
	for _, row := range table {
		was, is := old[row.Name], now[row.Name]
		switch {
		case row.Change == Settled && is.IsZero():
			is.Set(was)
		case row.Change != Kept || was.IsZero() || onTPU && row.Name != "runtime.onednn":
		default:
			if !is.IsZero() && !is.Equal(was) {
				kept = append(kept, fmt.Sprintf("%s is %v, not %v", row.Name, was, is))
			}
			is.Set(was)
		}
	}
	return kept
}

// CheckReading returns an *Error for the first setting, of the form "section.name=value", of a param
// that has no effect on a run that is only read.
func CheckReading(settings []string) error {
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, "=")
		if p, ok := Lookup(name); ok && !p.Read { // others are sections, or errors that Load reports
			return Errorf(name, "has an effect only in gorbit train; leave it out; expected one of %s", strings.Join(read(), ", "))
		}
	}
	return nil
}

// read returns the names of the params that reading a run depends on; section.* are all of a section.
func read() []string {
	all := make(map[string]bool)
	section := func(p Param) string { return p.Name[:strings.IndexByte(p.Name, '.')+1] }
	for _, p := range table {
		of := section(p)
		before, seen := all[of]
		all[of] = of != "" && p.Read && (before || !seen)
	}
	var out []string
	for _, p := range table {
		of := section(p)
		switch {
		case !p.Read:
		case !all[of]:
			out = append(out, p.Name)
		case out[len(out)-1] != of+"*":
			out = append(out, of+"*")
		}
	}
	return out
}
