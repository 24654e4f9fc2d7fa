package tfenv

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHushKeepsWhatIsNoNoise(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	saved, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(int(w.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	w.Close()
	want := errors.New("failed")
	got := Hush(func() error {
		for _, line := range []string{
			"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
			"I0000 00:00:1795238331.937352   32102 mlir_graph_optimization_pass.cc:401] MLIR V1 optimization pass is not enabled\n",
			"E0000 00:00:1 something is wrong\n",
			"no line's end",
		} {
			unix.Write(2, []byte(line))
		}
		return want
	})
	unix.Write(2, []byte("\nafter\n"))
	if err := unix.Dup3(saved, 2, 0); err != nil {
		t.Fatal(err)
	}
	unix.Close(saved)
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(got, want) {
		t.Errorf("Hush returned %v", got)
	}
	if string(text) != "E0000 00:00:1 something is wrong\nno line's end\nafter\n" {
		t.Errorf("standard error got %q", text)
	}
}
