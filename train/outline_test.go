package train

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDue(t *testing.T) {
	for _, tt := range []struct{ after, last, a, b, want int64 }{
		{0, 10, 0, 0, 1}, {0, 10, 5, 0, 2}, {0, 11, 5, 0, 3}, {5, 11, 5, 0, 2}, {11, 11, 5, 0, 0}, {0, 12, 4, 6, 4}, {0, 13, 4, 6, 5}, {6, 12, 4, 6, 2}, {0, 3, 0, 5, 1},
	} {
		if got := due(tt.after, tt.last, tt.a, tt.b); got != tt.want {
			t.Errorf("from %d to %d by %d and %d: %d; expected %d", tt.after, tt.last, tt.a, tt.b, got, tt.want)
		}
	}
}

func TestOutline(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs, p.Train.EvalInterval = 5, 0, 2
	p.Checkpoint.Interval = 3
	folder := filepath.Join(t.TempDir(), "run")
	o, err := NewOutline(t.Context(), p, folder, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if o.Steps != 5 || o.Done != 0 || o.Evaluations != 3 || o.Saves != 4 || o.Examples == 0 || o.EvalExamples == 0 || o.Parameters == 0 {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder of the run: %v; expected none", err)
	}
}
