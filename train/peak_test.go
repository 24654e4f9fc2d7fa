package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestPeakOfBusyMachine trains faster than the peak that is remembered.
func TestPeakOfBusyMachine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	store, err := peak.OfUser()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Keep(peak.Peak{Key: peak.CPU("float32"), FLOPS: 1}); err != nil {
		t.Fatal(err)
	}
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	run := t.TempDir()
	if log := trainedLog(t, p, run); strings.Contains(log, "mfu_percent") ||
		strings.Count(log, "faster than the machine's peak") != 1 || !strings.Contains(log, "gorbit doctor --measure") {
		t.Errorf("the log of a training that was faster than the peak:\n%s", log)
	}
	state, err := os.ReadFile(filepath.Join(run, runfolder.Trainer))
	if err != nil || !strings.Contains(string(state), "train_flops_per_second") || strings.Contains(string(state), "train_mfu") {
		t.Errorf("%v; %s is\n%s", err, runfolder.Trainer, state)
	}
}
