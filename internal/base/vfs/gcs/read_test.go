package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

// fast makes failures short. Stalls are still longer than a pause of the test's machine.
func fast(t *testing.T) Config {
	return Config{Cache: t.TempDir(), CacheBytes: 1 << 30, Deadline: time.Minute, Stall: 2 * time.Second, Backoff: time.Millisecond, ChunkBytes: chunkUnit}
}

// serve starts a server and returns it with a file system that uses it.
func serve(t *testing.T, c Config) (*gcstest.Server, *Store) {
	t.Helper()
	server := gcstest.NewServer("b")
	t.Cleanup(server.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	return server, New(c)
}

// noise returns n bytes that are the same in every test.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

func TestListAndStat(t *testing.T) {
	server, s := serve(t, fast(t))
	server.PageSize = 2
	for _, name := range []string{"data/a", "data/b", "data/c/d", "data/c/e", "data/f", "data/", "other", "data2/x"} {
		server.Put(name, []byte(name))
	}
	entries, err := s.ReadDir("gs://b/data/")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.Name(), e.IsDir()))
	}
	if want := "[afalse bfalse ctrue ffalse]"; fmt.Sprint(got) != want {
		t.Errorf("the folder has %v, expected %s", got, want)
	}
	for name, dir := range map[string]bool{"gs://b/data": true, "gs://b/data/c/": true, "gs://b/data/a": false, "gs://b/other": false} {
		if st, err := s.Stat(name); err != nil || st.IsDir() != dir {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	for _, name := range []string{"gs://b/dat", "gs://b/data/c/d/x", "gs://b/x"} {
		if _, err := s.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: error is %v, expected fs.ErrNotExist", name, err)
		}
		if _, err := s.ReadDir(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("list %s: error is %v, expected fs.ErrNotExist", name, err)
		}
	}
	if _, err := s.Stat("gs://nobucket/x"); err == nil || !strings.Contains(err.Error(), "gs://nobucket/x") {
		t.Errorf("error of a missing bucket is %v", err)
	}
	for _, name := range []string{"gs://", "gs:///x"} {
		if _, err := s.Stat(name); err == nil || !strings.Contains(err.Error(), "expected gs://BUCKET/PATH") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestRead(t *testing.T) {
	server, s := serve(t, fast(t))
	data := noise(100_000)
	server.Put("x", data)
	f, err := s.Open("gs://b/x")
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range [][2]int{{0, 10}, {99_990, 10}, {50_000, 1}, {0, 100_000}, {12_345, 6_789}} {
		buf := make([]byte, span[1])
		if n, err := f.ReadAt(buf, int64(span[0])); err != nil || !bytes.Equal(buf, data[span[0]:span[0]+n]) {
			t.Errorf("%v: %d bytes, %v", span, n, err)
		}
	}
	buf := make([]byte, 20)
	if n, err := f.ReadAt(buf, 99_990); n != 10 || err != io.EOF || !bytes.Equal(buf[:n], data[99_990:]) {
		t.Errorf("across the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(buf, 100_000); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data) {
		t.Errorf("whole: %d bytes, %v", len(got), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	defer vfs.Mount("gs://", s)()
	if _, err := vfs.Create("gs://b/x"); err == nil || !strings.Contains(err.Error(), "in place") {
		t.Errorf("create: error is %v", err)
	}
}

// once returns a Fault for the first n requests whose URL contains a text.
func once(part string, n int64, f gcstest.Fault) func(*http.Request) *gcstest.Fault {
	var count atomic.Int64
	return func(r *http.Request) *gcstest.Fault {
		if strings.Contains(r.URL.String(), part) && count.Add(1) <= n {
			return &f
		}
		return nil
	}
}

func TestReadThroughFailures(t *testing.T) {
	data := noise(64)
	faults := map[string]gcstest.Fault{"429": {Status: 429}, "500": {Status: 500}, "503": {Status: 503}, "408": {Status: 408},
		"no header": {Stream: true, Bytes: -1}, "stall": {Stall: true}, "stall in the middle": {Stall: true, Stream: true, Bytes: 30}}
	for n := range data {
		faults[fmt.Sprintf("cut at %d", n)] = gcstest.Fault{Stream: true, Bytes: n}
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			c := fast(t)
			if fault.Stall {
				c.Stall = 100 * time.Millisecond
			}
			for _, part := range []string{"/b/dir/x?", "/o/dir%2Fx?", "prefix="} {
				server, s := serve(t, c)
				server.Put("dir/x", data)
				server.Fail(once(part, 2, fault))
				if entries, err := s.ReadDir("gs://b/dir"); err != nil || len(entries) != 1 {
					t.Fatalf("%s: %v, %v", part, entries, err)
				}
				f, err := s.Open("gs://b/dir/x")
				if err != nil {
					t.Fatalf("%s: %v", part, err)
				}
				if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: read %d bytes, %v", part, len(got), err)
				}
				buf := make([]byte, 40)
				server.Fail(once(part, 2, fault))
				if _, err := f.ReadAt(buf, 10); err != nil || !bytes.Equal(buf, data[10:50]) {
					t.Errorf("%s: range: %v", part, err)
				}
				server.Fail(once(part, 2, fault))
				if kept, err := f.(*file).Keep(t.Context()); err != nil || kept == nil {
					t.Errorf("%s: keep: %v, %v", part, kept, err)
				}
				f.Close()
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	for name, tt := range map[string]struct {
		fault gcstest.Fault
		want  string
		is    error
	}{
		"unavailable": {gcstest.Fault{Status: 503}, "no answer within 300ms", nil},
		"stalls":      {gcstest.Fault{Stall: true}, "no answer within 300ms", nil},
		"cut":         {gcstest.Fault{Stream: true, Bytes: 0}, "no answer within 300ms", nil},
		"denied":      {gcstest.Fault{Status: 403}, "Storage Object User", fs.ErrPermission},
		"unknown":     {gcstest.Fault{Status: 401}, "access denied (401 ", fs.ErrPermission},
		"bad":         {gcstest.Fault{Status: 400}, "400 ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := fast(t)
			c.Deadline, c.Stall = 300*time.Millisecond, 50*time.Millisecond
			server, s := serve(t, c)
			server.Put("x", noise(1000))
			f, err := s.Open("gs://b/x")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			server.Fail(func(*http.Request) *gcstest.Fault { return &tt.fault })
			check := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "gs://b") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: error is %v, expected one line with %q and the path", what, err, tt.want)
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("%s: error is %v, expected %v", what, err, tt.is)
				}
			}
			_, err = f.ReadAt(make([]byte, 10), 0)
			check("range", err)
			_, err = f.Read(make([]byte, 10))
			check("read", err)
			_, err = f.(*file).Keep(t.Context())
			check("keep", err)
			_, err = s.Stat("gs://b/x")
			check("stat", err)
			_, err = s.ReadDir("gs://b")
			check("list", err)
		})
	}
}

func TestReadEndsWithContext(t *testing.T) {
	server, s := serve(t, fast(t))
	server.Put("x", noise(1000))
	f, err := s.Open("gs://b/x")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{}, 10)
	server.Fail(func(*http.Request) *gcstest.Fault { begun <- struct{}{}; return &gcstest.Fault{Status: 503} })
	gone := errors.New("told to stop")
	for what, read := range map[string]func() error{
		"range": func() error { _, err := f.ReadAt(make([]byte, 10), 0); return err },
		"read":  func() error { _, err := f.Read(make([]byte, 10)); return err },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f.(*file).Bind(ctx)
		go func() { <-begun; cancel(gone) }()
		if err := read(); !errors.Is(err, gone) {
			t.Errorf("%s: error is %v, expected %v", what, err, gone)
		}
		f.(*file).ctx, f.(*file).cancel = context.WithCancelCause(context.Background())
	}
	go func() { <-begun; f.Close() }()
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("error is %v, expected fs.ErrClosed", err)
	}
}

