package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/app/hub"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
)

// model writes a folder with small files and large ones, and returns their contents.
func model(t *testing.T) (string, map[string][]byte) {
	t.Helper()
	files := map[string][]byte{
		"config.json": []byte(`{"a": 1}`), "README.md": []byte("# A model\n"), "empty.txt": {},
		"model.safetensors": bytes.Repeat([]byte("0123456789"), 1001), "same.bin": bytes.Repeat([]byte("0123456789"), 1001),
		"sub/more.bin": bytes.Repeat([]byte{7}, 2000),
	}
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir, files
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

func config(h *hubtest.Hub, log *bytes.Buffer) hub.Config {
	return hub.Config{Repo: "acme/reviews", Revision: "main", Message: "Step 3",
		Account: hubfs.Account{Endpoint: h.URL, Token: hubtest.Token, Log: slog.New(slog.NewTextHandler(log, nil)), Attempts: 3, Wait: time.Millisecond}}
}

func start(t *testing.T) *hubtest.Hub {
	h := hubtest.New()
	t.Cleanup(h.Close)
	return h
}

// check compares a repository with the files that were pushed, and looks for the token where it must
// not be.
func check(t *testing.T, h *hubtest.Hub, want map[string][]byte, log string) {
	t.Helper()
	r := h.Repo("acme/reviews")
	if r == nil {
		t.Fatal("there is no repository")
	}
	for name, content := range want {
		if got, ok := r.Files[name]; !ok || !bytes.Equal(got, content) {
			t.Errorf("%s: there %v, %d bytes; expected %d", name, ok, len(got), len(content))
		}
	}
	if len(r.Files) != len(want) {
		t.Errorf("%d files; expected %d", len(r.Files), len(want))
	}
	if leaked := h.Leaked(); len(leaked) > 0 {
		t.Errorf("the token went to the storage: %q", leaked)
	}
	if strings.Contains(log, hubtest.Token) {
		t.Errorf("the token is in the log: %s", log)
	}
}

func TestPush(t *testing.T) {
	for _, chunk := range []int64{0, 300, 10_010, 1 << 20} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			h := start(t)
			h.ChunkSize = chunk
			dir, files := model(t)
			write(t, filepath.Join(dir, ".hidden"), []byte("x"))
			write(t, filepath.Join(dir, ".git", "config"), []byte("x"))
			var log bytes.Buffer
			result, err := hub.Push(t.Context(), config(h, &log), dir)
			if err != nil {
				t.Fatal(err)
			}
			check(t, h, files, log.String())
			if !result.Created || result.Files != len(files) || result.Commit != h.URL+"/acme/reviews/commit/1" || !h.Repo("acme/reviews").Private {
				t.Errorf("%+v", result)
			}
			if want := int64(10_010 + 2000 + len(files["config.json"]) + len(files["README.md"])); result.Bytes != want { // same.bin is not sent again
				t.Errorf("%d bytes sent; expected %d", result.Bytes, want)
			}

			again, err := hub.Push(t.Context(), config(h, &log), dir)
			if err != nil || again != (hub.Result{}) || len(h.Repo("acme/reviews").Commits) != 1 {
				t.Errorf("a second push of the same files: %+v, %v; expected no commit", again, err)
			}

			files["README.md"] = []byte("# Another\n")
			write(t, filepath.Join(dir, "README.md"), files["README.md"])
			puts := h.Puts()
			again, err = hub.Push(t.Context(), config(h, &log), dir)
			if err != nil || again.Files != 1 || again.Commit == "" || h.Puts() != puts {
				t.Errorf("a push of one changed file: %+v, %v, %d uploads", again, err, h.Puts()-puts)
			}
			check(t, h, files, log.String())
		})
	}
}

