package main

import (
	"bytes"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// tpuCall is a call of a TPU's server, and how the sentence begins and ends with which a command ends if the
// server does not answer it any more. Without a sentence the command has its result, and ends as it would have.
type tpuCall struct{ call, says, then string }

// tpuCommand is a command with all its calls of a TPU.
type tpuCommand struct {
	name  string
	args  []string
	calls []tpuCall
	from  int // the calls before it are those of other commands
}

// tpuCommands are the commands that call a TPU at an address.
func tpuCommands(o *onTPU) []tpuCommand {
	silent := func(phase, call string) tpuCall {
		return tpuCall{call, "TPU at grpc://ADDRESS: " + phase + ": no answer in 20s, and nothing answers at grpc://ADDRESS; ", ""}
	}
	start := []tpuCall{silent("list the devices", "CreateSession"), silent("list the devices", "ListDevices"),
		silent("configure the TPU", "ExtendSession"), silent("configure the TPU", "RunStep configure")}
	// session returns all calls of a command with a model, which says this if the TPU is lost in the middle.
	session := func(lost tpuCall, programs ...string) []tpuCall {
		all := slices.Clone(start)
		for _, call := range append([]string{"CreateSession", "RunStep init", "RunStep assigned"}, programs...) {
			all = append(all, tpuCall{call, lost.says, lost.then})
		}
		return append(all, tpuCall{call: "CloseSession"}, tpuCall{call: "ExtendSession"}, tpuCall{call: "RunStep shutdown"}, tpuCall{call: "CloseSession"})
	}
	trains := tpuCall{says: "TPU at grpc://ADDRESS: connect: ", then: "; restarts so far: 1 of at most 3 (--max-restarts)"}
	reads := tpuCall{says: "lost the TPU: grpc://ADDRESS: ", then: "; run the same command again, with --tpu-wait to wait for the TPU"}
	return []tpuCommand{
		{"train", o.train("RUN", "--steps", "4", "--steps-per-call", "2", "--checkpoint-interval", "2", "--eval-interval", "2"),
			session(trains, "RunStep train", "RunStep evaluate", "RunStep read", "RunStep train", "RunStep evaluate", "RunStep read"), 0},
		{"evaluate", []string{"evaluate", "--run", "RUN", "--set", "data.rows=8"}, session(reads, "RunStep evaluate"), len(start)},
		{"predict", []string{"predict", "--run", "RUN", "--text", "a film"}, session(reads, "RunStep predict"), len(start)},
		{"describe", []string{"tpu", "describe", "--topology"},
			append(start, silent("shut the TPU down", "ExtendSession"), silent("shut the TPU down", "RunStep shutdown"), tpuCall{call: "CloseSession"}), 0},
	}
}

// TestTPUAwayAtEachCall lets the host of a TPU go away at each call of each command, for good: it answers
// nothing any more, or refuses all connections. The command ends, by itself, with one sentence that names the
// host. First the host stays: the calls of the table are all that there are.
func TestTPUAwayAtEachCall(t *testing.T) {
	t.Parallel()
	o := &onTPU{user: newUser(t)}
	o.fixture(100, "--split-by-hash", "id")
	_, behind := o.emulator(t)
	begin := func(c tpuCommand, run string, last int, refuses bool) (*running, *gate) {
		g := newGate(t, behind, last, refuses)
		args := slices.Clone(c.args)
		if i := slices.Index(args, "RUN"); i >= 0 {
			args[i] = run
			args = append(args, "--tpu")
		}
		return o.start(t, append(args, "grpc://"+g.Addr().String(), "--tpu-timeout", "20s")...), g
	}
	commands := tpuCommands(o)
	for _, c := range commands {
		r, g := begin(c, "whole", 0, false)
		r.exits(fault.ExitDone)
		var want []string
		for _, call := range c.calls {
			want = append(want, call.call)
		}
		if got := g.heard(); !slices.Equal(got, want) {
			t.Fatalf("gorbit %s makes the calls\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// Many at a time, each of which waits for its host most of the time.
	const most = 16
	var begun []func(*testing.T)
	wait := func() {
		for _, end := range begun {
			end(t)
		}
		begun = nil
	}
	for _, c := range commands {
		for i, call := range c.calls[c.from:] {
			for _, refuses := range []bool{false, true} {
				run, number := "whole", c.from+i+1
				if c.name == "train" {
					run = fmt.Sprintf("run-%d-%v", number, refuses)
				} else if refuses {
					continue // to all commands alike
				}
				r, g := begin(c, run, number, refuses)
				r.await(call.call, g.isAway)
				begun = append(begun, func(t *testing.T) {
					t.Run(fmt.Sprintf("%s, call %d, %s, refuses %v", c.name, number, call.call, refuses), func(t *testing.T) {
						r.t = t
						call.ends(t, r, g)
					})
				})
				if len(begun) == most {
					wait()
				}
			}
		}
	}
	wait()
}

// ends checks how a command ended whose host went away at the call.
func (c tpuCall) ends(t *testing.T, r *running, g *gate) {
	code := fault.ExitFailed
	if c.says == "" {
		code = fault.ExitDone
	}
	r.exits(code)
	_, said, _ := strings.Cut("\n"+r.out.String(), "\ngorbit: ")
	sentence, more, _ := strings.Cut(said, "\n")
	if strings.Contains(more, "grpc_session.cc") && strings.Count(more, "\n") == 1 {
		more = "" // TensorFlow, whose call ends at the same time, may log that when the command ends
	}
	if says := strings.ReplaceAll(c.says, "ADDRESS", g.Addr().String()); more != "" || !strings.HasPrefix(sentence, says) || !strings.HasSuffix(sentence, c.then) {
		t.Errorf("the last words are %q, want one line that begins with %q and ends with %q", said, says, c.then)
	}
	if strings.Contains(c.says, "shut the TPU down") && !strings.Contains(r.out.String(), "\nmesh ") {
		t.Errorf("the topology was known, and is not printed:\n%s", &r.out)
	}
	if left := "server=grpc://" + g.Addr().String(); c.says == "" && (said != "" || !strings.Contains(r.out.String(), left)) {
		t.Errorf("it has its result, and says\n%s\nwant a warning with %s", &r.out, left)
	}
}

// gate is in front of a TPU's server. It passes on what a client calls until the host goes away.
type gate struct {
	net.Listener
	server  *grpc.Server
	to      *grpc.ClientConn
	last    int           // number of the call that is not answered any more, from 1; 0 is none
	refuses bool          // and the connections are closed, and new ones refused
	away    chan struct{} // closed when it comes
	end     chan struct{} // closed at the end of the test

	mu    sync.Mutex
	calls []string
}

// newGate opens a gate in front of an address.
func newGate(t *testing.T, address string, last int, refuses bool) *gate {
	t.Helper()
	const most = 1 << 30
	g := &gate{last: last, refuses: refuses, away: make(chan struct{}), end: make(chan struct{})}
	var err error
	if g.to, err = grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(asItIs{}), grpc.MaxCallRecvMsgSize(most))); err != nil {
		t.Fatal(err)
	}
	if g.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	g.server = grpc.NewServer(grpc.ForceServerCodec(asItIs{}), grpc.UnknownServiceHandler(g.pass), grpc.MaxRecvMsgSize(most))
	go g.server.Serve(g)
	t.Cleanup(func() {
		close(g.end)
		g.server.Stop()
		g.to.Close()
	})
	return g
}

// heard returns the calls so far.
func (g *gate) heard() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// pass passes a call on.
func (g *gate) pass(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var in, out []byte
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	g.mu.Lock()
	g.calls = append(g.calls, strings.TrimSpace(path.Base(method)+" "+program(method, in)))
	if len(g.calls) == g.last {
		close(g.away)
		if g.refuses {
			go g.server.Stop()
		}
	}
	g.mu.Unlock()
	g.silent()
	if err := g.to.Invoke(stream.Context(), method, &in, &out); err != nil {
		return err
	}
	return stream.SendMsg(&out)
}

// program is what a RunStepRequest (master.proto) runs: the first part of the first name that it fetches or
// runs.
func program(method string, in []byte) string {
	for path.Base(method) == "RunStep" && len(in) > 0 {
		field, kind, n := protowire.ConsumeTag(in)
		if n < 0 {
			break
		}
		in = in[n:]
		if n = protowire.ConsumeFieldValue(field, kind, in); n < 0 {
			break
		}
		if field == 3 || field == 4 { // fetch, target
			name, _ := protowire.ConsumeBytes(in)
			first, _, _ := bytes.Cut(name, []byte("/"))
			first, _, _ = bytes.Cut(first, []byte(":"))
			return string(first)
		}
		in = in[n:]
	}
	return ""
}

// isAway reports whether the host is away.
func (g *gate) isAway() bool {
	select {
	case <-g.away:
		return true
	default:
		return false
	}
}

// silent waits for the end of the test if the host is away.
func (g *gate) silent() {
	if g.isAway() {
		<-g.end
	}
}

// Accept takes connections, and does nothing with them if the host is away.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	g.silent()
	return throughGate{c, g}, err
}

// throughGate is a connection from which nothing is read while the host is away.
type throughGate struct {
	net.Conn
	g *gate
}

func (c throughGate) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.g.silent()
	return n, err
}

// asItIs is gRPC's codec for messages that are passed on as they are.
type asItIs struct{}

func (asItIs) Name() string                    { return "proto" }
func (asItIs) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (asItIs) Unmarshal(b []byte, v any) error { *v.(*[]byte) = slices.Clone(b); return nil }
