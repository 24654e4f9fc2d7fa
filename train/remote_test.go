package train

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/params"
)

// bucket starts a server of the bucket gs://b and mounts it, with a cache of its own.
func bucket(t *testing.T) *gcstest.Server {
	t.Helper()
	server := gcstest.NewServer("b")
	t.Cleanup(server.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	mountBucket(t)
	return server
}

// mountBucket mounts gs:// with an empty cache, as on another machine, until the test ends or
// unmount is called.
func mountBucket(t *testing.T) (unmount func()) {
	t.Helper()
	unmount = vfs.Mount("gs://", gcs.New(gcs.Config{Cache: t.TempDir(), CacheBytes: 1 << 30, Backoff: time.Millisecond, Lease: 2 * time.Second}))
	t.Cleanup(unmount)
	return unmount
}

// upload puts a local folder into the bucket and returns its path there.
func upload(t *testing.T, server *gcstest.Server, dir, name string) string {
	t.Helper()
	if err := server.PutFolder(dir, name); err != nil {
		t.Fatal(err)
	}
	return "gs://b/" + name
}

func TestTrainReadsFromBucket(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs = 6, 0
	first := filepath.Join(t.TempDir(), "first")
	mustTrain(t, p, first)
	p.Init = first
	local := filepath.Join(t.TempDir(), "local")
	mustTrain(t, p, local)

	server := bucket(t)
	p.Graph, p.Data.Dir, p.Init = upload(t, server, p.Graph, "graph"), upload(t, server, p.Data.Dir, "data"), upload(t, server, first, "first")
	remote := filepath.Join(t.TempDir(), "remote")
	mustTrain(t, p, remote)
	sameRuns(t, remote, local)
	kept, err := params.Read(filepath.Join(remote, runfolder.Params))
	if err != nil || kept.Graph != "gs://b/graph" || kept.Data.Dir != "gs://b/data" || kept.Init != "gs://b/first" {
		t.Errorf("the run recorded %s, %s and %s, %v", kept.Graph, kept.Data.Dir, kept.Init, err)
	}
	for _, r := range server.Requests() {
		if strings.Contains(r, "/b/first/") && strings.Contains(r, "ckpt-3.") {
			t.Errorf("an old checkpoint was copied: %s", r)
		}
	}
	if len(server.History()) > 0 {
		t.Errorf("reading changed the bucket: %v", server.History()[0].What)
	}

	// The second run reads neither records nor the graph again.
	before := len(server.Requests())
	again := filepath.Join(t.TempDir(), "again")
	mustTrain(t, p, again)
	for _, r := range server.Requests()[before:] {
		if strings.HasPrefix(r, "GET /b/") && !strings.Contains(r, "manifest.json") {
			t.Errorf("read again: %s", r)
		}
	}
}

func TestPathsOfNoBucket(t *testing.T) {
	for path, want := range map[string]string{
		"gs:/b/data":  "expected gs://b/data",
		"s3://b/data": "s3:// is not supported; expected a local path, or gs://BUCKET/PATH",
	} {
		for _, set := range []func(*params.Params){
			func(p *params.Params) { p.Data.Dir = path },
			func(p *params.Params) { p.Graph = path },
			func(p *params.Params) { p.Init = path },
		} {
			p := testParams(t)
			set(&p)
			_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: error is %v, expected one with %q", path, err, want)
			}
		}
	}
}

// download writes what a folder of the bucket has to a new local folder.
func download(t *testing.T, state gcstest.State, prefix string) string {
	t.Helper()
	dir := t.TempDir()
	for name, o := range state {
		rel, ok := strings.CutPrefix(name, prefix+"/")
		if !ok || strings.HasPrefix(filepath.Base(name), ".gorbit") {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(rel))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, path, o.Data)
	}
	return dir
}

