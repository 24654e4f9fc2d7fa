package help

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// program returns a program with a command of flags in groups.
func program() (root, cmd *cobra.Command) {
	root = &cobra.Command{Use: "tool", Short: "Do things"}
	root.AddGroup(&cobra.Group{ID: "work", Title: "Work"})
	root.PersistentFlags().String("log-level", "info", "lowest `LEVEL` to log")
	cmd = &cobra.Command{
		Use: "make --out FILE [flags]", Short: "Make a thing", GroupID: "work",
		Long:    "Makes a thing out of\nwhat is there, which may take a while.\n\n  GET /thing   stays as it is",
		Example: "  tool make --out thing",
		Run:     func(*cobra.Command, []string) {},
	}
	f := cmd.Flags()
	f.StringP("out", "o", "", "`FILE` to write (required)")
	f.Int("count", 3, "how many")
	f.Duration("time-out", time.Minute, "how long to wait for what may never come, and whatever else there is to say about it")
	f.StringSlice("labels", nil, "names of labels")
	f.String("topology", "", "size, `XxY`")
	f.String("kind", "", "what to make `a|b`; a is usual")
	f.Bool("force", false, "replace it")
	f.Bool("secret", false, "")
	f.MarkHidden("secret")
	Group(f, "Output", "out", "force")
	Group(f, "How", "time-out", "count", "labels", "topology", "kind")
	root.AddCommand(cmd)
	Install(root)
	return root, cmd
}

const wantMake = `Makes a thing out of what is there, which may take a while.

  GET /thing   stays as it is

Usage:
  tool make --out FILE [flags]

Examples:
  tool make --out thing

Output:
  -o, --out FILE              file to write (required)
  --force                     replace it

How:
  --time-out DURATION         how long to wait for what may
                              never come, and whatever else
                              there is to say about it
                              (default 1m)
  --count N                   how many (default 3)
  --labels LABEL,...          names of labels
  --topology XxY              size, XxY
  --kind a|b                  what to make; a is usual

Flags of every command:
  --log-level LEVEL           lowest level to log (default
                              info)
  -h, --help                  show this help
`

func TestWrite(t *testing.T) {
	_, cmd := program()
	var out strings.Builder
	if err := Write(&out, cmd, 60, false); err != nil {
		t.Fatal(err)
	}
	if out.String() != wantMake {
		t.Errorf("got\n%s\nwant\n%s", out.String(), wantMake)
	}
}

func TestWriteOfCommandsAbove(t *testing.T) {
	root, _ := program()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n  tool COMMAND [flags]\n", "\nWork:\n  make          Make a thing\n", "\nCommands:\n", "\n  help          "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help has no %q:\n%s", want, out.String())
		}
	}
}

func TestUngrouped(t *testing.T) {
	_, cmd := program()
	if got := Ungrouped(cmd); len(got) > 0 {
		t.Errorf("%v are in no group; expected none", got)
	}
	cmd.Flags().Bool("new", false, "of someone who knows of no groups")
	if got := Ungrouped(cmd); !slices.Equal(got, []string{"--new"}) {
		t.Errorf("%v are in no group; expected --new", got)
	}
	few, many := &cobra.Command{Use: "few"}, &cobra.Command{Use: "many"}
	for i := range 11 {
		many.Flags().Bool(strings.Repeat("x", i+1), false, "")
	}
	few.Flags().Bool("x", false, "")
	if a, b := Ungrouped(few), Ungrouped(many); len(a) > 0 || len(b) != 11 {
		t.Errorf("%v and %v should be in groups; expected none and 11", a, b)
	}
}

func TestGroupRefusesUnknownFlags(t *testing.T) {
	_, cmd := program()
	for _, name := range []string{"nowhere", "out"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("--%s was put into a group", name)
				}
			}()
			Group(cmd.Flags(), "Others", name)
		}()
	}
}
