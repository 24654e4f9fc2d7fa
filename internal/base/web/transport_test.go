package web

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// TestStallConn holds that reading waits while a request is written, and ends when nothing moves any more.
func TestStallConn(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := &stallConn{Conn: near, stall: time.Second}
	go func() {
		for buf := make([]byte, 1); ; {
			if _, err := far.Read(buf); err != nil {
				return
			}
		}
	}()
	failed := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		failed <- err
	}()
	for range 75 { // longer than the deadline, in which nothing comes
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-failed:
			t.Fatalf("reading ended while bytes were written: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v; expected the end of the deadline", err)
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"10.0.0.1": false, "": false, "localhost.example": false, "::": false} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %v; expected %v", host, got, want)
		}
	}
}
