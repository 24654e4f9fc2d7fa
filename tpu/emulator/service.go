package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	dapb "github.com/wamuir/graft/tensorflow/core/framework/device_attributes_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/tpu"
	pb "github.com/gorbit-ml/gorbit/tpu/emulator/internal/masterpb"
)

// serviceName is the master service's, as TensorFlow's C++ code names it.
const serviceName = "tensorflow.MasterService"

// service describes the methods of TensorFlow's master service.
func (e *Emulator) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		method("CreateSession", e.createSession),
		method("ExtendSession", e.extendSession),
		method("ListDevices", e.listDevices),
		method("RunStep", e.runStep),
		method("CloseSession", e.closeSession),
		method("Reset", e.reset),
		refused[pb.PartialRunSetupRequest, pb.PartialRunSetupResponse]("PartialRunSetup"),
		refused[pb.MakeCallableRequest, pb.MakeCallableResponse]("MakeCallable"),
		refused[pb.RunCallableRequest, pb.RunCallableResponse]("RunCallable"),
		refused[pb.ReleaseCallableRequest, pb.ReleaseCallableResponse]("ReleaseCallable"),
	}}
}

// method makes a method of a function.
func method[Request, Response any](name string, f func(context.Context, *Request) (*Response, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(Request)
		if err := decode(in); err != nil {
			return nil, err
		}
		return f(ctx, in)
	}}
}

// refused makes a method that TensorFlow's server has and the emulator lacks.
func refused[Request, Response any](name string) grpc.MethodDesc {
	return method(name, func(context.Context, *Request) (*Response, error) {
		return nil, refuse(codes.Unimplemented, "%s is not supported; expected steps that run a whole graph", name)
	})
}

// pass sends a request to the server behind and returns its answer, an error of its own
// included.
func pass[Response any](ctx context.Context, e *Emulator, name string, in any) (*Response, error) {
	out := new(Response)
	return out, e.backend.Invoke(ctx, "/"+serviceName+"/"+name, in, out)
}

func (e *Emulator) createSession(ctx context.Context, in *pb.CreateSessionRequest) (*pb.CreateSessionResponse, error) {
	if e.host > 0 {
		return nil, refuse(codes.Unimplemented, "this is host %d of an emulated TPU, which starts no session; expected the address of host 0 as the first", e.host)
	}
	l, err := e.layoutFor(in.GetConfig().GetClusterDef())
	if err != nil {
		return nil, err
	}
	s := &session{layout: l, graph: &graph{nodes: make(map[string]*node)}}
	part, err := e.rewrite(in.GetGraphDef(), s)
	if err != nil {
		return nil, err
	}
	if in.Config == nil {
		in.Config = &cpb.ConfigProto{}
	}
	// The server behind is a cluster of its own. Variables belong to their session, so that
	// they can be freed with it.
	in.Config.ClusterDef, in.Config.DeviceFilters, in.Config.DeviceCount = nil, nil, nil
	in.Config.IsolateSessionState = true
	out, err := pass[pb.CreateSessionResponse](ctx, e, "CreateSession", in)
	if err != nil {
		return nil, err
	}
	s.graph.extend(part)
	s.handle = out.GetSessionHandle()
	e.sessions.add(ctx, s)
	e.log.Info("a session began with the emulated TPU", "session", s.handle, "job", l.job, "hosts", l.hosts, "cores", e.topology.Cores())
	return out, nil
}

// rewrite makes a part of a session's graph one that the server behind can run.
func (e *Emulator) rewrite(g *gpb.GraphDef, s *session) (*graph, error) {
	began, nodes := time.Now(), len(g.GetNode())
	part, err := rewrite(g, s.graph, s.layout, e.topology, e.answer)
	if err != nil {
		e.log.Info("a graph is refused", "nodes", nodes, "error", err)
		return nil, err
	}
	for _, c := range part.clusters {
		e.log.Info("a computation for TPUs is lowered to the CPU", "computation", c.name, "replicas", len(c.devices), "nodes", nodes, "made", len(g.GetNode()), "took", time.Since(began))
		if c.broken != nil {
			e.log.Warn("a TPU could not compile this computation", "computation", c.name, "error", c.broken)
		}
	}
	return part, nil
}

