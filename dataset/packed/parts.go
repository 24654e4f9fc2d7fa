package packed

import (
	"errors"
	"fmt"

	"github.com/gorbit-ml/gorbit/dataset"
)

// An example may have parts that do not attend to each other, such as the choices of a question. A
// record then has the tokens of all of them, one part after the other, and a feature of MakeParts lists
// the number of each one's first token, from 0 up. In a batch each part is a sequence of its own: it has
// its own number in sequence_ids, and position_ids begin again. The parts of an example stay in one row.
// Those that an example lacks have the place of its first.

// parts reports whether examples have parts.
func (c *Config) parts() bool { return c.hasExtra(MakeParts) }

// validateParts checks the feature that divides examples.
func (c *Config) validateParts() error {
	n := 0
	for _, f := range c.Extras {
		if f.Make != MakeParts {
			continue
		}
		if n++; n > 1 {
			return fmt.Errorf("feature %s is made as %s, and another one is as well; expected one such feature", f.Name, f.Make)
		}
		if f.Role == dataset.Label {
			return fmt.Errorf("feature %s is made as %s and has role %s; expected %s", f.Name, f.Make, f.Role, dataset.Input)
		}
	}
	if n > 0 && (c.Targets != nil || c.Masking != nil) {
		return errors.New("examples have parts, and targets or masked tokens; expected parts alone")
	}
	return nil
}

// addParts adds the numbers of the first tokens of a record's parts.
func (x *extra) addParts(starts []int64, tokens int, mask []int64) string {
	if len(starts) == 0 || len(starts) > x.each {
		return fmt.Sprintf("has %d values; expected the first token of each part, 1 to %d", len(starts), x.each)
	}
	for i, at := range starts {
		if i == 0 && at != 0 || i > 0 && at <= starts[i-1] {
			return fmt.Sprintf("is %v; expected the first token of each part, ascending from 0", starts)
		}
	}
	for i, at := range starts {
		if reason := x.addOffset(at, tokens, mask); reason != "" {
			x.offsets = x.offsets[:len(x.offsets)-i]
			return reason
		}
	}
	for range x.each - len(starts) {
		x.offsets = append(x.offsets, 0)
	}
	return ""
}

// checkParts returns what is wrong with the parts of the example of n tokens that is being collected.
func (a *assembler) checkParts(n int) string {
	if most := a.cfg.MaxTokens; most > 0 && a.cfg.parts() {
		for _, l := range a.extras.parts(len(a.lengths)).lengths(n) {
			if l > most {
				return fmt.Sprintf("has a part of %d tokens, more than the limit of %d", l, most)
			}
		}
	}
	return ""
}

// divided says where the parts of an example begin: the numbers of their first tokens. It is nil of an
// example in a layout without parts.
type divided []int32

// parts returns the parts of an example.
func (e *extras) parts(k int) divided {
	if e == nil {
		return nil
	}
	for i := range e.all {
		if x := &e.all[i]; x.spec.Make == MakeParts {
			starts, n := x.offsets[k*x.each:(k+1)*x.each], 1
			for n < len(starts) && starts[n] > 0 {
				n++
			}
			return starts[:n]
		}
	}
	return nil
}

// lengths returns the numbers of tokens of the parts of an example of n tokens.
func (d divided) lengths(n int) []int {
	var out []int
	for i, from := range d {
		to := n
		if i+1 < len(d) {
			to = int(d[i+1])
		}
		out = append(out, to-int(from))
	}
	if len(out) == 0 {
		return []int{n}
	}
	return out
}

// pairs returns the number of pairs of tokens that see each other, of an example of n tokens.
func (d divided) pairs(n int32) int64 {
	if len(d) < 2 {
		return int64(n) * int64(n)
	}
	var sum int64
	for _, l := range d.lengths(int(n)) {
		sum += int64(l) * int64(l)
	}
	return sum
}

// number sets the numbers of the sequences of an example's cells. That of a part is its place in the row,
// from 1, so that none is larger than the length of a row.
func (d divided) number(cells []int32, at place) {
	fill(cells, at.seq)
	for _, from := range d {
		fill(cells[from:], at.start+from+1)
	}
}

// count sets the positions of an example's cells, which begin again with each part.
func (d divided) count(cells []int32) {
	next, p := 1, int32(0)
	for i := range cells {
		if next < len(d) && i == int(d[next]) {
			next, p = next+1, 0
		}
		cells[i], p = p, p+1
	}
}
