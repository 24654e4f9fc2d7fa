package summary

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReadScalars reads what a Writer wrote, in a process that goes back to an earlier step and one
// that continues.
func TestReadScalars(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(4) {
		w.Scalar("loss", step, float64(step)/2)
	}
	w.Text("params", 0, "x")
	w.Histogram("kernel", 1, []float32{1, 2}, 4)
	w.Restart(2)
	w.Scalar("loss", 2, 9)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := NewWriter(dir, ResumeAt(3))
	if err != nil {
		t.Fatal(err)
	}
	again.Scalar("loss", 3, 10)
	again.Scalar("accuracy", 3, 0.5)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(damaged int) {
		t.Helper()
		s, err := ReadScalars(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, p := range s.Points["loss"] {
			if got = append(got, float64(p.Step), p.Value); p.Time < 1e9 {
				t.Errorf("the time of step %d is %v", p.Step, p.Time)
			}
		}
		if want := []float64{0, 0, 1, 0.5, 2, 9, 3, 10}; !slices.Equal(got, want) {
			t.Errorf("loss is %v; expected %v", got, want)
		}
		if len(s.Points) != 2 || s.Points["accuracy"][0].Value != 0.5 || s.Damaged != damaged {
			t.Errorf("read %v, %d damaged; expected loss and accuracy, %d damaged", s.Points, s.Damaged, damaged)
		}
	}
	check(0)
	// A killed process leaves half an event.
	f, err := os.OpenFile(again.Path(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check(1)
	if s, err := ReadScalars(filepath.Join(dir, "none")); err != nil || len(s.Points) != 0 {
		t.Errorf("a folder that is not there: %v, %v", s, err)
	}
}

// TestReadGolden reads what TensorFlow wrote.
func TestReadGolden(t *testing.T) {
	s := &Scalars{Points: map[string][]Point{}}
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden: %v", err)
	}
	for _, path := range files {
		if err := s.read(path); err != nil {
			t.Fatal(err)
		}
	}
	if s.Damaged > 0 || len(s.Points) == 0 {
		t.Errorf("read %v, %d damaged; expected scalars", s.Points, s.Damaged)
	}
}

func FuzzScalars(f *testing.F) {
	f.Add([]byte{0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0x2a, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, record []byte) {
		s := &Scalars{Points: map[string][]Point{}}
		s.event(record)
	})
}
