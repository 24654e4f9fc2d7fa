package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorbit-ml/gorbit/runner"
)

// screen is a terminal that supports newlines, carriage returns and erasing a line. Any other
// control character is an error.
type screen struct {
	t     *testing.T
	lines []string // finished lines
	last  []byte   // the line of the cursor
	at    int
	draws int
}

func (s *screen) Write(p []byte) (int, error) {
	n := len(p)
	s.draws++
	for len(p) > 0 {
		switch {
		case bytes.HasPrefix(p, []byte("\x1b[K")):
			s.last = s.last[:s.at]
			p = p[3:]
		case p[0] == '\r':
			s.at = 0
			p = p[1:]
		case p[0] == '\n':
			s.lines = append(s.lines, string(s.last))
			s.last, s.at = nil, 0
			p = p[1:]
		case p[0] < ' ' || p[0] > '~':
			s.t.Errorf("byte %#x on the terminal", p[0])
			p = p[1:]
		default:
			s.last = append(s.last[:s.at], p[0])
			s.at++
			p = p[1:]
		}
	}
	return n, nil
}

func wide() int { return 200 }

func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{t: t}
		b := newBar(s, wide)
		log := b.Writer(s)
		check := func(want string, lines ...string) {
			t.Helper()
			if got := string(s.last); got != want {
				t.Errorf("the bar is\n%q, want\n%q", got, want)
			}
			if fmt.Sprint(s.lines) != fmt.Sprint(lines) {
				t.Errorf("above it are %q, want %q", s.lines, lines)
			}
		}
		fmt.Fprintln(log, "restored")
		check("", "restored")

		// A resumed run: rates are of the steps seen, the share is of all.
		b.Begin(runner.PhaseTrain, 170, 340)
		check("train  50% [=========>          ] (170/340)", "restored")
		for i := range int64(10) {
			time.Sleep(500 * time.Millisecond)
			b.Step(runner.StepInfo{Step: 171 + i, Epoch: 1, Examples: 32, Tokens: 1000, Loss: 0.43215})
		}
		check("train  52% [=========>          ] (180/340) 1:20 left, loss 0.4321, 2 steps/s, 64 examples/s, epoch 2", "restored")
		fmt.Fprintln(log, "a line")
		check("train  52% [=========>          ] (180/340) 1:20 left, loss 0.4321, 2 steps/s, 64 examples/s, epoch 2", "restored", "a line")

		// Half a line keeps the bar away.
		fmt.Fprint(log, "half ")
		check("half ", "restored", "a line")
		b.Step(runner.StepInfo{Step: 181})
		check("half ", "restored", "a line")
		fmt.Fprintln(log, "a line")
		if !strings.HasPrefix(string(s.last), "train  53%") {
			t.Errorf("the bar is %q", s.last)
		}

		// An evaluation of unknown length takes the bar's place and no time.
		b.Begin(runner.PhaseEval, 0, runner.UntilEnd)
		check("eval (0)", "restored", "a line", "half a line")
		time.Sleep(100 * time.Second)
		b.Step(runner.StepInfo{Step: 1, Examples: 50, Loss: 2})
		check("eval (1) loss 2, 0.01 steps/s, 0.5 examples/s", "restored", "a line", "half a line")
		b.End()
		if !strings.Contains(string(s.last), "2.2 steps/s") {
			t.Errorf("the bar is %q", s.last)
		}

		// Back to a checkpoint, then to the end.
		time.Sleep(time.Second)
		b.Step(runner.StepInfo{Step: 34})
		if !strings.HasPrefix(string(s.last), "train  10%") {
			t.Errorf("the bar is %q", s.last)
		}
		b.Step(runner.StepInfo{Step: 340})
		if !strings.HasPrefix(string(s.last), "train 100% [====================] (340/340) 0:00 left") {
			t.Errorf("the bar is %q", s.last)
		}
		b.End()
		check("", "restored", "a line", "half a line")
		b.End() // one too many
		b.Step(runner.StepInfo{Step: 1})
		check("", "restored", "a line", "half a line")
	})
}

// Fast steps are not all drawn.
func TestBarThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{t: t}
		b := newBar(s, wide)
		b.Begin(runner.PhaseTrain, 0, 100_000)
		for i := range int64(10_000) { // ten seconds
			time.Sleep(time.Millisecond)
			b.Step(runner.StepInfo{Step: i + 1})
		}
		if s.draws < 50 || s.draws > 110 {
			t.Errorf("drawn %d times in 10 s", s.draws)
		}
	})
}

// Whatever its width, a terminal shows one line that does not wrap.
func TestBarFitsTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for width := range 130 {
			s := &screen{t: t}
			b := newBar(s, func() int { return width })
			b.Begin(runner.PhaseTrain, 0, 1_000_000)
			time.Sleep(time.Second)
			b.Step(runner.StepInfo{Step: 999_999, Epoch: 12, Examples: 4096, Loss: 1e-9})
			if len(s.last) >= max(width, 1) || len(s.lines) > 0 {
				t.Errorf("%d columns hold %q", width, s.last)
			}
			if width == 80 && string(s.last) != "train  99% [========> ] (999999/1000000) 0:01 left, loss 1e-09, 1 steps/s" {
				t.Errorf("%d columns hold %q", width, s.last)
			}
		}
	})
}

// Without a terminal nothing is drawn, and lines pass through.
func TestNoTerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := New(f)
	log := b.Writer(f)
	b.Begin(runner.PhaseTrain, 0, 10)
	b.Step(runner.StepInfo{Step: 1})
	fmt.Fprintln(log, "a line")
	b.End()
	got, err := os.ReadFile(f.Name())
	if err != nil || string(got) != "a line\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// Lines from several goroutines come out whole.
func TestConcurrentUse(t *testing.T) {
	s := &screen{t: t}
	b := newBar(s, wide)
	log := b.Writer(s)
	b.Begin(runner.PhaseTrain, 0, 100)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range int64(50) {
				fmt.Fprintf(log, "line of %d\n", g)
				b.Step(runner.StepInfo{Step: i})
			}
		})
	}
	wg.Wait()
	b.End()
	for _, l := range s.lines {
		if len(l) != len("line of 0") {
			t.Errorf("line %q", l)
		}
	}
	if len(s.lines) != 200 {
		t.Errorf("%d lines, want 200", len(s.lines))
	}
}

func TestWriterReportsErrors(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	b := newBar(&screen{t: t}, wide)
	if _, err := b.Writer(w).Write([]byte("x\n")); err != io.ErrClosedPipe {
		t.Errorf("error is %v", err)
	}
}

func TestClock(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0:00", 59.6: "1:00", 3599: "59:59", 3661: "1:01:01", 1e12: "forever"} {
		if got := clock(seconds); got != want {
			t.Errorf("%v s is %s, want %s", seconds, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{t: t}
		b := newBar(s, wide)
		b.Read("convert", 0, 4e6, 0)
		time.Sleep(time.Second)
		b.Read("convert", 1e6, 4e6, 500)
		if got, want := string(s.last), "convert  25% [====>               ] 0:03 left, 1 MB/s, 500 rows/s"; got != want {
			t.Errorf("the bar is\n%q, want\n%q", got, want)
		}
		b.End()
		if len(s.last) > 0 {
			t.Errorf("after the end there is %q", s.last)
		}
	})
	(&Bar{}).Read("convert", 1, 2, 3) // without a terminal
}
