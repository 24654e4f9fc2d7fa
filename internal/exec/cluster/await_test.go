package cluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// awaiting starts a worker that waits for a chief at an address, or a socket of a folder.
func awaiting(t *testing.T, sockets, chief string, timeout time.Duration) (s *Supervisor, log *lockedBuffer, ended chan error) {
	t.Helper()
	log = new(lockedBuffer)
	address := "127.0.0.1:0"
	if sockets != "" {
		address = "127.0.0.1:2"
	}
	s, err := Listen(SupervisorConfig{Listen: address, Devices: "cpu:1", Threads: 1, Sockets: sockets, Child: []string{os.Args[0], "child"},
		Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, ended := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	go func() { ended <- s.AwaitChief(ctx, chief, timeout) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, log, ended
}

// TestAwaitChief waits for a chief that is not there, and for one that is there and then is
// killed or stopped.
func TestAwaitChief(t *testing.T) {
	gone := func(t *testing.T, ended chan error, address, want string) {
		t.Helper()
		var none *NoChiefError
		if err := <-ended; !errors.As(err, &none) || none.Address != address || !strings.Contains(err.Error(), want) {
			t.Errorf("ended with %v, want no chief at %s: %s", err, address, want)
		}
	}
	t.Run("never there", func(t *testing.T) {
		_, log, ended := awaiting(t, "", "127.0.0.1:1", 200*time.Millisecond)
		gone(t, ended, "127.0.0.1:1", "refused")
		if got := strings.Count(log.String(), "waiting for the chief to connect\" chief=127.0.0.1:1"); got != 1 {
			t.Errorf("said %d times that it waits:\n%s", got, log)
		}
	})
	for name, test := range map[string]struct {
		signal syscall.Signal
		access []string
		want   string
	}{"killed": {syscall.SIGKILL, nil, "refused"}, "stopped": {syscall.SIGSTOP, []string{socketFolder(t)}, "nothing was heard from it"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"worker", "127.0.0.1:0", "cpu:1"}
			if test.access != nil {
				args[1] = "127.0.0.1:1"
			}
			chief := launch(t, append(args, test.access...)...)
			s, log, ended := awaiting(t, chief.sockets(), chief.address, pace*3*time.Second)
			f, err := Connect(t.Context(), Config{Addresses: []string{s.Addr()}, Timeout: long, Sockets: chief.sockets()})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			until(t, "the worker to say that it waits again", func() bool { return strings.Count(log.String(), "waiting for the chief") == 2 })
			select {
			case err := <-ended:
				t.Fatalf("ended while the chief was there: %v", err)
			default:
			}
			chief.signal(t, test.signal)
			gone(t, ended, chief.address, test.want)
		})
	}
}
