package tpuemulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	dapb "github.com/wamuir/graft/tensorflow/core/framework/device_attributes_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/gorbit-ml/gorbit/internal/tpuemulator/masterpb"
	"github.com/gorbit-ml/gorbit/tpu"
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
func pass[Response any](ctx context.Context, e *Emulator, name string, in proto.Message) (*Response, error) {
	out := new(Response)
	return out, e.backend.Invoke(ctx, "/"+serviceName+"/"+name, in, out)
}

func (e *Emulator) createSession(ctx context.Context, in *pb.CreateSessionRequest) (*pb.CreateSessionResponse, error) {
	l, err := e.layoutFor(in.GetConfig().GetClusterDef())
	if err != nil {
		return nil, err
	}
	found, err := rewrite(in.GetGraphDef(), l, e.topology, e.answer)
	if err != nil {
		return nil, err
	}
	if in.Config != nil {
		// The server behind is a cluster of its own.
		in.Config.ClusterDef, in.Config.DeviceFilters, in.Config.DeviceCount = nil, nil, nil
	}
	out, err := pass[pb.CreateSessionResponse](ctx, e, "CreateSession", in)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.sessions[out.GetSessionHandle()] = &session{layout: l, found: found}
	e.mu.Unlock()
	e.log.Info("a session began with the emulated TPU", "job", l.job, "hosts", l.hosts, "cores", e.topology.Cores())
	return out, nil
}

// layoutFor is the layout of the cluster that a session names, or of one that has the usual
// job if it names none.
func (e *Emulator) layoutFor(c *cpb.ClusterDef) (layout, error) {
	l := layout{job: tpu.DefaultJob, hosts: e.topology.Tasks, cores: e.topology.DevicesPerTask}
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

// session returns a session, or the error with which TensorFlow's server answers for one
// that it does not know.
func (e *Emulator) session(handle string) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.sessions[handle]; ok {
		return s, nil
	}
	return nil, refuse(codes.Aborted, "session %s is not found; the server was started anew", handle)
}

func (e *Emulator) extendSession(ctx context.Context, in *pb.ExtendSessionRequest) (*pb.ExtendSessionResponse, error) {
	s, err := e.session(in.GetSessionHandle())
	if err != nil {
		return nil, err
	}
	found, err := rewrite(in.GetGraphDef(), s.layout, e.topology, e.answer)
	if err != nil {
		return nil, err
	}
	out, err := pass[pb.ExtendSessionResponse](ctx, e, "ExtendSession", in)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.found.configures = append(s.found.configures, found.configures...)
	s.found.shutdowns = append(s.found.shutdowns, found.shutdowns...)
	return out, nil
}

func (e *Emulator) listDevices(ctx context.Context, in *pb.ListDevicesRequest) (*pb.ListDevicesResponse, error) {
	l, err := e.layoutFor(nil)
	if handle := in.GetSessionHandle(); handle != "" {
		var s *session
		if s, err = e.session(handle); err == nil {
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
	for _, d := range behind.GetLocalDevice() {
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

func (e *Emulator) runStep(ctx context.Context, in *pb.RunStepRequest) (*pb.RunStepResponse, error) {
	s, err := e.session(in.GetSessionHandle())
	if err != nil {
		return nil, err
	}
	if in.GetPartialRunHandle() != "" {
		return nil, refuse(codes.Unimplemented, "a partial run is not supported; expected steps that run a whole graph")
	}
	if e.runs(in, s, func(f rewritten) []string { return f.configures }) {
		e.log.Info("the emulated TPU is configured", "topology", e.topology.Mesh, "fault", string(e.fault))
		if err := e.configure(ctx, in.GetSessionHandle()); err != nil {
			return nil, err
		}
	}
	if e.runs(in, s, func(f rewritten) []string { return f.shutdowns }) {
		e.log.Info("the emulated TPU is shut down")
	}
	return pass[pb.RunStepResponse](ctx, e, "RunStep", in)
}

// runs reports whether a step fetches or runs one of a session's nodes by its name.
func (e *Emulator) runs(in *pb.RunStepRequest, s *session, nodes func(rewritten) []string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := nodes(s.found)
	return slices.ContainsFunc(slices.Concat(in.GetFetch(), in.GetTarget()), func(tensor string) bool {
		node, _, _ := strings.Cut(tensor, ":")
		return slices.Contains(names, node)
	})
}

// configure makes the fault happen.
func (e *Emulator) configure(ctx context.Context, handle string) error {
	switch e.fault {
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	case Forget:
		if _, err := e.closeSession(ctx, &pb.CloseSessionRequest{SessionHandle: handle}); err != nil {
			return err
		}
		_, err := e.session(handle)
		return err
	case Fail:
		return refuse(codes.Internal, "the configuration fails, as --fault %s says", Fail)
	}
	return nil
}

func (e *Emulator) closeSession(ctx context.Context, in *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	if _, err := e.session(in.GetSessionHandle()); err != nil {
		return nil, err
	}
	e.mu.Lock()
	delete(e.sessions, in.GetSessionHandle())
	e.mu.Unlock()
	return pass[pb.CloseSessionResponse](ctx, e, "CloseSession", in)
}

func (e *Emulator) reset(ctx context.Context, in *pb.ResetRequest) (*pb.ResetResponse, error) {
	in.DeviceFilters = nil // they name the emulated cluster
	e.mu.Lock()
	clear(e.sessions)
	e.mu.Unlock()
	return pass[pb.ResetResponse](ctx, e, "Reset", in)
}
