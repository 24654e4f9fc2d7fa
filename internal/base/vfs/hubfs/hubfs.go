package hubfs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// filesAtOnce is how many files are downloaded at a time.
const filesAtOnce = 4

// mostListing is the most bytes of a list of a repository's files.
const mostListing = 64 << 20

func init() {
	vfs.Register(Scheme, func() vfs.ReadFS { return New(Config{}) })
}

// Config configures the file system. The zero value takes all from the environment.
type Config struct {
	// Context ends the calls of a vfs.ReadFS, which have none of their own; nil means never.
	Context context.Context
	// Log gets a line for each download; nil means nobody.
	Log *slog.Logger
	// Offline takes files of the cache only, as HF_HUB_OFFLINE=1 does.
	Offline bool
	// Account is the hub; nil means that of the environment.
	Account *Account
}

// FS is the file system of a hub. It is safe for concurrent use.
type FS struct {
	cfg    Config
	once   sync.Once
	err    error // why there is no hub
	client *Client
	cache  string

	mu        sync.Mutex
	snapshots map[string]*snapshot // by address
}

var _ vfs.Remote = (*FS)(nil)

// New returns the file system. It asks the environment, and then the hub, when it is first used.
func New(c Config) *FS {
	c.Context = cmp.Or(c.Context, context.Background())
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &FS{cfg: c, snapshots: make(map[string]*snapshot)}
}

// connect makes the client.
func (s *FS) connect() error {
	s.once.Do(func() {
		if s.cfg.Offline = s.cfg.Offline || offline(); s.cfg.Account == nil {
			a, err := Environment(s.cfg.Log)
			if err != nil {
				s.err = err
				return
			}
			s.cfg.Account = &a
		}
		if s.cache, s.err = cacheFolder(); s.err == nil {
			s.client, s.err = NewClient(*s.cfg.Account)
		}
	})
	return s.err
}

// snapshot is a repository at one commit, as this process sees it from its first use on.
type snapshot struct {
	address
	commit string
	dir    string   // of the links to its files
	files  []string // sorted

	mu    sync.Mutex
	ready map[string]string // files that are here and were checked: their paths
	said  map[string]said   // what the hub says of others
}

// open parses a path and returns the repository that it is in.
func (s *FS) open(ctx context.Context, name string) (*snapshot, address, error) {
	a, err := parse(name)
	if err != nil {
		return nil, a, err
	}
	if err := s.connect(); err != nil {
		return nil, a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := a.at("").String()
	if found := s.snapshots[key]; found != nil {
		return found, a, nil
	}
	snap := &snapshot{address: a.at(""), ready: make(map[string]string), said: make(map[string]said)}
	if s.cfg.Offline {
		err = s.openKept(snap)
	} else {
		err = s.list(ctx, snap)
	}
	if err != nil {
		return nil, a, err
	}
	slices.Sort(snap.files)
	s.snapshots[key] = snap
	return snap, a, nil
}

// list asks the hub for the commit of a revision and its files.
func (s *FS) list(ctx context.Context, snap *snapshot) error {
	advice := ""
	if s.kept(snap.address) != "" {
		advice = "; to take what this machine has of it, add --offline"
	}
	what := "look for " + snap.String()
	there, err := s.client.Files(ctx, s.client.Endpoint+snap.list(), what, advice)
	if err != nil {
		return err
	}
	if !commitForm.MatchString(there.Commit) {
		return fmt.Errorf("%s: the hub names the commit %q; expected 40 hexadecimal digits", what, there.Commit)
	}
	snap.commit, snap.dir, snap.files = there.Commit, filepath.Join(s.cache, snap.folder(), "snapshots", there.Commit), there.Names
	s.cfg.Log.Debug("look for a repository", "repository", snap.String(), "commit", snap.commit)
	return nil
}

// Files are those of a repository at a commit.
type Files struct {
	Commit string
	Names  []string
}

// Files asks for the files at an address of the hub's. what names the call, and advice is what to do if it
// fails for good.
func (c *Client) Files(ctx context.Context, address, what string, advice ...string) (Files, error) {
	r := Call{What: what, Method: http.MethodGet, URL: address, Advice: strings.Join(advice, "")}
	content, _, err := c.Do(ctx, r)
	if err != nil {
		return Files{}, err
	}
	var said struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := decode(r, content, &said); err != nil {
		return Files{}, err
	}
	out := Files{Commit: said.SHA}
	for _, f := range said.Siblings {
		if f.Name != path.Clean(f.Name) || !filepath.IsLocal(f.Name) || strings.ContainsRune(f.Name, 0) {
			return Files{}, fmt.Errorf("%s: the hub names the file %q, which is not a name that a file of this machine can have", what, f.Name)
		}
		out.Names = append(out.Names, f.Name)
	}
	return out, nil
}

// kept returns the commit that this machine has of a revision, or "".
func (s *FS) kept(a address) string {
	commit := a.revision
	if !commitForm.MatchString(commit) {
		content, err := vfs.ReadBounded(filepath.Join(s.cache, a.folder(), "refs", filepath.FromSlash(a.revision)), 1<<10)
		if commit = strings.TrimSpace(string(content)); err != nil || !commitForm.MatchString(commit) {
			return ""
		}
	}
	if _, err := os.Stat(filepath.Join(s.cache, a.folder(), "snapshots", commit)); err != nil {
		return ""
	}
	return commit
}

// openKept lists what this machine has of a revision.
func (s *FS) openKept(snap *snapshot) error {
	if snap.commit = s.kept(snap.address); snap.commit == "" {
		return &fs.PathError{Op: "open", Path: snap.String(), Err: fmt.Errorf("%w on this machine, in %s; leave out --offline (HF_HUB_OFFLINE) to download it", fs.ErrNotExist, s.cache)}
	}
	snap.dir = filepath.Join(s.cache, snap.folder(), "snapshots", snap.commit)
	var err error
	if snap.files, err = readListing(snap.commit); err != nil {
		return err
	}
	return filepath.WalkDir(snap.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(snap.dir, path)
		if name = filepath.ToSlash(name); err == nil && !slices.Contains(snap.files, name) {
			snap.files = append(snap.files, name) // also a link to what is no longer there
		}
		return err
	})
}

