package checkpoint_test

import (
	"context"
	"fmt"
	"os"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
)

// A Manager saves variables with a state of the caller's, and gives back the newest whole
// checkpoint.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: dir, MaxToKeep: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := int64(1); step <= 3; step++ {
		value, err := tf.NewTensor([]float32{float32(step), 2})
		if err == nil {
			err = manager.Save(ctx, step, []checkpoint.NamedTensor{{Name: "model/weights", Value: value}}, []byte("my state"))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := manager.Wait(ctx); err != nil {
		fmt.Println(err)
		return
	}
	restored, err := manager.Restore(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(restored.Step, string(restored.State), restored.Tensors["model/weights"].Value())
	all, err := manager.All()
	fmt.Println(len(all), err)
	// Output:
	// 3 my state [3 2]
	// 2 <nil>
}
