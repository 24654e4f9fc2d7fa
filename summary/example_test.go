package summary_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorbit-ml/gorbit/summary"
)

// A Writer writes the event file of a folder, which TensorBoard shows.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := summary.NewWriter(filepath.Join(dir, "train"))
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Scalar("loss", 1, 0.7)
	w.Scalar("loss", 2, 0.5)
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.HasPrefix(filepath.Base(w.Path()), "events.out.tfevents."))
	// Output: true
}
