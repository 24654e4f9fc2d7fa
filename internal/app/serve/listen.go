package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Listen says how a server listens and stops.
type Listen struct {
	// Certificate is nil for HTTP without TLS.
	Certificate *tls.Certificate
	// StopDelay is how long requests are still answered after /readyz said that the server stops.
	StopDelay time.Duration
	// StopTimeout is how long the server waits for the requests in progress before it drops them.
	StopTimeout time.Duration
}

// Limits of connections.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = time.Minute
	// stallTimeout is how long nothing of a body may arrive.
	stallTimeout = 10 * time.Second
	idleTimeout  = 2 * time.Minute
	// writeMargin is the time for a response, in addition to the time-out of its request.
	writeMargin = time.Minute
	headerBytes = 16 << 10 // a map of them takes twenty times as many
)

// Serve answers the requests that come to a listener until the context is done. Then it says that it
// is not ready, answers the requests in progress, and returns nil. Requests that are not answered
// within the time-out are dropped, which is an error.
func (s *Server) Serve(ctx context.Context, on net.Listener, l Listen) error {
	on = &connections{Listener: on, taken: make(chan struct{}, s.MaxConnections), closed: make(chan struct{})}
	// Of HTTP/2 one connection could have any number of requests.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Protocols: protocols, ConnContext: withConnection,
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		WriteTimeout: readTimeout + s.Timeout + writeMargin, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if l.Certificate != nil {
			server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*l.Certificate}}
			ended <- server.ServeTLS(on, "", "")
			return
		}
		ended <- server.Serve(on)
	}()
	select {
	case err := <-ended:
		s.Close()
		return fmt.Errorf("serve on %s: %w", on.Addr(), err)
	case <-ctx.Done():
	}
	s.Drain()
	time.Sleep(l.StopDelay)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.StopTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		server.Close()
		err = fmt.Errorf("requests were not answered within %v and were dropped", l.StopTimeout)
	}
	s.Close()
	return err
}

// Loopback reports whether an address is reached from this machine alone.
func Loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback()
}