// TestEveryRequestFails lets each request of a push fail in turn: for good, so that the push is made
// again by hand, and once, so that it continues by itself.
func TestEveryRequestFails(t *testing.T) {
	count := 0
	for fails := 0; ; fails++ {
		for _, status := range []int{-1, 500, 429, 403} {
			h := start(t)
			h.ChunkSize = 3000
			dir, files := model(t)
			var log bytes.Buffer
			var met atomic.Bool
			h.Fail = func(n int, _ *http.Request) int {
				if n == fails {
					met.Store(true)
					return status
				}
				return 0
			}
			_, err := hub.Push(t.Context(), config(h, &log), dir)
			if !met.Load() {
				if err != nil {
					t.Fatal(err)
				}
				if count < 20 {
					t.Fatalf("%d points of failure; expected 20 or more", count)
				}
				return
			}
			count++
			if (err != nil) != (status == 403) {
				t.Fatalf("request %d (%s) with status %d: %v", fails, h.Requests()[fails], status, err)
			}
			if err != nil {
				if strings.Contains(err.Error(), hubtest.Token) || strings.Contains(err.Error(), "permission=") {
					t.Errorf("the error tells a secret: %v", err)
				}
				if r := h.Repo("acme/reviews"); r != nil && len(r.Files) > 0 {
					t.Errorf("half of a push can be seen: %d files", len(r.Files))
				}
				if _, err := hub.Push(t.Context(), config(h, &log), dir); err != nil {
					t.Errorf("the same push again: %v", err)
				}
			}
			check(t, h, files, log.String())
		}
	}
}

func TestPushIsGivenUp(t *testing.T) {
	h := start(t)
	h.Fail = func(int, *http.Request) int { return 503 }
	dir, _ := model(t)
	var log bytes.Buffer
	_, err := hub.Push(t.Context(), config(h, &log), dir)
	var status *hubfs.StatusError
	if !errors.As(err, &status) || status.Status != 503 || len(h.Requests()) != 3 {
		t.Errorf("%v after %d requests; expected 503 after 3", err, len(h.Requests()))
	}
	h.Fail = func(int, *http.Request) int { return -1 }
	_, err = hub.Push(t.Context(), config(h, &log), dir)
	if want := "create the repository acme/reviews: the connection was closed before there was an answer; it was tried 3 times; the same push, made again, uploads what is missing"; err == nil || err.Error() != want {
		t.Errorf("%v; expected %s", err, want)
	}
	c := config(h, &log)
	c.Wait = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := hub.Push(ctx, c, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; expected the end of the context", err)
	}
}

func TestAnotherToken(t *testing.T) {
	h := start(t)
	dir, _ := model(t)
	var log bytes.Buffer
	c := config(h, &log)
	c.Token = "hf_wrong"
	if _, err := hub.Push(t.Context(), c, dir); err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "the token is wrong") {
		t.Errorf("%v", err)
	}
	c = config(h, &log)
	c.Repo = "forbidden/x"
	if _, err := hub.Push(t.Context(), c, dir); err == nil || !strings.Contains(err.Error(), "may not write there") {
		t.Errorf("%v", err)
	}
}

// TestChangedFile changes a large file between its description and its upload.
func TestChangedFile(t *testing.T) {
	for _, chunk := range []int64{0, 3000} {
		h := start(t)
		h.ChunkSize = chunk
		dir, _ := model(t)
		h.Fail = func(_ int, r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/batch") {
				_ = os.WriteFile(filepath.Join(dir, "model.safetensors"), bytes.Repeat([]byte("x"), 10_010), 0o666)
				_ = os.Remove(filepath.Join(dir, "same.bin"))
			}
			return 0
		}
		var log bytes.Buffer
		if _, err := hub.Push(t.Context(), config(h, &log), dir); err == nil || !strings.Contains(err.Error(), "changed while it was pushed") {
			t.Errorf("parts of %d: %v", chunk, err)
		}
		if r := h.Repo("acme/reviews"); len(r.Files) > 0 {
			t.Errorf("%d files came to be", len(r.Files))
		}
	}
}

func TestFolders(t *testing.T) {
	h := start(t)
	var log bytes.Buffer
	empty := t.TempDir()
	linked, _ := model(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ dir, want string }{
		{empty, "has no files"}, {linked, "is not a regular file"},
		{filepath.Join(linked, "config.json"), "is not a folder"}, {filepath.Join(empty, "none"), "no such file"},
	} {
		if _, err := hub.Push(t.Context(), config(h, &log), tt.dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; expected ...%s", tt.dir, err, tt.want)
		}
	}
	if n := len(h.Requests()); n > 0 {
		t.Errorf("%d requests for folders that cannot be pushed", n)
	}
	ignored, files := model(t)
	write(t, filepath.Join(ignored, "x.ignored"), []byte("x"))
	if _, err := hub.Push(t.Context(), config(h, &log), ignored); err != nil || !strings.Contains(log.String(), "x.ignored") {
		t.Errorf("%v; log %s", err, &log)
	}
	check(t, h, files, log.String())
}

