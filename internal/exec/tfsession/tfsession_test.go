package tfsession

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// master is a TensorFlow server that answers all calls with nothing, except one, about which it is silent
// or which it refuses.
type master struct {
	address string
	heard   chan string   // methods, in their order
	waits   chan struct{} // closed when a call is not answered
	speak   chan struct{} // closed to answer it

	mu             sync.Mutex
	silent, refuse string // methods whose next call is not answered, and whose calls are refused
}

func newMaster(t *testing.T) *master {
	t.Helper()
	m := &master{heard: make(chan string, 100), waits: make(chan struct{}), speak: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address = l.Addr().String()
	server := grpc.NewServer(grpc.UnknownServiceHandler(m.serve))
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return m
}

func (m *master) serve(_ any, stream grpc.ServerStream) error {
	called, _ := grpc.MethodFromServerStream(stream)
	method := path.Base(called)
	if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
		return err
	}
	m.mu.Lock()
	wait, refuse := m.silent == method, m.refuse == method
	if wait {
		m.silent = ""
	}
	m.mu.Unlock()
	m.heard <- method
	if wait {
		close(m.waits)
		select {
		case <-m.speak:
		case <-stream.Context().Done():
		}
	}
	var answer proto.Message = new(emptypb.Empty)
	switch {
	case refuse:
		return status.Error(codes.Aborted, "refused")
	case method == "CreateSession":
		answer = wrapperspb.String("name") // the first field of a CreateSessionResponse is the session's name
	}
	return stream.SendMsg(answer)
}

// behave sets the methods whose next call is not answered, and whose calls are refused; "" is none.
func (m *master) behave(silent, refuse string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent, m.refuse = silent, refuse
}

// hears waits for a call.
func (m *master) hears(method string) {
	for <-m.heard != method {
	}
}

// client is a session with a master, and its log.
type client struct {
	*Session
	graph *tf.Graph
	log   bytes.Buffer
}

func (m *master) dial(t *testing.T, grace time.Duration) *client {
	t.Helper()
	c := &client{graph: tf.NewGraph()}
	session, err := tf.NewSession(c.graph, &tf.SessionOptions{Target: "grpc://" + m.address})
	if err != nil {
		t.Fatal(err)
	}
	c.Session = New(session, Config{Peer: "there", Grace: grace, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	return c
}

// run runs a node that is new in the graph, so that the session is created or extended before.
func (c *client) run(ctx context.Context, name string) error {
	op, err := c.graph.AddOperation(tf.OpSpec{Type: "NoOp", Name: name})
	if err == nil {
		_, err = c.Run(ctx, nil, nil, []*tf.Operation{op})
	}
	return err
}

// TestSilentServer makes each call that asks a server, of one that does not answer it. The call is left
// behind, a later session works, and when the server answers after all, the session is closed.
func TestSilentServer(t *testing.T) {
	list := func(ctx context.Context, c *client) error { _, err := c.ListDevices(ctx); return err }
	run := func(ctx context.Context, c *client) error { return c.run(ctx, "second") }
	for method, test := range map[string]struct {
		fresh bool // the session is not created before
		call  func(context.Context, *client) error
		said  string
	}{
		"CreateSession": {true, run, "run"},
		"ExtendSession": {false, run, "run"},
		"RunStep":       {false, run, "run"},
		"ListDevices":   {false, list, "list devices"},
		"CloseSession":  {false, func(ctx context.Context, c *client) error { return c.Close(ctx) }, "close"},
	} {
		t.Run(method, func(t *testing.T) {
			m := newMaster(t)
			c := m.dial(t, 0)
			if !test.fresh {
				if err := c.run(t.Context(), "first"); err != nil {
					t.Fatal(err)
				}
			}
			m.behave(method, "")
			gone := errors.New("the server is gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-m.waits
				cancel(gone)
			}()
			if err := test.call(ctx, c); err != gone {
				t.Errorf("error %v, want %v", err, gone)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("close behind a call that was left: %v", err)
			}
			if log := c.log.String(); strings.Count(log, "is left behind") != 1 || !strings.Contains(log, "server=there") || !strings.Contains(log, test.said) {
				t.Errorf("the log is %q", log)
			}
			later := m.dial(t, 0)
			if err := errors.Join(later.run(t.Context(), "first"), later.Close(t.Context())); err != nil {
				t.Errorf("a later session: %v", err)
			}
			close(m.speak)
			m.hears("CloseSession") // of both sessions
			m.hears("CloseSession")
			for !c.calls.TryLock() {
				runtime.Gosched() // until the session is closed
			}
			c.calls.Unlock()
			if err := c.run(t.Context(), "third"); err == nil || !strings.Contains(err.Error(), "session is closed") {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// TestGrace ends what a call waits for together with its context.
func TestGrace(t *testing.T) {
	m := newMaster(t)
	c := m.dial(t, time.Hour)
	m.behave("RunStep", "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-m.waits
		cancel()
		close(m.speak)
	}()
	if err := c.run(ctx, "first"); err != nil && err != context.Canceled {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil || c.log.Len() > 0 {
		t.Errorf("error %v, log %s", err, &c.log)
	}
	m.hears("CloseSession")
}

// TestRefusedClose frees a session that the server does not close, without asking again.
func TestRefusedClose(t *testing.T) {
	m := newMaster(t)
	c := m.dial(t, 0)
	if err := c.run(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	m.behave("", "CloseSession")
	if err := c.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
	if err := c.run(t.Context(), "second"); err == nil || !strings.Contains(err.Error(), "session is closed") {
		t.Errorf("after the end: %v", err)
	}
	m.hears("CloseSession")
	if len(m.heard) > 0 {
		t.Errorf("the server hears %s, too", <-m.heard)
	}
}
