package strategy_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Two replicas on virtual CPU devices train on a global batch of 32 examples. Train's adapters do
// this within a loop that logs, evaluates and saves. (It is not run here: it needs an export and a
// converted data set.)
func Example() {
	ctx := context.Background()
	export, err := graphs.Open("graphs/minilm")
	if err != nil {
		log.Fatal(err)
	}
	model, err := strategy.NewMirrored(ctx, export, []string{"/device:CPU:0", "/device:CPU:1"}, strategy.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	// Here the variables are set: model.Assign(ctx, values) with those of a checkpoint.

	rows := packed.Config{RowLength: 128}
	config := dataset.Config{Files: []string{"data/train-00000-of-00001.tfrecord"}, BatchSize: 32, Layout: rows}
	data, err := dataset.Open(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer data.Close()
	runtime := model.Runtime()
	for step := range int64(100) {
		batch, err := data.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		parts, err := rows.Divide(batch, runtime.MicroBatches, runtime.LongRows)
		if err != nil {
			log.Fatal(err)
		}
		in := strategy.StepInput{Seed: [2]int64{1, step}, Scalars: strategy.Scalars{"learning_rate": 3e-5}}
		for _, p := range parts {
			in.Batches = append(in.Batches, p.Features)
		}
		results, err := model.Steps(ctx, []strategy.StepInput{in})
		if err != nil {
			log.Fatal(err)
		}
		sums := results[0].Sums
		fmt.Println("loss", sums["loss_sum"][0]/sums["weight_sum"][0])
	}
}
