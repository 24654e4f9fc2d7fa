package train_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Train does what gorbit train does, and calls actions of your own after it. A signal stops the run,
// and the same program continues it.
func ExampleTrain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fineTune(ctx, "runs/reviews"); err != nil {
		fmt.Println(err)
	}
}

func fineTune(ctx context.Context, run string) error {
	p := params.Defaults()
	if err := p.Load(nil, []string{
		"graph=exports/reviews", "data.dir=data/reviews", "init=model.safetensors",
		"train.epochs=3", "optimizer.learning_rate=1e-4",
	}); err != nil {
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
