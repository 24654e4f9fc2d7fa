package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/app/asked"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/train/params"
)

// newHelp returns the command help, which refuses commands that there are not.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  gorbit help train",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && found.HasSubCommands() {
				return unknownCommand(found, slices.Concat(rest, args)[0])
			}
			return found.Help()
		},
	}
}

// unknownCommand returns the error for a word that is no command below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("there is no command %s %s%s; see %[1]s --help", cmd.CommandPath(), word, words.DidYouMean(word, names))
}

// flagError returns the error for flags that cannot be parsed, with the flag that was most likely
// meant.
func flagError(cmd *cobra.Command, err error) error {
	if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) {
		f := wrong.GetFlag()
		return usagef("--%s is %q; %s; see %s --help", f.Name, wrong.GetValue(), expectedOf(f, wrong.Unwrap()), cmd.CommandPath())
	}
	meant := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		meant = meantFlag(cmd, unknown.GetSpecifiedName())
	}
	return usagef("%w%s; see %s --help", err, meant, cmd.CommandPath())
}

// expectedOf returns what is expected of a flag's value, which could not be read because of err.
func expectedOf(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "expected a whole number"
	case "uint", "uint64":
		return "expected a whole number, 0 or more"
	case "float64":
		return "expected a number"
	case "duration":
		return "expected a duration such as 60s"
	case "bool":
		if f.NoOptDefVal != "" {
			return "expected true or false"
		}
	}
	if i := strings.LastIndex(err.Error(), "; expected "); i >= 0 {
		return err.Error()[i+2:] // of a param
	}
	return err.Error()
}

// meantFlag returns what to add to an error about a flag that a command does not have: the flag, or
// the param for --set, that was most likely meant.
func meantFlag(cmd *cobra.Command, name string) string {
	has := func(flag string) bool {
		return cmd.Flags().Lookup(flag) != nil || cmd.InheritedFlags().Lookup(flag) != nil
	}
	meant := params.MeantBy(name)
	if option, _, _ := strings.Cut(meant.Option, " "); option != "" && has(option) {
		return "; did you mean --" + meant.Option + "?"
	}
	fits := has("set")
	for _, param := range meant.Params {
		of, _ := params.Lookup(param)
		fits = fits && (of.Read || has("params")) // others than those are for training alone
	}
	if fits && meant.ByPeer {
		return meant.Hint(func(param, value string) string { return typedAs(cmd, param, value) })
	}
	if has("num-beams") {
		if known := asked.Foreign(name); known != "" {
			return known
		}
	}
	var names []string
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	if best := words.Closest(name, names); best != "" {
		return "; did you mean --" + best + "?"
	}
	if fits {
		return meant.Hint(func(param, value string) string { return typedAs(cmd, param, value) })
	}
	return ""
}

// typedAs returns how a param is typed: as a flag of the command, or by --set.
func typedAs(cmd *cobra.Command, param, value string) string {
	of, _ := params.Lookup(param)
	if f := cmd.Flags().Lookup(of.Flag.Name); f != nil && of.Name == param {
		if value == "" {
			return "--" + f.Name
		}
		return "--" + f.Name + " " + value
	}
	return "--set " + param + "=" + cmp.Or(value, "VALUE")
}
