package peertls

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Options say where the keys of a process are. If all are empty, it has none.
type Options struct {
	// TokenFile is a file with a token; "-" means the first line of standard input.
	TokenFile string
	// Cert and Key are PEM files of the process's own certificate and its key; CA has the
	// certificates of the authorities that sign those of other processes.
	Cert, Key, CA string
}

// Validate returns an error for options that do not go together.
func (o Options) Validate() error {
	files := o.Cert != "" || o.Key != "" || o.CA != ""
	switch {
	case o.TokenFile != "" && files:
		return errors.New("--token-file and --tls-cert, --tls-key or --tls-ca are given; expected one kind of keys")
	case files && (o.Cert == "" || o.Key == "" || o.CA == ""):
		return errors.New("--tls-cert, --tls-key and --tls-ca belong together; expected all three")
	}
	return nil
}

// Load reads the keys. It returns nil if there are none. stdin is read if the token is there, up to
// the end of the line.
func (o Options) Load(stdin io.Reader) (*Keys, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	switch {
	case o.TokenFile != "":
		token, err := ReadToken(o.TokenFile, stdin)
		if err != nil {
			return nil, err
		}
		keys, err := FromToken(token)
		if err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", o.TokenFile, err)
		}
		return keys, nil
	case o.Cert != "":
		return o.files()
	}
	return nil, nil
}

// ReadToken returns the token in a file, without white space around it. The path "-" means the
// first line of stdin.
func ReadToken(path string, stdin io.Reader) (string, error) {
	if path == "-" {
		// One byte at a time: what follows the line is not ours.
		var line []byte
		for b := make([]byte, 1); len(line) <= maxToken; line = append(line, b[0]) {
			if _, err := io.ReadFull(stdin, b); errors.Is(err, io.EOF) || err == nil && b[0] == '\n' {
				break
			} else if err != nil {
				return "", fmt.Errorf("--token-file -: %w", err)
			}
		}
		return strings.TrimSpace(string(line)), nil
	}
	text, err := ReadSecret("--token-file", path, 2*maxToken)
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimSpace(text)))
	lines.Scan()
	token := strings.TrimSpace(lines.Text())
	if lines.Scan() {
		return "", fmt.Errorf("--token-file %s: more than one line; expected a token alone", path)
	}
	return token, nil
}

// ReadSecret reads a file of at most a given number of bytes, the value of a flag, that not every
// user of the machine may read.
func ReadSecret(flag, path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s %s: its mode is %#o, so that every user of this machine has access; expected none: run chmod 600 %s", flag, path, mode.Perm(), path)
	}
	text, err := vfs.ReadBounded(path, most)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return text, nil
}

// maxPEM is the largest size of a file of keys or certificates.
const maxPEM = 1 << 20

// files returns the keys in PEM files. The process's own certificate is read again for each
// connection, so that a new one can take the place of one that expires.
func (o Options) files() (*Keys, error) {
	ca, err := vfs.ReadBounded(o.CA, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	k := &Keys{own: o.own, roots: x509.NewCertPool()}
	if !k.roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("--tls-ca %s: no certificate in it; expected PEM", o.CA)
	}
	own, err := k.own()
	if err != nil {
		return nil, err
	}
	if err := inDate(o.Cert, own.Leaf); err != nil {
		return nil, err
	}
	chain := x509.NewCertPool()
	for _, der := range own.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain.AddCert(c)
		}
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := own.Leaf.Verify(x509.VerifyOptions{Roots: k.roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{use}})
		if err != nil {
			return nil, fmt.Errorf("--tls-cert %s: %w; expected a certificate for servers and clients that the CA of --tls-ca has signed", o.Cert, err)
		}
	}
	return k, nil
}

func (o Options) own() (*tls.Certificate, error) { return readPair(o.Cert, o.Key) }

// ReadPair reads the certificate of --tls-cert and its key of --tls-key. The certificate must be valid
// now.
func ReadPair(cert, key string) (*tls.Certificate, error) {
	pair, err := readPair(cert, key)
	if err != nil {
		return nil, err
	}
	return pair, inDate(cert, pair.Leaf)
}

func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	key, err := ReadSecret("--tls-key", keyFile, maxPEM)
	if err != nil {
		return nil, err
	}
	cert, err := vfs.ReadBounded(certFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s and --tls-key %s: %w", certFile, keyFile, err)
	}
	return &pair, nil
}

// inDate returns an error if a certificate is not valid now.
func inDate(file string, c *x509.Certificate) error {
	if now := time.Now(); now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return fmt.Errorf("--tls-cert %s; make a new one, or set this machine's clock", outOfDate(file, c, now))
	}
	return nil
}
