package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/params"
)

// A run does not begin in the folder of its data or of its graph, and leaves nothing there.
func TestRunFolderIsItsOwn(t *testing.T) {
	for file, want := range map[string]string{"manifest.json": "is a dataset (it has manifest.json)", "saved_model.pb": "is an export (it has saved_model.pb)"} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, file), "")
		_, err := Train(context.Background(), params.Defaults(), dir, Env{})
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", file, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: the folder holds %v (%v)", file, left, err)
		}
	}
}
