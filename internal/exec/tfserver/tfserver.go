// Package tfserver starts a TensorFlow gRPC server, one task of a cluster, in this process.
//
// The TensorFlow binding has no call for it, but the C API does. A server cannot be stopped
// cleanly, and it cannot be used after a failed collective operation. So a process starts only one
// server and ends with it.
//
// TensorFlow's server always listens on all addresses of the machine, without authentication. The
// package defines a bind function that the dynamic linker uses in all libraries, instead of the C
// library's. While a server starts, it redirects a bind to all addresses to Config.Host, or makes
// the server listen on a Unix socket, Config.Socket.
//
// TensorFlow's clients know TCP addresses only. In the same way, the package's connect function
// sends them to Unix sockets, see NewRoute.
package tfserver

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework
// #include <stdbool.h>
// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
// void gorbit_bind_to(const void *host, bool v4, int port);
// void gorbit_bind_to_path(const char *path, int port);
// bool gorbit_bind_done(void);
// bool gorbit_full_float32(void);
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unsafe"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	_ "github.com/gorbit-ml/gorbit/internal/exec/altstack" // for signals in TensorFlow's threads
	"github.com/gorbit-ml/gorbit/internal/exec/tfsession"
)

// Job is the name of the cluster's only job.
const Job = "worker"

// Leader is the task that assigns the keys of collective operations. All servers and sessions of a
// cluster must use the same one.
const Leader = "/job:" + Job + "/replica:0/task:0"

// AllGPUs is the value of Config.GPUs for all GPUs of the machine.
const AllGPUs = -1

// Config describes a server.
type Config struct {
	// Cluster is the HOST:PORT of every task's server. Task is the index of this server.
	Cluster []string
	Task    int
	// Host is the address that the server listens on. An unspecified address (0.0.0.0 or ::)
	// means all addresses.
	Host netip.Addr
	// Socket is the path of a Unix socket that the server listens on instead of Host.
	Socket string
	// CPUs is the number of CPU devices, which share the machine's cores. GPUs is the number
	// of GPU devices.
	CPUs, GPUs int
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's thread pools; 0 means
	// one thread per core.
	IntraOpThreads, InterOpThreads int
	// FullFloat32 has TPUs multiply float32 numbers as they are, instead of rounded to bfloat16, and
	// GPUs instead of rounded to TensorFloat-32.
	FullFloat32 bool

	protocol string
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	switch {
	case c.Task < 0 || c.Task >= len(c.Cluster):
		return fmt.Errorf("task is %d; expected 0 to %d", c.Task, len(c.Cluster)-1)
	case c.Socket != "":
		if err := CheckSocket(c.Socket); err != nil {
			return err
		}
	case !c.Host.IsValid():
		return errors.New("host is not set; expected the address to listen on")
	}
	switch {
	case c.CPUs < 1:
		return fmt.Errorf("number of CPU devices is %d; expected 1 or more", c.CPUs)
	case c.GPUs < AllGPUs:
		return fmt.Errorf("number of GPU devices is %d; expected %d (all) or more", c.GPUs, AllGPUs)
	case c.IntraOpThreads < 0 || c.InterOpThreads < 0:
		return fmt.Errorf("intra-op and inter-op threads are %d and %d; expected 0 or more", c.IntraOpThreads, c.InterOpThreads)
	}
	_, err := c.port()
	return err
}

func (c Config) port() (int, error) {
	_, port, err := net.SplitHostPort(c.Cluster[c.Task])
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s: port is %q; expected 1 to 65535", c.Cluster[c.Task], port)
	}
	return int(n), nil
}

// def returns the configuration in TensorFlow's form.
func (c Config) def() *cpb.ServerDef {
	tasks := make(map[int32]string, len(c.Cluster))
	for i, address := range c.Cluster {
		tasks[int32(i)] = address
	}
	devices := map[string]int32{"CPU": int32(c.CPUs)}
	if c.GPUs != AllGPUs {
		devices["GPU"] = int32(c.GPUs)
	}
	protocol := cmp.Or(c.protocol, "grpc")
	return &cpb.ServerDef{
		Cluster:   &cpb.ClusterDef{Job: []*cpb.JobDef{{Name: Job, Tasks: tasks}}},
		JobName:   Job,
		TaskIndex: int32(c.Task),
		Protocol:  protocol,
		DefaultSessionConfig: &cpb.ConfigProto{
			DeviceCount:               devices,
			IntraOpParallelismThreads: int32(c.IntraOpThreads),
			InterOpParallelismThreads: int32(c.InterOpThreads),
			GpuOptions:                &cpb.GPUOptions{AllowGrowth: true},
			Experimental:              &cpb.ConfigProto_Experimental{CollectiveGroupLeader: Leader},
		},
	}
}

// Server is a running server. It runs until the process ends.
type Server struct {
	server *C.TF_Server
	task   int
}

