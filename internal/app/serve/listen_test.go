package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/text"
)

// listen starts a server on a port of its own. It returns the server's address, what tells it to stop,
// and its end.
func listen(t *testing.T, m Model, l Listen) (address string, stop func(), ended <-chan error) {
	t.Helper()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New([]Model{m}, config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, on, l) }()
	return on.Addr().String(), cancel, done
}

// post sends a request and returns the status, or 0 if there was no response.
func post(client *http.Client, url string) int {
	response, err := client.Post(url+"/v1/models/words:predict", "application/json", strings.NewReader(`{"instances": ["a"]}`))
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestStop holds that a server that stops says so, answers the request in progress, and ends.
func TestStop(t *testing.T) {
	m := textModel{calls: make(chan []text.Encoding, 10), hold: make(chan struct{})}
	address, stop, ended := listen(t, texts(t, m), Listen{StopDelay: 50 * time.Millisecond, StopTimeout: time.Minute})
	got := make(chan int, 1)
	go func() { got <- post(http.DefaultClient, "http://"+address) }()
	<-m.calls
	stop()
	for {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil { // it no longer listens
			break
		}
		response.Body.Close()
		if response.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended, with %v, before the request in progress", err)
	default:
	}
	close(m.hold)
	if code := <-got; code != http.StatusOK {
		t.Errorf("the request in progress got the status %d", code)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStopTimeout holds that a server does not wait forever for a request in progress.
func TestStopTimeout(t *testing.T) {
	m := textModel{calls: make(chan []text.Encoding, 10), hold: make(chan struct{})}
	address, stop, ended := listen(t, texts(t, m), Listen{StopTimeout: 10 * time.Millisecond})
	got := make(chan int, 1)
	go func() { got <- post(http.DefaultClient, "http://"+address) }()
	<-m.calls
	stop()
	if code := <-got; code != 0 {
		t.Errorf("the request got the status %d; expected none", code)
	}
	close(m.hold)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "requests were not answered within 10ms and were dropped") {
		t.Errorf("it ended with %v", err)
	}
}

// TestTLS asks over HTTPS, and over HTTP what is answered over HTTPS only.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	address, stop, ended := listen(t, texts(t, textModel{}), Listen{Certificate: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, StopTimeout: time.Minute})
	roots := x509.NewCertPool()
	roots.AddCert(own)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	if code := post(&http.Client{Transport: transport}, "https://"+address); code != http.StatusOK {
		t.Errorf("status %d over HTTPS", code)
	}
	transport.CloseIdleConnections()
	if code := post(http.DefaultClient, "http://"+address); code != http.StatusBadRequest {
		t.Errorf("status %d over HTTP", code)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
