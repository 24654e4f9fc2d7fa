// Package help prints the help of a program's commands: commands and flags in groups, in lines that
// fit the terminal.
package help

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/internal/base/shown"
)

const (
	// leastWidth and mostWidth are the columns between which lines are wrapped. Lines that go to no
	// terminal have the least.
	leastWidth, mostWidth = 60, 100
	usualWidth            = 80
	// column is where the texts of commands and flags begin.
	column = 30
)

// Install makes root and the commands below it, which have all of their flags, print their help by
// this package. Usages of flags then are without back quotes, for shells that complete flags.
func Install(root *cobra.Command) {
	unquoteAll(root)
	root.PersistentFlags().SortFlags = false
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := shown.Raw(cmd.OutOrStdout())
		width, bold := terminal(out)
		if err := Write(out, cmd, width, bold); err != nil {
			cmd.PrintErrln(err)
		}
	})
}

// Annotations of a flag: the title of its group, its place among all flags of the command that are in
// groups, and the form of its value.
const (
	groupKey = "gorbit_group"
	placeKey = "gorbit_place"
	formKey  = "gorbit_form"
)

// unquoteAll moves what is in back quotes in the usages of flags to annotations.
func unquoteAll(cmd *cobra.Command) {
	unquote := func(flag *pflag.Flag) {
		if form, usage, quoted := unquoted(flag.Usage); quoted {
			flag.Usage = usage
			annotate(flag, formKey, form)
		}
	}
	cmd.Flags().VisitAll(unquote)
	cmd.PersistentFlags().VisitAll(unquote)
	for _, below := range cmd.Commands() {
		unquoteAll(below)
	}
}

func annotate(flag *pflag.Flag, key, value string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[key] = []string{value}
}

// unquoted returns the form of a flag's value, which stands in back quotes in its usage, and the usage
// without them: there one word is in lower case, and a choice (a|b) is left out.
func unquoted(usage string) (form, about string, quoted bool) {
	before, rest, quoted := strings.Cut(usage, "`")
	if !quoted {
		return "", usage, false
	}
	form, after, _ := strings.Cut(rest, "`")
	within := form
	switch {
	case strings.Contains(form, "|"):
		before, within = strings.TrimRight(before, " "), ""
	case strings.Trim(form, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "":
		within = strings.ToLower(form)
	}
	return form, before + within + after, true
}

// Group puts flags of a command into a group, which help shows under a title, in this order. Groups
// are shown in the order of the calls. It panics if there is no such flag, or if it has a group.
func Group(f *pflag.FlagSet, title string, names ...string) {
	place := 0
	f.VisitAll(func(flag *pflag.Flag) {
		if groupOf(flag) != "" {
			place++
		}
	})
	for _, name := range names {
		flag := f.Lookup(name)
		if flag == nil || groupOf(flag) != "" {
			panic(fmt.Sprintf("help: --%s, for the group %q, is not a flag of the command, or is in a group", name, title))
		}
		annotate(flag, groupKey, title)
		annotate(flag, placeKey, strconv.Itoa(place))
		place++
	}
}

func groupOf(flag *pflag.Flag) string {
	return strings.Join(flag.Annotations[groupKey], "")
}

// section is flags under a title.
type section struct {
	title string
	flags []*pflag.Flag
}

// sections returns the visible flags of a command, but for those of all commands, by group. Flags
// without a group come last, in the order in which they were declared.
func sections(cmd *cobra.Command) []section {
	var grouped, others []*pflag.Flag
	cmd.Flags().SortFlags = false
	f := cmd.LocalNonPersistentFlags()
	f.SortFlags = false
	f.VisitAll(func(flag *pflag.Flag) {
		switch {
		case flag.Hidden || flag.Name == "help":
		case groupOf(flag) != "":
			grouped = append(grouped, flag)
		default:
			others = append(others, flag)
		}
	})
	place := func(flag *pflag.Flag) int {
		n, _ := strconv.Atoi(flag.Annotations[placeKey][0])
		return n
	}
	slices.SortStableFunc(grouped, func(a, b *pflag.Flag) int { return cmp.Compare(place(a), place(b)) })
	var all []section
	for _, flag := range grouped {
		if n := len(all); n == 0 || all[n-1].title != groupOf(flag) {
			all = append(all, section{title: groupOf(flag)})
		}
		last := &all[len(all)-1]
		last.flags = append(last.flags, flag)
	}
	if len(others) > 0 {
		all = append(all, section{"Flags", others})
	}
	return all
}

// Ungrouped returns the visible flags of a command that are in no group although they should be: all
// commands with groups, or with more flags than fit a glance, have all of theirs in groups.
func Ungrouped(cmd *cobra.Command) []string {
	const glance = 10
	all := sections(cmd)
	last := len(all) - 1
	if last < 0 || all[last].title != "Flags" || last == 0 && len(all[0].flags) <= glance {
		return nil
	}
	var names []string
	for _, flag := range all[last].flags {
		names = append(names, "--"+flag.Name)
	}
	return names
}

// Write prints the help of a command in lines of at most width columns.
func Write(out io.Writer, cmd *cobra.Command, width int, bold bool) error {
	p := &page{width: width, bold: bold}
	p.paragraphs(cmp.Or(cmd.Long, cmd.Short))
	p.title("Usage")
	if cmd.Runnable() && !cmd.HasAvailableSubCommands() {
		p.wrapped("  ", "      ", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		p.wrapped("  ", "      ", cmd.CommandPath()+" COMMAND [flags]")
	}
	if cmd.HasExample() {
		p.title("Examples")
		p.line(strings.TrimRight(cmd.Example, "\n"))
	}
	p.commands(cmd)
	for _, s := range sections(cmd) {
		p.title(s.title)
		p.flags(s.flags)
	}
	p.title("Flags of every command")
	p.flags(shared(cmd))
	if cmd.HasAvailableSubCommands() {
		p.line("")
		p.wrapped("", "", cmd.CommandPath()+" COMMAND --help shows the flags and examples of a command.")
	}
	_, err := io.WriteString(out, p.String())
	return err
}

// shared returns the visible flags that a command has from those above it, its own persistent ones,
// and --help.
func shared(cmd *cobra.Command) []*pflag.Flag {
	var flags []*pflag.Flag
	add := func(flag *pflag.Flag) {
		if !flag.Hidden {
			flags = append(flags, flag)
		}
	}
	cmd.PersistentFlags().SortFlags, cmd.InheritedFlags().SortFlags = false, false
	cmd.PersistentFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	cmd.InitDefaultHelpFlag()
	if h := cmd.Flags().Lookup("help"); h != nil {
		h.Usage = "show this help"
		add(h)
	}
	return flags
}

// page is a text in lines of at most width columns.
type page struct {
	strings.Builder
	width int
	bold  bool
}

func (p *page) line(text string) {
	p.WriteString(text)
	p.WriteByte('\n')
}

func (p *page) title(text string) {
	if p.Len() > 0 {
		p.line("")
	}
	if p.bold {
		p.line("\x1b[1m" + text + ":\x1b[0m")
		return
	}
	p.line(text + ":")
}

// paragraphs writes a text whose paragraphs are separated by empty lines. Paragraphs of which a line
// is indented stay as they are.
func (p *page) paragraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.line("")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			p.line(paragraph)
			continue
		}
		p.wrapped("", "", paragraph)
	}
}

