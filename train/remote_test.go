package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/internal/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/vfs/gcs/gcstest"
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
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs = 6, 0
	first := filepath.Join(t.TempDir(), "first")
	if _, err := Train(t.Context(), p, first, quiet()); err != nil {
		t.Fatal(err)
	}
	p.Init = first
	local := filepath.Join(t.TempDir(), "local")
	if _, err := Train(t.Context(), p, local, quiet()); err != nil {
		t.Fatal(err)
	}

	server := bucket(t)
	p.Graph, p.Data.Dir, p.Init = upload(t, server, p.Graph, "graph"), upload(t, server, p.Data.Dir, "data"), upload(t, server, first, "first")
	remote := filepath.Join(t.TempDir(), "remote")
	if _, err := Train(t.Context(), p, remote, quiet()); err != nil {
		t.Fatal(err)
	}
	sameRuns(t, remote, local)
	kept, err := ReadParams(filepath.Join(remote, paramsFile))
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
	if _, err := Train(t.Context(), p, again, quiet()); err != nil {
		t.Fatal(err)
	}
	for _, r := range server.Requests()[before:] {
		if strings.HasPrefix(r, "GET /b/") && !strings.Contains(r, "manifest.json") {
			t.Errorf("read again: %s", r)
		}
	}
}

func TestNewestOnly(t *testing.T) {
	got := newestOnly([]string{"checkpoints/checkpoint", "checkpoints/ckpt-5.data-00000-of-00001", "checkpoints/ckpt-5.index",
		"checkpoints/ckpt-10.data-00000-of-00001", "checkpoints/ckpt-10.index", "checkpoints/ckpt-15.data-00000-of-00001",
		"params.yaml", "train/events.out.tfevents.1.host.1.0.v2", "variables/variables.index", "model-00001-of-00002.safetensors"})
	want := []string{"checkpoints/checkpoint", "checkpoints/ckpt-10.data-00000-of-00001", "checkpoints/ckpt-10.index", "params.yaml",
		"variables/variables.index", "model-00001-of-00002.safetensors"}
	if !slices.Equal(got, want) {
		t.Errorf("chosen are %q, expected %q", got, want)
	}
}

func TestPathsOfNoBucket(t *testing.T) {
	for path, want := range map[string]string{
		"gs:/b/data":  "expected gs://b/data",
		"s3://b/data": "s3:// is not supported; expected a local path, or gs://BUCKET/PATH",
	} {
		for _, set := range []func(*Params){
			func(p *Params) { p.Data.Dir = path },
			func(p *Params) { p.Graph = path },
			func(p *Params) { p.Init = path },
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
