package table

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// enclosed reports whether a field has a quotation mark at each end.
func enclosed(field string) bool {
	return len(field) >= 2 && field[0] == '"' && field[len(field)-1] == '"'
}

// doubled reports whether a field is enclosed and all marks in it are doubled: it was quoted because of
// them.
func doubled(field string) bool {
	if !enclosed(field) {
		return false
	}
	inner := field[1 : len(field)-1]
	return strings.Contains(inner, `""`) && !strings.Contains(strings.ReplaceAll(inner, `""`, ""), `"`)
}

// checkQuoted returns a usage error for a TSV file that seems to have quoted fields although nobody said
// so: the name of a column, or the fields of a column in all of the first rows, have quotation marks
// around them. head has the first lines of the file.
func checkQuoted(path string, head []byte, c Config) error {
	header := c.Names == nil
	var all []bool // whether all fields so far are enclosed, by column
	for i, line := range strings.Split(string(head), "\n") {
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			continue
		}
		for k, field := range strings.Split(line, string(rune(c.Delimiter))) {
			switch {
			case i == 0 && header && enclosed(field):
				return unsure(path, fmt.Sprintf("the name of column %d", k+1), c.FormatFlag)
			case i == 0 && header:
			case k == len(all):
				all = append(all, enclosed(field))
			case k < len(all):
				all[k] = all[k] && enclosed(field)
			}
		}
	}
	for k, is := range all {
		if is {
			return unsure(path, fmt.Sprintf("every field of column %d", k+1), c.FormatFlag)
		}
	}
	return nil
}

// unsure returns the error for a file of which it is not clear whether fields are quoted.
func unsure(path, what, flag string) error {
	return fault.Usagef("%s: %s has quotation marks around it; %s", path, what, toSay(flag))
}

// toSay says how a user tells whether fields are quoted.
func toSay(flag string) string {
	return fmt.Sprintf("add %s csv and --delimiter tab if these only enclose it, and %[1]s tsv if they belong to it", flag)
}
