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
)

// Train does what gorbit train does, and calls actions of your own behind it. A signal stops the run,
// and the same program continues it.
func ExampleTrain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fineTune(ctx, "runs/reviews"); err != nil {
		fmt.Println(err)
	}
}

func fineTune(ctx context.Context, run string) error {
	params := train.Defaults()
	if err := params.Load(nil, []string{
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
	metrics, err := train.Train(ctx, params, run, env)
	if errors.Is(err, runner.ErrStopped) {
		return nil // the context was cancelled; the same call continues the run
	}
	fmt.Println(metrics)
	return err
}

// Params are the defaults, then files, then single settings. examples/customloop trains with them
// left out, by the packages alone.
func ExampleParams_Load() {
	params := train.Defaults()
	if err := params.Load(nil, []string{"train.batch_size=16", "optimizer.learning_rate=2e-4"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(params.Train.BatchSize, params.Optimizer.LearningRate, params.Optimizer.Schedule)

	fmt.Println(params.Load(nil, []string{"train.batchsize=16"}))
	// Output:
	// 16 0.0002 linear
	// params: --set train.batchsize=16: there is no param train.batchsize; did you mean train.batch_size?
}
