package train

import (
	"context"
	"crypto/tls"
	"net"
)

// Keys are what this process proves to workers by mutual TLS who it is, and knows them by.
type Keys interface {
	// Client makes a connection to the worker at a host one of TLS. protocol is what is spoken
	// inside.
	Client(ctx context.Context, conn net.Conn, host, protocol string) (*tls.Conn, error)
	// Explain returns an error that says what is wrong with the keys for one of TLS, and others as
	// they are.
	Explain(err error) error
}
