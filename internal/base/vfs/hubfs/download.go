package hubfs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// said is what a hub says of a file's content.
type said struct {
	etag string // its name: of a large file the SHA-256, of a small one that of Git's blob
	size int64
}

var etagForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$`)

const (
	incomplete   = ".incomplete"
	mostRedirect = 10
	lockPause    = 200 * time.Millisecond
)

// follow sends a call, and one that reads again to where the answers redirect: within the hub, and also
// away from it if away is set. There the token is not sent.
func (c *Client) follow(ctx context.Context, r Call, away bool) (*http.Response, error) {
	for hops := 0; ; hops++ {
		response, err := c.send(ctx, r)
		if err != nil || response.StatusCode/100 != 3 || !r.reads() {
			return response, err
		}
		to, err := response.Location()
		if err != nil || !away && !c.own(to) {
			return response, nil
		}
		response.Body.Close()
		if hops == mostRedirect {
			return nil, Permanent(fmt.Errorf("%s: the hub redirects more than %d times", r.What, mostRedirect))
		}
		r.URL = to.String()
	}
}

// ask asks the hub for a file's ETag and size.
func (s *FS) ask(ctx context.Context, snap *snapshot, a address) (said, error) {
	snap.mu.Lock()
	known, ok := snap.said[a.path]
	snap.mu.Unlock()
	if ok {
		return known, nil
	}
	r := Call{What: "ask for " + a.String(), Method: http.MethodHead, URL: s.client.Endpoint + a.content(snap.commit), Header: map[string]string{"Accept-Encoding": "identity"}}
	var header http.Header
	err := s.client.again(ctx, r, func() (http.Header, bool, error) {
		response, err := s.client.follow(ctx, r, false)
		if err != nil {
			return nil, false, err
		}
		defer response.Body.Close()
		if header = response.Header; response.StatusCode/100 == 3 {
			return header, false, nil
		}
		_, err = s.client.content(r, response)
		return header, false, err
	})
	if err != nil {
		return said{}, err
	}
	out := said{etag: strings.Trim(strings.TrimPrefix(cmp.Or(header.Get("X-Linked-Etag"), header.Get("ETag")), "W/"), `"`)}
	size := header.Get("X-Linked-Size")
	if size == "" && header.Get("Location") == "" { // otherwise the length is that of the redirect
		size = header.Get("Content-Length")
	}
	out.size, err = strconv.ParseInt(size, 10, 64)
	switch commit := header.Get("X-Repo-Commit"); {
	case err != nil || out.size < 0:
		return said{}, fmt.Errorf("%s: the hub says the size %q; expected a number of bytes", r.What, size)
	case !etagForm.MatchString(out.etag):
		return said{}, fmt.Errorf("%s: the hub says the ETag %q; expected letters and digits", r.What, out.etag)
	case commit != snap.commit:
		return said{}, fmt.Errorf("%s: the hub answers of commit %q; expected %s", r.What, commit, snap.commit)
	}
	snap.mu.Lock()
	defer snap.mu.Unlock()
	snap.said[a.path] = out
	return out, nil
}

// file returns the path of this machine of a file, which is downloaded if the cache lacks it, or has
// damaged bytes. The first time that a process asks, the content is checked.
func (s *FS) file(ctx context.Context, snap *snapshot, a address) (string, error) {
	if isPickle(a.path) {
		return "", fault.Usagef("%s has the name of a pickle, which is a program that runs when it is read; expected safetensors", a)
	}
	snap.mu.Lock()
	path := snap.ready[a.path]
	snap.mu.Unlock()
	if path != "" {
		return path, nil
	}
	path = filepath.Join(snap.dir, filepath.FromSlash(a.path))
	err := s.fill(ctx, snap, a, path)
	if s.cfg.Offline && errors.Is(err, fs.ErrNotExist) {
		err = notHere(a)
	}
	if err != nil {
		return "", err
	}
	snap.mu.Lock()
	defer snap.mu.Unlock()
	snap.ready[a.path] = path
	return path, nil
}

