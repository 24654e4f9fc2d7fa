package emulator

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	pb "github.com/gorbit-ml/gorbit/tpu/emulator/internal/masterpb"
)

// session is what the emulator keeps of a session.
type session struct {
	handle  string
	layout  layout
	touched bool            // something ran on a core
	clients map[string]bool // connections that it was used from
	leave   *time.Timer     // ends the session; nil while a client is connected

	mu    sync.Mutex // held while the graph is extended
	graph *graph
}

// extend adds a part that the server behind has taken.
func (g *graph) extend(part *graph) {
	maps.Copy(g.nodes, part.nodes)
	g.clusters = append(g.clusters, part.clusters...)
}

// sessions are the sessions of an emulator, and whether the TPU is configured.
type sessions struct {
	abandoned time.Duration // after which a session without a client ends
	free      func(handle, why string)

	mu         sync.Mutex
	open       map[string]*session // by handle
	configured bool
	calls      int64 // that ran a replicated computation
}

// add adds a session.
func (t *sessions) add(ctx context.Context, s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.clients = map[string]bool{client(ctx): true}
	t.open[s.handle] = s
}

// get returns a session for a call, or the error with which TensorFlow's server answers for one
// that it does not know.
func (t *sessions) get(ctx context.Context, handle string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.open[handle]
	if !ok {
		return nil, refuse(codes.Aborted, "Session %s is not found. Possibly, this master has restarted.", handle)
	}
	s.clients[client(ctx)] = true
	if s.leave != nil {
		s.leave.Stop()
		s.leave = nil
	}
	return s, nil
}

// client is the address of the client that makes a call.
func client(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// ended notes that a connection ended. A session without any ends after a while: its client
// may have been killed.
func (t *sessions) ended(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for handle, s := range t.open {
		delete(s.clients, client)
		if len(s.clients) == 0 && s.leave == nil {
			var timer *time.Timer
			timer = time.AfterFunc(t.abandoned, func() {
				t.mu.Lock()
				left := t.open[handle] == s && s.leave == timer
				if left {
					delete(t.open, handle)
				}
				t.mu.Unlock()
				if left {
					t.free(handle, "its client is gone")
				}
			})
			s.leave = timer
		}
	}
}

// remove takes sessions out that fit, and returns their handles.
func (t *sessions) remove(fits func(*session) bool) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeLocked(fits)
}

func (t *sessions) removeLocked(fits func(*session) bool) []string {
	var out []string
	for handle, s := range t.open {
		if fits(s) {
			if s.leave != nil {
				s.leave.Stop()
			}
			delete(t.open, handle)
			out = append(out, handle)
		}
	}
	slices.Sort(out)
	return out
}

// forget removes all sessions and the configuration, as a server that is started again.
func (t *sessions) forget() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.configured = false
	return t.removeLocked(func(*session) bool { return true })
}

// configure notes a configuration by a session, and removes the others that something ran in
// on the cores: it is gone.
func (t *sessions) configure(by *session) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.configured = true
	return t.removeLocked(func(s *session) bool { return s != by && s.touched })
}

// shutdown notes that the TPU is shut down.
func (t *sessions) shutdown() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.configured = false
}

// uses is what a step uses that runs these nodes or tensors, and the error with which one of
// its programs can't be compiled.
func (s *session) uses(names []string) (out bits, broken error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out = s.graph.uses(names)
	for _, c := range s.graph.clusters {
		if out&c.bit != 0 && broken == nil {
			broken = c.broken
		}
	}
	return out, broken
}

// begin notes a step that runs these nodes or tensors, and returns its number if it runs a replicated
// computation, or 0.
func (t *sessions) begin(s *session, names []string) (call int64, err error) {
	uses, broken := s.uses(names)
	if uses == 0 {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.configured {
		return 0, refuse(codes.FailedPrecondition, "The TPU system has not been initialized.")
	}
	s.touched = true
	if uses&^onCore == 0 {
		return 0, nil
	}
	if broken != nil {
		return 0, refuse(codes.InvalidArgument, "%v\n\tTPU compilation failed", broken)
	}
	t.calls++
	return t.calls, nil
}

// freeSession ends a session of the server behind, which frees its variables.
func (e *Emulator) freeSession(handle, why string) {
	e.log.Info("a session ends, and its variables are gone", "session", handle, "because", why)
	ctx, cancel := context.WithTimeout(context.Background(), freeTimeout)
	defer cancel()
	if _, err := pass[pb.CloseSessionResponse](ctx, e, "CloseSession", &pb.CloseSessionRequest{SessionHandle: handle}); err != nil {
		e.log.Warn("a session of the server behind could not be closed", "session", handle, "error", err)
	}
}

// freeTimeout is the time for the server behind to end a session.
const freeTimeout = time.Minute
