package train

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/train/params"
)

// A start that fails before anything is trained leaves no folder. One that was there stays.
func TestFailedStartsLeaveNothing(t *testing.T) {
	for name, change := range map[string]func(*Env, *params.Params){
		"a device that is not there":     func(_ *Env, p *params.Params) { p.Strategy.Devices = "gpu:99" },
		"a checkpoint that is not there": func(e *Env, _ *params.Params) { e.ResumeFrom = "7" },
	} {
		p, env, run := testParams(t), quiet(), filepath.Join(t.TempDir(), "run")
		change(&env, &p)
		if _, err := Train(t.Context(), p, run, env); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(run); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the folder of the run is left, %v", name, err)
		}
		if err := os.Mkdir(run, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := Train(t.Context(), p, run, env); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(run); err != nil {
			t.Errorf("%s: a folder that was there is removed, %v", name, err)
		}
	}
}
