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

// Train does what gorbit train does. A signal stops the run, and the same program continues it.
func ExampleTrain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := params.Defaults()
	if err := p.Load(nil, []string{"graph=exports/reviews", "data.dir=data/reviews", "train.epochs=3"}); err != nil {
		fmt.Println(err)
		return
	}
	metrics, err := train.Train(ctx, p, "runs/reviews", train.Env{Out: os.Stdout, Log: slog.Default()})
	if err != nil && !errors.Is(err, runner.ErrStopped) {
		fmt.Println(err)
		return
	}
	fmt.Println(metrics)
}
