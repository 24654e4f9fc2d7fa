package train

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// TestTwoAverages refuses to write an average to a folder while another process writes one there, and leaves
// what that one has written.
func TestTwoAverages(t *testing.T) {
	dir := t.TempDir()
	part := filepath.Join(dir, ".mean.averaging")
	unlock, other, err := vfs.Lock(part + ".lock")
	if err != nil || other != nil {
		t.Fatal(other, err)
	}
	defer unlock()
	theirs := filepath.Join(part, "params.yaml")
	if err := errors.Join(os.Mkdir(part, 0o777), os.WriteFile(theirs, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := (averaged{}).write(t.Context(), nil, filepath.Join(dir, "mean"), 0, nil); !errors.Is(err, fault.Usage) {
		t.Errorf("%v; expected that another process is named", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}
