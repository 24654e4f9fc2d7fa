// Package hubtest provides a model hub in memory for tests, with the calls that packages hub and hubfs
// make. It checks what it is sent as a hub would: checksums, sizes, part numbers, and who may do what.
package hubtest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
)

// Token is the token that may write.
const Token = "hf_SecretOfTheTests"

// Hub is a hub with one storage server for large files.
type Hub struct {
	// URL is the hub's address.
	URL string
	// ChunkSize is the size of parts of large files; 0 takes files as a whole.
	ChunkSize int64
	// Large is the size from which on a file is large.
	Large int64
	// Fail is asked before each request, by its place in the order of all requests: a status other
	// than 0 is the answer, and -1 cuts the connection.
	Fail func(n int, r *http.Request) int
	// Public lets all read, without a token.
	Public bool
	// Renamed are repositories that have other names now.
	Renamed map[string]string
	// Trouble is asked for each content that is sent, by how many were sent before.
	Trouble func(n int, name string) Trouble

	mu       sync.Mutex
	api      *httptest.Server
	storage  *httptest.Server
	requests []string
	repos    map[string]*Repo
	objects  map[string][]byte         // by SHA-256
	parts    map[string]map[int][]byte // of objects that are being uploaded
	puts     map[string]int            // how often each object's content, or a part, came
	leaked   []string                  // requests that had a token and should not
	sent     []Sent
}

// Repo is a repository.
type Repo struct {
	Private bool
	Files   map[string][]byte
	Commits []string // their messages

	snapshots map[string]map[string][]byte // by commit
}

// Commit is the name of the newest commit.
func (r *Repo) Commit() string {
	return fmt.Sprintf("%x", sha1.Sum([]byte(fmt.Sprint(len(r.Commits), r.Commits))))
}

// commit makes files a part of the repository.
func (r *Repo) commit(files map[string][]byte, message string) {
	for name, content := range files {
		r.Files[name] = content
	}
	r.Commits = append(r.Commits, message)
	r.snapshots[r.Commit()] = maps.Clone(r.Files)
}

// New starts a hub. Close ends it.
func New() *Hub {
	h := &Hub{Large: 1000, repos: make(map[string]*Repo), objects: make(map[string][]byte),
		parts: make(map[string]map[int][]byte), puts: make(map[string]int)}
	h.api = httptest.NewServer(h.watch(http.HandlerFunc(h.serve)))
	h.storage = httptest.NewServer(h.watch(http.HandlerFunc(h.store)))
	h.URL = h.api.URL
	return h
}

// Close ends the hub.
func (h *Hub) Close() {
	h.api.Close()
	h.storage.Close()
}

// Repo returns a copy of what a repository has, or nil.
func (h *Hub) Repo(name string) *Repo {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[name]
	if r == nil {
		return nil
	}
	c := &Repo{Private: r.Private, Files: make(map[string][]byte), Commits: append([]string(nil), r.Commits...)}
	for name, content := range r.Files {
		c.Files[name] = content
	}
	return c
}

// Requests returns the requests so far, as "METHOD /path".
func (h *Hub) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.requests...)
}

// Puts returns how many times content was uploaded to the storage.
func (h *Hub) Puts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, k := range h.puts {
		n += k
	}
	return n
}

// Leaked returns the requests that brought a token to a server that is not the hub.
func (h *Hub) Leaked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.leaked...)
}

