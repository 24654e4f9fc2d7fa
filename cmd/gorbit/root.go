package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/progress"
	"github.com/gorbit-ml/gorbit/internal/version"
	"github.com/gorbit-ml/gorbit/train"
)

// globals are the flags of every command.
type globals struct {
	logLevel string
	progress string
	allowOps []string
}

func newRoot() *cobra.Command {
	g := new(globals)
	root := &cobra.Command{
		Use:     "gorbit",
		Short:   "Train TensorFlow models from Go",
		Version: version.String(),
		Long: `gorbit trains exported TensorFlow graphs without Python in the training loop.

Exit codes: 0 done, 1 failed, 2 usage (flags or params), 3 data damaged,
75 stopped by a signal after saving (the same command continues).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&g.logLevel, "log-level", "info", "least level to log: debug, info, warn or error")
	f.StringVar(&g.progress, "progress", "auto", "progress bar: auto (on a terminal) or off")
	f.StringSliceVar(&g.allowOps, "allow-op", nil, "let a graph use this operation, which reaches files, processes or Python (an export runs code)")
	root.AddCommand(newConvert(g), newTrain(g), newEvaluate(g), newPredict(g), newExport(g), newInspect(g), newWorker(g), newLaunch(g), newDevices(g), newTPU(g), newVersion())
	return root
}

// writeJSON prints a value as JSON for people and programs.
func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// noArgs refuses arguments that are no flags: a forgotten "--" is the usual cause.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// env returns what a job prints to. Lines go to out, the log and the progress bar
// to standard error.
func (g *globals) env(out io.Writer) (train.Env, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(g.logLevel)); err != nil {
		return train.Env{}, usagef("--log-level %q is not debug, info, warn or error", g.logLevel)
	}
	if g.progress != "auto" && g.progress != "off" {
		return train.Env{}, usagef("--progress %q is not auto or off", g.progress)
	}
	env := train.Env{Out: out, AllowOps: g.allowOps, Version: version.String()}
	var errOut io.Writer = os.Stderr
	if g.progress == "auto" {
		bar := progress.New(os.Stderr)
		env.Observer, env.Out, errOut = bar, bar.Writer(out), bar.Writer(os.Stderr)
	}
	env.Log = slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
	return env, nil
}
