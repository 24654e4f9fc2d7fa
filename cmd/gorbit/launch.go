package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/launch"
)

func newLaunch(g *globals) *cobra.Command {
	var file string
	var ask, dryRun bool
	c := launch.Config{}
	cmd := &cobra.Command{
		Use:   "launch --config FILE [flags] -- TRAIN-FLAGS",
		Short: "Train on several processes or machines",
		Long: `Starts the workers of this machine that FILE names, prints the commands for those of
other machines, and trains with all of them: gorbit train with the flags behind --.
Ends with its exit code, and leaves no process behind. A worker that dies is
started again.

FILE is YAML; where there is none, and this is a terminal, launch asks for what
belongs in it and writes it. --ask does so in any case. See docs/guide/launch.md.`,
		Example: `  gorbit launch --config hosts.yaml -- --graph exports/mrpc --data data/mrpc --run runs/mrpc
  gorbit launch --config hosts.yaml --dry-run -- --params base.yaml --run runs/mrpc
  gorbit launch --config hosts.yaml --ask`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return usagef("launch takes no argument %q; the flags of gorbit train belong behind --", args[0])
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "YAML file of the hosts")
	f.BoolVar(&ask, "ask", false, "ask for the hosts, and write them to --config if it is given")
	f.BoolVar(&dryRun, "dry-run", false, "print all commands and run none")
	f.IntVar(&c.MaxRestarts, "max-restarts", 3, "how often workers of this machine are started again, all together")
	f.DurationVar(&c.RestartDelay, "restart-delay", time.Second, "time between the end of a worker and its next start")
	f.DurationVar(&c.Grace, "grace", time.Minute, "time for a process to end when it is told to, before it is killed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plan, asked, err := plan(cmd, file, ask)
		if err != nil {
			return err
		}
		if asked && len(args) == 0 && !dryRun {
			return nil // it was about the file
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		if dryRun {
			program = "gorbit"
		}
		c.Commands, err = plan.Make(program, args)
		if err != nil {
			return usagef("%w", err)
		}
		if err := c.Validate(); err != nil {
			return usagef("%w", err)
		}
		if err := checkPrecision(cmd.Context(), plan, args); err != nil {
			return err
		}
		if dryRun {
			return printCommands(cmd.OutOrStdout(), c.Commands)
		}
		return g.launch(cmd, c)
	}
	return cmd
}

// launch runs the commands of this machine until the training ends.
func (g *globals) launch(cmd *cobra.Command, c launch.Config) error {
	if len(c.Workers) == 0 {
		// There is nothing to look after.
		return fmt.Errorf("start %s: %w", c.Chief.Args[0], syscall.Exec(c.Chief.Args[0], c.Chief.Args, os.Environ()))
	}
	env, err := g.env(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	c.Log, c.Stdout, c.Stderr = env.Log, cmd.OutOrStdout(), os.Stderr
	c.Color = term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	for _, w := range c.Workers {
		if !w.Local {
			fmt.Fprintf(os.Stderr, "on the host of %s: %s\n", w.Address, w)
		}
	}
	code, err := launch.Run(cmd.Context(), c)
	if err != nil {
		return err
	}
	if code != fault.ExitDone {
		return &chiefError{code}
	}
	return nil
}

// plan reads the plan or asks for it, and reports which.
func plan(cmd *cobra.Command, file string, ask bool) (p launch.Plan, asked bool, err error) {
	if file == "" && !ask {
		return p, false, usagef("--config is required: the YAML file of the hosts; --ask asks for them")
	}
	err = fs.ErrNotExist
	if file != "" {
		p, err = launch.ReadPlan(file)
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !ask && !term.IsTerminal(int(os.Stdin.Fd())) {
		return p, false, usagef("there is no %s: write it (docs/guide/launch.md), or call gorbit launch on a terminal, where it asks", file)
	}
	if err != nil && !missing {
		var wrong *launch.PlanError
		if errors.As(err, &wrong) {
			return p, false, usagef("%w", err)
		}
		return p, false, err
	}
	if !missing && !ask {
		return p, false, nil
	}
	if p, err = launch.Ask(cmd.InOrStdin(), cmd.ErrOrStderr(), p); err != nil {
		return p, false, usagef("%w", err)
	}
	if file == "" {
		return p, true, nil
	}
	if err := p.Write(file); err != nil {
		return p, false, err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s\n", file)
	return p, true, err
}

// checkPrecision compares the plan's precision with that of the graph that gorbit train
// would take. What else is wrong with its arguments is for gorbit train to say.
func checkPrecision(ctx context.Context, plan launch.Plan, args []string) error {
	if plan.Precision == "" {
		return nil
	}
	var text bytes.Buffer
	train := newRoot()
	train.SetOut(&text)
	train.SetArgs(append([]string{"train", "--print-params"}, args...))
	if err := train.ExecuteContext(ctx); err != nil {
		return err
	}
	var params struct{ Graph string }
	if yaml.Unmarshal(text.Bytes(), &params) != nil || params.Graph == "" {
		return nil // its help, or no graph
	}
	export, err := graphs.Open(params.Graph)
	if err != nil {
		return err
	}
	if err := plan.CheckPrecision(export); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// printCommands prints what would be run, and where.
func printCommands(out io.Writer, c launch.Commands) error {
	for _, w := range c.Workers {
		where := "here"
		if !w.Local {
			where = "on the host of " + w.Address
		}
		if _, err := fmt.Fprintf(out, "# %s, %s\n%s\n", w.Name, where, w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "# the training process, here\n%s\n", c.Chief)
	return err
}

// chiefError says that the training process that launch started has ended badly. It has
// said why.
type chiefError struct{ code int }

func (e *chiefError) Error() string {
	return fmt.Sprintf("the training ended with exit code %d", e.code)
}
