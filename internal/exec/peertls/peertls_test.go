package peertls

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func token(t *testing.T, text string) *Keys {
	t.Helper()
	k, err := FromToken(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pipe returns the two ends of a connection over loopback.
func pipe(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// meet lets two processes connect and the server say a word, and returns what each of them got.
func meet(t *testing.T, client, server *Keys) (word string, clientErr, serverErr error) {
	t.Helper()
	c, s := pipe(t)
	ended := make(chan error)
	go func() {
		conn, err := server.Server(t.Context(), s, "other", "talk")
		if err == nil {
			_, err = io.WriteString(conn, "hello")
		}
		if tcp, ok := s.(*net.TCPConn); ok && err != nil {
			tcp.CloseWrite()
		}
		ended <- err
	}()
	conn, err := client.Client(t.Context(), c, "127.0.0.1", "talk")
	if err != nil {
		c.Close()
		return "", err, <-ended
	}
	b := make([]byte, 5)
	_, err = io.ReadFull(conn, b)
	return string(bytes.Trim(b, "\x00")), client.Explain(err), <-ended
}

func TestToken(t *testing.T) {
	one, other := NewToken(), NewToken()
	if one == other || len(one) < MinToken {
		t.Errorf("tokens %q and %q", one, other)
	}
	a, b := token(t, one), token(t, one)
	if word, err, refused := meet(t, a, b); word != "hello" || err != nil || refused != nil {
		t.Errorf("%q, %v, %v", word, err, refused)
	}
	_, err, refused := meet(t, a, token(t, other))
	var e *Error
	if !errors.As(err, &e) || e.Reason != "it has another token" || e.Advice != sameToken {
		t.Errorf("the client got %v", err)
	}
	if !errors.As(refused, &e) || e.Reason != "it does not accept this side's token" {
		t.Errorf("the server got %v", refused)
	}
	// A client that trusts everybody is refused by the server.
	c := token(t, one)
	c.roots = b.roots
	c.own = token(t, other).own
	word, err, refused := meet(t, c, b)
	if word != "" || !errors.As(err, &e) || e.Reason != "it does not accept this side's token" {
		t.Errorf("%q, %v", word, err)
	}
	if !errors.As(refused, &e) || e.Reason != "it has another token" {
		t.Errorf("the server got %v", refused)
	}
}

func TestTokenIsTooShort(t *testing.T) {
	for _, text := range []string{"", strings.Repeat("a", MinToken-1), strings.Repeat("a", maxToken+1)} {
		var short *TokenError
		if _, err := FromToken(text); !errors.As(err, &short) || !strings.Contains(err.Error(), "openssl rand -hex 32") {
			t.Errorf("%d characters: %v", len(text), err)
		}
	}
}

// TestAnotherServer connects to a server of TLS that is none of ours, such as a proxy. That does not
// come from the keys.
func TestAnotherServer(t *testing.T) {
	k := token(t, NewToken())
	own, err := k.own()
	if err != nil {
		t.Fatal(err)
	}
	c, s := pipe(t)
	go func() {
		_ = tls.Server(s, &tls.Config{Certificates: []tls.Certificate{*own}, NextProtos: []string{"h2"}}).HandshakeContext(t.Context())
	}()
	var e *Error
	if _, err := k.Client(t.Context(), c, "127.0.0.1", "talk"); !errors.As(err, &e) || e.Reason != "it speaks TLS but not as a worker of this release does (no application protocol)" ||
		!strings.Contains(e.Advice, "proxy") {
		t.Errorf("got %v", err)
	}
}

// TestServerWants checks clients that are none of ours: without a certificate, with an older TLS,
// with another protocol inside, or with none.
func TestServerWants(t *testing.T) {
	k := token(t, NewToken())
	own, err := k.own()
	if err != nil {
		t.Fatal(err)
	}
	for want, config := range map[string]*tls.Config{
		"it has no certificate":                             {RootCAs: k.roots, ServerName: tokenName, NextProtos: []string{"talk"}},
		"client offered only unsupported versions":          {RootCAs: k.roots, ServerName: tokenName, NextProtos: []string{"talk"}, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}},
		"client requested unsupported application protocol": {RootCAs: k.roots, ServerName: tokenName, NextProtos: []string{"smtp"}, Certificates: []tls.Certificate{*own}},
		"it does not say what it speaks inside of TLS":      {RootCAs: k.roots, ServerName: tokenName, Certificates: []tls.Certificate{*own}},
	} {
		c, s := pipe(t)
		go func() { _ = tls.Client(c, config).HandshakeContext(t.Context()) }()
		var e *Error
		if _, err := k.Server(t.Context(), s, "talk"); !errors.As(err, &e) || !strings.Contains(e.Reason, want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c, s := pipe(t)
	go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") }()
	var e *Error
	if _, err := k.Server(t.Context(), s, "talk"); !errors.As(err, &e) || e.Reason != "it does not speak TLS" {
		t.Errorf("got %v", err)
	}
	// A client that says nothing is waited for as long as the context allows.
	_, s = pipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := k.Server(ctx, s, "talk"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

// TestReplay sends a server again what a client with the right token has sent it.
func TestReplay(t *testing.T) {
	k := token(t, NewToken())
	c, s := pipe(t)
	r := &recorder{Conn: c}
	served := make(chan error)
	serve := func(conn net.Conn, got []byte) {
		secure, err := k.Server(t.Context(), conn, "talk")
		if err == nil {
			_, err = io.ReadFull(secure, got)
		}
		served <- err
	}
	got := make([]byte, 5)
	go serve(s, got)
	secure, err := k.Client(t.Context(), r, "127.0.0.1", "talk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(secure, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	c, s = pipe(t)
	got = make([]byte, 5)
	go serve(s, got)
	if _, err := c.Write(r.sent.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err == nil || !bytes.Equal(got, make([]byte, 5)) {
		t.Errorf("the replay ended with %v, %q", err, got)
	}
}

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der, 0o644)
	return a
}

func writePEM(t *testing.T, path, kind string, der []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		t.Fatal(err)
	}
}

// issue writes a certificate and its key.
func (a *authority) issue(from, to time.Time, use ...x509.ExtKeyUsage) Options {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: use}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	o := Options{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: a.file}
	writePEM(a.t, o.Cert, "CERTIFICATE", der, 0o644)
	der, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, o.Key, "PRIVATE KEY", der, 0o600)
	return o
}

var both = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

func TestFiles(t *testing.T) {
	now := time.Now()
	ca := newAuthority(t)
	load := func(o Options) *Keys {
		t.Helper()
		k, err := o.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	good := load(ca.issue(now.Add(-time.Hour), now.Add(time.Hour), both...))
	if word, err, refused := meet(t, good, load(ca.issue(now.Add(-time.Hour), now.Add(time.Hour), both...))); word != "hello" || err != nil || refused != nil {
		t.Errorf("%q, %v, %v", word, err, refused)
	}
	// A certificate that has expired since, or that a slow clock takes for one of the future.
	expired, future := ca.issue(now.Add(-2*time.Hour), now.Add(-time.Hour), both...), ca.issue(now.Add(time.Hour), now.Add(2*time.Hour), both...)
	for want, o := range map[string]Options{"its certificate expired at ": expired, "its certificate is valid from ": future} {
		bad := &Keys{own: o.own, roots: good.roots}
		var e *Error
		if _, err, _ := meet(t, good, bad); !errors.As(err, &e) || !strings.HasPrefix(e.Reason, want) || !strings.Contains(e.Advice, "clocks") {
			t.Errorf("the client got %v, want %s", err, want)
		}
		_, err, refused := meet(t, bad, good)
		if !errors.As(refused, &e) || !strings.HasPrefix(e.Reason, want) {
			t.Errorf("the server got %v, want %s", refused, want)
		}
		if !errors.As(err, &e) || !strings.Contains(e.Reason, "expired or not valid yet") {
			t.Errorf("the client got %v", err)
		}
	}
	// A server alone reads its certificate and key.
	if _, err := ReadPair(expired.Cert, expired.Key); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("an expired certificate: %v", err)
	}
	if _, err := ReadPair(future.Cert, expired.Key); err == nil || !strings.Contains(err.Error(), "--tls-cert "+future.Cert+" and --tls-key") {
		t.Errorf("another's key: %v", err)
	}
	stranger := load(newAuthority(t).issue(now.Add(-time.Hour), now.Add(time.Hour), both...))
	var e *Error
	if _, err, _ := meet(t, good, stranger); !errors.As(err, &e) || !strings.Contains(e.Reason, "not signed by the CA of --tls-ca") {
		t.Errorf("got %v", err)
	}
	// One side has certificates, the other a token.
	secret := token(t, NewToken())
	for want, sides := range map[string][2]*Keys{"it has a certificate of --tls-cert": {secret, good}, "it has a token, and": {good, secret}} {
		if _, err, _ := meet(t, sides[0], sides[1]); !errors.As(err, &e) || !strings.HasPrefix(e.Reason, want) || e.Advice != sameKind {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c, s := pipe(t)
	go func() { _, _ = good.Server(t.Context(), s, "talk") }()
	if _, err := good.Client(t.Context(), c, "worker.example", "talk"); !errors.As(err, &e) || e.Reason != "its certificate is for 127.0.0.1, not for worker.example" {
		t.Errorf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := newAuthority(t)
	good, other := ca.issue(now.Add(-time.Hour), now.Add(time.Hour), both...), ca.issue(now.Add(-time.Hour), now.Add(time.Hour), both...)
	open := good
	open.Key = file("open.pem", "", 0o644)
	secret := NewToken()
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{TokenFile: "a", Cert: "b"}, "expected one kind of keys"},
		{Options{Cert: "b", CA: "c"}, "expected all three"},
		{Options{TokenFile: filepath.Join(dir, "none")}, "no such file"},
		{Options{TokenFile: file("world", secret, 0o644)}, "run chmod 600 "},
		{Options{TokenFile: file("short", "secret", 0o600)}, "has 6 characters; expected 32 to 4096"},
		{Options{TokenFile: file("two", secret+"\n"+secret, 0o600)}, "more than one line"},
		{Options{Cert: good.Cert, Key: other.Key, CA: ca.file}, "private key does not match"},
		{Options{Cert: good.Cert, Key: good.Key, CA: file("empty", "", 0o644)}, "no certificate in it"},
		{Options{Cert: good.Cert, Key: good.Key, CA: newAuthority(t).file}, "expected a certificate for servers and clients that the CA of --tls-ca has signed"},
		{ca.issue(now.Add(-time.Hour), now.Add(time.Hour), x509.ExtKeyUsageServerAuth), "expected a certificate for servers and clients"},
		{ca.issue(now.Add(-2*time.Hour), now.Add(-time.Hour), both...), "expired at "},
		{ca.issue(now.Add(time.Hour), now.Add(2*time.Hour), both...), "is valid from "},
		{open, "run chmod 600 "},
		{Options{Cert: filepath.Join(dir, "none"), Key: good.Key, CA: ca.file}, "--tls-cert: open "},
		{Options{Cert: good.Cert, Key: filepath.Join(dir, "none"), CA: ca.file}, "--tls-key: stat "},
		{Options{Cert: good.Cert, Key: good.Key, CA: filepath.Join(dir, "none")}, "--tls-ca: open "},
		{Options{Cert: dir, Key: good.Key, CA: ca.file}, "--tls-cert: " + dir},
		{Options{Cert: file("text.pem", "not PEM", 0o644), Key: good.Key, CA: ca.file}, "failed to find any PEM data"},
		{Options{Cert: good.Cert, Key: good.Cert, CA: ca.file}, "run chmod 600 "},
	} {
		if k, err := test.o.Load(nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, %v; want %s", test.o, k, err, test.want)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the token is in the error %v", err)
		}
	}
	if k, err := (Options{}).Load(nil); k != nil || err != nil {
		t.Errorf("%v, %v", k, err)
	}
	// The token from standard input, of which nothing else is read.
	in := strings.NewReader(secret + "\nrest")
	k, err := Options{TokenFile: "-"}.Load(in)
	if err != nil {
		t.Fatal(err)
	}
	same, err := Options{TokenFile: file("token", "\n "+secret+"\n", 0o640)}.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	if word, err, _ := meet(t, k, same); word != "hello" {
		t.Errorf("%q, %v", word, err)
	}
	if rest, err := io.ReadAll(in); string(rest) != "rest" || err != nil {
		t.Errorf("left %q, %v", rest, err)
	}
	if s := fmt.Sprintf("%v %+v", *k, *k); strings.Contains(s, secret) {
		t.Error("the keys print the token")
	}
}