// fill makes the file of a snapshot.
func (s *FS) fill(ctx context.Context, snap *snapshot, a address, path string) error {
	content := said{size: -1}
	if to, err := os.Readlink(path); err == nil {
		content.etag = filepath.Base(to)
	}
	if content.etag == "" || !s.cfg.Offline && checksum(content.etag, 0) == nil { // nothing says what it is
		if s.cfg.Offline {
			_, err := os.Stat(path) // written where links are not supported
			return err
		}
		var err error
		if content, err = s.ask(ctx, snap, a); err != nil {
			return err
		}
	}
	damage := check(ctx, path, content)
	if damage == nil || s.cfg.Offline || ctx.Err() != nil {
		return damage
	}
	if errors.Is(damage, fault.Damaged) {
		s.cfg.Log.Warn("a file of the cache is damaged and is downloaded again", "file", a.String(), "reason", damage)
	}
	var err error
	if content, err = s.ask(ctx, snap, a); err != nil {
		return err
	}
	blob, err := s.download(ctx, snap, a, content)
	if err != nil {
		return err
	}
	return link(path, blob)
}

// checksum returns the checksum by which an ETag names content of a size; nil if it does not.
func checksum(etag string, size int64) hash.Hash {
	if _, err := hex.DecodeString(etag); err != nil {
		return nil
	}
	switch len(etag) {
	case 2 * sha256.Size:
		return sha256.New()
	case 2 * sha1.Size:
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return nil
}

// check returns an error of class fault.Damaged if a file does not have the content that a hub said, and
// one of fs.ErrNotExist if there is none. A size of -1 is not known.
func check(ctx context.Context, path string, want said) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if want.size >= 0 && info.Size() != want.size {
		return fault.Damagedf("%s has %d bytes; expected %d", path, info.Size(), want.size)
	}
	sum := checksum(want.etag, info.Size())
	if sum == nil {
		return nil
	}
	if _, err := io.CopyBuffer(sum, stream.WithContext(ctx, f), make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.etag {
		return fault.Damagedf("%s has the checksum %s; expected %s", path, got, want.etag)
	}
	return nil
}

// download makes the blob of a file, and returns its path. One process does at a time.
func (s *FS) download(ctx context.Context, snap *snapshot, a address, content said) (string, error) {
	blobs := filepath.Join(s.cache, snap.folder(), "blobs")
	locks := filepath.Join(s.cache, ".locks", snap.folder())
	if err := errors.Join(os.MkdirAll(blobs, 0o777), os.MkdirAll(locks, 0o777)); err != nil {
		return "", err
	}
	unlock, err := s.lock(ctx, filepath.Join(locks, content.etag+".lock"), a)
	if err != nil {
		return "", err
	}
	defer unlock()
	blob := filepath.Join(blobs, content.etag)
	if check(ctx, blob, content) == nil {
		return blob, nil // another process made it, or it is that of another file, too
	}
	f, err := os.OpenFile(blob+incomplete, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return "", err
	}
	defer f.Close()
	s.cfg.Log.Info("download", "file", a.String(), "bytes", content.size)
	r := Call{What: "download " + a.String(), Method: http.MethodGet, URL: s.client.Endpoint + a.content(snap.commit), Advice: "; the same command, given again, goes on where it ended"}
	most, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	err = s.client.again(ctx, r, func() (http.Header, bool, error) {
		header, err := s.receive(ctx, r, f, content)
		has, _ := f.Seek(0, io.SeekEnd) // the next attempt says what is wrong
		moved := has > most             // and not only sent again, by a server without ranges
		most = max(most, has)
		return header, moved, err
	})
	if err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	if err := check(ctx, f.Name(), content); err != nil {
		if errors.Is(err, fault.Damaged) {
			err = errors.Join(fault.Damagedf("%s: what the hub sent is not what it said: %w", r.What, err), os.Remove(f.Name()))
		}
		return "", err
	}
	if err := os.Rename(f.Name(), blob); err != nil {
		return "", err
	}
	return blob, vfs.SyncDir(blobs)
}

// receive asks for what a file lacks of its content, and writes it.
func (s *FS) receive(ctx context.Context, r Call, f *os.File, content said) (header http.Header, err error) {
	at, err := f.Seek(0, io.SeekEnd)
	if at > content.size {
		at, err = 0, f.Truncate(0)
	}
	if err != nil {
		return nil, Permanent(err)
	}
	if at == content.size {
		return nil, nil
	}
	r.Header = map[string]string{"Accept-Encoding": "identity"}
	if at > 0 {
		r.Header["Range"] = fmt.Sprintf("bytes=%d-", at)
	}
	response, err := s.client.follow(ctx, r, true)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		at = 0 // all of it, whatever was asked for
	case http.StatusPartialContent:
		var from, to int64
		if _, err := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/", &from, &to); err != nil || at == 0 || from != at || to != content.size-1 {
			return nil, Permanent(fmt.Errorf("%s: the hub sends %q; expected bytes %d-%d", r.What, response.Header.Get("Content-Range"), at, content.size-1))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return response.Header, errors.Join(fmt.Errorf("%s: the hub has no byte %d", r.What, at), f.Truncate(0))
	default:
		_, err := s.client.content(r, response)
		return response.Header, cmp.Or(err, Permanent(fmt.Errorf("%s: the hub answers %s; expected 200 OK", r.What, response.Status)))
	}
	left := content.size - at
	if n := response.ContentLength; n >= 0 && n != left {
		return nil, Permanent(fmt.Errorf("%s: the hub sends %d bytes; expected %d", r.What, n, left))
	}
	if _, err = f.Seek(at, io.SeekStart); err == nil {
		err = f.Truncate(at)
	}
	if err != nil {
		return nil, Permanent(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{io.LimitReader(response.Body, left+1)}, make([]byte, 1<<20))
	switch of := (*fs.PathError)(nil); {
	case errors.As(err, &of):
		return nil, Permanent(err) // of this machine's disk
	case err != nil:
		return nil, fmt.Errorf("%s: %w after %d of %d bytes", r.What, s.client.broken(err), at+n, content.size)
	case n < left:
		return nil, fmt.Errorf("%s: the connection was closed after %d of %d bytes", r.What, at+n, content.size)
	case n > left:
		return nil, Permanent(errors.Join(fmt.Errorf("%s: the hub sends more than the %d bytes that it said", r.What, content.size), f.Truncate(0)))
	}
	return nil, nil
}

// lock waits until no other process downloads a file.
func (s *FS) lock(ctx context.Context, path string, a address) (unlock func() error, err error) {
	for told := false; ; told = true {
		unlock, other, err := vfs.Lock(path)
		if err != nil || other == nil {
			return unlock, err
		}
		if !told {
			s.cfg.Log.Info("another process downloads the file; waiting for it", "file", a.String(), "process", other.String())
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockPause):
		}
	}
}

// link makes a file of a snapshot a link to a blob. The link is relative, so that the cache may be moved.
func link(path, blob string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	to, err := filepath.Rel(dir, blob)
	if err != nil {
		return err
	}
	if has, err := os.Readlink(path); err == nil && has == to {
		return nil
	}
	fresh := filepath.Join(dir, "."+rand.Text())
	if err := os.Symlink(to, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// remember notes the commit of a revision, so that it is found without the hub. It is called when the
// files that were asked for are there.
func (s *FS) remember(snap *snapshot) error {
	if s.cfg.Offline {
		return nil
	}
	if err := writeListing(snap); err != nil { // the files are there, and are found without it
		s.cfg.Log.Warn("the list of the repository's files is not kept, so that without the hub only those are known that were downloaded", "repository", snap.String(), "error", err)
	}
	if snap.revision == snap.commit || s.kept(snap.address) == snap.commit {
		return nil
	}
	ref := filepath.Join(s.cache, snap.folder(), "refs", filepath.FromSlash(snap.revision))
	if err := os.MkdirAll(filepath.Dir(ref), 0o777); err != nil {
		return err
	}
	return vfs.ReplaceFile(ref, []byte(snap.commit))
}
