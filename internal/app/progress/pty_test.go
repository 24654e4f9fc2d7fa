//go:build linux

package progress

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/runner"
)

// openTerminal opens a pseudo-terminal: what is written to user is read from screen.
func openTerminal(t *testing.T) (screen, user *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if user, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	return screen, user
}

// TestResizedTerminal draws on a pseudo-terminal that changes its width: each line fits the width
// that the terminal has then, and the log stays whole.
func TestResizedTerminal(t *testing.T) {
	screen, user := openTerminal(t)
	t.Setenv("CI", "")
	t.Setenv("TERM", "xterm")
	resize := func(columns uint16) {
		if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	// drawn returns what the terminal shows on its last line, and the lines above it.
	drawn := func() (last string, above []string) {
		const end = "\x1b[0m" // changes nothing
		if _, err := user.WriteString(end); err != nil {
			t.Fatal(err)
		}
		var all []byte
		for buf := make([]byte, 1<<10); !bytes.HasSuffix(all, []byte(end)); {
			n, err := screen.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, buf[:n]...)
		}
		lines := bytes.Split(bytes.TrimSuffix(all, []byte(end)), []byte("\r\n"))
		for i, line := range lines {
			shown := line[bytes.LastIndexByte(line, '\r')+1:]
			lines[i] = bytes.TrimPrefix(shown, []byte("\x1b[K"))
		}
		for _, line := range lines[:len(lines)-1] {
			above = append(above, string(line))
		}
		return string(lines[len(lines)-1]), above
	}
	resize(60)
	b := New(user)
	log := b.Writer(user)
	b.Begin(runner.PhaseTrain, 0, 345)
	if last, _ := drawn(); last != "train   0% [          ] (0/345)" {
		t.Errorf("the bar is %q", last)
	}
	step := int64(0)
	for _, columns := range []uint16{60, 40, 20, 1, 60, 200} {
		resize(columns)
		time.Sleep(redrawInterval)
		step++
		b.Step(runner.StepInfo{Step: step, Loss: 0.4321, Examples: 32})
		last, _ := drawn()
		if len(last) >= int(columns) || !strings.HasPrefix("train ", last[:min(len(last), 6)]) {
			t.Errorf("%d columns show %q", columns, last)
		}
		if columns == 60 && (!strings.Contains(last, "loss 0.4321") || strings.HasSuffix(last, ",")) {
			t.Errorf("60 columns show %q; expected the loss", last)
		}
		line := fmt.Sprintf("train | step: %6d", step)
		fmt.Fprintln(log, line)
		if _, above := drawn(); len(above) != 1 || above[0] != line {
			t.Errorf("%d columns: the lines above the bar are %q; expected %q", columns, above, line)
		}
	}
}