func TestReplacedWhileRead(t *testing.T) {
	server, s := serve(t, fast(t))
	server.Put("x", noise(1000))
	f, err := s.Open("gs://b/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	server.Put("x", noise(1000))
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, ErrChanged) {
		t.Errorf("error is %v, expected ErrChanged", err)
	}
	if _, err := f.Read(make([]byte, 10)); !errors.Is(err, ErrChanged) {
		t.Errorf("error is %v, expected ErrChanged", err)
	}
	if _, err := f.(*file).Keep(t.Context()); !errors.Is(err, ErrChanged) {
		t.Errorf("error is %v, expected ErrChanged", err)
	}
}

// keep opens a file and keeps it.
func keep(t *testing.T, s *Store, name string) []byte {
	t.Helper()
	f, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kept, err := f.(vfs.RemoteFile).Keep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if kept == nil {
		return nil
	}
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestKeep(t *testing.T) {
	c := fast(t)
	c.CacheBytes = 2500
	server, s := serve(t, c)
	data := noise(3000)
	for i, name := range []string{"a", "b", "c"} {
		server.Put(name, data[i:i+1000])
	}
	server.Put("large", data)
	if got := keep(t, s, "gs://b/a"); !bytes.Equal(got, data[:1000]) {
		t.Fatalf("%d bytes", len(got))
	}
	content := func() (n int) {
		for _, r := range server.Requests() {
			if strings.HasPrefix(r, "GET /b/") {
				n++
			}
		}
		return n
	}
	before := content()
	if again := New(c); !bytes.Equal(keep(t, again, "gs://b/a"), data[:1000]) || content() != before {
		t.Error("the copy of an earlier process is not used")
	}
	server.Put("a", data[500:1500])
	if got := keep(t, s, "gs://b/a"); !bytes.Equal(got, data[500:1500]) {
		t.Error("an old copy is used for a new generation")
	}
	// Another process, to which no copy is in use, makes room for b and c.
	s = New(c)
	for i, name := range []string{"b", "c"} {
		if got := keep(t, s, "gs://b/"+name); !bytes.Equal(got, data[i+1:i+1001]) {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
	if got := keep(t, s, "gs://b/large"); got != nil {
		t.Error("a file that does not fit is kept")
	}
	if got := keep(t, s, "gs://b/a"); got != nil {
		t.Error("copies that are in use were removed")
	}
	copies, err := filepath.Glob(filepath.Join(c.Cache, "objects", "*"))
	if err != nil || len(copies) != 2 {
		t.Errorf("the folder has %v, expected 2 copies", copies)
	}
	// A copy that something cut is made again.
	for _, path := range copies {
		if err := os.Truncate(path, 10); err != nil {
			t.Fatal(err)
		}
	}
	if got := keep(t, New(c), "gs://b/b"); !bytes.Equal(got, data[1:1001]) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestKeepVerifies(t *testing.T) {
	c := fast(t)
	server, s := serve(t, c)
	server.Put("x", noise(1000))
	server.Fail(once("/b/x?", 1, gcstest.Fault{Damage: true}))
	f, err := s.Open("gs://b/x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.(*file).Keep(t.Context()); err == nil || !strings.Contains(strings.ToLower(err.Error()), "crc") {
		t.Errorf("error is %v, expected one about a checksum", err)
	}
	left, _ := filepath.Glob(filepath.Join(c.Cache, "objects", "*"))
	if len(left) != 0 {
		t.Errorf("a damaged copy is left: %v", left)
	}
	if kept, err := f.(*file).Keep(t.Context()); err != nil || kept == nil {
		t.Errorf("second try: %v", err)
	}
}