// listing is the file that says which files a commit has, so that without the hub those are known that were
// not downloaded. It is not in the cache that other programs share.
func listing(commit string) (string, error) {
	own, err := vfs.CacheFolder()
	return filepath.Join(own, "hub", commit+".files"), err
}

// readListing returns the files of a commit, or nothing if this machine does not know them.
func readListing(commit string) (files []string, err error) {
	path, err := listing(commit)
	if err != nil {
		return nil, err
	}
	content, err := vfs.ReadBounded(path, mostListing)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &files)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of a repository's files: %w; remove %s", err, path)
	}
	return files, nil
}

// writeListing keeps the files of a snapshot's commit.
func writeListing(snap *snapshot) error {
	path, err := listing(snap.commit)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	content, err := json.Marshal(snap.files)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return vfs.ReplaceFile(path, content)
}

// notHere returns the error of a file that the repository has and this machine does not. It is not
// fs.ErrNotExist, which would be a file that a model need not have.
func notHere(a address) error {
	return fault.Usagef("%s is not on this machine, which has other files of the repository; leave out --offline (HF_HUB_OFFLINE) to download it", a)
}

// below returns the files of a folder of the repository, relative to it.
func (s *snapshot) below(folder string) []string {
	if folder == "" {
		return s.files
	}
	var out []string
	for _, f := range s.files {
		if rest, ok := strings.CutPrefix(f, folder+"/"); ok {
			out = append(out, rest)
		}
	}
	return out
}

// missing returns the error of a path that the repository does not have.
func (s *FS) missing(op string, snap *snapshot, a address) error {
	why := "in the repository"
	if s.cfg.Offline {
		why = "on this machine; leave out --offline (HF_HUB_OFFLINE) to download it"
	}
	return &fs.PathError{Op: op, Path: a.String(), Err: fmt.Errorf("%w %s%s", fs.ErrNotExist, why, words.DidYouMean(a.path, snap.files))}
}

