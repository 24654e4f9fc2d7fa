package hubfs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
)

// weights are larger than what a hub takes for small.
var weights = bytes.Repeat([]byte("0123456789"), 300)

func start(t *testing.T) *hubtest.Hub {
	t.Helper()
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("GORBIT_CACHE", t.TempDir())
	t.Setenv("HF_HUB_OFFLINE", "")
	h := hubtest.New()
	t.Cleanup(h.Close)
	h.Put("acme/encoder", map[string][]byte{
		"config.json": []byte(`{"model_type": "bert"}`), "vocab.txt": []byte("[PAD]\n"), "model.safetensors": weights, ".gitattributes": []byte("x"),
		"README.md": []byte("# Encoder"), "pytorch_model.bin": weights, "consolidated.safetensors": weights[1:], "onnx/model.onnx": weights,
		"onnx/config.json": []byte("{}"),
	})
	return h
}

// open returns the file system as a new process would have it.
func open(h *hubtest.Hub, log io.Writer, offline bool) *hubfs.FS {
	return hubfs.New(hubfs.Config{Offline: offline, Log: slog.New(slog.NewTextHandler(log, nil)),
		Account: &hubfs.Account{Endpoint: h.URL, Token: hubtest.Token, Log: slog.New(slog.NewTextHandler(log, nil)), Attempts: 3, Wait: time.Millisecond, Stall: 300 * time.Millisecond}})
}

