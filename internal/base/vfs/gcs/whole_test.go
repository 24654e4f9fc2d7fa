package gcs

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

// TestWhole writes single files into a bucket: the bucket has the old content, or all of the new.
func TestWhole(t *testing.T) {
	c := fast(t)
	server, s := serve(t, c)
	defer vfs.Mount("gs://", s)()
	server.Put("folder/file", []byte("a"))
	rest := "folder/file=a"
	write := func(name, content string, overwrite bool) error {
		w, err := vfs.CreateWhole(name, overwrite)
		if err != nil {
			return err
		}
		defer w.Discard()
		if _, err := w.Write([]byte(content)); err != nil {
			return err
		}
		return w.End(t.Context())
	}
	staged := func() []string {
		names, err := filepath.Glob(filepath.Join(c.Cache, "staged", "*", "*"))
		must(t, err)
		return names
	}

	must(t, write("gs://b/out/new", "one", false))
	has(t, server, rest, "out/new=one")
	for _, tt := range []struct {
		name, want string
		overwrite  bool
		class      fault.Class
	}{
		{"gs://b/out/new", "already exists; choose another name, or add --overwrite", false, fault.Usage},
		{"gs://b/folder", "is not a regular file", true, fault.Usage},
		{"gs://b/folder/", "is the name of a folder", true, fault.Usage},
		{"gs://b", "is not a regular file", true, fault.Usage},
		{"gs:/b/x", "expected gs://b/x", true, fault.Usage},
		{"gs://none/x", "there is no such bucket", true, fault.Failed},
	} {
		if err := write(tt.name, "two", tt.overwrite); err == nil || fault.Of(err) != tt.class || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v; expected one of class %v with %q", tt.name, err, tt.class, tt.want)
		}
	}
	has(t, server, rest, "out/new=one")
	must(t, write("gs://b/out/new", "two", true))
	has(t, server, rest, "out/new=two")

	// What is given up is not in the bucket, and not on this machine.
	w, err := vfs.CreateWhole("gs://b/out/given-up", false)
	must(t, err)
	w.Discard()
	has(t, server, rest, "out/new=two")
	if left := staged(); len(left) > 0 {
		t.Errorf("left on this machine: %v", left)
	}

	// An upload that fails, or is stopped, leaves the bucket as it was, and the file here.
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("stopped by the user"))
	for want, tt := range map[string]struct {
		ctx   context.Context
		fault func(*http.Request) *gcstest.Fault
	}{
		"access denied": {t.Context(), func(r *http.Request) *gcstest.Fault {
			if r.Method == http.MethodPost {
				return &gcstest.Fault{Status: http.StatusForbidden}
			}
			return nil
		}},
		"stopped by the user": {stopped, func(*http.Request) *gcstest.Fault { return nil }},
	} {
		w, err := vfs.CreateWhole("gs://b/out/new", true)
		must(t, err)
		_, err = w.Write([]byte("three"))
		must(t, err)
		server.Fail(tt.fault)
		err = w.End(tt.ctx)
		server.Fail(nil)
		w.Discard()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("error %v; expected %q", err, want)
		}
		kept := regexp.MustCompile(`gcloud storage cp (\S+) gs://b/out/new$`).FindStringSubmatch(err.Error())
		if kept == nil {
			t.Fatalf("%v does not say where the file is", err)
		}
		if content, err := os.ReadFile(kept[1]); string(content) != "three" || err != nil {
			t.Errorf("%s has %q, %v", kept[1], content, err)
		}
		has(t, server, rest, "out/new=two")
	}

	// Made by another program meanwhile.
	w, err = vfs.CreateWhole("gs://b/out/meanwhile", false)
	must(t, err)
	server.Put("out/meanwhile", []byte("other"))
	if err := w.End(t.Context()); err == nil || !strings.Contains(err.Error(), "was made by another program meanwhile; the file is kept on this machine") {
		t.Errorf("error %v", err)
	}
	has(t, server, rest, "out/new=two", "out/meanwhile=other")
}