// Copy implements vfs.Remote. It returns the path in a snapshot, whose files are links. What no model is
// read from is left out, and weights that are pickles alone are an error.
func (s *FS) Copy(ctx context.Context, name string, choose func(paths []string) []string) (string, error) {
	snap, a, err := s.open(ctx, name)
	if err != nil {
		return "", err
	}
	if slices.Contains(snap.files, a.path) {
		local, err := s.file(ctx, snap, a)
		if err != nil {
			return "", err
		}
		return local, s.remember(snap)
	}
	folder := a.path
	names := snap.below(folder)
	if len(names) == 0 { // a prefix, as of a checkpoint
		if folder = path.Dir(a.path); folder == "." {
			folder = ""
		}
		names = slices.DeleteFunc(slices.Clone(snap.below(folder)), func(f string) bool { return !strings.HasPrefix(f, path.Base(a.path)) })
	}
	if names, err = needed(a.String(), names); err != nil {
		return "", err
	}
	if choose != nil {
		names = choose(names)
	}
	if len(names) == 0 {
		return "", s.missing("open", snap, a)
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(filesAtOnce)
	for _, f := range names {
		group.Go(func() error {
			_, err := s.file(within, snap, snap.at(path.Join(folder, f)))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	return filepath.Join(snap.dir, filepath.FromSlash(a.path)), s.remember(snap)
}

// info describes a file or folder.
type info struct {
	name string
	dir  bool
	size int64
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o444
}

// Stat implements vfs.ReadFS.
func (s *FS) Stat(name string) (fs.FileInfo, error) {
	snap, a, err := s.open(s.cfg.Context, name)
	switch {
	case err != nil:
		return nil, err
	case len(snap.below(a.path)) > 0:
		return info{name: path.Base(a.String()), dir: true}, nil
	case !slices.Contains(snap.files, a.path):
		return nil, s.missing("stat", snap, a)
	case s.cfg.Offline:
		info, err := os.Stat(filepath.Join(snap.dir, filepath.FromSlash(a.path)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notHere(a)
		}
		return info, err
	}
	said, err := s.ask(s.cfg.Context, snap, a)
	return info{name: path.Base(a.path), size: said.size}, err
}

// ReadDir implements vfs.ReadFS.
func (s *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	snap, a, err := s.open(s.cfg.Context, name)
	if err != nil {
		return nil, err
	}
	names := snap.below(a.path)
	if len(names) == 0 {
		return nil, s.missing("list", snap, a)
	}
	var out []fs.DirEntry
	for _, n := range names {
		first, _, dir := strings.Cut(n, "/")
		if len(out) == 0 || out[len(out)-1].Name() != first {
			out = append(out, entry{info{name: first, dir: dir}, func() (fs.FileInfo, error) { return s.Stat(vfs.Join(name, first)) }})
		}
	}
	return out, nil
}

// entry is a file or folder in a listing, which has no sizes.
type entry struct {
	info
	stat func() (fs.FileInfo, error)
}

func (e entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e entry) Info() (fs.FileInfo, error) { return e.stat() }

// Open implements vfs.ReadFS. The file is downloaded first.
func (s *FS) Open(name string) (vfs.File, error) {
	snap, a, err := s.open(s.cfg.Context, name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(snap.files, a.path) {
		if len(snap.below(a.path)) > 0 {
			return nil, fault.Usagef("%s is a folder; expected a file", name)
		}
		return nil, s.missing("open", snap, a)
	}
	local, err := s.file(s.cfg.Context, snap, a)
	if err == nil {
		err = s.remember(snap)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(local)
	if err != nil {
		return nil, err
	}
	return &file{f, name}, nil
}

// file is an open file of a repository, which is on this machine.
type file struct {
	*os.File
	name string
}

// Name implements vfs.File.
func (f *file) Name() string { return f.name }

// Bind implements vfs.RemoteFile: nothing waits.
func (f *file) Bind(context.Context) {}

// Keep implements vfs.RemoteFile.
func (f *file) Keep(context.Context) (*os.File, error) { return os.Open(f.File.Name()) }

// Derived implements vfs.RemoteFile. What is derived is not for the cache that other programs share.
func (f *file) Derived(ending string) (string, error) {
	blob, err := filepath.EvalSymlinks(f.File.Name())
	if err != nil {
		return "", err
	}
	own, err := vfs.CacheFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(own, "hub")
	return filepath.Join(dir, filepath.Base(blob)+ending), os.MkdirAll(dir, 0o777)
}

// notWritten refuses to write to a hub as to a folder.
func notWritten(name string) error {
	return fault.Usagef("%s is in a hub, which is not written to as a folder is; write to a folder of this machine, and push it with gorbit push", name)
}

// Work implements vfs.Remote: it refuses.
func (s *FS) Work(_ context.Context, name string, _ *slog.Logger) (vfs.Working, error) {
	return nil, notWritten(name)
}

// Publish implements vfs.Remote: it refuses.
func (s *FS) Publish(_ context.Context, _, name, _ string, _ bool, _ *slog.Logger) error {
	return notWritten(name)
}

// Release implements vfs.Remote: it refuses.
func (s *FS) Release(_ context.Context, name string, _ *slog.Logger) error { return notWritten(name) }

// Put implements vfs.Remote: it refuses.
func (s *FS) Put(_ context.Context, _, name string, _ bool) error { return notWritten(name) }

// Stage implements vfs.Remote: it refuses.
func (s *FS) Stage() (string, error) {
	return "", errors.New("a hub is not written to as a folder is; write to a folder of this machine, and push it with gorbit push")
}