func blobs(t *testing.T, repo string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(os.Getenv("HF_HUB_CACHE"), repo, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestHalfOffline names, without the hub, a file that was not downloaded, whether it is asked for or needed by
// the whole, and takes what is there.
func TestHalfOffline(t *testing.T) {
	h := start(t)
	var log bytes.Buffer
	for _, name := range []string{"config.json", "vocab.txt"} {
		if _, err := open(h, &log, false).Copy(t.Context(), "hub:acme/encoder/"+name, nil); err != nil {
			t.Fatal(err)
		}
	}
	lacks := func(err error, file string) {
		t.Helper()
		want := "hub:acme/encoder/" + file + " is not on this machine, which has other files of the repository; leave out --offline (HF_HUB_OFFLINE) to download it"
		if err == nil || err.Error() != want || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v; expected %s", err, want)
		}
	}
	some := func([]string) []string { return []string{"model.safetensors"} }
	_, err := open(h, &log, true).Copy(t.Context(), "hub:acme/encoder", some)
	lacks(err, "model.safetensors")
	_, err = open(h, &log, true).Stat("hub:acme/encoder/model.safetensors")
	lacks(err, "model.safetensors")
	_, err = open(h, &log, true).Open("hub:acme/encoder/README.md")
	lacks(err, "README.md")
	if _, err := open(h, &log, true).Copy(t.Context(), "hub:acme/encoder", nil); err == nil {
		t.Error("half of the repository counts as the whole")
	}
	for _, name := range []string{"hub:acme/encoder/config.json", "hub:acme/encoder/vocab.txt"} {
		if _, err := open(h, &log, true).Copy(t.Context(), name, nil); err != nil {
			t.Error(err)
		}
	}
	// A link to what is no longer there, as of a cache that another program filled.
	snapshot := filepath.Join(os.Getenv("HF_HUB_CACHE"), "models--acme--encoder", "snapshots", h.Repo("acme/encoder").Commit())
	if err := errors.Join(os.RemoveAll(os.Getenv("GORBIT_CACHE")), os.Symlink("../../blobs/none", filepath.Join(snapshot, "model.safetensors"))); err != nil {
		t.Fatal(err)
	}
	_, err = open(h, &log, true).Copy(t.Context(), "hub:acme/encoder", some)
	lacks(err, "model.safetensors")
}

// TestListingNotKept downloads where the folder for lists of files cannot be written, and says so.
func TestListingNotKept(t *testing.T) {
	h := start(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GORBIT_CACHE", file)
	var log bytes.Buffer
	if _, err := open(h, &log, false).Copy(t.Context(), "hub:acme/encoder/config.json", nil); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "the list of the repository's files is not kept") {
		t.Errorf("the log has %s", log.String())
	}
}

// TestCopy downloads what a model is read from, in the layout of huggingface_hub, once, and finds it
// without the hub.
func TestCopy(t *testing.T) {
	h := start(t)
	var log bytes.Buffer
	local, err := open(h, &log, false).Copy(t.Context(), "hub:acme/encoder", nil)
	if err != nil {
		t.Fatal(err)
	}
	commit := h.Repo("acme/encoder").Commit()
	cache := os.Getenv("HF_HUB_CACHE")
	if want := filepath.Join(cache, "models--acme--encoder", "snapshots", commit); local != want {
		t.Errorf("%s; expected %s", local, want)
	}
	if ref, err := os.ReadFile(filepath.Join(cache, "models--acme--encoder", "refs", "main")); err != nil || string(ref) != commit {
		t.Errorf("refs/main is %q, %v; expected %s", ref, err, commit)
	}
	if to, err := os.Readlink(filepath.Join(local, "onnx", "config.json")); err != nil || to != "../../../blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b" {
		t.Errorf("the link of {}: %q, %v; expected the name of Git's blob", to, err)
	}
	sent := len(h.Sent())
	if sent != 4 || len(blobs(t, "models--acme--encoder")) != 4 {
		t.Errorf("%d files sent, blobs %v; expected config.json, vocab.txt, model.safetensors and onnx/config.json", sent, blobs(t, "models--acme--encoder"))
	}
	if content, err := os.ReadFile(filepath.Join(local, "model.safetensors")); err != nil || !bytes.Equal(content, weights) {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	for _, offline := range []bool{false, true} {
		requests := len(h.Requests())
		again, err := open(h, &log, offline).Copy(t.Context(), "hub:acme/encoder", nil)
		if err != nil || again != local || len(h.Sent()) != sent || offline && len(h.Requests()) != requests {
			t.Errorf("offline %v: %s, %v; %d files sent, %d requests", offline, again, err, len(h.Sent()), len(h.Requests())-requests)
		}
	}
	if leaked := h.Leaked(); leaked != nil {
		t.Errorf("the token went to the storage: %v", leaked)
	}

	// A commit, a file, a prefix, a folder.
	before := commit
	h.Put("acme/encoder", map[string][]byte{"config.json": []byte(`{}`)})
	for name, want := range map[string]string{
		"hub:acme/encoder@" + before + "/config.json": `{"model_type": "bert"}`, "hub:acme/encoder/config.json": "{}", "hub:acme/encoder/onnx/config.json": "{}",
	} {
		file, err := open(h, &log, false).Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(file); err != nil || string(content) != want || file.Name() != name {
			t.Errorf("%s: %s, %v", file.Name(), content, err)
		}
		file.Close()
	}
	if local, err = open(h, &log, false).Copy(t.Context(), "hub:acme/encoder/onnx", nil); err != nil || filepath.Base(local) != "onnx" {
		t.Errorf("%s, %v", local, err)
	}
}

// TestReadFS lists and describes files, as tokenizers and datasets are looked for.
func TestReadFS(t *testing.T) {
	h := start(t)
	h.Put("datasets/acme/texts", map[string][]byte{"data/train.tfrecord": weights, "data/dev.jsonl": []byte("{}\n")})
	f := open(h, io.Discard, false)
	entries, err := f.ReadDir("hub:datasets/acme/texts/data")
	if err != nil || len(entries) != 2 || entries[1].Name() != "train.tfrecord" || entries[1].IsDir() {
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := entries[1].Info(); err != nil || info.Size() != int64(len(weights)) || !info.Mode().IsRegular() {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := f.Stat("hub:datasets/acme/texts"); err != nil || !info.IsDir() {
		t.Errorf("%+v, %v", info, err)
	}
	if len(h.Sent()) != 0 {
		t.Errorf("%v was downloaded to be looked at", h.Sent())
	}
	file, err := f.Open("hub:datasets/acme/texts/data/train.tfrecord")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	remote := file.(vfs.RemoteFile)
	kept, err := remote.Keep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if content, err := io.ReadAll(kept); err != nil || !bytes.Equal(content, weights) {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	if derived, err := remote.Derived(".idx"); err != nil || !strings.HasPrefix(derived, os.Getenv("GORBIT_CACHE")) {
		t.Errorf("%s, %v; expected a path that is not in the cache of other programs", derived, err)
	}
}

// TestTroubles cuts, stalls, redirects and lies.
func TestTroubles(t *testing.T) {
	always := func(trouble hubtest.Trouble) func(*hubtest.Hub) {
		return func(h *hubtest.Hub) { h.Trouble = func(int, string) hubtest.Trouble { return trouble } }
	}
	for _, tt := range []struct {
		name   string
		change func(*hubtest.Hub)
		path   string
		want   string // the error; "" for none
		ranges string // of the content that was asked for
	}{
		{"a cut", nil, "hub:acme/encoder/model.safetensors", "", "all bytes=1000-"},
		{"a stall", nil, "hub:acme/encoder/model.safetensors", "", "all bytes=2000-"},
		{"stalls", always(hubtest.Trouble{Stall: true}), "hub:acme/encoder/model.safetensors", "download hub:acme/encoder/model.safetensors: no byte came or went for 300ms after 0 of 3000 bytes; it was tried 3 times; the same command, given again, goes on where it ended", "all all all"},
		{"cuts without ranges", always(hubtest.Trouble{After: 1000, Cut: true, Whole: true}), "hub:acme/encoder/model.safetensors", "after 1000 of 3000 bytes; it was tried 3 times", "all bytes=1000- bytes=1000- bytes=1000-"},
		{"other bytes", always(hubtest.Trouble{Other: true}), "hub:acme/encoder/model.safetensors", "what the hub sent is not what it said", "all"},
		{"a size", always(hubtest.Trouble{More: 5}), "hub:acme/encoder/model.safetensors", "the hub sends 3000 bytes; expected 3005", "all"},
		{"a smaller size", always(hubtest.Trouble{More: -5}), "hub:acme/encoder/model.safetensors", "the hub sends 3000 bytes; expected 2995", "all"},
		{"a renamed repository", func(h *hubtest.Hub) { h.Renamed = map[string]string{"old/name": "acme/encoder"} }, "hub:old/name/model.safetensors", "", "all"},
		{"no such file", nil, "hub:acme/encoder/modl.safetensors", `file does not exist in the repository; did you mean model.safetensors?`, ""},
		{"no such repository", nil, "hub:acme/encodr", "look for hub:acme/encodr: the hub answers 404 Not Found", ""},
		{"a pickle", nil, "hub:acme/encoder/pytorch_model.bin", "is a program", ""},
		{"a failing hub", func(h *hubtest.Hub) {
			h.Fail = func(n int, _ *http.Request) int {
				if n%3 == 0 {
					return 500
				}
				return 0
			}
		}, "hub:acme/encoder/model.safetensors", "", "all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t)
			switch {
			case tt.change != nil:
				tt.change(h)
			case tt.ranges != "":
				h.Trouble = func(sent int, _ string) hubtest.Trouble {
					if sent > 0 {
						return hubtest.Trouble{}
					}
					if tt.name == "a cut" {
						return hubtest.Trouble{After: 1000, Cut: true}
					}
					return hubtest.Trouble{After: 2000, Stall: true}
				}
			}
			var log bytes.Buffer
			local, err := open(h, &log, false).Copy(t.Context(), tt.path, nil)
			if tt.want == "" {
				if content, readErr := os.ReadFile(local); err != nil || readErr != nil || !bytes.Equal(content, weights) {
					t.Errorf("%v, %v: %d bytes", err, readErr, len(content))
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; expected %q", err, tt.want)
			}
			var ranges []string
			for _, s := range h.Sent() {
				ranges = append(ranges, s.Range)
			}
			if got := strings.Join(ranges, " "); got != tt.ranges {
				t.Errorf("asked for %s; expected %s", got, tt.ranges)
			}
			if h.Leaked() != nil || err != nil && (strings.Contains(err.Error(), hubtest.Token) || strings.Contains(err.Error(), "permission=")) {
				t.Errorf("a secret is told: %v, %v", err, h.Leaked())
			}
		})
	}
}

// TestGoesOn ends a download in the middle, as a kill does, and makes it again.
func TestGoesOn(t *testing.T) {
	for name, whole := range map[string]bool{"in parts": false, "a server without ranges": true} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			h.Trouble = func(sent int, _ string) hubtest.Trouble {
				if sent == 0 {
					time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
					return hubtest.Trouble{After: 1234, Stall: true}
				}
				return hubtest.Trouble{Whole: whole}
			}
			if _, err := open(h, io.Discard, false).Copy(ctx, "hub:acme/encoder/model.safetensors", nil); err == nil || !strings.Contains(err.Error(), "enough") {
				t.Fatalf("%v", err)
			}
			for _, b := range blobs(t, "models--acme--encoder") {
				if !strings.HasSuffix(b, ".incomplete") {
					t.Errorf("%s is there before it is complete", b)
				}
			}
			local, err := open(h, io.Discard, false).Copy(t.Context(), "hub:acme/encoder/model.safetensors", nil)
			content, readErr := os.ReadFile(local)
			if err != nil || readErr != nil || !bytes.Equal(content, weights) || h.Sent()[1].Range != "bytes=1234-" {
				t.Errorf("%v, %v: %d bytes; %v", err, readErr, len(content), h.Sent())
			}
		})
	}
}

// TestTwoAtOnce downloads the same file from two places at once: it is sent once.
func TestTwoAtOnce(t *testing.T) {
	h := start(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if _, err := open(h, io.Discard, false).Copy(context.Background(), "hub:acme/encoder/model.safetensors", nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(h.Sent()) != 1 {
		t.Errorf("%v; expected one", h.Sent())
	}
}

// TestDamagedCache changes a byte of the cache.
func TestDamagedCache(t *testing.T) {
	h := start(t)
	const path = "hub:acme/encoder/model.safetensors"
	local, err := open(h, io.Discard, false).Copy(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(local, bytes.Replace(weights, []byte("5"), []byte("6"), 1), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := open(h, io.Discard, true).Copy(t.Context(), path, nil); !errors.Is(err, fault.Damaged) {
		t.Errorf("offline: %v; expected damage", err)
	}
	var log bytes.Buffer
	if _, err := open(h, &log, false).Copy(t.Context(), path, nil); err != nil || !strings.Contains(log.String(), "is damaged and is downloaded again") {
		t.Errorf("%v; %s", err, &log)
	}
	if content, err := os.ReadFile(local); err != nil || !bytes.Equal(content, weights) {
		t.Errorf("%d bytes, %v", len(content), err)
	}
}

func TestRefused(t *testing.T) {
	h := start(t)
	h.Put("acme/old", map[string][]byte{"config.json": []byte("{}"), "pytorch_model.bin": weights})
	h.Put("acme/evil", map[string][]byte{"../../x": []byte("{}")})
	for path, want := range map[string]string{
		"hub:acme": "is not the path of a hub", "hub://acme/encoder": "is not the path of a hub", "hub:acme/encoder/../x": "is not the path of a hub",
		"hub:datasets/acme": `the repository is "datasets/acme"`, "hub:acme/en--coder": `the repository is "acme/en--coder"`, "hub:acme/encoder@a..b": `the revision is "a..b"`,
		"hub:acme/old": "has its weights as pickles alone, such as pytorch_model.bin", "hub:acme/evil": "is not a name that a file of this machine can have",
	} {
		if _, err := open(h, io.Discard, false).Copy(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %q", path, err, want)
		}
	}
	_, err := open(h, io.Discard, true).Copy(t.Context(), "hub:acme/encoder", nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "leave out --offline") {
		t.Errorf("offline: %v", err)
	}
	if _, err := open(h, io.Discard, false).Work(t.Context(), "hub:acme/encoder", nil); !errors.Is(err, fault.Usage) {
		t.Errorf("%v; expected a usage error", err)
	}
	h.Close()
	if _, err := hubfs.New(hubfs.Config{Account: &hubfs.Account{Endpoint: "http://hub.example", Attempts: 1}}).Stat("hub:acme/encoder"); err == nil || !strings.Contains(err.Error(), "expected https://") {
		t.Errorf("%v", err)
	}
}

// TestAnonymous reads without a token.
func TestAnonymous(t *testing.T) {
	h := start(t)
	read := func() error {
		f := hubfs.New(hubfs.Config{Account: &hubfs.Account{Endpoint: h.URL, Log: slog.New(slog.DiscardHandler), Attempts: 1}})
		_, err := f.Copy(t.Context(), "hub:acme/encoder", nil)
		return err
	}
	if err := read(); err == nil || !strings.Contains(err.Error(), "export HF_TOKEN=") {
		t.Errorf("%v", err)
	}
	h.Public = true
	if err := read(); err != nil {
		t.Error(err)
	}
}
