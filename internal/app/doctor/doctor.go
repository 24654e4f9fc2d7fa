package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Level says how much a finding matters.
type Level string

// The levels of findings.
const (
	OK      Level = "ok"      // as it should be
	Note    Level = "note"    // a run works, slower or with less than the machine has
	Problem Level = "problem" // a run fails, or may fail
)

// Finding is what one check found.
type Finding struct {
	// Check names what was looked at, such as "memory".
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Text says what is there, in one line.
	Text string `json:"text"`
	// Do says what to do about it, or is empty.
	Do string `json:"do,omitempty"`
}

// Problems returns the number of findings that are problems.
func Problems(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.Level == Problem {
			n++
		}
	}
	return n
}

// Write prints findings, one per line, with what to do below those that ask for something.
func Write(out io.Writer, findings []Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(out, "%-7s  %-*s  %s\n", f.Level, width, f.Check, f.Text); err != nil {
			return err
		}
		if f.Do == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s%s\n", strings.Repeat(" ", 7+2+width+2), f.Do); err != nil {
			return err
		}
	}
	return nil
}