// layoutFor is the layout of the cluster that a session names, or of one that has the usual
// job if it names none.
func (e *Emulator) layoutFor(c *cpb.ClusterDef) (layout, error) {
	l := layout{job: tpu.DefaultJob, hosts: e.topology.Tasks, cores: e.topology.DevicesPerTask, apart: e.apart}
	switch jobs := c.GetJob(); {
	case len(jobs) > 1:
		return l, refuse(codes.InvalidArgument, "the session's cluster has %d jobs; expected 1", len(jobs))
	case len(jobs) == 1:
		l.job = jobs[0].GetName()
		if n := len(jobs[0].GetTasks()); n != l.hosts {
			return l, refuse(codes.InvalidArgument, "the session's cluster has %d tasks, the emulated TPU has %d hosts; start the emulator with --hosts %d, or give the session %d addresses",
				n, l.hosts, n, l.hosts)
		}
	}
	return l, nil
}

func (e *Emulator) extendSession(ctx context.Context, in *pb.ExtendSessionRequest) (*pb.ExtendSessionResponse, error) {
	s, err := e.sessions.get(ctx, in.GetSessionHandle())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	part, err := e.rewrite(in.GetGraphDef(), s)
	if err != nil {
		return nil, err
	}
	out, err := pass[pb.ExtendSessionResponse](ctx, e, "ExtendSession", in)
	if err != nil {
		return nil, err
	}
	s.graph.extend(part)
	return out, nil
}

