package hub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1" // names of Git's objects
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
)

// Config says where to push, and as whom.
type Config struct {
	hubfs.Account
	// Repo is the repository, OWNER/NAME.
	Repo string
	// Revision is the branch to commit to, such as main.
	Revision string
	// Dataset says that the repository is one of a dataset, not of a model.
	Dataset bool
	// Public makes a repository that all may see, if it has to be created.
	Public bool
	// Message is the first line of the commit.
	Message string
	// Prune is a folder of the repository whose other files are removed; "" is none.
	Prune string
}

// Validate returns an error of class fault.Usage if a field cannot be.
func (c Config) Validate() error {
	if c.Token == "" {
		return fault.Usagef("the hub's token is missing; make one with write access at %s/settings/tokens, and: export HF_TOKEN=...", hubfs.DefaultEndpoint)
	}
	return cmp.Or(hubfs.CheckRepo(c.Repo), hubfs.CheckRevision(c.Revision), c.Account.Validate())
}

// kind is how the hub calls repositories like this one, in its addresses and as their type.
func (c Config) kind() (plural, kind string) {
	if c.Dataset {
		return "datasets", "dataset"
	}
	return "models", "model"
}

// home is the repository's own address.
func (c Config) home() string {
	if c.Dataset {
		return c.Endpoint + "/datasets/" + c.Repo
	}
	return c.Endpoint + "/" + c.Repo
}

// api is the address of the repository's calls.
func (c Config) api() string {
	plural, _ := c.kind()
	return c.Endpoint + "/api/" + plural + "/" + c.Repo
}

// client makes the calls of a push.
type client struct {
	Config
	calls *hubfs.Client
}

// advice is what to do when a call fails for good.
const advice = "; the same push, made again, uploads what is missing"

func (c *client) post(ctx context.Context, what, address string, in, out any, header map[string]string) error {
	return c.calls.Post(ctx, hubfs.Call{What: what, URL: address, Header: header, Advice: advice}, in, out)
}

// Result is what a push did.
type Result struct {
	// Commit is the address of the commit, or "" if the hub had all files already.
	Commit string
	// Created reports whether the repository is new.
	Created bool
	// Files is the number of files that the commit adds or replaces, and Bytes is how much of them
	// was uploaded; the hub had the rest.
	Files int
	Bytes int64
}

// file is one file of a push.
type file struct {
	name   string // in the repository, with slashes
	path   string // on this machine
	size   int64
	sample []byte // the first 512 bytes
	sha256 string // the name of a large file's content
	git    string // the name of a small file's content: that of Git's blob
	large  bool
}

// Bounds of a push. A folder above them is not one of a model.
const (
	maxFiles   = 10_000
	maxRegular = 10 << 20 // of a file that goes into the commit itself
)

// Push makes the folder's files those of the repository: files of the same names are replaced, and
// others are left alone.
func Push(ctx context.Context, c Config, folder string) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	calls, err := hubfs.NewClient(c.Account)
	if err != nil {
		return Result{}, err
	}
	c.Endpoint = calls.Endpoint
	k := &client{c, calls}
	files, err := list(ctx, folder)
	if err != nil {
		return Result{}, err
	}
	var result Result
	if result.Created, err = k.create(ctx); err != nil {
		return result, err
	}
	names := make(map[string]bool, len(files))
	for _, f := range files {
		names[f.name] = true
	}
	if files, err = k.classify(ctx, files); err != nil {
		return result, err
	}
	stale, err := k.stale(ctx, names)
	if err != nil || len(files) == 0 && len(stale) == 0 {
		return result, err
	}
	result.Files = len(files)
	for large := range slices.Chunk(slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return !f.large }), 100) {
		uploaded, err := k.uploadLarge(ctx, large)
		result.Bytes += uploaded
		if err != nil {
			return result, err
		}
	}
	result.Commit, err = k.commit(ctx, files, stale, &result)
	return result, err
}

