package peak

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMeasureDisk(t *testing.T) {
	dir := t.TempDir()
	d, err := MeasureDisk(t.Context(), dir)
	if err != nil || d.Read <= 0 || d.Write <= 0 {
		t.Errorf("%+v, %v; expected how fast the disk is", d, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if _, err := MeasureDisk(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there was measured")
	}
}
