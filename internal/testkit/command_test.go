package testkit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// watched is a test that notes how it fails, and what it does at its end.
type watched struct {
	testing.TB
	failed string
	atEnd  []func()
}

func (w *watched) Errorf(format string, args ...any) { w.failed += fmt.Sprintf(format, args...) }
func (w *watched) Cleanup(f func())                  { w.atEnd = append(w.atEnd, f) }

// TestCommand starts a command that does not end.
func TestCommand(t *testing.T) {
	if os.Getenv("GORBIT_TEST_WAITS") != "" {
		fmt.Println("ready")
		<-make(chan int)
	}
	for _, late := range []bool{true, false} {
		w := &watched{TB: t}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := command(w, ctx, os.Args[0], "-test.run=^TestCommand$")
		cmd.Env = append(os.Environ(), "GORBIT_TEST_WAITS=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if late {
			cancel()
		} else {
			w.atEnd[0]() // the test has ended
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the command has ended by itself")
		}
		w.atEnd[0]()
		if late != strings.Contains(w.failed, "testkit.TestCommand(") || !late && w.failed != "" {
			t.Errorf("late %v: the test fails with %.200s", late, w.failed)
		}
	}
}
