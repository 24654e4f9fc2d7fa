package tfprocess

import (
	"fmt"
	"os"
	"syscall"
)

// oneDNNVariable is the environment variable that TensorFlow reads when its library is loaded.
const oneDNNVariable = "TF_ENABLE_ONEDNN_OPTS"

// OneDNN turns TensorFlow's use of oneDNN on or off. If the program runs with the other setting, it
// executes the program again in the same process, with the given arguments (the program's name
// first). It returns nil if nothing has to change, or an error if the program cannot be executed.
// It must be called before anything that must not happen twice.
func OneDNN(on bool, args []string) error {
	now := os.Getenv(oneDNNVariable)
	want := "0"
	if on {
		want = "1"
	}
	if now == want || now == "" && on {
		return nil
	}
	if err := os.Setenv(oneDNNVariable, want); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("restart with %s=%s: %w", oneDNNVariable, want, err)
	}
	return fmt.Errorf("restart with %s=%s: %w", oneDNNVariable, want, syscall.Exec(program, args, os.Environ()))
}
