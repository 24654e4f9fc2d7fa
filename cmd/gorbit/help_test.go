package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/help"
)

// allCommands returns the visible commands of the program.
func allCommands() []*cobra.Command {
	var all []*cobra.Command
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		all = append(all, cmd)
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() {
				add(below)
			}
		}
	}
	add(newRoot())
	return all
}

// TestHelpIsGrouped wants every command and flag to be found in a group.
func TestHelpIsGrouped(t *testing.T) {
	for _, cmd := range allCommands() {
		if cmd.HasParent() && !cmd.Parent().HasParent() && cmd.GroupID == "" {
			t.Errorf("%s is in no group of commands; add it to one in newRoot", cmd.CommandPath())
		}
		for _, flag := range help.Ungrouped(cmd) {
			t.Errorf("%s: %s is in no group of flags; add its name to a call of help.Group where the command declares its flags, or, for a flag of a param, put it into a group of cmd/gorbit/params.go",
				cmd.CommandPath(), flag)
		}
	}
}

// TestHelpFitsTheTerminal wants lines of help that fit 80 columns, but for examples, which fit 100.
func TestHelpFitsTheTerminal(t *testing.T) {
	for _, cmd := range allCommands() {
		var out strings.Builder
		if err := help.Write(&out, cmd, 80, false); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			most := 80
			if strings.Contains(cmd.Example, strings.TrimSpace(line)) {
				most = 100
			}
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > most {
				t.Errorf("%s --help has a line of %d columns; expected at most %d: %s", cmd.CommandPath(), n, most, line)
			}
		}
		if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Name() != "version" && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
}
