package gcs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

var quiet = slog.New(slog.DiscardHandler)

func work(t *testing.T, s *Store, name string) *working {
	t.Helper()
	w, err := s.Work(t.Context(), name, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return w.(*working)
}

// has compares the objects of a bucket but leases with name=content pairs.
func has(t *testing.T, server *gcstest.Server, want ...string) {
	t.Helper()
	var got []string
	for name, o := range server.State() {
		if !strings.HasSuffix(name, leaseName) {
			got = append(got, name+"="+string(o.Data))
		}
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("the bucket has %q, expected %q", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWorkUploadsWhatIsSynced follows one folder from its opening to its second opening.
//
// Long: one sequence of operations on one folder.
func TestWorkUploadsWhatIsSynced(t *testing.T) {
	server, s := serve(t, fast(t))
	server.Put("run/old", []byte("old"))
	server.Put("run/sub/deep", []byte("deep"))
	server.Put("other", []byte("other"))
	w := work(t, s, "gs://b/run/")
	dir := w.Dir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if data, err := vfs.ReadFile(path("sub/deep")); err != nil || string(data) != "deep" {
		t.Errorf("the local folder has %q, %v", data, err)
	}
	rest := []string{"run/old=old", "run/sub/deep=deep", "other=other"}
	with := func(one string) []string { return append(slices.Clone(rest), one) }

	f, err := vfs.Create(path("log"))
	must(t, err)
	_, err = f.Write([]byte("one"))
	must(t, err)
	must(t, f.Sync())
	has(t, server, rest...) // the name is not durable yet
	must(t, vfs.SyncDir(dir))
	has(t, server, with("run/log=one")...)
	_, err = f.Write([]byte("two"))
	must(t, err)
	must(t, vfs.SyncDir(dir))
	has(t, server, with("run/log=one")...)
	must(t, f.Sync())
	rest = append(rest, "run/log=onetwo")
	has(t, server, rest...)
	must(t, f.Close())

	// A file that others wrote, and that is renamed twice.
	must(t, os.WriteFile(path(".temp"), []byte("tensors"), 0o666))
	must(t, vfs.SyncDir(dir))
	has(t, server, with("run/.temp=tensors")...)
	must(t, vfs.Rename(path(".temp"), path("data")))
	has(t, server, with("run/.temp=tensors")...)
	must(t, vfs.SyncDir(dir))
	rest = append(rest, "run/data=tensors")
	has(t, server, rest...)
	if h := server.History(); h[len(h)-2].What != "copy run/data" || h[len(h)-1].What != "delete run/.temp" {
		t.Errorf("a renamed file ended with %q and %q", h[len(h)-2].What, h[len(h)-1].What)
	}
	// A link to a file that is in the bucket.
	must(t, vfs.Link(path("data"), path("again")))
	must(t, vfs.SyncDir(dir))
	rest = append(rest, "run/again=tensors")
	has(t, server, rest...)
	if h := server.History(); h[len(h)-1].What != "copy run/again" {
		t.Errorf("a link was made by %q", h[len(h)-1].What)
	}
	must(t, vfs.Remove(path("again")))
	must(t, vfs.SyncDir(dir))
	has(t, server, rest[:len(rest)-1]...)
	// A name that is replaced is old or new in every state.
	must(t, vfs.ReplaceFile(path("old"), []byte("new")))
	for _, h := range server.History() {
		if got := string(h.State["run/old"].Data); got != "old" && got != "new" {
			t.Errorf("after %s the file has %q", h.What, got)
		}
		if _, ok := h.State["run/old.part"]; ok {
			t.Errorf("a temporary file was uploaded")
		}
	}
	must(t, vfs.Remove(path("sub/deep")))
	must(t, vfs.SyncDir(path("sub")))
	has(t, server, "run/old=new", "other=other", "run/log=onetwo", "run/data=tensors")
	if err := vfs.Exchange(path("old"), path("log")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("exchange: %v", err)
	}
	if err := vfs.Rename(path("sub"), path("sub2")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("rename of a folder: %v", err)
	}
	must(t, os.WriteFile(path("late"), []byte("late"), 0o666))
	must(t, w.Close())
	has(t, server, "run/old=new", "other=other", "run/log=onetwo", "run/data=tensors", "run/late=late")
	if _, ok := server.State()["run/"+leaseName]; ok {
		t.Error("the lease was not released")
	}
	must(t, vfs.WriteFile(path("behind"), nil))
	if _, ok := server.State()["run/behind"]; ok {
		t.Error("the local folder is still mounted")
	}

	// What a killed process left here is not in the bucket, so it is gone.
	must(t, os.WriteFile(path("unsynced"), nil, 0o666))
	must(t, os.WriteFile(path("data"), []byte("damage!"), 0o666))
	w = work(t, s, "gs://b/run")
	if _, err := os.Stat(path("unsynced")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unsynced: %v", err)
	}
	if data, err := os.ReadFile(path("data")); err != nil || string(data) != "tensors" {
		t.Errorf("data is %q, %v", data, err)
	}
	must(t, w.Close())
	if _, err := s.Work(t.Context(), "gs://b", quiet); err == nil || !strings.Contains(err.Error(), "gs://BUCKET/FOLDER") {
		t.Errorf("a whole bucket: error is %v", err)
	}
}

// TestWriteThroughFailures uploads small and large files while requests fail, stall and are cut.
func TestWriteThroughFailures(t *testing.T) {
	large := noise(3*chunkUnit + 17)
	for name, fault := range map[string]gcstest.Fault{
		"429": {Status: 429}, "500": {Status: 500}, "503": {Status: 503}, "no answer": {Stream: true, Bytes: -1},
		"answer cut at 0": {Stream: true, Bytes: 0}, "answer cut at 100": {Stream: true, Bytes: 100}, "stall": {Stall: true},
		"answer stalls": {Stall: true, Stream: true, Bytes: 10},
	} {
		for _, method := range []string{"POST", "DELETE"} {
			t.Run(name+" "+method, func(t *testing.T) {
				c := fast(t)
				if fault.Stall {
					c.Stall = 100 * time.Millisecond
				}
				server, s := serve(t, c)
				w := work(t, s, "gs://b/run")
				server.Fail(every(method, fault))
				dir := w.Dir()
				for i, data := range []string{"small", string(large)} {
					name := filepath.Join(dir, fmt.Sprint("x", i))
					must(t, vfs.WriteFile(name, []byte(data)))
					must(t, vfs.SyncDir(dir))
					must(t, vfs.ReplaceFile(name, []byte(data+"2")))
					must(t, vfs.Rename(name, name+".moved"))
					must(t, vfs.SyncDir(dir))
				}
				must(t, w.Close())
				has(t, server, "run/x0.moved=small2", "run/x1.moved="+string(large)+"2")
			})
		}
	}
}

// every returns a fault for every other request with a method.
func every(method string, f gcstest.Fault) func(*http.Request) *gcstest.Fault {
	odd := false
	return func(r *http.Request) *gcstest.Fault {
		if r.Method != method {
			return nil
		}
		odd = !odd
		if odd {
			return &f
		}
		return nil
	}
}

func TestWriteFails(t *testing.T) {
	for name, tt := range map[string]struct {
		fault gcstest.Fault
		want  string
	}{
		"unavailable": {gcstest.Fault{Status: 503}, "no answer within"},
		"stalls":      {gcstest.Fault{Stall: true}, "no answer within"},
		"denied":      {gcstest.Fault{Status: 403}, "access denied (403 injected)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fast(t)
			c.Deadline, c.Stall = time.Second, 250*time.Millisecond // also of the write that succeeds
			server, s := serve(t, c)
			w := work(t, s, "gs://b/run")
			for what, data := range map[string][]byte{"small": noise(10), "large": noise(3 * chunkUnit)} {
				fault := tt.fault
				server.Fail(func(r *http.Request) *gcstest.Fault {
					// A large file has a session before its parts fail.
					if q := r.URL.Query(); q.Has("upload_id") || q.Get("uploadType") == "multipart" {
						return &fault
					}
					return nil
				})
				must(t, vfs.WriteFile(filepath.Join(w.Dir(), what), data))
				err := vfs.SyncDir(w.Dir())
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "gs://b/run/") ||
					strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: error is %v, expected one line with %q, the path, and no address of an upload", what, err, tt.want)
				}
				server.Fail(nil)
				must(t, vfs.SyncDir(w.Dir())) // it is not forgotten
				if o := server.State()["run/"+what]; string(o.Data) != string(data) {
					t.Errorf("%s has %d bytes in the end", what, len(o.Data))
				}
			}
			must(t, w.Close())
		})
	}
}

func TestTwoWriters(t *testing.T) {
	c := fast(t)
	c.Lease = 600 * time.Millisecond
	_, s := serve(t, c)
	w := work(t, s, "gs://b/run")
	elsewhere := c
	elsewhere.Cache = t.TempDir()
	for name, other := range map[string]*Store{"on this machine": New(c), "on another machine": New(elsewhere)} {
		_, err := other.Work(t.Context(), "gs://b/run", quiet)
		var leased *LeasedError
		if !errors.As(err, &leased) || leased.PID != os.Getpid() || leased.Folder != "gs://b/run" {
			t.Errorf("%s: error is %v, expected a LeasedError", name, err)
		}
	}
	// Other folders are free.
	must(t, work(t, New(elsewhere), "gs://b/run2").Close())
	must(t, w.Close())
	must(t, work(t, New(elsewhere), "gs://b/run").Close())
}

// TestLeaseOfKilledProcess takes the lease of a process that ended without releasing it: at once
// on its machine, and after the lease's time on another.
func TestLeaseOfKilledProcess(t *testing.T) {
	c := fast(t)
	c.Lease = 400 * time.Millisecond
	server, s := serve(t, c)
	elsewhere := c
	elsewhere.Cache = t.TempDir()
	die := func(w *working) {
		server.Fail(func(*http.Request) *gcstest.Fault { return &gcstest.Fault{Status: 400} })
		w.lease.lose(errors.New("killed"))
		w.lease.done.Wait()
		if err := w.Close(); err == nil {
			t.Error("a killed process released the folder")
		}
		server.Fail(nil)
	}
	die(work(t, s, "gs://b/run"))
	polls := func() int { return len(server.Requests()) }
	before := polls()
	w := work(t, New(c), "gs://b/run")
	if n := polls() - before; n > 5 {
		t.Errorf("the same machine made %d requests, expected not to wait", n)
	}
	die(w)
	w = work(t, New(elsewhere), "gs://b/run")
	must(t, w.Close())
}

// TestLostLease takes a folder away from a process that is alive, as if it had been paused.
func TestLostLease(t *testing.T) {
	c := fast(t)
	c.Lease = 300 * time.Millisecond
	server, s := serve(t, c)
	w := work(t, s, "gs://b/run")
	must(t, vfs.WriteFile(filepath.Join(w.Dir(), "x"), []byte("mine")))
	server.Put("run/"+leaseName, []byte(`{"pid": 1, "host": "other"}`))
	<-w.Context().Done()
	if err := vfs.SyncDir(w.Dir()); err == nil || !strings.Contains(err.Error(), "the lease on gs://b/run is lost") {
		t.Errorf("error is %v, expected that the lease is lost", err)
	}
	if err := w.Close(); err == nil {
		t.Error("closed without an error")
	}
	has(t, server)
	if got := string(server.State()["run/"+leaseName].Data); !strings.Contains(got, "other") {
		t.Errorf("the other's lease was removed; there is %q", got)
	}

	// One that cannot renew its lease stops in time.
	w = work(t, New(c), "gs://b/run2")
	server.Fail(func(*http.Request) *gcstest.Fault { return &gcstest.Fault{Status: 400} })
	<-w.Context().Done()
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "could not be renewed in time") {
		t.Errorf("error is %v", err)
	}
}

