package train_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/train"
)

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
