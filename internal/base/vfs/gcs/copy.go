package gcs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

const (
	// transfers is how many files are transferred at the same time.
	transfers = 8
	// unused is the age at which a copy of a folder is removed.
	unused = 30 * 24 * time.Hour
	// listings is how often a folder is listed again because a file was replaced meanwhile.
	listings = 3
)

// Copy implements vfs.Remote. The name of a copy's folder is made of the names and generations
// of its files, so that a copy never changes while another process reads it.
func (s *Store) Copy(ctx context.Context, name string, choose func(paths []string) []string) (string, error) {
	at, err := s.at("open", name)
	if err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		local, err := s.copyOnce(ctx, name, at, choose)
		if err == nil || !errors.Is(err, ErrChanged) || try == listings {
			return local, err
		}
	}
}

func (s *Store) copyOnce(ctx context.Context, name string, at location, choose func(paths []string) []string) (string, error) {
	folder := at
	entries, err := s.list(ctx, folder, true)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 && at.object != "" { // a file, or a prefix
		if folder.object = path.Dir(at.object); folder.object == "." {
			folder.object = ""
		}
		if entries, err = s.listPrefix(ctx, folder, at.object, true, 0); err != nil {
			return "", err
		}
	}
	if entries, err = chosen(folder, entries, choose); err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return s.copyEntries(ctx, at, folder, entries)
}

// chosen returns the entries with the chosen paths.
func chosen(folder location, entries []entry, choose func(paths []string) []string) ([]entry, error) {
	paths := make([]string, len(entries))
	for i, e := range entries {
		paths[i] = e.path
	}
	if choose != nil {
		paths = choose(paths)
	}
	var out []entry
	for _, e := range entries {
		if !slices.Contains(paths, e.path) {
			continue
		}
		if e.path != path.Clean(e.path) || !filepath.IsLocal(filepath.FromSlash(e.path)) {
			return nil, &fs.PathError{Op: "copy", Path: folder.within(e.path).String(), Err: errors.New("is not a name that a file of this machine can have")}
		}
		out = append(out, e)
	}
	return out, nil
}

// copyEntries returns the path in a folder of this machine that holds the entries.
func (s *Store) copyEntries(ctx context.Context, at, folder location, entries []entry) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", folder.String())
	for _, e := range entries {
		fmt.Fprintf(sum, "%q %d\n", e.path, e.generation)
	}
	all := filepath.Join(s.cfg.Cache, "copies")
	top := filepath.Join(all, hex.EncodeToString(sum.Sum(nil)[:12]))
	base := path.Base(folder.String())
	local := filepath.Join(top, base)
	if at != folder {
		local = filepath.Join(local, path.Base(at.object))
	}
	if _, err := os.Stat(top); err == nil {
		err = s.fill(ctx, folder, entries, filepath.Join(top, base))
		now := time.Now()
		_ = os.Chtimes(top, now, now) // it only decides when the copy is removed
		return local, err
	}
	part := fmt.Sprintf("%s%s.%s", top, partEnding, rand.Text())
	removeUnused(all)
	err := s.fill(ctx, folder, entries, filepath.Join(part, base))
	if err == nil {
		err = os.Rename(part, top)
	}
	if err != nil {
		_ = os.RemoveAll(part) // the first error is the one to report
		if _, made := os.Stat(top); made == nil && ctx.Err() == nil && errors.Is(err, fs.ErrExist) {
			return local, nil // by another process
		}
		return "", err
	}
	return local, nil
}

// removeUnused removes copies that were not used for a long time. It ignores errors: the next
// copy tries again.
func removeUnused(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		age := unused
		if strings.Contains(e.Name(), partEnding) {
			age = abandoned
		}
		if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > age {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// fill downloads the entries that a local folder lacks, or has with another content.
func (s *Store) fill(ctx context.Context, folder location, entries []entry, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(transfers)
	for _, e := range entries {
		g.Go(func() error {
			to := filepath.Join(dir, filepath.FromSlash(e.path))
			if same, err := sameFile(ctx, to, e.object); same || err != nil {
				return err
			}
			part := fmt.Sprintf("%s%s.%s", to, partEnding, rand.Text())
			if err := s.download(ctx, folder.within(e.path), e.object, part); err != nil {
				return err
			}
			return os.Rename(part, to)
		})
	}
	return g.Wait()
}

// sameFile reports whether a file of this machine has the content of an object.
func sameFile(ctx context.Context, path string, o object) (bool, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || st.Size() != o.size {
		return false, err
	}
	sum, err := checksum(ctx, path, o.size)
	return sum == o.crc, err
}

// checksum returns the CRC-32C of the first bytes of a file.
func checksum(ctx context.Context, path string, size int64) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sum := crc32.New(crc32c.Table)
	buf := make([]byte, 1<<20)
	for left := size; left > 0; {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		n, err := f.Read(buf[:min(left, int64(len(buf)))])
		sum.Write(buf[:n])
		left -= int64(n)
		if err == io.EOF {
			return sum.Sum32(), &fs.PathError{Op: "read", Path: path, Err: io.ErrUnexpectedEOF}
		}
		if err != nil {
			return 0, err
		}
	}
	return sum.Sum32(), nil
}
