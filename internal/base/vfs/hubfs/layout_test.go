package hubfs_test

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
)

var update = flag.Bool("update", false, "write testdata/layout.txt with huggingface_hub")

// layoutFiles are the files of which testdata/layout.txt has the cache.
var layoutFiles = []string{"config.json", "model.safetensors", "onnx/config.json", "vocab.txt"}

// tree lists the files of a cache: links with their targets, references with their content, blobs with
// their size.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case d.Name() == ".locks" || d.Name() == ".no_exist":
			return fs.SkipDir
		case d.IsDir() || d.Name() == "CACHEDIR.TAG":
			return nil
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			fmt.Fprintf(&out, "%s -> %s\n", name, to)
			return err
		}
		content, err := os.ReadFile(path)
		if filepath.Base(filepath.Dir(path)) == "refs" {
			fmt.Fprintf(&out, "%s: %s\n", name, content)
		} else {
			fmt.Fprintf(&out, "%s: %d bytes\n", name, len(content))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestLayout holds that the cache is the one that huggingface_hub makes of the same files. If there is a
// Python that has it, either program also finds, without the hub, what the other has downloaded.
func TestLayout(t *testing.T) {
	h := start(t)
	golden := filepath.Join("testdata", "layout.txt")
	python := func(cache string, more ...string) string {
		t.Helper()
		cmd := exec.Command(os.Getenv("GORBIT_HF_PYTHON"), slices.Concat([]string{filepath.Join("testdata", "layout.py")}, layoutFiles)...)
		cmd.Env = append(os.Environ(), append(more, "HF_ENDPOINT="+h.URL, "HF_TOKEN="+hubtest.Token, "HF_HUB_CACHE="+cache, "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_PROGRESS_BARS=1")...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	get := func(offline bool) string {
		t.Helper()
		f := open(h, io.Discard, offline)
		local, err := f.Copy(t.Context(), "hub:acme/encoder", func(paths []string) []string {
			return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !slices.Contains(layoutFiles, p) })
		})
		if err != nil {
			t.Fatal(err)
		}
		return local
	}
	live := os.Getenv("GORBIT_HF_PYTHON") != ""
	if live {
		theirs := t.TempDir()
		there := python(theirs)
		if *update {
			if err := os.WriteFile(golden, []byte(tree(t, theirs)), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		own := os.Getenv("HF_HUB_CACHE")
		t.Setenv("HF_HUB_CACHE", theirs)
		if got := get(true); got != there {
			t.Errorf("of the cache of huggingface_hub: %s; expected %s", got, there)
		}
		t.Setenv("HF_HUB_CACHE", own)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	local := get(false)
	if got := tree(t, os.Getenv("HF_HUB_CACHE")); got != string(want) {
		t.Errorf("the cache is\n%s; huggingface_hub makes\n%s", got, want)
	}
	if live {
		if got := python(os.Getenv("HF_HUB_CACHE"), "HF_HUB_OFFLINE=1"); got != local {
			t.Errorf("huggingface_hub finds %s; expected %s", got, local)
		}
	}
}
