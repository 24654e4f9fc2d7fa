package peertls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Error means that two processes do not accept each other's keys.
type Error struct {
	// Reason says what is wrong with the other side, "it". Advice says what to do.
	Reason, Advice string
	Err            error
}

func (e *Error) Error() string { return e.Reason }

// Unwrap returns the error of the TLS library, or nil.
func (e *Error) Unwrap() error { return e.Err }

// TokenError means that a token has a wrong length.
type TokenError struct{ Length int }

func (e *TokenError) Error() string {
	return fmt.Sprintf("the token has %d characters; expected %d to %d: make one with openssl rand -hex 32", e.Length, MinToken, maxToken)
}

// Explain returns an *Error for an error of TLS that comes from the keys, and other errors as they
// are.
func (k *Keys) Explain(err error) error {
	if err == nil {
		return nil
	}
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		header  tls.RecordHeaderError
		remote  *net.OpError
	)
	e := &Error{Err: err}
	switch {
	case errors.As(err, &unknown):
		e.Reason, e.Advice = "it has another token", sameToken
		if !k.token {
			e.Reason, e.Advice = "its certificate is not signed by the CA of --tls-ca", "give both sides certificates of the same CA, or the same --token-file"
		}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		e.Reason, e.Advice = outOfDate("its certificate", invalid.Cert, time.Now()), "set the clocks of both machines, or make a new certificate"
	case errors.As(err, &host) && k.token:
		e.Reason, e.Advice = "it has a certificate of --tls-cert, and this side has a token", sameKind
	case errors.As(err, &host) && slices.Equal(host.Certificate.DNSNames, []string{tokenName}):
		e.Reason, e.Advice = "it has a token, and this side has a certificate of --tls-cert", sameKind
	case errors.As(err, &host):
		e.Reason = fmt.Sprintf("its certificate is for %s, not for %s", names(host.Certificate), host.Host)
		e.Advice = "make a certificate for this name, or use a name that the certificate has"
	case errors.As(err, &header):
		e.Reason, e.Advice = "it does not speak TLS", "give it the same --token-file (or --tls-cert, --tls-key and --tls-ca), or neither side one"
	case errors.As(err, &remote) && remote.Op == "remote error":
		e.Reason, e.Advice = k.refused(remote.Err.Error())
	case strings.Contains(err.Error(), "client didn't provide a certificate"):
		e.Reason, e.Advice = "it has no certificate", "connect with gorbit and the same --token-file"
	case strings.HasPrefix(err.Error(), "tls: "):
		e.Reason, e.Advice = strings.TrimPrefix(err.Error(), "tls: "), "run the same release on both sides"
	default:
		return err
	}
	return e
}

const (
	sameToken = "give both sides the same --token-file"
	sameKind  = "give both sides the same --token-file, or both certificates of the same CA"
)

// refused explains an alert of the other side.
func (k *Keys) refused(alert string) (reason, advice string) {
	switch {
	case !strings.Contains(alert, "certificate"): // "no application protocol", "handshake failure"
		return fmt.Sprintf("it speaks TLS but not as a worker of this release does (%s)", strings.TrimPrefix(alert, "tls: ")),
			"another program or a proxy may answer there; check the address and the network, and run the same release on every machine"
	case strings.Contains(alert, "expired certificate"):
		return "it says that this side's certificate is expired or not valid yet", "set the clocks of both machines, or make a new certificate"
	case k.token:
		return "it does not accept this side's token", sameToken
	}
	return fmt.Sprintf("it does not accept this side's certificate (%s)", strings.TrimPrefix(alert, "tls: ")),
		"give both sides certificates of the same CA, or the same --token-file"
}

// outOfDate says why a certificate is not valid at a time.
func outOfDate(what string, c *x509.Certificate, now time.Time) string {
	const form = time.RFC3339
	if now.Before(c.NotBefore) {
		return fmt.Sprintf("%s is valid from %s on, and this machine's clock says %s", what, c.NotBefore.UTC().Format(form), now.UTC().Format(form))
	}
	return fmt.Sprintf("%s expired at %s, and this machine's clock says %s", what, c.NotAfter.UTC().Format(form), now.UTC().Format(form))
}

// names returns the names and addresses that a certificate is for.
func names(c *x509.Certificate) string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name"
	}
	return strings.Join(all, ", ")
}
