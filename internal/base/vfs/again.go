package vfs

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"time"
)

// passing are errors of reading that may be gone a moment later, as on a disk or a network that
// recovers.
var passing = []error{syscall.EIO, syscall.ETIMEDOUT, syscall.ESTALE, syscall.EAGAIN}

// pauses are the times to wait before each further try. They add up to less than a second, so that
// nobody who stops a program waits for them.
var pauses = []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond, 500 * time.Millisecond}

// Again calls read, and a few times more while its error is one that may pass. The functions of this
// package that read, and the files that Open returns, do so by themselves. It is for reading by others,
// such as TensorFlow.
func Again[T any](read func() (T, error)) (T, error) {
	for _, pause := range pauses {
		got, err := read()
		if !slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) }) {
			return got, err
		}
		time.Sleep(pause)
	}
	return read()
}

// patient is a file whose reads are tried again.
type patient struct{ File }

// Read implements io.Reader.
func (f *patient) Read(p []byte) (int, error) {
	return Again(func() (int, error) {
		n, err := f.File.Read(p)
		if n > 0 && err != io.EOF {
			err = nil // the next call meets it
		}
		return n, err
	})
}

// ReadAt implements io.ReaderAt.
func (f *patient) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	return Again(func() (int, error) {
		n, err := f.File.ReadAt(p[done:], off+int64(done))
		done += n
		return done, err
	})
}
