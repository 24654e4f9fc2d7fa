package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/progress"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train"
)

// globals holds the flags that all commands share.
type globals struct {
	logLevel string
	progress string
	allowOps []string
	offline  bool
}

func newRoot() *cobra.Command {
	g := new(globals)
	root := &cobra.Command{
		Use:     "gorbit",
		Short:   "Train TensorFlow models from Go",
		Version: version.String(),
		Long: `gorbit trains exported TensorFlow graphs without Python in the training loop.

Exit codes: 0 done, 1 failed, 2 usage (flags or params), 3 damaged data,
75 stopped by a signal after saving (the same command continues the run).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVar(&g.logLevel, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&g.progress, "progress", "auto", "progress bar; auto shows it on a terminal; events writes lines of JSON to standard error instead, for programs `auto|off|events`")
	f.StringSliceVar(&g.allowOps, "allow-op", nil, "allow graphs to use this `OPERATION`, although it reaches files, processes or Python (an export is a program)")
	f.BoolVar(&g.offline, "offline", false, "do not ask a model hub: take files of hub:OWNER/NAME that this machine has")
	help.Group(f, "Flags of every command", "log-level", "progress", "allow-op", "offline")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		log, err := g.log(stderr)
		vfs.Register(hubfs.Scheme, func() vfs.ReadFS {
			return hubfs.New(hubfs.Config{Context: cmd.Context(), Log: log, Offline: g.offline})
		})
		vfs.Register(gcs.Scheme, func() vfs.ReadFS { return gcs.New(gcs.Config{Log: log}) })
		return err
	}
	root.SetHelpCommand(newHelp())
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Data", []*cobra.Command{newTokenizer(g), newConvert(g), newInspect(g)}},
		{"Training", []*cobra.Command{newPlan(g), newGraph(g), newTrain(g), newTune(g), newLaunch(g), newWatch(g), newTrack(g)}},
		{"Results", []*cobra.Command{newEvaluate(g), newAverage(g), newRuns(g), newReport(g), newVerify(g)}},
		{"Models", []*cobra.Command{newPredict(g), newExport(g), newServe(g), newPush(g), newPull(g)}},
		{"Machines", []*cobra.Command{newDoctor(g), newDevices(g), newWorker(g), newTPU(g), newTPUEmulator(g)}},
		{"The program", []*cobra.Command{newVersion()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
		root.SetHelpCommandGroupID(group.title)
		root.SetCompletionCommandGroupID(group.title)
	}
	help.Install(root)
	completes(root)
	return root
}

// writeJSON prints a value as indented JSON.
func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// noArgs refuses arguments that are not flags. The usual cause is a forgotten "--".
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		if cmd.HasSubCommands() {
			return unknownCommand(cmd, args[0])
		}
		return usagef("unexpected argument %q; see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}

// env returns the environment of a run. Result lines go to out; the log and the progress bar go
// to standard error.
func (g *globals) env(out io.Writer) (train.Env, error) {
	env := train.Env{Out: out, AllowOps: g.allowOps, Version: version.String()}
	errOut := stderr
	switch g.progress {
	case "auto":
		bar := progress.New(os.Stderr)
		env.Observer, env.Out, errOut = bar, bar.Writer(out), bar.Writer(stderr)
	case "events":
		e := progress.NewEvents(os.Stderr)
		env.Observer, env.Saved = e, e.Saved
		env.TrainActions, env.EvalActions = []runner.Action{e.Metrics("train")}, []runner.Action{e.Metrics("eval")}
	case "off":
	default:
		return train.Env{}, usagef("--progress is %q; expected auto, off or events", g.progress)
	}
	var err error
	env.Log, err = g.log(errOut)
	return env, err
}

// log returns a log of the level that was asked for.
func (g *globals) log(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(g.logLevel)); err != nil {
		return nil, usagef("--log-level is %q; expected debug, info, warn or error", g.logLevel)
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	})), nil
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of gorbit and TensorFlow",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "gorbit %s\nTensorFlow %s\nexport contract %d\n%s %s/%s\n",
				version.String(), tf.Version(), graphs.ContractVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