// Start starts a server.
func Start(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("start TensorFlow's server: %w", err)
	}
	def, err := proto.Marshal(c.def())
	if err != nil {
		return nil, err
	}
	if c.FullFloat32 && !bool(C.gorbit_full_float32()) {
		return nil, errors.New("TensorFlow's library has no switch for products in full float32; expected that of TensorFlow 2.18")
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	data := C.CBytes(def)
	defer C.free(data)

	confined, err := c.confine()
	if err != nil {
		return nil, err
	}
	// TF_NewServer binds the port.
	server := C.TF_NewServer(data, C.size_t(len(def)), status)
	bound := confined && bool(C.gorbit_bind_done())
	if err := failure(status); err != nil {
		return nil, err
	}
	if confined && !bound {
		if c.Socket != "" {
			return nil, fmt.Errorf("TensorFlow's server does not listen on the socket %s; to continue with ports that everybody can reach, use gorbit launch --open, or start the workers and the training without --sockets, --token-file and --tls-cert", c.Socket)
		}
		return nil, fmt.Errorf("TensorFlow's server does not listen on %s only; to make it listen on all addresses, set --listen 0.0.0.0:PORT", c.Host)
	}
	C.TF_ServerStart(server, status)
	if err := failure(status); err != nil {
		return nil, err
	}
	return &Server{server: server, task: c.Task}, nil
}

// confine makes the next bind of the server go to its socket or host only. It returns false if the
// server may listen on all addresses.
func (c Config) confine() (bool, error) {
	port, err := c.port()
	switch {
	case err != nil:
		return false, err
	case c.Socket != "":
		path := C.CString(c.Socket)
		defer C.free(unsafe.Pointer(path))
		C.gorbit_bind_to_path(path, C.int(port))
	case c.Host.IsUnspecified():
		return false, nil
	default:
		host := c.Host.As16()
		C.gorbit_bind_to(unsafe.Pointer(&host), C.bool(c.Host.Unmap().Is4()), C.int(port))
	}
	return true, nil
}

// FactoryError means that TensorFlow's library has no gRPC server.
type FactoryError struct{ Message string }

func (e *FactoryError) Error() string {
	return fmt.Sprintf("TensorFlow has no gRPC server here (%s): this library, the plain libtensorflow, supports only sessions in the process; "+
		"use the library of TensorFlow's Python wheel, as make setup does", e.Message)
}

func failure(status *C.TF_Status) error {
	code := C.TF_GetCode(status)
	if code == C.TF_OK {
		return nil
	}
	message := C.GoString(C.TF_Message(status))
	if code == C.TF_NOT_FOUND && strings.Contains(message, "No server factory") {
		first, _, _ := strings.Cut(message, "\n")
		return &FactoryError{Message: strings.TrimSpace(first)}
	}
	return fmt.Errorf("start TensorFlow's server: %s", message)
}

// Target returns the address of the server for sessions in this process.
func (s *Server) Target() string { return C.GoString(C.TF_ServerTarget(s.server)) }

// Devices returns the names of the server's devices, such as
// /job:worker/replica:0/task:1/device:CPU:0. The call is given up when the context ends.
func (s *Server) Devices(ctx context.Context) ([]string, error) {
	task := fmt.Sprintf("/job:%s/replica:0/task:%d", Job, s.task)
	// The other servers of the cluster may not be running yet.
	config, err := proto.Marshal(&cpb.ConfigProto{DeviceFilters: []string{task}})
	if err != nil {
		return nil, err
	}
	own, err := tf.NewSession(tf.NewGraph(), &tf.SessionOptions{Target: s.Target(), Config: config})
	if err != nil {
		return nil, fmt.Errorf("list the devices of TensorFlow's server: %w", err)
	}
	session := tfsession.New(own, tfsession.Config{})
	defer session.Close(ctx)
	devices, err := session.ListDevices(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the devices of TensorFlow's server: %w", err)
	}
	var names []string
	for _, d := range devices {
		if strings.HasPrefix(d.Name, task+"/") {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

// Reserve reserves a free port at an address for a server that this process starts later. No other
// process gets the port until release is called, which must be done after the server has started or
// if it is not started.
func Reserve(host netip.Addr) (port int, release func() error, err error) {
	var family int
	var address unix.Sockaddr
	if ip := host.Unmap(); ip.Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: ip.As4()}
	} else {
		zone := 0
		if name := ip.Zone(); name != "" {
			i, err := net.InterfaceByName(name)
			if err != nil {
				return 0, nil, fmt.Errorf("reserve a port at %s: %w", host, err)
			}
			zone = i.Index
		}
		family, address = unix.AF_INET6, &unix.SockaddrInet6{Addr: ip.As16(), ZoneId: uint32(zone)}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("reserve a port at %s: %w", host, err)
	}
	// A socket that is bound but does not listen keeps others from using the port. The server
	// can still bind it because it sets the same option.
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		if err = unix.Bind(fd, address); err == nil {
			address, err = unix.Getsockname(fd)
		}
	}
	if err != nil {
		unix.Close(fd)
		return 0, nil, fmt.Errorf("reserve a port at %s: %w", host, err)
	}
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		port = a.Port
	case *unix.SockaddrInet6:
		port = a.Port
	}
	return port, func() error { return unix.Close(fd) }, nil
}
