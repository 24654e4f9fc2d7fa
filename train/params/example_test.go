package params_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/train/params"
)

// Params are the defaults, then files, then single settings. examples/customloop trains with them
// left out, by the packages alone.
func ExampleParams_Load() {
	p := params.Defaults()
	if err := p.Load(nil, []string{"train.batch_size=16", "optimizer.learning_rate=2e-4"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Train.BatchSize, p.Optimizer.LearningRate, p.Optimizer.Schedule)

	fmt.Println(p.Load(nil, []string{"train.batchsize=16"}))
	// Output:
	// 16 0.0002 linear
	// params: train.batchsize=16: there is no param train.batchsize; did you mean train.batch_size?
}
