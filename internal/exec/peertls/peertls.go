// Package peertls lets processes that share a secret talk over mutual TLS 1.3.
//
// The secret is a token or the key of a certificate authority (CA). From a token, every process
// derives the same CA: its ed25519 key is HKDF-SHA256 of the token. Each process then makes a
// certificate of its own, in memory, and signs it with the CA. Who has the token can make such a
// certificate; nobody else can. With certificates from files, the CA's key stays with whoever made
// them.
//
// Both sides verify the other's certificate, and connections are never resumed. Everything is done
// by the standard library's crypto packages.
package peertls

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"time"
)

// MinToken is the least number of characters of a token. Who connects to a process sees a
// certificate, and could try out short tokens against it.
const MinToken = 32

// maxToken is the largest number of characters of a token.
const maxToken = 4096

// tokenName is the name in certificates that are made from a token.
const tokenName = "gorbit"

// derivation is the context of the CA's key. Another one gives other keys.
const derivation = "gorbit workers: ed25519 key of the CA, version 1"

// Keys are a process's certificate and the CA that it trusts.
type Keys struct {
	// own returns the process's certificate.
	own   func() (*tls.Certificate, error)
	roots *x509.CertPool
	// token means that the keys are made from a token, and certificates have the same name in
	// every process.
	token bool
}

// NewToken returns a random token of 256 bits.
func NewToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// FromToken returns the keys of a token. Processes with equal tokens trust each other.
func FromToken(token string) (*Keys, error) {
	if n := len(token); n < MinToken || n > maxToken {
		return nil, &TokenError{Length: n}
	}
	seed, err := hkdf.Key(sha256.New, []byte(token), nil, derivation, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	caKey := ed25519.NewKeyFromSeed(seed)
	// The token is what limits who is trusted, and for how long. Certificates that do not
	// expire work whatever the machines' clocks say. The last date means "never" (RFC 5280).
	begin, end := time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: tokenName + " CA"}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	if ca, err = x509.ParseCertificate(signed); err != nil {
		return nil, err
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: tokenName}, NotBefore: begin, NotAfter: end, DNSNames: []string{tokenName},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, public, caKey)
	if err != nil {
		return nil, err
	}
	own := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	k := &Keys{own: func() (*tls.Certificate, error) { return own, nil }, roots: x509.NewCertPool(), token: true}
	k.roots.AddCert(ca)
	return k, nil
}

// Client makes a connection one of TLS: it returns when the other side has proved that it has a
// certificate for the host. Whether it accepts this side's is known when it has sent something; an
// error until then should be given to Explain. protocol is what is spoken inside. The error is an
// *Error where the keys do not match.
func (k *Keys) Client(ctx context.Context, conn net.Conn, host, protocol string) (*tls.Conn, error) {
	if k.token {
		host = tokenName
	}
	c := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: k.roots, ServerName: host, NextProtos: []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.own() },
	})
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, k.Explain(err)
	}
	if got := c.ConnectionState().NegotiatedProtocol; got != protocol {
		return nil, &Error{Reason: fmt.Sprintf("it speaks %q inside of TLS; expected %q", got, protocol), Advice: "run the same release on every machine"}
	}
	return c, nil
}

// Server makes a connection one of TLS: it returns when the other side has proved that it has a
// certificate. protocols are those that may be spoken inside; the connection's state says which one
// is. The error is an *Error where the keys do not match.
func (k *Keys) Server(ctx context.Context, conn net.Conn, protocols ...string) (*tls.Conn, error) {
	c := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, ClientCAs: k.roots, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: protocols,
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return k.own() },
	})
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, k.Explain(err)
	}
	if c.ConnectionState().NegotiatedProtocol == "" {
		return nil, &Error{Reason: "it does not say what it speaks inside of TLS", Advice: "connect with gorbit"}
	}
	return c, nil
}
