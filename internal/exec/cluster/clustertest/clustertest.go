// Package clustertest starts workers for tests, and relays what they say.
package clustertest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
)

// Start starts a worker with the same devices for each of some command lines of its
// child, with operations of one thread, and returns their addresses. They end with the
// test.
func Start(t testing.TB, devices string, children ...[]string) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var addresses []string
	var serving sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	for _, child := range children {
		s, err := cluster.Listen(cluster.SupervisorConfig{Listen: "127.0.0.1:0", Devices: devices, Threads: 1, Child: child,
			Log: slog.New(slog.DiscardHandler), ChildLog: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, s.Addr())
		serving.Go(func() { s.Serve(ctx) })
	}
	return addresses
}

// Greet relays between chiefs and a worker, whose greeting it has changed. It returns the
// address that chiefs take for the worker's.
func Greet(t testing.TB, worker string, change func(hello map[string]any)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	relay := func(chief net.Conn) error {
		defer chief.Close()
		conn, err := net.Dial("tcp", worker)
		if err != nil {
			return err
		}
		defer conn.Close()
		go func() {
			io.Copy(conn, chief) // either side's end is the other's
			conn.Close()
		}()
		from := bufio.NewReader(conn)
		line, err := from.ReadBytes('\n')
		if err != nil {
			return err
		}
		var said struct {
			Hello map[string]any `json:"hello"`
		}
		if err := json.Unmarshal(line, &said); err != nil {
			return err
		}
		change(said.Hello)
		if err := json.NewEncoder(chief).Encode(said); err != nil {
			return err
		}
		io.Copy(chief, from)
		return nil
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			chief, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				if err := relay(chief); err != nil {
					t.Errorf("worker %s: %v", worker, err)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}