// TestForeignChange refuses to replace or remove what another program wrote.
func TestForeignChange(t *testing.T) {
	server, s := serve(t, fast(t))
	server.Put("run/x", []byte("x"))
	server.Put("run/y", []byte("y"))
	w := work(t, s, "gs://b/run")
	for _, name := range []string{"x", "y", "new"} {
		server.Put("run/"+name, []byte("foreign"))
	}
	path := func(name string) string { return filepath.Join(w.Dir(), name) }
	for name, do := range map[string]func() error{
		"replace": func() error { return vfs.WriteFile(path("x"), []byte("mine")) },
		"remove":  func() error { return errors.Join(vfs.Remove(path("y")), vfs.SyncDir(w.Dir())) },
		"make": func() error {
			w.touched = nil
			return errors.Join(vfs.WriteFile(path("new"), []byte("mine")), vfs.SyncDir(w.Dir()))
		},
	} {
		if err := do(); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "gs://b/run/") {
			t.Errorf("%s: error is %v, expected ErrChanged", name, err)
		}
	}
	has(t, server, "run/x=foreign", "run/y=foreign", "run/new=foreign")
	_ = w.Close()
}

func TestPublish(t *testing.T) {
	server, s := serve(t, fast(t))
	local := t.TempDir()
	must(t, os.WriteFile(filepath.Join(local, "last"), []byte("1"), 0o666))
	must(t, os.MkdirAll(filepath.Join(local, "sub"), 0o777))
	must(t, os.WriteFile(filepath.Join(local, "sub", "a"), []byte("a"), 0o666))
	must(t, os.WriteFile(filepath.Join(local, "zz"), []byte("z"), 0o666))
	publish := func(overwrite bool) error {
		return s.Publish(t.Context(), local, "gs://b/out", "last", overwrite, quiet)
	}
	complete := func(state gcstest.State) bool {
		_, last := state["out/last"]
		_, a := state["out/sub/a"]
		_, z := state["out/zz"]
		return !last || a && z
	}
	must(t, publish(false))
	has(t, server, "out/last=1", "out/sub/a=a", "out/zz=z")
	if err := publish(false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error is %v, expected fs.ErrExist", err)
	}
	must(t, os.WriteFile(filepath.Join(local, "last"), []byte("2"), 0o666))
	must(t, os.WriteFile(filepath.Join(local, "zz"), []byte("z2"), 0o666))
	must(t, publish(true))
	has(t, server, "out/last=2", "out/sub/a=a", "out/zz=z2")
	for _, h := range server.History() {
		if last, ok := h.State["out/last"]; !complete(h.State) || ok && (string(last.Data) == "1") != (string(h.State["out/zz"].Data) == "z") {
			t.Errorf("after %s readers see a mixture", h.What)
		}
	}
	// Another attempt completes what a killed one left.
	server.Load(server.History()[3].State)
	delete(server.State(), "out/"+leaseName)
	must(t, publish(true))
	has(t, server, "out/last=2", "out/sub/a=a", "out/zz=z2")
	server.Put("out/foreign", nil)
	if err := publish(true); err == nil || !strings.Contains(err.Error(), "foreign") || !strings.Contains(err.Error(), "gcloud storage rm -r gs://b/out") {
		t.Errorf("error is %v", err)
	}
}

