package hub_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
)

// newProxy returns the address of a server before a hub, which answers the calls whose path has a
// suffix itself. %s in the answer is the first object of the call.
func newProxy(t *testing.T, h *hubtest.Hub, suffix, answer string) string {
	t.Helper()
	to, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			pass.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var in struct{ Objects []struct{ OID string } }
		_ = json.Unmarshal(body, &in)
		if strings.Contains(answer, "%s") {
			answer = fmt.Sprintf(answer, in.Objects[0].OID)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
