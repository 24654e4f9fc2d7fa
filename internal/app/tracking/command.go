package tracking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// Command is a sink that starts a command and writes lines of JSON to its standard input: one with
// "event":"run", one with "event":"metrics" for each step of a phase, and one with "event":"end". The
// command gets the whole run each time that it is started. No shell is involved.
type Command struct {
	// Args are the program and its arguments.
	Args []string

	cmd  *exec.Cmd
	in   io.WriteCloser
	json *json.Encoder
}

// MetricsEvent returns the event of the metrics of a step and phase, to be written as a line of JSON.
func MetricsEvent(phase string, step int64, values map[string]float64) map[string]any {
	metrics := make(map[string]any, len(values))
	for name, v := range values {
		metrics[name] = Number(v)
	}
	return map[string]any{"event": "metrics", "phase": phase, "step": step, "metrics": metrics}
}

// Begin implements Sink.
func (c *Command) Begin(ctx context.Context, run *runfolder.Run) (map[string]int64, error) {
	if c.cmd != nil { // it has failed, and is started again
		_, _ = c.in.Close(), c.cmd.Wait()
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = os.Stderr, os.Stderr, 10*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	c.cmd, c.in, c.json = cmd, in, json.NewEncoder(in)
	return nil, c.write(map[string]any{"event": "run", "folder": run.Folder, "params": run.Params, "steps": run.Steps})
}

// Points implements Sink.
func (c *Command) Points(_ context.Context, points []Point) error {
	for i := 0; i < len(points); {
		first, values := points[i], make(map[string]float64)
		for ; i < len(points) && points[i].Phase == first.Phase && points[i].Step == first.Step; i++ {
			values[points[i].Metric] = points[i].Value
		}
		if err := c.write(MetricsEvent(first.Phase, first.Step, values)); err != nil {
			return err
		}
	}
	return nil
}

// End implements Sink. It waits for the command to end.
func (c *Command) End(_ context.Context, run *runfolder.Run) error {
	end := map[string]any{"event": "end", "state": run.State, "step": run.Step}
	if run.Best.Known {
		end["best"] = map[string]any{"metric": run.Best.Metric, "value": Number(run.Best.Value), "step": run.Best.Step}
	}
	err := c.write(end)
	if e := c.in.Close(); err == nil && !errors.Is(e, os.ErrClosed) {
		err = e
	}
	if e := c.cmd.Wait(); e != nil {
		return fmt.Errorf("%s: %w", c.Args[0], e)
	}
	return err
}

func (c *Command) write(value any) error {
	if err := c.json.Encode(value); err != nil {
		return fmt.Errorf("%s stopped reading its input: %w", c.Args[0], err)
	}
	return nil
}