// TestPublisherKilledAtItsEnd leaves what it has published, with its lease, which the next command
// removes: at once on that machine, and after the lease's time on another. A living process keeps its own.
func TestPublisherKilledAtItsEnd(t *testing.T) {
	c := fast(t)
	c.Lease = 400 * time.Millisecond
	server, s := serve(t, c)
	local := t.TempDir()
	must(t, os.WriteFile(filepath.Join(local, "last"), []byte("1"), 0o666))
	must(t, s.Publish(t.Context(), local, "gs://b/out", "last", false, quiet))
	history := server.History()
	elsewhere := c
	elsewhere.Cache = t.TempDir()
	for _, machine := range []Config{c, elsewhere} {
		server.Load(history[len(history)-2].State)
		if _, leased := server.State()["out/"+leaseName]; !leased {
			t.Fatal("the lease is not what a publisher removes last")
		}
		must(t, New(machine).Release(t.Context(), "gs://b/out", quiet))
		if _, leased := server.State()["out/"+leaseName]; leased {
			t.Error("the lease is still there")
		}
		has(t, server, "out/last=1")
	}
	must(t, s.Release(t.Context(), "gs://b/none", quiet))
	w := work(t, s, "gs://b/out")
	if err := New(elsewhere).Release(t.Context(), "gs://b/out", quiet); !errors.As(err, new(*LeasedError)) {
		t.Errorf("error is %v, expected a *LeasedError", err)
	}
	must(t, w.Close())
}

