package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
)

const launchHelp = `Starts the workers that FILE places on this machine, prints the commands for those on
other machines, and trains with all of them: it runs gorbit train with the flags after
--. It exits with the code of gorbit train and leaves no process behind. A worker that
dies, and a training that crashes, are started again.

If all hosts are this machine, the processes reach each other by Unix sockets in a folder
that only you can enter, and nothing listens on a port. Otherwise they lock their
connections with mutual TLS. Those that launch starts, here or over ssh, get a new token
of the run on standard input. Where you start a worker, it needs the token's file:
FILE.token, which launch makes for you to copy, or that of --token-file. --open turns all
this off: the processes have ports that everybody can reach.

FILE is YAML. If it does not exist and this is a terminal, launch asks for its content
and writes it. --ask always asks. See docs/guide/launch.md.`

func newLaunch(g *globals) *cobra.Command {
	var file string
	var ask, overwrite, dryRun, open bool
	var tokenFile string
	c := launch.Config{}
	cmd := &cobra.Command{
		Use:   "launch --config FILE [flags] -- TRAIN-FLAGS",
		Short: "Train on several processes or machines",
		Long:  launchHelp,
		Example: `  gorbit launch --config hosts.yaml -- --graph exports/mrpc --data data/mrpc --run runs/mrpc
  gorbit launch --config hosts.yaml --dry-run -- --params base.yaml --run runs/mrpc
  gorbit launch --config hosts.yaml --ask`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return usagef("unexpected argument %q; put the flags of gorbit train after --", args[0])
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "YAML `FILE` of the hosts")
	f.BoolVar(&ask, "ask", false, "ask for the hosts and write them to --config, if given")
	f.BoolVar(&overwrite, "overwrite", false, "replace the file of --config even if it has comments, or is otherwise not as --ask writes it")
	f.BoolVar(&dryRun, "dry-run", false, "print all commands without running them")
	f.IntVar(&c.MaxRestarts, "max-restarts", 3, "how often to restart workers of this machine, or a training that crashed, in total")
	f.DurationVar(&c.RestartDelay, "restart-delay", time.Second, "time to wait before restarting a process")
	f.DurationVar(&c.Grace, "grace", time.Minute, "how long a process may take to stop before it is killed")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` of the token to use (default: none on one machine; a new one; FILE.token where you start workers; the value of "+tokenVariable+")")
	f.BoolVar(&open, "open", false, "use ports and do not lock them: anyone who can reach them can run programs here")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plan, asked, err := plan(cmd, file, ask, overwrite)
		if err != nil {
			return err
		}
		if asked && len(args) == 0 && !dryRun {
			return nil // only the file was wanted
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		if dryRun {
			program = "gorbit"
		}
		token, err := newLaunchToken(open, tokenFile, file)
		if err != nil {
			return err
		}
		by, remove, err := accessOf(plan, token, dryRun)
		if err != nil {
			return err
		}
		defer remove()
		c.Commands, err = plan.Make(program, by, args)
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
			return printCommands(shown.Data(cmd.OutOrStdout()), c.Commands, by)
		}
		c.Env = withoutVariable(os.Environ(), tokenVariable)
		if c.Token, err = token.read(c.Commands, by); err != nil {
			return err
		}
		return g.launch(cmd, c)
	}
	return cmd
}

// launch runs the commands of this machine until the training ends.
func (g *globals) launch(cmd *cobra.Command, c launch.Config) error {
	if len(c.Workers) == 0 {
		// No workers to look after: this process becomes the training process.
		return fmt.Errorf("start %s: %w", c.Chief.Args[0], syscall.Exec(c.Chief.Args[0], c.Chief.Args, c.Env))
	}
	env, err := g.env(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	c.Log, c.Stdout, c.Stderr = env.Log, cmd.OutOrStdout(), os.Stderr
	c.Color = term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	for _, w := range c.Workers {
		if !w.Local {
			fmt.Fprintf(stderr, "on the host of %s: %s\n", w.Address, w)
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

// plan reads the plan or asks for it. asked reports which it did.
func plan(cmd *cobra.Command, file string, ask, overwrite bool) (p launch.Plan, asked bool, err error) {
	if file == "" && !ask {
		return p, false, usagef("--config is missing; expected the YAML file of the hosts, or --ask to be asked for them")
	}
	if overwrite && (file == "" || !ask) {
		return p, false, usagef("--overwrite is given without --ask and --config; expected all of them, or leave it out")
	}
	if err := localFile(file); err != nil {
		return p, false, err
	}
	err = fs.ErrNotExist
	if file != "" {
		p, err = launch.ReadPlan(file)
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !ask && !term.IsTerminal(int(os.Stdin.Fd())) {
		return p, false, usagef("%s does not exist; write it (see docs/guide/launch.md), or run gorbit launch --ask", file)
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
	if _, err := made.Replaceable(file, launch.IsWritten, overwrite); file != "" && err != nil {
		return p, false, err // before the questions
	}
	if p, err = launch.Ask(cmd.InOrStdin(), cmd.ErrOrStderr(), p); err != nil {
		return p, false, usagef("%w", err)
	}
	if file == "" {
		return p, true, nil
	}
	if err := p.Write(cmd.Context(), file, overwrite); err != nil {
		return p, false, err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s\n", file)
	return p, true, err
}

// checkPrecision compares the plan's precision with that of the graph that gorbit train would
// use. Other errors in the arguments are left for gorbit train to report.
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
		return nil // --help was given, or no graph
	}
	local, err := vfs.Localize(ctx, params.Graph, nil)
	if err != nil {
		return err
	}
	export, err := graphs.Open(local)
	if err != nil {
		return err
	}
	if err := plan.CheckPrecision(export); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// accessOf returns how the processes of a plan reach each other, and what removes the folder of their
// sockets. In a dry run the user is to make the folder.
func accessOf(p launch.Plan, token launchToken, dryRun bool) (by launch.Access, remove func(), err error) {
	nothing := func() {}
	switch {
	case !token.sockets(p):
		return launch.Access{TokenFile: token.file()}, nothing, nil
	case dryRun:
		return launch.Access{Sockets: "sockets"}, nothing, nil
	}
	folder, remove, err := cluster.MakeSockets()
	return launch.Access{Sockets: folder}, remove, err
}

// printCommands prints each command and where it would run.
func printCommands(out io.Writer, c launch.Commands, by launch.Access) error {
	if by.Sockets != "" {
		if _, err := fmt.Fprintf(out, "# the folder of the sockets, here\nmkdir -m 700 %s\n", by.Sockets); err != nil {
			return err
		}
	}
	for _, w := range c.Workers {
		where := "here"
		if w.Args[0] == "ssh" {
			where = "over ssh"
		}
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

// chiefError reports that the training process of launch failed. That process has already printed
// the reason.
type chiefError struct{ code int }

func (e *chiefError) Error() string {
	return fmt.Sprintf("the training ended with exit code %d", e.code)
}

// launchToken is the token of a run that launch starts.
type launchToken struct {
	// open means that there is none.
	open bool
	// path is the file that the user names; "" for a new token.
	path string
	// plan is the file of the plan; "" if there is none.
	plan string
}

// newLaunchToken returns the token of launch's flags and of the file of the plan.
func newLaunchToken(open bool, file, plan string) (launchToken, error) {
	if open && file != "" {
		return launchToken{}, usagef("--open and --token-file are given; expected one of them")
	}
	return launchToken{open: open, path: cmp.Or(file, os.Getenv(tokenVariable)), plan: plan}, nil
}

// sockets reports whether the processes of a plan need no token, because Unix sockets connect them.
func (l launchToken) sockets(p launch.Plan) bool {
	return !l.open && l.path == "" && p.OneMachine()
}

// file returns the file in which workers that launch does not start have the token, or "" if there is
// none.
func (l launchToken) file() string {
	switch {
	case l.open:
		return ""
	case l.path != "":
		return l.path
	case l.plan != "":
		return l.plan + ".token"
	}
	return "token"
}

// read returns the token. Where the user starts some of the workers it is that of the file, which is
// made if it does not exist; otherwise a new one. It is "" where there is none.
func (l launchToken) read(c launch.Commands, by launch.Access) (string, error) {
	foreign := func(w launch.Command) bool { return !w.Local }
	if l.open || by.Sockets != "" || len(c.Workers) == 0 {
		return "", nil
	}
	if l.path == "" && !slices.ContainsFunc(c.Workers, foreign) {
		return peertls.NewToken(), nil
	}
	path := l.file()
	if l.path == "" && l.plan == "" {
		return "", usagef("--token-file is missing; expected the file of the token for the workers that you start, or --config with the file of the hosts")
	}
	if l.path == "" {
		if err := makeToken(path); err != nil {
			return "", fmt.Errorf("make the token of the run: %w; name another file with --token-file", err)
		}
	}
	token, err := peertls.ReadToken(path, os.Stdin)
	if err == nil {
		_, err = peertls.FromToken(token)
	}
	if err != nil {
		return "", usagef("%w", err)
	}
	if slices.ContainsFunc(c.Workers, foreign) {
		fmt.Fprintf(stderr, "gorbit: the workers that you start need the token: copy %s to their hosts, for instance with scp -p; who has it can use the workers\n", path)
	}
	return token, nil
}

// makeToken writes a new token to a file that only its user may read, unless the file exists.
func makeToken(path string) error {
	f, err := vfs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, peertls.NewToken()+"\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return vfs.SyncDir(filepath.Dir(path))
}

// withoutVariable returns an environment without one of its variables.
func withoutVariable(environ []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, name+"=") })
}
