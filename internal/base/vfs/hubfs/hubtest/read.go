package hubtest

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Trouble is what goes wrong with content that is sent. The zero value is none.
type Trouble struct {
	// After is how many bytes are sent before the connection is cut, or nothing more comes.
	After      int64
	Cut, Stall bool
	// More is how many bytes larger a file is said to be than it is.
	More int64
	// Other sends other bytes than the file has.
	Other bool
	// Whole sends all of the file, whatever range was asked for.
	Whole bool
}

// Sent is content that was asked for.
type Sent struct{ Name, Range string }

// Sent returns the content that was asked for so far.
func (h *Hub) Sent() []Sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sent)
}

func newRepo(private bool) *Repo {
	return &Repo{Private: private, Files: make(map[string][]byte), snapshots: make(map[string]map[string][]byte)}
}

// Put commits files to a repository, which it makes if necessary, and returns the commit. That of a
// dataset begins with datasets/.
func (h *Hub) Put(name string, files map[string][]byte) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[name]
	if r == nil {
		r = newRepo(false)
		h.repos[name] = r
	}
	for _, content := range files {
		if int64(len(content)) >= h.Large {
			sum := sha256.Sum256(content)
			h.objects[hex.EncodeToString(sum[:])] = content
		}
	}
	r.commit(files, "put "+name)
	return r.Commit()
}

// repoOf returns the name of a repository in the path of a call.
func repoOf(path, suffix string) string {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/api/"), suffix)
	return strings.TrimPrefix(path, "models/")
}

// read answers a call that changes nothing.
func (h *Hub) read(w http.ResponseWriter, r *http.Request) {
	if !h.Public && r.Header.Get("Authorization") != "Bearer "+Token {
		w.Header().Set("X-Error-Message", "Invalid username or password.")
		refuse(w, 401, "Invalid username or password.")
		return
	}
	for old, now := range h.Renamed {
		if strings.Contains(r.URL.Path, "/"+old) {
			http.Redirect(w, r, strings.Replace(r.URL.Path, "/"+old, "/"+now, 1), http.StatusTemporaryRedirect)
			return
		}
	}
	if of, revision, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/resolve/"); ok {
		commit, name, _ := strings.Cut(revision, "/")
		name, _ = url.PathUnescape(name)
		h.resolve(w, r, of, commit, name)
		return
	}
	repo, revision, _ := strings.Cut(repoOf(r.URL.EscapedPath(), ""), "/revision/")
	commit, files := h.at(repo, revision)
	if files == nil {
		refuse(w, 404, "Repository not found")
		return
	}
	type sibling struct {
		Name string `json:"rfilename"`
	}
	var siblings []sibling
	for _, name := range slices.Sorted(maps.Keys(files)) {
		siblings = append(siblings, sibling{name})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": repo, "sha": commit, "siblings": siblings})
}

// at returns the commit that a revision is, and its files; nil if there is none.
func (h *Hub) at(repo, revision string) (string, map[string][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[repo]
	if r == nil {
		return "", nil
	}
	if revision == "" || revision == "main" {
		revision = r.Commit()
	}
	return revision, r.snapshots[revision]
}

// resolve answers with a small file, or with the address of a large one.
func (h *Hub) resolve(w http.ResponseWriter, r *http.Request, repo, revision, name string) {
	commit, files := h.at(repo, revision)
	content, has := files[name]
	w.Header().Set("X-Repo-Commit", commit)
	if !has {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		refuse(w, 404, "Entry not found")
		return
	}
	if int64(len(content)) < h.Large {
		sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))
		w.Header().Set("ETag", strconv.Quote(hex.EncodeToString(sum[:])))
		h.send(w, r, name, content)
		return
	}
	sum := sha256.Sum256(content)
	oid := hex.EncodeToString(sum[:])
	w.Header().Set("ETag", strconv.Quote("of-the-pointer"))
	w.Header().Set("X-Linked-Etag", strconv.Quote(oid))
	w.Header().Set("X-Linked-Size", strconv.FormatInt(int64(len(content))+h.trouble(name).More, 10))
	http.Redirect(w, r, h.storage.URL+"/object/"+oid+"?permission=of-this-one&name="+url.QueryEscape(name), http.StatusFound)
}

// trouble returns what goes wrong with the next content of a name.
func (h *Hub) trouble(name string) Trouble {
	if h.Trouble == nil {
		return Trouble{}
	}
	return h.Trouble(len(h.Sent()), name)
}

// send sends content, or what was asked for of it.
func (h *Hub) send(w http.ResponseWriter, r *http.Request, name string, content []byte) {
	trouble := h.trouble(name)
	if r.Method == http.MethodGet {
		h.mu.Lock()
		h.sent = append(h.sent, Sent{name, cmp.Or(r.Header.Get("Range"), "all")})
		h.mu.Unlock()
	}
	if trouble.Whole {
		r.Header.Del("Range")
	}
	if trouble.Other {
		content = bytes.Repeat([]byte{'?'}, len(content))
	}
	if trouble.Cut || trouble.Stall {
		w = &troubled{ResponseWriter: w, left: trouble.After, trouble: trouble, gone: r.Context().Done()}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// troubled is a connection that ends, or falls silent.
type troubled struct {
	http.ResponseWriter
	left    int64
	trouble Trouble
	gone    <-chan struct{}
}

func (t *troubled) Write(p []byte) (int, error) {
	if int64(len(p)) <= t.left {
		t.left -= int64(len(p))
		return t.ResponseWriter.Write(p)
	}
	_, _ = t.ResponseWriter.Write(p[:t.left])
	t.ResponseWriter.(http.Flusher).Flush()
	if t.trouble.Stall {
		<-t.gone
	}
	panic(http.ErrAbortHandler)
}
