package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
)

// published is the module as it would be fetched: the last commit, under a version of its own.
var published = module.Version{Path: "github.com/gorbit-ml/gorbit", Version: "v0.0.0-checked"}

// stranger is a user who has Go and no checkout.
type stranger struct {
	t   *testing.T
	dir string
	env []string
}

// run runs a program and returns what it printed.
func (s *stranger) run(program string, args ...string) (string, error) {
	s.t.Helper()
	cmd := testkit.Command(s.t, program, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is run of a program that has to end well.
func (s *stranger) must(program string, args ...string) string {
	s.t.Helper()
	out, err := s.run(program, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// publish writes the last commit as a proxy of modules has it.
func publish(t *testing.T, proxy string) {
	t.Helper()
	source := t.TempDir()
	// Git asks for leave to read a checkout of another user.
	if out, err := testkit.Command(t, "bash", "-c", `set -o pipefail; git -C "$1" -c safe.directory='*' archive HEAD | tar -x -C "$2"`,
		"bash", testkit.Root(), source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := filepath.Join(proxy, published.Path, "@v")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := modzip.CreateFromDir(&packed, published, source); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"list":                      []byte(published.Version + "\n"),
		published.Version + ".info": fmt.Appendf(nil, `{"Version":%q}`, published.Version),
		published.Version + ".mod":  mod,
		published.Version + ".zip":  packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the module has %.1f MB", float64(packed.Len())/1e6)
}

// forget removes the published module from the cache of modules, whose folders cannot be written.
func forget(t *testing.T, cache string) {
	t.Helper()
	folder := filepath.Join(cache, published.String())
	if _, err := os.Stat(folder); err == nil {
		if out, err := testkit.Command(t, "chmod", "-R", "u+w", folder).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	files, err := filepath.Glob(filepath.Join(cache, "cache/download", published.Path, "@v", published.Version+".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, folder) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestModule uses gorbit as a module of Go, without a checkout: from an empty module, go get, gorbit-setup
// and go build make a program, examples/finetune, which trains. Gorbit's module is made of the last
// commit. Others are those of the cache of modules, and what a module elsewhere needs beside them is fetched,
// and so is TensorFlow, by gorbit-setup.
func TestModule(t *testing.T) {
	if os.Getenv("GORBIT_CHECK_MODULE") == "" {
		t.Skip("it fetches TensorFlow and compiles all of gorbit in another place; run make check-module")
	}
	cache, builds := goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE")
	proxy, home := t.TempDir(), t.TempDir()
	publish(t, proxy)
	forget(t, cache)
	t.Cleanup(func() { forget(t, cache) })
	s := &stranger{t: t, dir: t.TempDir(), env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GOCACHE=" + builds, "GOMODCACHE=" + cache, "GOTOOLCHAIN=local", "CUDA_VISIBLE_DEVICES=-1",
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache/download") + "," + goEnv(t, "GOPROXY"), "GOSUMDB=off", "GOFLAGS=-tags=disable_grpc_modules",
	}}
	// Where pip's index is, and the way to it and to modules.
	way := regexp.MustCompile(`^(?i:PIP_\w+|HTTPS?_PROXY|NO_PROXY|SSL_CERT_\w+)=`)
	s.env = append(s.env, slices.DeleteFunc(os.Environ(), func(v string) bool { return !way.MatchString(v) })...)
	s.must("go", "mod", "init", "example.com/trainer")
	s.must("go", "get", published.Path+"@"+published.Version)
	example, err := os.ReadFile(filepath.Join(cache, published.String(), "examples/finetune/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "main.go"), example, 0o666); err != nil {
		t.Fatal(err)
	}
	s.must("go", "get", ".")
	build := []string{"build", "-o", "bin/trainer", "."}
	if out, err := s.run("go", build...); err == nil || !strings.Contains(out, `run "go run github.com/gorbit-ml/gorbit/cmd/gorbit-setup@latest"`) {
		t.Errorf("before gorbit-setup: %v\n%s", err, out)
	}
	t.Logf("%s", s.must("go", "run", published.Path+"/cmd/gorbit-setup@"+published.Version))
	s.must("go", build...)

	data := filepath.Join(s.dir, "data/reviews")
	if err := os.MkdirAll(data, 0o777); err != nil {
		t.Fatal(err)
	}
	records.Write(t, filepath.Join(data, "train-00000-of-00001.tfrecord"), 1, 200)
	records.Write(t, filepath.Join(data, "dev-00000-of-00001.tfrecord"), 2, 50)
	graph := testkit.Export(t, fmt.Sprintf(`{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 64, "vocab_size": %d, "max_position_embeddings": 24}`, records.VocabSize), "--pooling", "mean")
	out := s.must("bin/trainer", "runs/reviews", "graph="+graph, "init=", "train.steps=6", "train.epochs=0", "train.batch_size=16")
	if !strings.Contains(out, "saved checkpoint to ") {
		t.Errorf("the trainer said\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "runs/reviews/checkpoints/ckpt-6.index")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	libraries := s.must("readelf", "-d", "bin/trainer")
	if !strings.Contains(libraries, filepath.Join(home, ".cache/gorbit/tensorflow")) || strings.Contains(libraries, testkit.Root()) {
		t.Errorf("the trainer looks for its library elsewhere:\n%s", libraries)
	}
}
