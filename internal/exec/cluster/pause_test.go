package cluster

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestPauses notes gaps that are longer than two ticks, also while nobody has noted them.
func TestPauses(t *testing.T) {
	now := time.Hour
	p := newPauses(time.Second, func() time.Duration { return now })
	for _, step := range []struct{ pass, total, recent time.Duration }{
		{time.Second, 0, 0}, {2 * time.Second, 0, 0},
		{30 * time.Second, 30 * time.Second, 30 * time.Second},
		{2 * time.Second, 30 * time.Second, 30 * time.Second},
		{3 * time.Second, 33 * time.Second, 3 * time.Second},
		{time.Second, 33 * time.Second, 3 * time.Second}, {time.Second, 33 * time.Second, 3 * time.Second}, {time.Second, 33 * time.Second, 3 * time.Second},
		{time.Second, 33 * time.Second, 0},
	} {
		now += step.pass
		if got := p.note(); got != step.total {
			t.Errorf("after %v: paused for %v in all, want %v", now-time.Hour, got, step.total)
		}
		if got := p.recent(3 * time.Second); got != step.recent {
			t.Errorf("after %v: paused for %v lately, want %v", now-time.Hour, got, step.recent)
		}
	}
}

// TestAwait does not take the silence of a pause for a peer's, and reads a line on that the
// deadline cut.
func TestAwait(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	var now atomic.Int64
	p := newPauses(time.Millisecond, func() time.Duration { return time.Duration(now.Load()) })
	go func() {
		// The first deadline passes in a pause, in the middle of a line.
		if _, err := io.WriteString(a, `{"bye":{"do`); err != nil {
			t.Error(err)
		}
		now.Add(int64(time.Hour))
	}()
	l := newLink(b, b)
	first := make(chan struct{})
	go func() {
		<-first
		if _, err := io.WriteString(a, "ne\":true}}\n"); err != nil {
			t.Error(err)
		}
	}()
	time.AfterFunc(300*time.Millisecond, func() { close(first) })
	m, err := l.await(200*time.Millisecond, p)
	if err != nil || m.Bye == nil || !m.Bye.Done {
		t.Fatalf("read %+v, %v", m, err)
	}
	if _, err := l.await(time.Millisecond, p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence without a pause: %v", err)
	}
}

// TestChiefPaused stops a chief until its workers have given it up. It says that it was
// stopped itself.
func TestChiefPaused(t *testing.T) {
	t.Parallel()
	workers := pair(t)
	chief := launch(t, append([]string{"chief"}, addresses(workers)...)...)
	children := []int{workers[0].child(t), workers[1].child(t)}
	chief.signal(t, syscall.SIGSTOP)
	until(t, "the children's end", func() bool { return !alive(children[0]) && !alive(children[1]) })
	chief.signal(t, syscall.SIGCONT)
	<-chief.ended
	if got := chief.log.String(); !strings.HasPrefix(got, "the chief itself did not run for ") || strings.Contains(got, "network") {
		t.Errorf("the chief said %q", got)
	}
	for _, w := range workers {
		until(t, "the worker to listen again", func() bool { return strings.Contains(w.log.String(), "the chief is gone: nothing was heard from it") })
	}
}
