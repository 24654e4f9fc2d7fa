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

// Settings of the input that cannot be are errors of usage, whatever part finds them.
func TestInputParams(t *testing.T) {
	for setting, want := range map[string]string{
		"runtime.lanes=-1":                "runtime.lanes is -1; expected 0",
		"runtime.lanes=65":                "runtime.lanes is 65; expected 0",
		"data.readers=100000":             "data.readers is 100000; expected 0 (the default) to 1024",
		"runtime.intra_op_threads=100000": "runtime.intra_op_threads is 100000; expected 0 (by the cores) to 4096",
		"runtime.inter_op_threads=-1":     "runtime.inter_op_threads is -1; expected 0 (by the cores) to 4096",
		"train.batch_size=16777217":       "batch size is 16777217",
		"data.shuffle=None":               `shuffle is "None"`,
		"data.buffer=-1":                  "data.buffer is -1",
	} {
		p := params.Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		if err := p.Set(setting); err != nil {
			t.Fatal(err)
		}
		err := p.Validate()
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", setting, err)
		}
	}
}
