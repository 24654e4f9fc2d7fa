package devices

import "testing"

func TestCheckAddress(t *testing.T) {
	for _, test := range []struct {
		address         string
		connect, listen string // the errors; "" for none
	}{
		{"10.0.0.7:2222", "", ""},
		{"[::1]:65535", "", ""},
		{"host:0", `address is "host:0" with port "0"; expected a port from 1 to 65535`, ""},
		{":2222", `address is ":2222"; expected HOST:PORT, such as 10.0.0.7:2222`, ""},
		{"host", `address is "host"; expected HOST:PORT, such as 10.0.0.7:2222`, `address is "host"; expected HOST:PORT, such as 127.0.0.1:2222`},
		{"host:99999", `address is "host:99999" with port "99999"; expected a port from 1 to 65535`, `address is "host:99999" with port "99999"; expected a port from 0 to 65535`},
		{"host:http", `address is "host:http" with port "http"; expected a port from 1 to 65535`, `address is "host:http" with port "http"; expected a port from 0 to 65535`},
	} {
		if got := text(CheckAddress(test.address)); got != test.connect {
			t.Errorf("CheckAddress: %q, want %q", got, test.connect)
		}
		if got := text(CheckListen(test.address)); got != test.listen {
			t.Errorf("CheckListen: %q, want %q", got, test.listen)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCanonical(t *testing.T) {
	for address, want := range map[string]string{
		"localhost:2222":          "127.0.0.1:2222",
		"LocalHost:02222":         "127.0.0.1:2222",
		"127.0.0.1:2222":          "127.0.0.1:2222",
		"[::ffff:127.0.0.1]:2222": "127.0.0.1:2222",
		"[0:0:0:0:0:0:0:1]:1":     "[::1]:1",
		"Node7:1":                 "node7:1",
		"no address":              "no address",
	} {
		if got := Canonical(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