// wrapped writes a text, the first line after a lead of its own.
func (p *page) wrapped(first, others, text string) {
	current, empty := first, true
	for _, word := range strings.Fields(text) {
		switch {
		case empty:
			current += word
		case len(current)+1+len(word) > p.width:
			p.line(current)
			current = others + word
		default:
			current += " " + word
		}
		empty = false
	}
	p.line(current)
}

// entry writes a name and what it is about, which begins on the name's line if that is short.
func (p *page) entry(name, about string) {
	indent := strings.Repeat(" ", column)
	lead := "  " + name
	if len(lead) > column-2 {
		p.line(lead)
		lead = ""
	}
	if about == "" && lead == "" {
		return
	}
	p.wrapped(fmt.Sprintf("%-*s", column, lead), indent, about)
}

// commands writes the commands below one, by group.
func (p *page) commands(cmd *cobra.Command) {
	list := func(title, id string) {
		first := true
		for _, c := range cmd.Commands() {
			if c.GroupID != id || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if first {
				p.title(title)
				first = false
			}
			p.wrapped(fmt.Sprintf("  %-14s", c.Name()), strings.Repeat(" ", 16), c.Short)
		}
	}
	for _, group := range cmd.Groups() {
		list(group.Title, group.ID)
	}
	list("Commands", "")
}

func (p *page) flags(flags []*pflag.Flag) {
	for _, flag := range flags {
		value, about := describe(flag)
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		p.entry(name, about)
	}
}

// describe returns the form of a flag's value, "" if it takes none, and what the flag does, with its
// default.
func describe(flag *pflag.Flag) (value, about string) {
	value = Form(flag)
	_, about, _ = unquoted(flag.Usage)
	if flag.NoOptDefVal != "" {
		value = ""
	}
	none := []string{"", "0", "0s", "false", "[]"}
	if d := flag.DefValue; !slices.Contains(none, d) && flag.Value.Type() != "bool" {
		if minutes, yes := strings.CutSuffix(d, "m0s"); yes {
			d = minutes + "m"
		}
		about += fmt.Sprintf(" (default %s)", strings.Trim(d, "[]"))
	}
	if v, yes := flag.Value.(interface{ Param() string }); yes {
		about += " [" + v.Param() + "]"
	}
	return value, about
}

// Form returns the form of a flag's value: what is in back quotes in the flag's usage or else, by its
// type, a number, a duration, or the last word of the flag's name for a text.
func Form(flag *pflag.Flag) string {
	if form, _, quoted := unquoted(flag.Usage); quoted {
		return form
	}
	if form := flag.Annotations[formKey]; form != nil {
		return form[0]
	}
	name := strings.ToUpper(flag.Name[strings.LastIndexByte(flag.Name, '-')+1:])
	switch t := flag.Value.Type(); t {
	case "bool":
		return ""
	case "int", "int64", "uint", "uint64":
		return "N"
	case "float64":
		return "X"
	case "duration":
		return "DURATION"
	case "string", "stringArray":
		return name
	case "stringSlice":
		return strings.TrimSuffix(name, "S") + ",..."
	case "stringToInt64":
		return "NAME=N,..."
	default:
		return t // a type of the program's own says it
	}
}

// terminal returns the width for lines, and whether they may be bold.
func terminal(out io.Writer) (width int, bold bool) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return usualWidth, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = usualWidth
	}
	return min(max(width, leastWidth), mostWidth), os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
