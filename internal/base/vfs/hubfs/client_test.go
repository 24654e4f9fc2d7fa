package hubfs

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestProtocol speaks HTTP/1.1 with a hub that would rather speak HTTP/2, as real ones do.
func TestProtocol(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c, err := NewClient(Account{Endpoint: server.URL, Log: slog.New(slog.DiscardHandler), Attempts: 1, Stall: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	transport := c.http.Transport.(*http.Transport)
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if content, _, err := c.Do(t.Context(), Call{What: "ask", Method: http.MethodGet, URL: server.URL}); err != nil || string(content) != "HTTP/1.1" {
		t.Errorf("%q, %v; expected HTTP/1.1", content, err)
	}
}