// TestKilledRunInBucket trains with everything in a bucket in processes that are killed, on one
// machine and then on another, and compares the end with that of a run on a local disk.
//
// Long: one run, from its first process to the reading of its checkpoints.
func TestKilledRunInBucket(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Checkpoint.Best, p.Checkpoint.BestMode = "loss", ""
	local := filepath.Join(t.TempDir(), "local")
	mustTrain(t, p, local)
	server := bucket(t)
	p.Graph, p.Data.Dir = upload(t, server, p.Graph, "graph"), upload(t, server, p.Data.Dir, "data")
	k := killer{params: paramsFile(t, p)}
	cache := t.TempDir()
	t.Setenv(gcs.CacheVariable, cache)
	saved := func() (n int) {
		for _, h := range server.History() {
			if strings.HasPrefix(h.What, "copy run/checkpoints/ckpt-") && strings.HasSuffix(h.What, ".index") {
				n++
			}
		}
		return n
	}
	for kill := 1; kill <= 3; kill++ {
		if kill == 3 { // another machine, told that the first is gone
			t.Setenv(gcs.CacheVariable, t.TempDir())
			state := server.State()
			if _, ok := state["run/.gorbit-lease"]; !ok {
				t.Fatal("a killed process left no lease")
			}
			delete(state, "run/.gorbit-lease")
			server.Load(state)
		}
		before := saved()
		cmd := k.child(t, "gs://b/run")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for waiting := true; waiting; {
			select {
			case err := <-ended:
				t.Fatalf("process %d ended before it was killed: %v, %s", kill, err, cmd.Stderr)
			case <-time.After(time.Millisecond):
				waiting = saved() < before+2
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended
	}
	// The default file system, with the same cache: the lease is taken over at once.
	defer vfs.Mount("gs://", gcs.New(gcs.Config{}))()
	var lines bytes.Buffer
	env := quiet()
	env.Out = &lines
	if _, err := Train(t.Context(), p, "gs://b/run", env); err != nil {
		t.Fatal(err)
	}
	sameRuns(t, download(t, server.State(), "run"), local)
	if strings.Contains(lines.String(), os.Getenv(gcs.CacheVariable)) {
		t.Errorf("lines name the local folder: %s", &lines)
	}
	lines.Reset()
	if _, err := Train(t.Context(), p, "gs://b/run", env); err != nil || !strings.Contains(lines.String(), "gorbit evaluate --run gs://b/run ") {
		t.Errorf("a complete run: %v, %q", err, &lines)
	}
	for name := range server.State() {
		if strings.Contains(name, ".lock") || strings.Contains(name, "saving") || strings.Contains(name, ".gorbit") {
			t.Errorf("%s is left in the bucket", name)
		}
	}

	// Reading the run gives what the local one does, and copies only the checkpoint.
	mountBucket(t)
	for _, which := range []string{"latest", "best", "best-or-latest", "30"} {
		folder, err := runfolder.LocalRun(t.Context(), "gs://b/run", which)
		if err != nil {
			t.Fatal(err)
		}
		var results [2]string
		for i, folder := range []string{folder, local} {
			r, err := OpenRun(t.Context(), folder, nil, quiet())
			if err != nil {
				t.Fatal(err)
			}
			step, err := r.Load(t.Context(), which)
			if err != nil {
				t.Fatal(err)
			}
			out, err := r.Evaluate(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			results[i] = fmt.Sprint(step, out)
			r.Close()
		}
		if results[0] != results[1] {
			t.Errorf("checkpoint %s: %s, expected %s", which, results[0], results[1])
		}
	}
	if _, err := runfolder.LocalRun(t.Context(), "gs://b/run", "7"); err == nil || !strings.Contains(err.Error(), "expected one of ") {
		t.Errorf("a missing checkpoint: %v", err)
	}
	if _, err := OpenRun(t.Context(), "gs://b/none", nil, quiet()); err == nil || !strings.Contains(err.Error(), "gs://b/none is not a run folder") {
		t.Errorf("a missing run: %v", err)
	}
}

// bucketFiles are the files of a bucket as sameRunFile compares them.
func bucketFiles(server *gcstest.Server) map[string]string {
	out, state := map[string]string{}, server.State()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		file, content := sameRunFile(name, state[name].Data)
		out[file] += content
	}
	return out
}

// sameBucket wants the files of a bucket after what ended with an error or nil.
func sameBucket(t *testing.T, how string, server *gcstest.Server, want map[string]string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", how, err)
		return
	}
	got := bucketFiles(server)
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s differs: %.300q, expected %.300q", how, name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is left behind", how, name)
		}
	}
}

