package gcs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

// TestAnonymous reads a public bucket where there are no credentials, and says so once; what is not
// public is an error that says what is missing. Wrong credentials are no reason to read without.
func TestAnonymous(t *testing.T) {
	var log bytes.Buffer
	c := fast(t)
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	c.authorize = func(context.Context, *http.Transport) (http.RoundTripper, error) {
		return nil, errors.New("google: could not find default credentials. See https://cloud.google.com/docs/authentication for more information")
	}
	server, store := serve(t, c)
	server.Put("public", []byte("x"))
	server.Fail(func(r *http.Request) *gcstest.Fault {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("a request without credentials has the header Authorization")
		}
		if strings.Contains(r.URL.Path, "private") {
			return &gcstest.Fault{Status: http.StatusUnauthorized}
		}
		return nil
	})
	for range 2 {
		if info, err := store.Stat("gs://b/public"); err != nil || info.Size() != 1 {
			t.Fatalf("%v, %v", info, err)
		}
	}
	if got := strings.Count(log.String(), "no credentials for Google Cloud Storage were found"); got != 1 {
		t.Errorf("said %d times:\n%s", got, &log)
	}
	if _, err := store.Stat("gs://b/private"); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "gcloud auth application-default login") {
		t.Errorf("%v", err)
	}

	c.authorize = func(ctx context.Context, base *http.Transport) (http.RoundTripper, error) {
		return htransport.NewTransport(ctx, base, option.WithAuthCredentialsJSON(option.ServiceAccount, []byte("{}")))
	}
	if _, err := New(c).Stat("gs://b/public"); err == nil || !strings.Contains(err.Error(), "expected credentials") {
		t.Errorf("wrong credentials: %v", err)
	}
}
