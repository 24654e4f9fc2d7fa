package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/tracking"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/train"
)

func newTrack(g *globals) *cobra.Command {
	m := &tracking.MLflow{Version: version.String()}
	var follow bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "track RUN (--mlflow URL | -- COMMAND [ARGUMENT...]) [flags]",
		Short: "Send a run's metrics to MLflow, or to a command",
		Long: `Sends the params and metrics of a run to a tracking server of MLflow, or to the standard
input of a command as lines of JSON. With --follow it continues while the run trains; without,
it sends what is there.

It reads the run's folder. The training knows nothing of it, and neither waits for a
tracker nor loses a point: what a tracker missed is sent when it is back, or when the
command is given again. The file tracking.json in the run's folder says what MLflow has.

Names and passwords for MLflow come from MLFLOW_TRACKING_USERNAME,
MLFLOW_TRACKING_PASSWORD and MLFLOW_TRACKING_TOKEN.`,
		Example: `  gorbit track runs/mrpc --mlflow http://127.0.0.1:5000 --follow
  gorbit track runs/mrpc --follow -- python3 examples/track/wandb_hook.py`,
	}
	f := cmd.Flags()
	f.StringVar(&m.URL, "mlflow", os.Getenv("MLFLOW_TRACKING_URI"), "`http://HOST:PORT` of MLflow's tracking server (default: MLFLOW_TRACKING_URI)")
	f.Lookup("mlflow").DefValue = ""
	f.StringVar(&m.Experiment, "experiment", "Default", "experiment of MLflow; created if it is not there")
	f.StringVar(&m.Name, "name", "", "name of the run in MLflow (default: that of its folder)")
	f.BoolVar(&follow, "follow", false, "continue until the run's training has ended")
	f.DurationVar(&timeout, "timeout", 10*time.Minute, "with --follow: how long to wait for the run, and for a tracker that is away when the run has ended")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at := cmd.ArgsLenAtDash()
		var command []string
		if at >= 0 {
			args, command = args[:at], args[at:]
		}
		switch {
		case len(args) == 0:
			return usagef("the run is missing; expected its folder, as in gorbit track runs/mrpc --mlflow URL")
		case len(args) > 1:
			return noArgs(cmd, args[1:])
		case at >= 0 && len(command) == 0:
			return usagef("no command follows --; expected a program and its arguments")
		case len(command) > 0 && f.Changed("mlflow"):
			return usagef("both --mlflow and a command are given; expected one of them")
		case len(command) == 0 && m.URL == "":
			return usagef("no tracker is given; expected --mlflow and an address, or -- and a command")
		case !follow && f.Changed("timeout"):
			return usagef("--timeout is given without --follow; only --follow waits")
		case timeout <= 0:
			return usagef("--timeout is %v; expected more than 0", timeout)
		}
		if err := localFolder(args[0], "copy the run first, as with gcloud storage cp -r "+args[0]+" ."); err != nil {
			return err
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		t := &tracking.Tracker{Folder: args[0], Log: env.Log, Poll: 5 * time.Second}
		to := command
		if len(command) > 0 {
			t.Sink = &tracking.Command{Args: command}
		} else {
			m.User, m.Password, m.Token = os.Getenv("MLFLOW_TRACKING_USERNAME"), os.Getenv("MLFLOW_TRACKING_PASSWORD"), os.Getenv("MLFLOW_TRACKING_TOKEN")
			if err := m.Validate(); err != nil {
				return err
			}
			t.Sink, to = m, []string{m.URL}
		}
		return sendRun(cmd.Context(), env, t, to, follow, timeout)
	}
	return cmd
}

// sendRun sends a run to a tracker and says how much.
func sendRun(ctx context.Context, env train.Env, t *tracking.Tracker, to []string, follow bool, timeout time.Duration) error {
	if follow {
		if err := train.AwaitRun(ctx, t.Folder, timeout, env); err != nil {
			return err
		}
	}
	release, err := sole(t.Folder, env.Log, to...)
	if err != nil {
		return err
	}
	defer release()
	if follow {
		err = t.Follow(ctx, nil, timeout)
	} else {
		err = t.Send(ctx)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "sent %d values\n", t.Count())
	return err
}
