// Package tfserver starts TensorFlow's gRPC server, one task of a cluster, in the
// process.
//
// The binding has no call for it, TensorFlow's C interface has. A server cannot
// be stopped cleanly, and after a failed collective operation it cannot be used,
// so a process starts one and ends with it.
//
// TensorFlow's server listens on every address of the machine, whatever it is
// told, and it asks nobody who they are. The package brings a bind of its own,
// which the dynamic linker gives to every library in place of the C library's; while a
// server starts, it sends what is meant for every address to the one in Config.
package tfserver

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework
// #include <stdbool.h>
// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
// void gorbit_bind_to(const void *host, bool v4, int port);
// bool gorbit_bind_done(void);
import "C"

import (
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

	_ "github.com/gorbit-ml/gorbit/internal/altstack" // for signals in TensorFlow's threads
)

// Job is the name of the cluster's only job.
const Job = "worker"

// Leader is the task that gives out the keys of collective operations. Servers
// and sessions of a cluster have to agree on it.
const Leader = "/job:" + Job + "/replica:0/task:0"

// AllGPUs, as a number of GPUs, is all that the machine has.
const AllGPUs = -1

// Config describes a server.
type Config struct {
	// Cluster is HOST:PORT of every task's server, and Task the place of this one.
	Cluster []string
	Task    int
	// Host is the only address that the server listens on; an unspecified one
	// (0.0.0.0 or ::) is all of them.
	Host netip.Addr
	// CPUs is the number of CPU devices, which share the machine's cores, and GPUs
	// that of GPU devices.
	CPUs, GPUs int
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's thread pools; 0
	// is one thread per core.
	IntraOpThreads, InterOpThreads int

	protocol string
}

// Validate reports the first thing in the configuration that cannot be.
func (c Config) Validate() error {
	switch {
	case c.Task < 0 || c.Task >= len(c.Cluster):
		return fmt.Errorf("task %d of a cluster of %d", c.Task, len(c.Cluster))
	case !c.Host.IsValid():
		return errors.New("no address to listen on")
	case c.CPUs < 1:
		return fmt.Errorf("%d CPU devices: a server has one at least", c.CPUs)
	case c.GPUs < AllGPUs:
		return fmt.Errorf("%d GPU devices", c.GPUs)
	case c.IntraOpThreads < 0 || c.InterOpThreads < 0:
		return fmt.Errorf("%d and %d threads", c.IntraOpThreads, c.InterOpThreads)
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
		return 0, fmt.Errorf("%s: %q is not a port", c.Cluster[c.Task], port)
	}
	return int(n), nil
}

// def is the configuration as TensorFlow takes it.
func (c Config) def() *cpb.ServerDef {
	tasks := make(map[int32]string, len(c.Cluster))
	for i, address := range c.Cluster {
		tasks[int32(i)] = address
	}
	devices := map[string]int32{"CPU": int32(c.CPUs)}
	if c.GPUs != AllGPUs {
		devices["GPU"] = int32(c.GPUs)
	}
	protocol := c.protocol
	if protocol == "" {
		protocol = "grpc"
	}
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

// Server is a running server. It ends with the process.
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
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	data := C.CBytes(def)
	defer C.free(data)

	confined := !c.Host.IsUnspecified()
	if confined {
		port, err := c.port()
		if err != nil {
			return nil, err
		}
		host := c.Host.As16()
		C.gorbit_bind_to(unsafe.Pointer(&host), C.bool(c.Host.Unmap().Is4()), C.int(port))
	}
	// The server binds its port when it is made.
	server := C.TF_NewServer(data, C.size_t(len(def)), status)
	bound := confined && bool(C.gorbit_bind_done())
	if err := failure(status); err != nil {
		return nil, err
	}
	if confined && !bound {
		return nil, fmt.Errorf("TensorFlow's server did not let itself be confined to %s; to have it listen on every address, say --listen 0.0.0.0:PORT", c.Host)
	}
	C.TF_ServerStart(server, status)
	if err := failure(status); err != nil {
		return nil, err
	}
	return &Server{server: server, task: c.Task}, nil
}

// FactoryError is a TensorFlow library that has no gRPC server.
type FactoryError struct{ Message string }

func (e *FactoryError) Error() string {
	return fmt.Sprintf("TensorFlow has no gRPC server here (%s): this library, the plain libtensorflow, knows only sessions inside the process; "+
		"use the library of TensorFlow's Python wheel, which make setup takes", e.Message)
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

// Target is what a session in this process reaches the server by.
func (s *Server) Target() string { return C.GoString(C.TF_ServerTarget(s.server)) }

// Devices names the server's devices, such as /job:worker/replica:0/task:1/device:CPU:0.
func (s *Server) Devices() ([]string, error) {
	task := fmt.Sprintf("/job:%s/replica:0/task:%d", Job, s.task)
	// The other servers of the cluster may not be there yet.
	config, err := proto.Marshal(&cpb.ConfigProto{DeviceFilters: []string{task}})
	if err != nil {
		return nil, err
	}
	session, err := tf.NewSession(tf.NewGraph(), &tf.SessionOptions{Target: s.Target(), Config: config})
	if err != nil {
		return nil, fmt.Errorf("list the devices of TensorFlow's server: %w", err)
	}
	defer session.Close()
	devices, err := session.ListDevices()
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

// Reserve takes a free port at an address for a server that is started later in this
// process. Nobody else is given the port until release is called, which is
// to be done once the server has started, or will not be.
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
	// A socket that is bound but does not listen keeps the port from others, and lets in
	// the server's, which has the same option.
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
