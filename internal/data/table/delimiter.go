package table

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// ParseDelimiter returns the delimiter that a user typed: one ASCII character, or "tab" or `\t`. ""
// is 0, the format's own.
func ParseDelimiter(s string) (byte, error) {
	switch {
	case s == "":
		return 0, nil
	case s == "tab" || s == `\t`:
		return '\t', nil
	case len(s) != 1 || s[0] == 0 || s[0] >= 0x80 || s[0] == '"' || s[0] == '\r' || s[0] == '\n':
		return 0, fmt.Errorf("delimiter is %q; expected one ASCII character, such as ; or |, or tab", s)
	}
	return s[0], nil
}

// CheckDelimiter returns a usage error if a file's delimiter was chosen and its format does not say
// how it is to be read: JSON has none, and a name such as x.txt does not say whether fields are
// quoted. named says that the format was chosen, too, with the given flag.
func CheckDelimiter(path string, f Format, named bool, delimiter byte, flag string) error {
	switch {
	case delimiter == 0:
		return nil
	case f.Objects():
		return fault.Usagef("%s is %s, which has no delimiter; leave out --delimiter", path, f)
	case f == TSV && !named && delimiter != '\t':
		return fault.Usagef("the name of %s does not show whether its fields are quoted; add %s csv if they may be, and %s tsv if a quotation mark is a character like any other", path, flag, flag)
	}
	return nil
}