func TestValidate(t *testing.T) {
	good := hub.Config{Repo: "a/b", Revision: "main", Account: hubfs.Account{Endpoint: hubfs.DefaultEndpoint, Token: "t", Attempts: 1}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*hub.Config){
		func(c *hub.Config) { c.Endpoint = "http://hub.example" },
		func(c *hub.Config) { c.Endpoint = "hub.example" },
		func(c *hub.Config) { c.Endpoint = "" },
		func(c *hub.Config) { c.Repo = "b" },
		func(c *hub.Config) { c.Repo = "a/b/c" },
		func(c *hub.Config) { c.Repo = "a/../b" },
		func(c *hub.Config) { c.Repo = "a/" + strings.Repeat("b", 100) },
		func(c *hub.Config) { c.Revision = "" },
		func(c *hub.Config) { c.Revision = "../x" },
		func(c *hub.Config) { c.Token = "" },
		func(c *hub.Config) { c.Token = "a\nb" },
		func(c *hub.Config) { c.Attempts = 0 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); !errors.Is(err, fault.Usage) {
			t.Errorf("%+v: %v; expected a usage error", c, err)
		}
	}
	c := good
	c.Endpoint = "http://127.0.0.1:8080"
	if err := c.Validate(); err != nil {
		t.Errorf("a hub on this machine: %v", err)
	}
}

// TestStrangeAnswers answers one call of a push with what no hub should say.
func TestStrangeAnswers(t *testing.T) {
	dir, _ := model(t)
	for _, tt := range []struct{ path, answer string }{
		{"/preupload/main", `{"files": []}`},
		{"/preupload/main", `{"files": [{"path": "config.json", "uploadMode": "carrier pigeon"}]}`},
		{"/preupload/main", `nonsense`},
		{"/batch", `{"objects": []}`},
		{"/batch", `{"objects": [{"oid": "00"}]}`},
		{"/batch", `{"objects": [{"oid": "%s", "actions": {"upload": {"href": "http://hub.example/x"}}}]}`},
		{"/batch", `{"objects": [{"oid": "%s", "actions": {"upload": {"href": "::"}}}]}`},
		{"/batch", `{"objects": [{"oid": "%s", "actions": {"upload": {"href": "/", "header": {"chunk_size": "0"}}}}]}`},
		{"/batch", `{"objects": [{"oid": "%s", "actions": {"upload": {"href": "/", "header": {"chunk_size": "1"}}}}]}`},
		{"/batch", `{"objects": [{"oid": "%s", "actions": {"upload": {"href": "/", "header": {"chunk_size": "9999999", "00002": "x"}}}}]}`},
		{"/batch", `{"objects": [{"oid": "%s", "error": {"code": 422, "message": "too large"}}]}`},
		{"/commit/main", `{}`},
		{"/commit/main", ``},
	} {
		h := start(t)
		proxy := newProxy(t, h, tt.path, tt.answer)
		var log bytes.Buffer
		c := config(h, &log)
		c.Endpoint = proxy
		if _, err := hub.Push(t.Context(), c, dir); err == nil {
			t.Errorf("%s answers %q, and the push says nothing", tt.path, tt.answer)
		} else if strings.Contains(err.Error(), hubtest.Token) {
			t.Errorf("the error tells the token: %v", err)
		}
	}
}

// TestRedirects checks that a redirect, also one of a call with a body, is said at once, and that
// nothing goes where it leads.
func TestRedirects(t *testing.T) {
	dir, _ := model(t)
	var calls, strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer stranger.Close()
	for _, tt := range []struct {
		status   int
		to, says string
	}{
		{http.StatusMovedPermanently, stranger.URL + "/api?permission=x", "the hub redirects to " + stranger.URL + "/api; redirects are not followed: if that is your hub, set HF_ENDPOINT to " + stranger.URL},
		{http.StatusTemporaryRedirect, "/api/renamed", "/api/renamed; redirects are not followed: has the repository another name now?"},
	} {
		calls.Store(0)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			http.Redirect(w, r, tt.to, tt.status)
		}))
		defer s.Close()
		var log bytes.Buffer
		c := config(start(t), &log)
		c.Endpoint = s.URL
		if _, err := hub.Push(t.Context(), c, dir); err == nil || !strings.HasSuffix(err.Error(), tt.says) || calls.Load() != 1 || strangers.Load() != 0 {
			t.Errorf("%d calls, %d elsewhere: %v; expected %q", calls.Load(), strangers.Load(), err, tt.says)
		}
	}
}
