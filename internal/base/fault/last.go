package fault

import "strings"

// Program is the name before the error with which gorbit ends, on a line of its own.
const Program = "gorbit: "

// Last returns the error with which gorbit ended, without the program's name, given the end of what it
// printed. ok is false if it printed none, as when it was killed; then it is the last line that is not
// empty.
func Last(printed string) (sentence string, ok bool) {
	for line := range strings.Lines(printed) {
		line = strings.TrimSpace(line)
		if said, is := strings.CutPrefix(line, Program); is {
			sentence, ok = said, true
		} else if !ok && line != "" {
			sentence = line
		}
	}
	return sentence, ok
}