func TestCopy(t *testing.T) {
	c := fast(t)
	server, s := serve(t, c)
	for _, name := range []string{"g/a", "g/v/b", "g/v/c", "other", "prefix.index", "prefix.data"} {
		server.Put(name, []byte(name))
	}
	local, err := s.Copy(t.Context(), "gs://b/g/", nil)
	must(t, err)
	for _, name := range []string{"a", "v/b", "v/c"} {
		if data, err := os.ReadFile(filepath.Join(local, name)); err != nil || string(data) != "g/"+name {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if filepath.Base(local) != "g" {
		t.Errorf("the copy is %s, expected a folder of the same name", local)
	}
	must(t, os.WriteFile(filepath.Join(local, "a"), []byte("???"), 0o666))
	again, err := New(c).Copy(t.Context(), "gs://b/g", nil)
	must(t, err)
	if data, err := os.ReadFile(filepath.Join(again, "a")); again != local || err != nil || string(data) != "g/a" {
		t.Errorf("a damaged copy was used: %s has %q, %v", again, data, err)
	}
	server.Put("g/a", []byte("new"))
	newer, err := s.Copy(t.Context(), "gs://b/g", func(paths []string) []string { return paths[:1] })
	must(t, err)
	if data, err := os.ReadFile(filepath.Join(newer, "a")); newer == local || err != nil || string(data) != "new" {
		t.Errorf("%s has %q, %v", newer, data, err)
	}
	if data, err := os.ReadFile(filepath.Join(local, "a")); err != nil || string(data) != "g/a" {
		t.Errorf("the older copy changed: %q, %v", data, err)
	}
	prefix, err := s.Copy(t.Context(), "gs://b/prefix", nil)
	must(t, err)
	for _, ending := range []string{".index", ".data"} {
		if _, err := os.Stat(prefix + ending); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Copy(t.Context(), "gs://b/none", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v, expected fs.ErrNotExist", err)
	}
	server.Put("bad/../../etc", nil)
	if _, err := s.Copy(t.Context(), "gs://b/bad", nil); err == nil {
		t.Error("a name that leaves the folder was copied")
	}
}