func (h *Hub) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		n := len(h.requests)
		h.requests = append(h.requests, r.Method+" "+r.URL.Path)
		fail := h.Fail
		h.mu.Unlock()
		if fail != nil {
			switch status := fail(n, r); {
			case status == -1:
				panic(http.ErrAbortHandler)
			case status != 0:
				http.Error(w, fmt.Sprintf(`{"error": "told to fail; your token is %s"}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")), status)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": fmt.Sprintf(format, args...)})
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		h.read(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, 400, "%v", err)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, 401, "Invalid username or password.")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch path := r.URL.Path; {
	case path == "/api/repos/create":
		h.create(w, body)
	case strings.HasSuffix(path, "/preupload/main"):
		h.preupload(w, repoOf(path, "/preupload/main"), body)
	case strings.HasSuffix(path, ".git/info/lfs/objects/batch"):
		h.batch(w, body)
	case strings.HasPrefix(path, "/verify"):
		var o struct {
			OID  string
			Size int64
		}
		if err := json.Unmarshal(body, &o); err != nil || int64(len(h.objects[o.OID])) != o.Size {
			refuse(w, 422, "not the object")
		}
	case strings.HasSuffix(path, "/commit/main"):
		h.commit(w, repoOf(path, "/commit/main"), body)
	default:
		refuse(w, 404, "Repository not found")
	}
}

func (h *Hub) create(w http.ResponseWriter, body []byte) {
	var in struct {
		Type, Organization, Name string
		Private                  bool
	}
	if err := json.Unmarshal(body, &in); err != nil || in.Type != "model" && in.Type != "dataset" {
		refuse(w, 400, "not a model or dataset")
		return
	}
	name := in.Organization + "/" + in.Name
	if in.Type == "dataset" {
		name = "datasets/" + name
	}
	if in.Organization == "forbidden" {
		refuse(w, 403, "You don't have the rights to create a model under this namespace")
		return
	}
	if h.repos[name] != nil {
		refuse(w, 409, "You already created this model repo")
		return
	}
	h.repos[name] = newRepo(in.Private)
	_, _ = io.WriteString(w, `{"url": ""}`)
}

func (h *Hub) preupload(w http.ResponseWriter, repo string, body []byte) {
	r := h.repos[repo]
	if r == nil {
		refuse(w, 404, "Repository not found")
		return
	}
	var in struct {
		Files []struct {
			Path, Sample string
			Size         int64
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		refuse(w, 400, "%v", err)
		return
	}
	var out struct {
		Files []map[string]any `json:"files"`
	}
	for _, f := range in.Files {
		mode, oid := "regular", ""
		content, has := r.Files[f.Path]
		if f.Size >= h.Large {
			mode = "lfs"
			if has {
				sum := sha256.Sum256(content)
				oid = hex.EncodeToString(sum[:])
			}
		} else if has {
			sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))
			oid = hex.EncodeToString(sum[:])
		}
		out.Files = append(out.Files, map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": strings.HasSuffix(f.Path, ".ignored"), "oid": oid})
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (h *Hub) batch(w http.ResponseWriter, body []byte) {
	var in struct {
		Operation string
		Objects   []struct {
			OID  string
			Size int64
		}
	}
	if err := json.Unmarshal(body, &in); err != nil || in.Operation != "upload" {
		refuse(w, 400, "not an upload")
		return
	}
	type action struct {
		Href   string            `json:"href"`
		Header map[string]string `json:"header,omitempty"`
	}
	var objects []map[string]any
	for _, o := range in.Objects {
		answer := map[string]any{"oid": o.OID, "size": o.Size}
		if _, has := h.objects[o.OID]; !has {
			upload := action{Href: h.storage.URL + "/object/" + o.OID + "?permission=of-this-one"}
			if h.ChunkSize > 0 {
				upload.Href = h.storage.URL + "/complete/" + o.OID + "?permission=of-this-one"
				upload.Header = map[string]string{"chunk_size": strconv.FormatInt(h.ChunkSize, 10)}
				for i := int64(0); i*h.ChunkSize < o.Size; i++ {
					upload.Header[fmt.Sprintf("%05d", i+1)] = fmt.Sprintf("%s/part/%s/%d", h.storage.URL, o.OID, i+1)
				}
				h.parts[o.OID] = make(map[int][]byte)
			}
			answer["actions"] = map[string]action{"upload": upload, "verify": {Href: h.api.URL + "/verify"}}
		}
		objects = append(objects, answer)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects})
}

// store is the storage server, which must not get the token.
func (h *Hub) store(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		h.mu.Lock()
		if strings.Contains(fmt.Sprint(r.Header), Token) {
			h.leaked = append(h.leaked, r.Method+" "+r.URL.Path)
		}
		oid := strings.TrimPrefix(r.URL.Path, "/object/")
		content, has := h.objects[oid]
		h.mu.Unlock()
		if !has || r.URL.Query().Get("permission") == "" {
			refuse(w, 403, "no permission")
			return
		}
		h.send(w, r, r.URL.Query().Get("name"), content)
		return
	}
	body, err := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.Contains(fmt.Sprint(r.Header), Token) {
		h.leaked = append(h.leaked, r.Method+" "+r.URL.Path)
	}
	if err != nil {
		refuse(w, 400, "%v", err)
		return
	}
	fields := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch oid := fields[1]; fields[0] {
	case "object":
		h.puts[oid]++
		h.keep(w, oid, body)
	case "part":
		n, _ := strconv.Atoi(fields[2])
		h.puts[oid+"/"+fields[2]]++
		h.parts[oid][n] = body
		w.Header().Set("ETag", etag(body))
	case "complete":
		var in struct {
			OID   string
			Parts []struct {
				PartNumber int
				ETag       string
			}
		}
		if err := json.Unmarshal(body, &in); err != nil || in.OID != oid {
			refuse(w, 400, "not this object")
			return
		}
		var whole []byte
		for i, p := range in.Parts {
			if p.PartNumber != i+1 || p.ETag != etag(h.parts[oid][i+1]) {
				refuse(w, 400, "part %d is wrong", i+1)
				return
			}
			whole = append(whole, h.parts[oid][i+1]...)
		}
		h.keep(w, oid, whole)
	}
}

func etag(content []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(content))) }

func (h *Hub) keep(w http.ResponseWriter, oid string, content []byte) {
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != oid {
		refuse(w, 400, "the content has another checksum")
		return
	}
	h.objects[oid] = content
}

func (h *Hub) commit(w http.ResponseWriter, repo string, body []byte) {
	r := h.repos[repo]
	if r == nil {
		refuse(w, 404, "Repository not found")
		return
	}
	files, summary := make(map[string][]byte), ""
	for line := range bytes.Lines(body) {
		var in struct {
			Key   string
			Value struct {
				Summary, Path, Content, Encoding, Algo, OID string
				Size                                        int64
			}
		}
		if err := json.Unmarshal(line, &in); err != nil {
			refuse(w, 400, "%v", err)
			return
		}
		switch v := in.Value; in.Key {
		case "header":
			summary = v.Summary
		case "file":
			content, err := base64.StdEncoding.DecodeString(v.Content)
			if err != nil {
				refuse(w, 400, "%v", err)
				return
			}
			files[v.Path] = content
		case "deletedFile":
			if _, has := r.Files[v.Path]; !has {
				refuse(w, 400, "there is no %s", v.Path)
				return
			}
			delete(r.Files, v.Path)
		case "lfsFile":
			content, has := h.objects[v.OID]
			if !has || int64(len(content)) != v.Size || v.Algo != "sha256" {
				refuse(w, 400, "large file %s was not uploaded", v.Path)
				return
			}
			files[v.Path] = content
		}
	}
	r.commit(files, summary)
	_ = json.NewEncoder(w).Encode(map[string]string{"commitUrl": fmt.Sprintf("%s/%s/commit/%d", h.URL, repo, len(r.Commits)), "commitOid": strconv.Itoa(len(r.Commits))})
}