// TestCrashInBucketAnywhere ends a run in a bucket before each of its changes to the bucket, and
// starts it again on the same machine and on another. It also makes each change fail once.
//
// Long: the three kinds of crash share the run and the comparison.
func TestCrashInBucketAnywhere(t *testing.T) {
	long(t)
	shared := freeRun(t, crashParams(t))
	server := gcstest.NewServer("b")
	defer server.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	train := func(cache string) error {
		// No lease is renewed during the test, so that the changes are always the same.
		store := gcs.New(gcs.Config{Cache: cache, Backoff: time.Millisecond, Lease: time.Hour})
		work, err := store.Work(t.Context(), "gs://b/run", quiet().Log)
		if err != nil {
			return err
		}
		return errors.Join(trainFree(t.Context(), *shared, work.Dir(), quiet()), work.Close())
	}
	// Each machine has an empty cache, in memory.
	dir := testkit.MemoryDir(t)
	machine := func() string {
		t.Helper()
		cache := filepath.Join(dir, "cache")
		if err := errors.Join(os.RemoveAll(cache), os.Mkdir(cache, 0o777)); err != nil {
			t.Fatal(err)
		}
		return cache
	}
	if err := train(machine()); err != nil {
		t.Fatal(err)
	}
	want, history := bucketFiles(server), server.History()
	const lease = "run/.gorbit-lease"
	for i, h := range history {
		state := maps.Clone(h.State)
		delete(state, lease) // TestLeaseOfKilledProcess waits for it
		server.Load(state)
		sameBucket(t, fmt.Sprintf("killed after change %d, %s; on another machine", i+1, h.What), server, want, train(machine()))
	}
	for _, all := range []bool{true, false} {
		for at := 1; at <= len(history); at++ {
			server.Load(nil)
			changes := 0
			server.Fail(func(r *http.Request) *gcstest.Fault {
				if r.Method == http.MethodGet {
					return nil
				}
				if changes++; changes == at || all && changes > at {
					return &gcstest.Fault{Status: http.StatusBadRequest}
				}
				return nil
			})
			cache := machine()
			how := fmt.Sprintf("change %d fails", at)
			err := train(cache)
			server.Fail(nil)
			// How many changes there are depends on time: an upload may hold what took two in history.
			if all && err == nil && changes >= at {
				t.Errorf("%s and all later ones: the run does not say so", how)
			}
			sameBucket(t, fmt.Sprintf("%s (and all later ones: %v); on the same machine", how, all), server, want, train(cache))
		}
	}
	t.Logf("%d changes: as many crashes and failures survived", len(history))
}

// TestTrainReadsRecordsFromBucket reads every record over the network, because there is no room
// for copies.
func TestTrainReadsRecordsFromBucket(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs, p.Train.EvalInterval = 3, 0, params.NoEval
	local, remote := filepath.Join(t.TempDir(), "local"), filepath.Join(t.TempDir(), "remote")
	mustTrain(t, p, local)
	server := bucket(t)
	cache := t.TempDir()
	defer vfs.Mount("gs://", gcs.New(gcs.Config{Cache: cache, CacheBytes: 1}))()
	p.Data.Dir = upload(t, server, p.Data.Dir, "data")
	mustTrain(t, p, remote)
	sameRuns(t, remote, local)
	if copies, err := filepath.Glob(filepath.Join(cache, "objects", "*.copy")); err != nil || len(copies) > 0 {
		t.Errorf("there are copies: %v", copies)
	}
	if indexes, err := filepath.Glob(filepath.Join(cache, "objects", "*.index")); err != nil || len(indexes) != 2 {
		t.Errorf("there are the indexes %v, expected one for each shard", indexes)
	}
}