func (e *Emulator) listDevices(ctx context.Context, in *pb.ListDevicesRequest) (*pb.ListDevicesResponse, error) {
	l, err := e.layoutFor(nil)
	if handle := in.GetSessionHandle(); handle != "" {
		var s *session
		if s, err = e.sessions.get(ctx, handle); err == nil {
			l = s.layout
		}
	}
	if err != nil {
		return nil, err
	}
	behind, err := pass[pb.ListDevicesResponse](ctx, e, "ListDevices", in)
	if err != nil {
		return nil, err
	}
	cpus := make(map[string]*dapb.DeviceAttributes)
	for _, d := range append(behind.GetLocalDevice(), behind.GetRemoteDevice()...) {
		cpus[d.GetName()] = d
	}
	out := new(pb.ListDevicesResponse)
	for task := range l.hosts {
		add := func(kind string, id int) error {
			name := fmt.Sprintf("%s/device:%s:%d", l.task(task), kind, id)
			cpu, err := l.behind(strings.Replace(name, typeEmulator, typeCPU, 1))
			if err != nil {
				return err
			}
			if cpus[cpu] == nil {
				return refuse(codes.Internal, "the server behind has no device %s", cpu)
			}
			d := proto.CloneOf(cpus[cpu])
			d.Name, d.DeviceType = name, kind
			d.PhysicalDeviceDesc = "no TPU: gorbit tpu-emulator"
			d.Incarnation += uint64(len(kind)) // of the devices that are one behind
			if task == 0 {
				out.LocalDevice = append(out.LocalDevice, d)
			} else {
				out.RemoteDevice = append(out.RemoteDevice, d)
			}
			return nil
		}
		err := errors.Join(add(typeCPU, 0), add(typeSystem, 0), add(typeEmulator, 0))
		for core := range l.cores {
			err = errors.Join(err, add(typeCore, core))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runStep runs a step: it configures the TPU or shuts it down if the step does, lets the fault
// happen, and passes the step on.
func (e *Emulator) runStep(ctx context.Context, in *frame) (*frame, error) {
	header, err := readStep(in.data)
	if err != nil {
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	s, err := e.sessions.get(ctx, header.session)
	if err != nil {
		return nil, err
	}
	if header.partial {
		return nil, refuse(codes.Unimplemented, "a partial run is not supported; expected steps that run a whole graph")
	}
	configures := s.runs(header.fetches, opConfigure)
	if configures {
		e.log.Info("the emulated TPU is configured", "session", s.handle, "topology", e.topology.Mesh, "fault", e.plan.String())
		if err := e.happen(ctx, s, 0); err != nil {
			return nil, err
		}
		for _, handle := range e.sessions.configure(s) {
			e.free(handle, "another session configured the TPU")
		}
	}
	call, err := e.sessions.begin(s, header.fetches)
	if err != nil {
		return nil, err
	}
	if call > 0 {
		if err := e.happen(ctx, s, call); err != nil {
			return nil, err
		}
	}
	out, err := pass[frame](ctx, e, "RunStep", in)
	if err != nil {
		return nil, err
	}
	if s.runs(header.fetches, opShutdown) {
		e.sessions.shutdown()
		e.log.Info("the emulated TPU is shut down", "session", s.handle)
	}
	if e.plan.kind == Cut && e.plan.in(call) && (call > 0 || configures) {
		e.log.Warn("the connection is cut in the middle of an answer, as the fault says", "fault", e.plan.String(), "call", call)
		e.conns.cut(client(ctx))
	}
	return out, nil
}

// runs reports whether a step fetches or runs a node of an operation by its name.
func (s *session) runs(names []string, op string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(names, func(tensor string) bool {
		node, _, _ := strings.Cut(tensor, ":")
		n := s.graph.nodes[node]
		return n != nil && n.op == op
	})
}

// happen lets the fault happen in a call, of which 0 is the configuration.
func (e *Emulator) happen(ctx context.Context, s *session, call int64) error {
	if !e.plan.in(call) {
		return nil
	}
	if e.plan.kind != Cut {
		e.log.Warn("something goes wrong, as the fault says", "fault", e.plan.String(), "call", call)
	}
	switch e.plan.kind {
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	case Slow:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(e.plan.lasts):
		}
	case Forget:
		for _, handle := range e.sessions.forget() {
			e.free(handle, "the server forgot it, as the fault says")
		}
		_, err := e.sessions.get(ctx, s.handle)
		return err
	case Fail:
		if call == 0 {
			return refuse(codes.Internal, "the configuration fails, as --fault %s says", e.plan)
		}
		return refuse(codes.Internal, "Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device check-failure. "+
			"Node 0 halted unexpectedly at tag:pc TensorCoreSequencer:1:0x175 (call %d fails, as --fault %s says)", call, e.plan)
	case OOM:
		return refuse(codes.ResourceExhausted, "Compilation failure: Ran out of memory in memory space hbm. Used 20.12G of 15.48G hbm. Exceeded hbm capacity by 4.64G. "+
			"(call %d is too large, as --fault %s says)\n\tTPU compilation failed", call, e.plan)
	case Preempt:
		select {
		case e.away <- struct{}{}:
		default:
		}
		<-ctx.Done() // the connection is cut
		return ctx.Err()
	}
	return nil
}

func (e *Emulator) closeSession(ctx context.Context, in *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	if _, err := e.sessions.get(ctx, in.GetSessionHandle()); err != nil {
		return nil, err
	}
	e.sessions.remove(func(s *session) bool { return s.handle == in.GetSessionHandle() })
	return pass[pb.CloseSessionResponse](ctx, e, "CloseSession", in)
}

// reset ends all sessions and frees their variables.
func (e *Emulator) reset(context.Context, *pb.ResetRequest) (*pb.ResetResponse, error) {
	for _, handle := range e.sessions.remove(func(*session) bool { return true }) {
		e.free(handle, "a client reset the server")
	}
	return &pb.ResetResponse{}, nil
}