// list describes the files of a folder, by name. Links, hidden files and what is no file are refused
// or left out: a push must not publish what a user did not see there.
func list(ctx context.Context, folder string) ([]*file, error) {
	var files []*file
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if path == folder {
			if !d.IsDir() {
				return fault.Usagef("%s is not a folder; expected one that gorbit export wrote", folder)
			}
			return nil
		}
		if strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() {
			return fault.Usagef("%s is not a regular file; a push has files only: copy it, or remove it", path)
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		f, err := describe(ctx, path)
		if err != nil {
			return err
		}
		f.name = filepath.ToSlash(name)
		if files = append(files, f); len(files) > maxFiles {
			return fault.Usagef("%s has more than %d files; expected the folder of a model", folder, maxFiles)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fault.Usagef("%s has no files; expected a folder that gorbit export wrote", folder)
	}
	return files, err
}

// describe reads a file for its size and checksums.
func describe(ctx context.Context, path string) (*file, error) {
	in, err := vfs.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	f := &file{path: path, size: info.Size(), sample: make([]byte, min(512, info.Size()))}
	if _, err := in.ReadAt(f.sample, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	content, blob := sha256.New(), sha1.New()
	fmt.Fprintf(blob, "blob %d\x00", f.size)
	n, err := io.Copy(io.MultiWriter(content, blob), stream.WithContext(ctx, in))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if n != f.size {
		return nil, &changedError{path}
	}
	f.sha256, f.git = hex.EncodeToString(content.Sum(nil)), hex.EncodeToString(blob.Sum(nil))
	return f, nil
}

// changedError is the error of a file that changed while it was pushed.
type changedError struct{ path string }

func (e *changedError) Error() string {
	return fmt.Sprintf("%s changed while it was pushed; push it again when nothing writes to it", e.path)
}

// create makes the repository, unless it is there.
func (c *client) create(ctx context.Context) (bool, error) {
	owner, name, _ := strings.Cut(c.Repo, "/")
	_, kind := c.kind()
	err := c.post(ctx, "create the repository "+c.Repo, c.Endpoint+"/api/repos/create",
		map[string]any{"type": kind, "organization": owner, "name": name, "private": !c.Public}, nil, nil)
	if status := (*hubfs.StatusError)(nil); errors.As(err, &status) {
		if status.Status == http.StatusConflict {
			return false, nil
		}
		// A token for one repository may write to it, but not create any.
		if status.Status == http.StatusForbidden && c.exists(ctx) {
			return false, nil
		}
	}
	return err == nil, err
}

// exists reports whether the token can see the repository.
func (c *client) exists(ctx context.Context) bool {
	_, _, err := c.calls.Do(ctx, hubfs.Call{What: "look for the repository", Method: http.MethodGet, URL: c.api()})
	return err == nil
}

// preuploaded is the hub's answer for one file.
type preuploaded struct {
	Path         string `json:"path"`
	UploadMode   string `json:"uploadMode"`
	ShouldIgnore bool   `json:"shouldIgnore"`
	OID          string `json:"oid"`
}

// classify asks the hub which files are large. It returns those that the repository does not have
// with this content.
func (c *client) classify(ctx context.Context, files []*file) ([]*file, error) {
	var left []*file
	for chunk := range slices.Chunk(files, 256) {
		type asked struct {
			Path   string `json:"path"`
			Sample string `json:"sample"`
			Size   int64  `json:"size"`
		}
		var in struct {
			Files []asked `json:"files"`
		}
		for _, f := range chunk {
			in.Files = append(in.Files, asked{f.name, base64.StdEncoding.EncodeToString(f.sample), f.size})
		}
		var out struct {
			Files []preuploaded `json:"files"`
		}
		err := c.post(ctx, "ask which files are large", c.api()+"/preupload/"+url.PathEscape(c.Revision), in, &out, nil)
		if err != nil {
			return nil, err
		}
		answers := make(map[string]preuploaded, len(out.Files))
		for _, a := range out.Files {
			answers[a.Path] = a
		}
		for _, f := range chunk {
			a, ok := answers[f.name]
			if !ok || a.UploadMode != "lfs" && a.UploadMode != "regular" {
				return nil, fmt.Errorf("ask which files are large: the answer of the hub lacks %s", f.name)
			}
			f.large = a.UploadMode == "lfs"
			has := f.git
			if f.large {
				has = f.sha256
			}
			switch {
			case a.ShouldIgnore:
				c.Log.Warn("the repository's .gitignore leaves a file out", "file", f.name)
			case a.OID == has:
			case !f.large && f.size > maxRegular:
				return nil, fmt.Errorf("ask which files are large: the hub takes %s for small; it has %d bytes", f.name, f.size)
			default:
				left = append(left, f)
			}
		}
	}
	return left, nil
}

// lfsHeader is sent with the calls of Git LFS.
var lfsHeader = map[string]string{"Accept": "application/vnd.git-lfs+json", "Content-Type": "application/vnd.git-lfs+json"}

// action is what to do with a large file.
type action struct {
	Href   string            `json:"href"`
	Header map[string]string `json:"header"`
}

// object is a large file.
type object struct {
	OID  string `json:"oid"`
	Size int64  `json:"size"`
}

// uploadLarge uploads the content of large files that the hub does not have, and returns its size.
func (c *client) uploadLarge(ctx context.Context, files []*file) (int64, error) {
	in := map[string]any{"operation": "upload", "transfers": []string{"basic", "multipart"}, "hash_algo": "sha256"}
	byOID := make(map[string]*file)
	var objects []object
	for _, f := range files {
		if byOID[f.sha256] == nil {
			byOID[f.sha256], objects = f, append(objects, object{f.sha256, f.size})
		}
	}
	in["objects"] = objects
	var out struct {
		Objects []struct {
			object
			Actions struct{ Upload, Verify *action }
			Error   *struct {
				Code    int
				Message string
			}
		}
	}
	if err := c.post(ctx, "ask where to upload large files", c.home()+".git/info/lfs/objects/batch", in, &out, lfsHeader); err != nil {
		return 0, err
	}
	uploaded, answered := int64(0), 0
	for _, o := range out.Objects {
		f := byOID[o.OID]
		if f == nil {
			return uploaded, errors.New("ask where to upload large files: the hub names a file that was not asked for")
		}
		answered++
		if o.Error != nil {
			return uploaded, &hubfs.StatusError{What: "upload " + f.name, Status: o.Error.Code, Message: o.Error.Message}
		}
		if o.Actions.Upload == nil {
			continue // the hub has it
		}
		c.Log.Info("upload", "file", f.name, "bytes", f.size)
		if err := c.upload(ctx, f, *o.Actions.Upload); err != nil {
			return uploaded, err
		}
		uploaded += f.size
		if v := o.Actions.Verify; v != nil {
			if err := c.post(ctx, "verify "+f.name, v.Href, object{f.sha256, f.size}, nil, merged(lfsHeader, v.Header)); err != nil {
				return uploaded, err
			}
		}
	}
	if answered != len(objects) {
		return uploaded, fmt.Errorf("ask where to upload large files: the answer of the hub has %d of %d files", answered, len(objects))
	}
	return uploaded, nil
}

func merged(a, b map[string]string) map[string]string {
	m := make(map[string]string, len(a)+len(b))
	for name, value := range a {
		m[name] = value
	}
	for name, value := range b {
		m[name] = value
	}
	return m
}

// partsAtOnce is the number of parts of a file that are uploaded at a time.
const partsAtOnce = 4

// upload uploads one file as a whole, or in parts if the hub gives their size.
func (c *client) upload(ctx context.Context, f *file, to action) error {
	in, err := vfs.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	size, inParts := to.Header["chunk_size"]
	if !inParts {
		_, err := c.put(ctx, "upload "+f.name, to.Href, to.Header, f, in, 0, f.size)
		return err
	}
	chunk, err := strconv.ParseInt(size, 10, 64)
	if err != nil || chunk < 1 {
		return fmt.Errorf("upload %s: the hub wants parts of %q bytes", f.name, size)
	}
	type part struct {
		PartNumber int    `json:"partNumber"`
		ETag       string `json:"etag"`
	}
	var parts []part
	addresses := make(map[int]string)
	for name, address := range to.Header {
		if n, err := strconv.Atoi(name); err == nil {
			addresses[n] = address
		}
	}
	count := (f.size + chunk - 1) / chunk
	if int64(len(addresses)) != count {
		return fmt.Errorf("upload %s: the hub gives %d addresses for %d parts", f.name, len(addresses), count)
	}
	parts = make([]part, count)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i := range parts {
		address, ok := addresses[i+1]
		if !ok {
			return errors.Join(fmt.Errorf("upload %s: the hub gives no address for part %d", f.name, i+1), group.Wait())
		}
		group.Go(func() error {
			from := int64(i) * chunk
			what := fmt.Sprintf("upload part %d of %d of %s", i+1, count, f.name)
			header, err := c.put(within, what, address, nil, f, in, from, min(chunk, f.size-from))
			if err != nil {
				return err
			}
			if header.Get("ETag") == "" {
				return fmt.Errorf("%s: the answer has no ETag", what)
			}
			parts[i] = part{i + 1, header.Get("ETag")}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// The parts were read more than once if an attempt failed: the whole must still be what was named.
	if now, err := describe(ctx, f.path); err != nil {
		return err
	} else if now.sha256 != f.sha256 {
		return &changedError{f.path}
	}
	return c.post(ctx, "complete "+f.name, to.Href, map[string]any{"oid": f.sha256, "parts": parts}, nil, lfsHeader)
}

// put uploads a section of a file. A file that is uploaded as a whole must have the content that
// was described.
func (c *client) put(ctx context.Context, what, address string, header map[string]string, f *file, in io.ReaderAt, from, length int64) (http.Header, error) {
	_, answer, err := c.calls.Do(ctx, hubfs.Call{What: what, Method: http.MethodPut, URL: address, Header: header, Advice: advice,
		Body: func() (io.Reader, int64, error) {
			section := io.NewSectionReader(in, from, length)
			if length != f.size {
				return section, length, nil
			}
			return &checked{r: section, left: length, hash: sha256.New(), f: f}, length, nil
		}})
	return answer, err
}

// checked reads a file to its end, and fails there if the content has another checksum.
type checked struct {
	r    io.Reader
	left int64
	hash hash.Hash
	f    *file
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.hash.Write(p[:n])
	if c.left -= int64(n); c.left == 0 && hex.EncodeToString(c.hash.Sum(nil)) != c.f.sha256 || err == io.EOF && c.left > 0 {
		return 0, hubfs.Permanent(&changedError{c.f.path})
	}
	return n, err
}

// stale returns the files of the folder to prune that are not pushed.
func (c *client) stale(ctx context.Context, pushed map[string]bool) ([]string, error) {
	if c.Prune == "" {
		return nil, nil
	}
	there, err := c.calls.Files(ctx, c.api()+"/revision/"+url.PathEscape(c.Revision), "list the repository")
	return slices.DeleteFunc(there.Names, func(name string) bool { return !strings.HasPrefix(name, c.Prune+"/") || pushed[name] }), err
}

// commit makes one commit of all files, without the stale ones, and returns its address.
func (c *client) commit(ctx context.Context, files []*file, stale []string, result *Result) (string, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	line := func(key string, value any) error {
		return lines.Encode(map[string]any{"key": key, "value": value})
	}
	if err := line("header", map[string]string{"summary": c.Message, "description": ""}); err != nil {
		return "", err
	}
	for _, name := range stale {
		if err := line("deletedFile", map[string]string{"path": name}); err != nil {
			return "", err
		}
	}
	for _, f := range files {
		if f.large {
			if err := line("lfsFile", map[string]any{"path": f.name, "algo": "sha256", "oid": f.sha256, "size": f.size}); err != nil {
				return "", err
			}
			continue
		}
		content, err := vfs.ReadFile(f.path)
		if err != nil {
			return "", err
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != f.sha256 {
			return "", &changedError{f.path}
		}
		result.Bytes += f.size
		if err := line("file", map[string]string{"path": f.name, "encoding": "base64", "content": base64.StdEncoding.EncodeToString(content)}); err != nil {
			return "", err
		}
	}
	content, _, err := c.calls.Do(ctx, hubfs.Call{What: "commit", Method: http.MethodPost, Advice: advice,
		URL:    c.api() + "/commit/" + url.PathEscape(c.Revision),
		Header: map[string]string{"Content-Type": "application/x-ndjson"},
		Body:   func() (io.Reader, int64, error) { return bytes.NewReader(body.Bytes()), int64(body.Len()), nil }})
	if err != nil {
		return "", err
	}
	var out struct {
		CommitURL string `json:"commitUrl"`
		CommitOID string `json:"commitOid"`
	}
	if err := json.Unmarshal(content, &out); err != nil || out.CommitURL == "" && out.CommitOID == "" {
		return "", errors.New("commit: the hub's answer names no commit")
	}
	if out.CommitURL == "" {
		return c.home() + "/commit/" + out.CommitOID, nil
	}
	return out.CommitURL, nil
}
