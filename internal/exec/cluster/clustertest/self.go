package clustertest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
)

// child, as the first argument, makes a test binary a worker's child; the second is the folder of
// its data.
const child = "child"

// StartSelf starts workers whose children are the test binary itself, one for each folder of data,
// "" for the chief's, and returns their addresses. The package's TestMain calls Serve.
func StartSelf(t testing.TB, devices string, dirs ...string) []string {
	t.Helper()
	children := make([][]string, len(dirs))
	for i, dir := range dirs {
		children[i] = []string{os.Args[0], child, dir}
	}
	return Start(t, devices, children...)
}

// Serve serves a session and ends the process where that is a worker's child. Prepare, which may
// be nil, is called with the folder of its data before.
func Serve(prepare func(dir string)) {
	if len(os.Args) != 3 || os.Args[1] != child {
		return
	}
	if prepare != nil {
		prepare(os.Args[2])
	}
	if err := cluster.Child(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
