package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"cloud.google.com/go/storage"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

// replacing is the precondition that an object still has a generation; 0 means that there is no
// object.
func replacing(h *storage.ObjectHandle, generation int64) *storage.ObjectHandle {
	if generation == 0 {
		return h.If(storage.Conditions{DoesNotExist: true})
	}
	return h.If(storage.Conditions{GenerationMatch: generation})
}

// put stores an object in place of a generation (0: of none). The bucket refuses it if the
// checksum is not right, and if another program has changed the object, which is ErrChanged.
// Nobody sees a part of it.
func (s *Store) put(ctx context.Context, at location, r io.ReadSeeker, size int64, crc uint32, generation int64) (object, error) {
	for try := 1; ; try++ {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return object{}, err
		}
		o, err := s.putOnce(ctx, at, r, size, crc, generation)
		if err == nil || try == uploads || !temporary(err) {
			return o, err
		}
		select {
		case <-time.After(s.cfg.Backoff << try):
		case <-ctx.Done():
			return object{}, fail(ctx, "write", at.String(), err)
		}
	}
}

// uploads is how often an upload is begun. The client tries requests again, but not one whose
// answer ended too early.
const uploads = 5

func (s *Store) putOnce(ctx context.Context, at location, r io.Reader, size int64, crc uint32, generation int64) (object, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The client takes this as the size of its buffer, and tries a part again that failed.
	chunk := min(int64(s.cfg.ChunkBytes), (size/chunkUnit+1)*chunkUnit)
	w := replacing(s.handle(at), generation).NewWriter(ctx)
	// The watch below decides when to give up. The client's own limit would end at the same time,
	// with an error that does not say so.
	w.ChunkSize, w.ChunkRetryDeadline = int(chunk), 2*s.cfg.Deadline
	w.CRC32C, w.SendCRC32C = crc, true
	w.ContentType = "application/octet-stream" // otherwise guessed from the content
	step := func(do func() error) error {
		watch := time.AfterFunc(s.cfg.Deadline, func() { stop(&silentError{s.cfg.Deadline}) })
		defer watch.Stop()
		return do()
	}
	buf := make([]byte, min(chunk, 1<<20))
	var err error
	for left := size; left > 0 && err == nil; {
		n, readErr := io.ReadFull(r, buf[:min(left, int64(len(buf)))])
		if readErr != nil {
			stop(readErr) // nothing is stored
			_ = w.Close()
			return object{}, readErr
		}
		left -= int64(n)
		err = step(func() error { _, err := w.Write(buf[:n]); return err })
	}
	if closeErr := step(w.Close); err == nil {
		err = closeErr
	}
	if err == nil {
		return objectOf(w.Attrs()), nil
	}
	return s.stored(ctx, at, size, crc, fail(ctx, "write", at.String(), err))
}

// stored returns the object if it was stored although err says otherwise: the answer to a
// request may be lost, and the same request, made again, then meets its own object.
func (s *Store) stored(ctx context.Context, at location, size int64, crc uint32, err error) (object, error) {
	if !errors.Is(err, ErrChanged) {
		return object{}, err
	}
	if o, statErr := s.attrs(context.WithoutCancel(ctx), at); statErr == nil && o.size == size && o.crc == crc {
		return o, nil
	}
	return object{}, err
}

// putBytes stores an object.
func (s *Store) putBytes(ctx context.Context, at location, data []byte, generation int64) (object, error) {
	return s.put(ctx, at, bytes.NewReader(data), int64(len(data)), crc32.Checksum(data, crc32c.Table), generation)
}

// snapshotBytes is the largest file that is read into memory before it is stored, because it may
// be appended to meanwhile. Larger ones, such as checkpoints, do not change.
const snapshotBytes = 64 << 20

// putFile stores a file of this machine, unless the bucket has the same content already. was is
// what the bucket has, the zero value for nothing.
func (s *Store) putFile(ctx context.Context, at location, path string, was object) (object, error) {
	f, err := os.Open(path)
	if err != nil {
		return object{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return object{}, err
	}
	if st.Size() <= snapshotBytes {
		data, err := io.ReadAll(io.LimitReader(f, st.Size()))
		if err != nil {
			return object{}, err
		}
		crc := crc32.Checksum(data, crc32c.Table)
		if was.has(int64(len(data)), crc) {
			return was, nil
		}
		return s.put(ctx, at, bytes.NewReader(data), int64(len(data)), crc, was.generation)
	}
	crc, err := checksum(ctx, path, st.Size())
	if err != nil || was.has(st.Size(), crc) {
		return was, err
	}
	return s.put(ctx, at, f, st.Size(), crc, was.generation)
}

// has reports whether an object exists and has this content.
func (o object) has(size int64, crc uint32) bool {
	return o.generation != 0 && o.size == size && o.crc == crc
}

// duplicate copies an object within the bucket in place of a generation of another.
func (s *Store) duplicate(ctx context.Context, from location, o object, to location, generation int64) (object, error) {
	limited, cancel := s.limited(ctx)
	defer cancel()
	a, err := replacing(s.handle(to), generation).CopierFrom(s.handle(from).Generation(o.generation)).Run(limited)
	if err == nil {
		return objectOf(a), nil
	}
	return s.stored(ctx, to, o.size, o.crc, fail(limited, "write", to.String(), err))
}

// remove deletes a generation of an object. It is not an error if the object does not exist.
func (s *Store) remove(ctx context.Context, at location, generation int64) error {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	err := replacing(s.handle(at), generation).Delete(ctx)
	if err == nil || errors.Is(err, storage.ErrObjectNotExist) {
		return nil
	}
	return fail(ctx, "remove", at.String(), err)
}

// content returns a small object.
func (s *Store) content(ctx context.Context, at location, most int64) ([]byte, object, error) {
	o, err := s.attrs(ctx, at)
	if err != nil {
		return nil, o, err
	}
	if o.size > most {
		return nil, o, fail(ctx, "read", at.String(), fmt.Errorf("has %d bytes; expected at most %d", o.size, most))
	}
	r, err := s.stream(ctx, at, o, 0)
	if err != nil {
		return nil, o, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, o, err
}
