package stream

import (
	"context"
	"io"
	"os"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Open opens a file for reading. The error for a folder is of class fault.Usage. When the context is done, both Open, which waits for the writer
// of a named pipe, and each Read return the context's cause.
func Open(ctx context.Context, path string) (io.ReadCloser, error) {
	type result struct {
		file *os.File
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		file, err := open(path)
		opened <- result{file, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, r.err
		}
		return &file{WithContext(ctx, r.file), r.file}, nil
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				r.file.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// open opens anything but a folder.
func open(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		file.Close()
		return nil, fault.Usagef("%s is a folder; expected a file", path)
	}
	return file, nil
}

type file struct {
	io.Reader
	io.Closer
}

// WithContext returns a reader of r whose Read returns the context's cause when the context is done.
// A blocked read of r then continues in the background, and its bytes are lost. Like most readers,
// it is for one goroutine at a time.
func WithContext(ctx context.Context, r io.Reader) io.Reader {
	return &reader{ctx: ctx, r: r, done: make(chan result, 1)}
}

type reader struct {
	ctx  context.Context
	r    io.Reader
	buf  []byte // for reads in the background: the caller may reuse its own after Read returns
	done chan result
}

type result struct {
	n   int
	err error
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	if cap(r.buf) < len(p) {
		r.buf = make([]byte, len(p))
	}
	buf := r.buf[:len(p)]
	go func() {
		n, err := r.r.Read(buf)
		r.done <- result{n, err}
	}()
	select {
	case got := <-r.done:
		return copy(p, buf[:got.n]), got.err
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	}
}
