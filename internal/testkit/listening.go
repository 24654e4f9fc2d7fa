package testkit

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Listening returns the addresses on which a process listens.
func Listening(t testing.TB, pid int) []netip.AddrPort {
	t.Helper()
	t.Helper()
	sockets := make(map[string]bool)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if to, err := os.Readlink(name); err == nil {
			sockets[to] = true
		}
	}
	var out []netip.AddrPort
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile("/proc/self/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if f[3] != "0A" || !sockets["socket:["+f[9]+"]"] {
				continue
			}
			host, port, _ := strings.Cut(f[1], ":")
			raw, err := hex.DecodeString(host)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(raw); i += 4 { // words in the machine's order
				slices.Reverse(raw[i : i+4])
			}
			ip, _ := netip.AddrFromSlice(raw)
			n, err := strconv.ParseUint(port, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(n)))
		}
	}
	return out
}
