package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// airGapped is the variable that has the export for the tests in a network of their own.
const airGapped = "GORBIT_AIR_GAPPED"

// remote are the commands that do nothing without a place elsewhere.
var remote = map[string]string{"push": "it uploads to a hub", "pull": "it fetches from a hub"}

// TestAirGapped runs every command in a network that has nothing but loopback. All of them work, and none
// tries to reach anything else: the kernel counts what finds no route, and nobody asks for the address of
// a name.
func TestAirGapped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs commands in processes of their own")
	}
	if os.Getenv(airGapped) != "" {
		inAirGap(t)
		return
	}
	graph := exportSmall(t)
	own := []string{"--map-root-user", "--net"}
	if out, err := testkit.Command(t, "unshare", append(own, "true")...).CombinedOutput(); err != nil {
		t.Skipf("this system lets nobody make a namespace (unshare): %v %s", err, out)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := testkit.Command(t, "unshare", append(own, program, "-test.run=^TestAirGapped$", "-test.v", "-test.timeout=10m")...)
	cmd.Env = append(os.Environ(), airGapped+"="+graph)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAirGapped") {
		t.Errorf("%v\n%s", err, out)
	}
}

// inAirGap is the test within the network.
func inAirGap(t *testing.T) {
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	names := listenForNames(t)
	// What is looked for is seen.
	if conn, err := net.DialTimeout("tcp", "192.0.2.1:80", time.Second); err == nil {
		conn.Close()
		t.Fatal("there is a way to 192.0.2.1; expected none")
	}
	before := withoutRoute(t)
	if before == 0 {
		t.Fatal("the kernel did not count a connection that has no route")
	}
	t.Run("commands", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir: "testdata/airgapped",
			Setup: func(env *testscript.Env) error {
				asElsewhere(env)
				env.Setenv("GRAPH", os.Getenv(airGapped))
				env.Setenv("GIVEN", given)
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"listens": awaitListener, "post": postJSON},
		})
	})
	if n := withoutRoute(t) - before; n != 0 {
		t.Errorf("the commands tried %d times to reach what is not on this machine", n)
	}
	select {
	case asked := <-names:
		t.Errorf("a command asked for the address of a name: %q", asked)
	default:
	}
	script, err := os.ReadFile("testdata/airgapped/commands.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range allCommands() {
		path := cmd.CommandPath()
		if cmd.HasParent() && !cmd.HasAvailableSubCommands() && remote[cmd.Name()] == "" && !strings.Contains(string(script), "exec "+path+" ") &&
			!strings.Contains(string(script), "exec "+path+"\n") {
			t.Errorf("commands.txtar does not run %s; add it, or say in this test what place elsewhere it needs", path)
		}
	}
}

// loopbackUp starts the loopback device, which is down in a new network.
func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	device, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	device.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, device)
}

// listenForNames answers nothing on loopback where a resolver may be told to ask, and returns what was
// asked.
func listenForNames(t *testing.T) <-chan string {
	t.Helper()
	conn, err := net.ListenPacket("udp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	asked := make(chan string, 1)
	go func() {
		for buffer := make([]byte, 512); ; {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			select {
			case asked <- string(buffer[:n]):
			default: // one is enough
			}
		}
	}()
	return asked
}

// withoutRoute returns how many packets and connections of this network found no route.
func withoutRoute(t *testing.T) int {
	t.Helper()
	var total int
	v4, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var head []string
	for line := range strings.Lines(string(v4)) {
		fields := strings.Fields(line)
		if fields[0] != "Ip:" {
			continue
		}
		if head == nil {
			head = fields
			continue
		}
		for i, name := range head {
			if name == "OutNoRoutes" {
				total += number(t, fields[i])
			}
		}
	}
	if head == nil {
		t.Fatal("/proc/net/snmp has no line Ip:")
	}
	v6, err := os.ReadFile("/proc/net/snmp6")
	if os.IsNotExist(err) {
		return total // a kernel without IPv6
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(v6)) {
		if fields := strings.Fields(line); fields[0] == "Ip6OutNoRoutes" {
			total += number(t, fields[1])
		}
	}
	return total
}

// number parses a count of the kernel's.
func number(t *testing.T, text string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
