package tpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// probeTimeout is how long an address may take to show that it is a gRPC server.
const probeTimeout = 10 * time.Second

// errNotGRPC is an address at which something else is.
var errNotGRPC = errors.New("what listens there does not speak gRPC")

// http2Settings is how a client begins (RFC 9113, section 3.4): a fixed text and an empty
// SETTINGS frame. A server answers with a SETTINGS frame of its own, before anything else.
var http2Settings = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")

// probe finds out whether a gRPC server is at an address. TensorFlow's own client does not
// tell an address at which nothing is from one that is slow, and tries until its timeout.
func probe(ctx context.Context, address string) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errTooLate)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return ended(ctx, start, err)
	}
	defer conn.Close()
	// A connection knows no context.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	header := make([]byte, 9) // of a frame: length (3 bytes), type, flags, stream (4 bytes)
	_, err = conn.Write(http2Settings)
	if err == nil {
		_, err = io.ReadFull(conn, header)
	}
	switch {
	case ctx.Err() != nil:
		return ended(ctx, start, err)
	case err != nil:
		return fmt.Errorf("%w: %w", errNotGRPC, err)
	case header[3] != 4 || !bytes.Equal(header[5:], make([]byte, 4)):
		return fmt.Errorf("%w: its first bytes are %q; expected an HTTP/2 SETTINGS frame", errNotGRPC, header)
	}
	return nil
}

// silentError means that an address gave no answer in a time, or not the whole of one.
type silentError time.Duration

func (e silentError) Error() string {
	return fmt.Sprintf("no answer in %v", time.Duration(e).Round(time.Second))
}

// Is reports whether the target is errTooLate.
func (silentError) Is(target error) bool { return target == errTooLate }

// ended is the error of a probe, begun at a time, whose context may have ended it.
func ended(ctx context.Context, start time.Time, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTooLate):
		return silentError(time.Since(start))
	case cause != nil:
		return cause
	}
	return err
}
