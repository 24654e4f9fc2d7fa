package cluster

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestRelay relays to a server that says what it hears, until calls are refused.
func TestRelay(t *testing.T) {
	echo := listen(t)
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn) // ends with the connection
				conn.Close()
			}()
		}
	}()
	r := newRelay(listen(t), func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", echo.Addr().String())
	})
	conn, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	if line, err := answers.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}

	r.refuse("worker \"a\" failed: 100 %\nof it")
	r.refuse("it failed again")
	if line, err := answers.ReadString('\n'); err == nil {
		t.Errorf("still relayed: %q", line)
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+r.addr()+"/tensorflow.MasterService/RunStep", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for name, want := range map[string]string{
		"Grpc-Status": "10", "Grpc-Message": "worker%20%22a%22%20failed:%20100%20%25%0Aof%20it", "Content-Type": "application/grpc",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	r.close() // waits for all that it started
	if conn, err := net.Dial("tcp", r.addr()); err == nil {
		conn.Close()
		t.Error("listens after its end")
	}
}
