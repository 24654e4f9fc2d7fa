package tfserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	_ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestMain lets the test binary be a process with a server at the address of its
// second argument.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		os.Exit(m.Run())
	}
	serving := serveSocket
	if host, err := netip.ParseAddr(os.Args[2]); err == nil {
		serving = func(string) error { return serve(host) }
	}
	if err := serving(os.Args[2]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func serve(host netip.Addr) error {
	port, release, err := Reserve(host)
	if err != nil {
		return err
	}
	name := host
	if host.IsUnspecified() {
		name = netip.MustParseAddr("127.0.0.1")
	}
	server, err := Start(Config{Cluster: []string{netip.AddrPortFrom(name, uint16(port)).String()}, Host: host, CPUs: 2})
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	devices, err := server.Devices(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(devices, " "))
	fmt.Println(port)
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// serveSocket serves on a Unix socket.
func serveSocket(path string) error {
	own, err := NewRoute(path)
	if err != nil {
		return err
	}
	if _, err := Start(Config{Cluster: []string{own.Address()}, Socket: path, CPUs: 2}); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// startServer starts a process with a server at an address or a socket, and ends it with the test. It
// returns what the process prints.
func startServer(t *testing.T, at string) (pid int, lines *bufio.Scanner) {
	t.Helper()
	cmd := testkit.Command(t, os.Args[0], "serve", at)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Write([]byte("\n"))
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return cmd.Process.Pid, bufio.NewScanner(out)
}

// TestListensAtOneAddress starts servers, one a process, and looks where they
// listen.
func TestListensAtOneAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1", "0.0.0.0"} {
		t.Run(host, func(t *testing.T) {
			pid, lines := startServer(t, host)
			lines.Scan()
			if want := Leader + "/device:CPU:0 " + Leader + "/device:CPU:1"; lines.Text() != want {
				t.Fatalf("devices %q, want %q", lines.Text(), want)
			}
			lines.Scan()
			var port int
			if _, err := fmt.Sscan(lines.Text(), &port); err != nil {
				t.Fatalf("port: %v", err)
			}
			got := testkit.Listening(t, pid)
			want := netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port))
			if host == "0.0.0.0" {
				want = netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port))
			}
			if !slices.Equal(got, []netip.AddrPort{want}) {
				t.Errorf("the server listens on %v, want %v", got, want)
			}
		})
	}
}

// TestUnixSocket starts a server on a Unix socket and uses it in a session. The server listens on
// no port.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server")
	pid, lines := startServer(t, path)
	if lines.Scan(); lines.Text() != "ready" {
		t.Fatalf("printed %q", lines.Text())
	}
	if got := testkit.Listening(t, pid); len(got) > 0 {
		t.Errorf("the server listens on %v too", got)
	}
	route, err := NewRoute(path)
	if err != nil {
		t.Fatal(err)
	}
	session, err := tf.NewSession(tf.NewGraph(), &tf.SessionOptions{Target: "grpc://" + route.Address()})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	devices, err := session.ListDevices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 2 || devices[1].Name != Leader+"/device:CPU:1" {
		t.Errorf("devices %v", devices)
	}
	route.Close()
}

func TestRoute(t *testing.T) {
	a, err := NewRoute("/a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := NewRoute("/b")
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if a.Address() == b.Address() || !strings.HasPrefix(a.Address(), "127.99.") {
		t.Errorf("addresses %s and %s", a.Address(), b.Address())
	}
	for _, path := range []string{"", "/" + strings.Repeat("a", maxSocket)} {
		if r, err := NewRoute(path); err == nil {
			t.Errorf("%q: %v", path, r)
		}
	}
}

func TestReservedPortIsNobodyElses(t *testing.T) {
	host := netip.MustParseAddr("127.0.0.1")
	seen := make(map[int]bool)
	for range 200 {
		port, release, err := Reserve(host)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
}

// TestNoFactory asks for a protocol that no library has, which is what asking a
// library without gRPC comes to.
func TestNoFactory(t *testing.T) {
	_, err := Start(Config{Cluster: []string{"127.0.0.1:1"}, Host: netip.MustParseAddr("127.0.0.1"), CPUs: 1, protocol: "none"})
	var missing *FactoryError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "No server factory") || !strings.Contains(err.Error(), "wheel") {
		t.Errorf("got %v", err)
	}
}

func TestValidate(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	for want, c := range map[string]Config{
		"task is 1; expected 0 to 0":            {Cluster: []string{"a:1"}, Task: 1, Host: local, CPUs: 1},
		"host is not set":                       {Cluster: []string{"a:1"}, CPUs: 1},
		"number of CPU devices is 0; expected":  {Cluster: []string{"a:1"}, Host: local},
		"number of GPU devices is -2; expected": {Cluster: []string{"a:1"}, Host: local, CPUs: 1, GPUs: -2},
		"threads are -1 and 0; expected":        {Cluster: []string{"a:1"}, Host: local, CPUs: 1, IntraOpThreads: -1},
		`port is "0"; expected`:                 {Cluster: []string{"a:0"}, Host: local, CPUs: 1},
		"missing port":                          {Cluster: []string{"a"}, Host: local, CPUs: 1},
		"expected at most 107: set TMPDIR":      {Cluster: []string{"a:1"}, Socket: strings.Repeat("a", 108), CPUs: 1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
