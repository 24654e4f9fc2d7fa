package devices

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// CheckAddress returns an error if an address is not HOST:PORT with a port from 1 to 65535.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("address is %q; expected HOST:PORT, such as 10.0.0.7:2222", address)
	}
	return checkPort(address, port, 1)
}

// CheckListen returns an error if an address to listen on is not HOST:PORT. Unlike in
// [CheckAddress], the host may be empty and the port may be 0, any free one.
func CheckListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address is %q; expected HOST:PORT, such as 127.0.0.1:2222", address)
	}
	return checkPort(address, port, 0)
}

func checkPort(address, port string, least int) error {
	if n, err := strconv.Atoi(port); err != nil || n < least || n > 65535 {
		return fmt.Errorf("address is %q with port %q; expected a port from %d to 65535", address, port, least)
	}
	return nil
}

// Canonical returns a spelling of an address that is the same for spellings that mean the same
// without a name server: localhost is 127.0.0.1, and names are in lower case.
func Canonical(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	host = strings.ToLower(host)
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	}
	return net.JoinHostPort(host, port)
}
