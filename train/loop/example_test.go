package loop_test

import (
	"context"
	"log/slog"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// What a loop of your own takes: batches, the model, checkpoints and the first values of variables.
// examples/customloop is a whole program.
func Example() {
	parts := func(ctx context.Context, export *graphs.Export, device *strategy.Model, examples *dataset.Dataset, manager *checkpoint.Manager) error {
		checkpoints := loop.NewCheckpoints(manager, device, export.Contract, slog.Default())
		restored, err := checkpoints.Restore(ctx, "")
		if err != nil {
			return err
		}
		if restored.Path == "" {
			if _, err := loop.Initialize(ctx, device, export, loop.Init{From: "model.safetensors"}); err != nil {
				return err
			}
		}
		source, model := loop.NewSource(examples, device, 1), loop.NewModel(device, strategy.Scalars{"learning_rate": 1e-4}, nil)
		_, err = source.Next(ctx)
		_ = model // package runner calls its Steps with such batches
		return err
	}
	_ = parts
}
