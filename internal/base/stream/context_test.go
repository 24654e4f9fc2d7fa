package stream

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

var errStop = errors.New("stop")

func TestReader(t *testing.T) {
	content := strings.Repeat("some lines\n", 20_000)
	if err := iotest.TestReader(WithContext(t.Context(), strings.NewReader(content)), []byte(content)); err != nil {
		t.Error(err)
	}
	broken := WithContext(t.Context(), io.MultiReader(strings.NewReader("some"), iotest.ErrReader(errors.New("on fire"))))
	if got, err := io.ReadAll(broken); string(got) != "some" || err == nil || err.Error() != "on fire" {
		t.Errorf("read %q, error %v", got, err)
	}
}

// TestOpen opens what ends, what blocks when it is opened or read, and what has no end.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	regular, pipe := filepath.Join(dir, "regular"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(regular, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	f, err := Open(t.Context(), regular)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); string(got) != "content" || err != nil {
		t.Errorf("read %q, error %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}

	stopped := func() (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(t.Context())
		return ctx, func() { cancel(errStop) }
	}
	t.Run("no writer", func(t *testing.T) {
		ctx, stop := stopped()
		ended := make(chan error)
		go func() {
			_, err := Open(ctx, pipe)
			ended <- err
		}()
		stop()
		if err := <-ended; err != errStop {
			t.Errorf("error %v, want %v", err, errStop)
		}
	})
	t.Run("a writer that says nothing", func(t *testing.T) {
		w, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ctx, stop := stopped()
		r, err := Open(ctx, pipe)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ended := make(chan error)
		go func() {
			_, err := io.ReadAll(r)
			ended <- err
		}()
		stop()
		if err := <-ended; err != errStop {
			t.Errorf("error %v, want %v", err, errStop)
		}
	})
	t.Run("no end", func(t *testing.T) {
		ctx, stop := stopped()
		r, err := Open(ctx, "/dev/zero")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ended := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, r)
			ended <- err
		}()
		stop()
		if err := <-ended; err != errStop {
			t.Errorf("error %v, want %v", err, errStop)
		}
	})
}
