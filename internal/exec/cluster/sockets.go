package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/tfserver"
)

// A cluster on one machine needs no ports. Each worker then listens on a Unix socket in a folder that
// chief and workers share and that only their user may enter. A worker's address is the socket's
// name. TensorFlow's servers have sockets in folders of their own, as in a locked cluster, and connect
// to each other's without relays or encryption: the system lets no other user in.

// unixPrefix begins the address of a TensorFlow server that has a Unix socket; its path follows.
const unixPrefix = "unix:"

// MakeSockets makes a folder for the sockets of workers, Config.Sockets. The function that it returns
// removes it. If this process is killed, the next that makes such a folder removes it.
func MakeSockets() (path string, remove func(), err error) {
	f, err := newFolder()
	if err != nil {
		return "", nil, err
	}
	return f.path, f.remove, nil
}

// checkSockets returns an error if a folder of sockets is not this user's alone, or if there are keys,
// too. "" is no folder.
func checkSockets(path string, keys bool) error {
	switch {
	case path == "":
		return nil
	case keys:
		return errors.New("a folder of sockets and keys are given; expected one of them: sockets are for one machine and have no keys")
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("folder of sockets: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("folder of sockets %s: not a folder", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("folder of sockets %s: its mode is %#o, so that other users have access; expected none: run chmod 700 %s", path, mode, path)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("folder of sockets %s: it belongs to user %d; expected %d, the user of this process", path, s.Uid, os.Geteuid())
	}
	return nil
}

// workerSocket returns the path of a worker's socket in a folder.
func workerSocket(folder, address string) (string, error) {
	name := devices.Canonical(address)
	if strings.ContainsRune(name, filepath.Separator) {
		return "", fmt.Errorf("address is %q, which cannot be the name of a socket; expected HOST:PORT, such as 127.0.0.1:2222", address)
	}
	path := filepath.Join(folder, name)
	return path, tfserver.CheckSocket(path)
}

// dialWorker connects to a worker: by its socket in a folder or, if that is "", over TCP.
func dialWorker(ctx context.Context, folder, address string) (halfCloser, error) {
	network := "tcp"
	if folder != "" {
		var err error
		if address, err = workerSocket(folder, address); err != nil {
			return nil, err
		}
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn.(halfCloser), nil
}

// listenSocket listens on a Unix socket, in the place of one that a killed process has left.
func listenSocket(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	conn, refused := net.Dial("unix", path)
	if refused == nil {
		conn.Close()
	}
	if !errors.Is(refused, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// peerOf names the other side of a connection in logs: its address, or its process.
func peerOf(conn net.Conn) string {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return conn.RemoteAddr().String()
	}
	name := "a process of this machine"
	if raw, err := local.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // fails only if it is closed
			if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				name = fmt.Sprintf("process %d", c.Pid)
			}
		})
	}
	return name
}
