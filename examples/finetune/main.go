// Command finetune does what gorbit train does, and stops by a condition of its own. A signal stops it,
// too, and the same command continues the run.
//
//	go run ./examples/finetune runs/reviews train.epochs=2
//
// The data comes from gorbit convert, the graph from python -m gorbit_export. Arguments after the run
// folder are params.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: finetune RUN [PARAM=VALUE...]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fineTune(ctx, os.Args[1], os.Args[2:]...); err != nil {
		log.Fatal("finetune: ", err)
	}
}

func fineTune(ctx context.Context, run string, settings ...string) error {
	p := params.Defaults()
	if err := p.Load(nil, append([]string{
		"graph=exports/reviews", "data.dir=data/reviews", "init=model.safetensors",
		"train.epochs=3", "optimizer.learning_rate=1e-4",
	}, settings...)); err != nil {
		return err
	}
	env := train.Env{Out: os.Stdout, Log: slog.Default()}
	env.EvalActions = []runner.Action{func(ctx context.Context, step int64, metrics runner.Outputs) error {
		if metrics["accuracy"] > 0.95 {
			return fmt.Errorf("%w: accuracy %.3f at step %d", runner.ErrStopTraining, metrics["accuracy"], step)
		}
		return nil
	}}
	metrics, err := train.Train(ctx, p, run, env)
	if errors.Is(err, runner.ErrStopped) {
		return nil // the context was cancelled; the same call continues the run
	}
	fmt.Println(metrics)
	return err
}
