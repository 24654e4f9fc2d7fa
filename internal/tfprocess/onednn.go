package tfprocess

import (
	"fmt"
	"os"
	"syscall"
)

// oneDNNVariable is what TensorFlow reads when its library is loaded.
const oneDNNVariable = "TF_ENABLE_ONEDNN_OPTS"

// OneDNN makes TensorFlow use oneDNN, or not. A program that runs with the other
// setting is started anew, in the same process, with the given arguments (the
// program's name first); the call returns where there was nothing to do, or with
// the error that kept the program from starting. It must come before anything
// that is not to be done twice.
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
		return fmt.Errorf("start anew with %s=%s: %w", oneDNNVariable, want, err)
	}
	return fmt.Errorf("start anew with %s=%s: %w", oneDNNVariable, want, syscall.Exec(program, args, os.Environ()))
}
