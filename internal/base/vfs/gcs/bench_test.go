package gcs

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

// BenchmarkStorage compares a bucket of a server in the same process with the local disk:
// docs/measurements/gcs.md.
func BenchmarkStorage(b *testing.B) {
	const size, small = 64 << 20, 4 << 10
	data := noise(size)
	server := gcstest.NewServer("b")
	defer server.Close()
	b.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	server.Put("x", data)
	local := filepath.Join(b.TempDir(), "x")
	if err := os.WriteFile(local, data, 0o666); err != nil {
		b.Fatal(err)
	}
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	open := func(f vfs.ReadFS, name string) vfs.File {
		file, err := f.Open(name)
		check(err)
		return file
	}
	kept := New(Config{Cache: b.TempDir()})
	files := map[string]func() vfs.File{
		"disk":   func() vfs.File { return open(vfs.OS{}, local) },
		"bucket": func() vfs.File { return open(New(Config{Cache: b.TempDir()}), "gs://b/x") },
		"copied": func() vfs.File {
			f := open(New(Config{Cache: b.TempDir()}), "gs://b/x")
			_, err := f.(vfs.RemoteFile).Keep(b.Context())
			check(err)
			return f
		},
		"kept": func() vfs.File {
			f := open(kept, "gs://b/x")
			_, err := f.(vfs.RemoteFile).Keep(b.Context())
			check(err)
			return f
		},
	}
	for _, where := range []string{"disk", "bucket", "copied", "kept"} {
		b.Run("read whole/"+where, func(b *testing.B) {
			files[where]().Close()
			b.SetBytes(size)
			for b.Loop() {
				f := files[where]()
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20))
				check(err)
				check(f.Close())
			}
		})
	}
	for _, where := range []string{"disk", "bucket", "kept"} {
		b.Run(fmt.Sprintf("read %d bytes anywhere/%s", small, where), func(b *testing.B) {
			f := files[where]()
			defer f.Close()
			buf := make([]byte, small)
			b.SetBytes(small)
			for b.Loop() {
				_, err := f.ReadAt(buf, rand.Int64N(size-small))
				check(err)
			}
		})
	}
	b.Run("write/disk", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			check(vfs.WriteFile(local+"2", data))
		}
	})
	b.Run("write/bucket", func(b *testing.B) {
		w, err := New(Config{Cache: b.TempDir()}).Work(b.Context(), "gs://b/run", quiet)
		check(err)
		name := filepath.Join(w.Dir(), "x")
		b.SetBytes(size)
		for i := 0; b.Loop(); i++ {
			data[0] = byte(i)
			check(vfs.WriteFile(name, data))
			check(vfs.SyncDir(w.Dir()))
		}
		check(w.Close())
	})
}
