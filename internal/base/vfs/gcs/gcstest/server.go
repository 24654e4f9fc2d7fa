// Package gcstest is a server that speaks the parts of Cloud Storage's API that package gcs uses,
// for tests. Unlike other servers for tests, it checks every precondition on a generation, keeps
// the state of a bucket after each change, and can fail, stall, and cut a connection at any byte.
package gcstest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

// Object is an object of a bucket.
type Object struct {
	Data       []byte
	Generation int64
	Metadata   map[string]string
	Updated    time.Time
	crc        string // of the content, in base64
}

// State is the content of a bucket by the names of the objects.
type State map[string]Object

// Fault is what a server does with a request instead of answering it.
type Fault struct {
	// Status answers with an error of this status; nothing is done.
	Status int
	// Stall never answers.
	Stall bool
	// Stream sends only the first bytes of the answer, and then closes the connection, or
	// says nothing more if Stall is set as well. The request is done.
	Stream bool
	Bytes  int
	// Damage changes a byte of the answer's body.
	Damage bool
}

// Server is a server of one bucket. Set PageSize before the first request.
type Server struct {
	*httptest.Server
	Bucket string
	// PageSize is the most objects of an answer to a listing; 0 means 1000.
	PageSize int

	mu       sync.Mutex
	fault    func(r *http.Request) *Fault
	objects  State
	last     int64 // generation
	sessions map[string]*session
	history  []Change
	requests []string
	done     chan struct{}
}

// Change is one change of the bucket and the state after it.
type Change struct {
	What  string
	State State
}

type session struct {
	query url.Values
	meta  resource
	data  []byte
}

// NewServer starts a server of an empty bucket.
func NewServer(bucket string) *Server {
	s := &Server{Bucket: bucket, objects: State{}, sessions: map[string]*session{}, done: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Close stops the server.
func (s *Server) Close() {
	close(s.done)
	s.CloseClientConnections()
	s.Server.Close()
}

// Fail sets the function that returns what to do with a request, or nil to answer it. Without a
// function all requests are answered.
func (s *Server) Fail(fault func(r *http.Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Put stores an object, not as a change.
func (s *Server) Put(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(name, data, nil)
}

func (s *Server) store(name string, data []byte, metadata map[string]string) Object {
	s.last++
	o := Object{Data: bytes.Clone(data), Generation: s.last, Metadata: metadata, Updated: time.Now(), crc: checksum(data)}
	s.objects[name] = o
	return o
}

// State returns the content of the bucket.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// Load replaces the content of the bucket, not as a change.
func (s *Server) Load(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects = maps.Clone(state); s.objects == nil {
		s.objects = State{}
	}
	for _, o := range state {
		s.last = max(s.last, o.Generation)
	}
}

// History returns the changes so far.
func (s *Server) History() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// Requests returns the requests so far, each as its method and path with the query.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// changed records a change.
func (s *Server) changed(what, name string) {
	s.history = append(s.history, Change{what + " " + name, maps.Clone(s.objects)})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	var fault *Fault
	if s.fault != nil {
		fault = s.fault(r)
	}
	s.mu.Unlock()
	switch {
	case fault == nil:
		s.answer(w, r)
	case fault.Status != 0:
		_, _ = io.Copy(io.Discard, r.Body)
		failure(w, fault.Status, "injected")
	case fault.Stream || fault.Damage:
		s.spoil(w, r, fault)
	case fault.Stall:
		s.wait(r)
	default:
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) wait(r *http.Request) {
	select {
	case <-s.done:
	case <-r.Context().Done():
	}
}

// spoil answers a request in part, or wrong.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, fault *Fault) {
	rec := httptest.NewRecorder()
	s.answer(rec, r)
	body := rec.Body.Bytes()
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if fault.Damage && len(body) > 0 {
		body[len(body)/2] ^= 1
		fault.Bytes = len(body)
	}
	if fault.Stream && fault.Bytes < 0 { // not even the header
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body[:min(fault.Bytes, len(body))])
	if !fault.Stream {
		return
	}
	_ = http.NewResponseController(w).Flush()
	if fault.Stall {
		s.wait(r)
	}
	panic(http.ErrAbortHandler)
}

// resource is an object in JSON.
type resource struct {
	Kind           string            `json:"kind,omitempty"`
	Name           string            `json:"name,omitempty"`
	Bucket         string            `json:"bucket,omitempty"`
	Generation     string            `json:"generation,omitempty"`
	Metageneration string            `json:"metageneration,omitempty"`
	Size           string            `json:"size,omitempty"`
	CRC32C         string            `json:"crc32c,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Updated        string            `json:"updated,omitempty"`
}

func checksum(data []byte) string {
	sum := crc32.Checksum(data, crc32c.Table)
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func (s *Server) resource(name string, o Object) resource {
	return resource{Kind: "storage#object", Name: name, Bucket: s.Bucket, Generation: fmt.Sprint(o.Generation), Metageneration: "1",
		Size: fmt.Sprint(len(o.Data)), CRC32C: o.crc, Metadata: o.Metadata, Updated: o.Updated.UTC().Format(time.RFC3339Nano)}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func failure(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": message}})
}

// answer answers a request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone, and nothing is done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for _, p := range strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		part, err := url.PathUnescape(p)
		if err != nil {
			failure(w, http.StatusBadRequest, err.Error())
			return
		}
		parts = append(parts, part)
	}
	q := r.URL.Query()
	path := strings.Join(parts[:min(3, len(parts))], "/")
	switch {
	case strings.HasPrefix(path, "upload/storage/v1") && (len(parts) < 5 || parts[4] != s.Bucket):
		failure(w, http.StatusNotFound, "The specified bucket does not exist.")
	case strings.HasPrefix(path, "upload/storage/v1"):
		s.upload(w, r, q, body)
	case !strings.HasPrefix(path, "storage/v1/b"):
		s.get(w, r, parts[0], strings.Join(parts[1:], "/"), q)
	case len(parts) < 5 || parts[3] != s.Bucket || parts[4] != "o":
		failure(w, http.StatusNotFound, "The specified bucket does not exist.")
	case len(parts) == 5:
		s.list(w, q)
	case len(parts) == 7 && parts[6] == "compose":
		s.compose(w, parts[5], q, body)
	case len(parts) == 11 && parts[6] == "rewriteTo":
		s.rewrite(w, parts[5], parts[10], q)
	case r.Method == http.MethodGet && q.Get("alt") == "media":
		s.get(w, r, parts[3], parts[5], q)
	case r.Method == http.MethodGet:
		if o, ok := s.find(w, parts[5], q); ok {
			reply(w, s.resource(parts[5], o))
		}
	case r.Method == http.MethodDelete:
		if _, ok := s.find(w, parts[5], q); ok && s.allowed(w, parts[5], q) {
			delete(s.objects, parts[5])
			s.changed("delete", parts[5])
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		failure(w, http.StatusNotImplemented, r.Method+" "+r.URL.String())
	}
}

// find returns the object of a request, or answers that there is none.
func (s *Server) find(w http.ResponseWriter, name string, q url.Values) (Object, bool) {
	o, ok := s.objects[name]
	if g := q.Get("generation"); g != "" && g != fmt.Sprint(o.Generation) {
		ok = false
	}
	if !ok {
		failure(w, http.StatusNotFound, "No such object: "+s.Bucket+"/"+name)
	}
	return o, ok
}

// allowed checks the precondition of a request, or answers that it does not hold.
func (s *Server) allowed(w http.ResponseWriter, name string, q url.Values) bool {
	match := q.Get("ifGenerationMatch")
	if match != "" && match != fmt.Sprint(s.objects[name].Generation) {
		failure(w, http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold.")
		return false
	}
	return true
}

// get answers with the content of an object, or a range of it.
func (s *Server) get(w http.ResponseWriter, r *http.Request, bucket, name string, q url.Values) {
	if bucket != s.Bucket {
		failure(w, http.StatusNotFound, "The specified bucket does not exist.")
		return
	}
	o, ok := s.find(w, name, q)
	if !ok {
		return
	}
	w.Header().Set("X-Goog-Generation", fmt.Sprint(o.Generation))
	w.Header().Set("X-Goog-Metageneration", "1")
	w.Header().Set("X-Goog-Hash", "crc32c="+o.crc)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.Data))
}

// list answers with the names that have a prefix, a page at a time.
func (s *Server) list(w http.ResponseWriter, q url.Values) {
	prefix, delimiter, from := q.Get("prefix"), q.Get("delimiter"), q.Get("pageToken")
	size := s.PageSize
	if size == 0 {
		size = 1000
	}
	out := struct {
		Kind          string     `json:"kind"`
		Items         []resource `json:"items"`
		Prefixes      []string   `json:"prefixes,omitempty"`
		NextPageToken string     `json:"nextPageToken,omitempty"`
	}{Kind: "storage#objects"}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || name <= from {
			continue
		}
		if len(out.Items)+len(out.Prefixes) == size {
			break
		}
		if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
			folder := prefix + rest[:i+len(delimiter)]
			if strings.HasPrefix(from, folder) {
				continue
			}
			if !slices.Contains(out.Prefixes, folder) {
				out.Prefixes = append(out.Prefixes, folder)
			}
		} else {
			out.Items = append(out.Items, s.resource(name, s.objects[name]))
		}
		out.NextPageToken = name
	}
	if len(out.Items)+len(out.Prefixes) < size {
		out.NextPageToken = ""
	}
	reply(w, out)
}

// upload answers the requests of multipart and resumable uploads.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, q url.Values, body []byte) {
	switch id := q.Get("upload_id"); {
	case id != "":
		s.resume(w, r, id, body)
	case q.Get("uploadType") == "resumable":
		meta := resource{}
		if err := json.Unmarshal(body, &meta); err != nil {
			failure(w, http.StatusBadRequest, err.Error())
			return
		}
		meta.Name = max(meta.Name, q.Get("name"))
		id := fmt.Sprintf("secret-session-%d", len(s.sessions)+1)
		s.sessions[id] = &session{query: q, meta: meta}
		w.Header().Set("Location", s.URL+"/upload/storage/v1/b/"+s.Bucket+"/o?uploadType=resumable&upload_id="+id)
	default:
		meta, data, err := parts(r.Header.Get("Content-Type"), body)
		if err != nil {
			failure(w, http.StatusBadRequest, err.Error())
			return
		}
		meta.Name = max(meta.Name, q.Get("name"))
		s.finish(w, meta, data, q)
	}
}

// parts reads the two parts of a multipart upload.
func parts(contentType string, body []byte) (meta resource, data []byte, err error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return meta, nil, err
	}
	m := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	first, err := m.NextPart()
	if err != nil {
		return meta, nil, err
	}
	if err := json.NewDecoder(first).Decode(&meta); err != nil {
		return meta, nil, err
	}
	second, err := m.NextPart()
	if err != nil {
		return meta, nil, err
	}
	data, err = io.ReadAll(second)
	return meta, data, err
}

// resume answers a part of a resumable upload, or the question how much has arrived.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	up := s.sessions[id]
	if up == nil {
		failure(w, http.StatusNotFound, "no such upload")
		return
	}
	spec, total, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Content-Range"), "bytes "), "/")
	if spec != "*" {
		var from int
		if _, err := fmt.Sscanf(spec, "%d-", &from); err != nil || from > len(up.data) {
			failure(w, http.StatusBadRequest, "range "+spec)
			return
		}
		up.data = append(up.data[:from], body...)
	}
	if total == fmt.Sprint(len(up.data)) {
		s.finish(w, up.meta, up.data, up.query)
		return
	}
	if len(up.data) > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(up.data)-1))
	}
	w.Header().Set("X-Http-Status-Code-Override", "308")
}

// finish stores an uploaded object.
func (s *Server) finish(w http.ResponseWriter, meta resource, data []byte, q url.Values) {
	if meta.CRC32C != "" && meta.CRC32C != checksum(data) {
		failure(w, http.StatusBadRequest, "Provided CRC32C does not match.")
		return
	}
	if !s.allowed(w, meta.Name, q) {
		return
	}
	o := s.store(meta.Name, data, meta.Metadata)
	s.changed("put", meta.Name)
	reply(w, s.resource(meta.Name, o))
}

// compose joins objects.
func (s *Server) compose(w http.ResponseWriter, name string, q url.Values, body []byte) {
	var request struct {
		SourceObjects []struct {
			Name       string
			Generation json.RawMessage
		}
		Destination resource
	}
	if err := json.Unmarshal(body, &request); err != nil {
		failure(w, http.StatusBadRequest, err.Error())
		return
	}
	var data []byte
	for _, src := range request.SourceObjects {
		o, ok := s.objects[src.Name]
		if g := strings.Trim(string(src.Generation), `"`); !ok || g != "" && g != fmt.Sprint(o.Generation) {
			failure(w, http.StatusNotFound, "No such object: "+src.Name)
			return
		}
		data = append(data, o.Data...)
	}
	if !s.allowed(w, name, q) {
		return
	}
	o := s.store(name, data, request.Destination.Metadata)
	s.changed("compose", name)
	reply(w, s.resource(name, o))
}

// rewrite copies an object.
func (s *Server) rewrite(w http.ResponseWriter, from, to string, q url.Values) {
	source := url.Values{}
	if g := q.Get("sourceGeneration"); g != "" {
		source.Set("generation", g)
	}
	o, ok := s.find(w, from, source)
	if !ok || !s.allowed(w, to, q) {
		return
	}
	stored := s.store(to, o.Data, o.Metadata)
	s.changed("copy", to)
	reply(w, map[string]any{"kind": "storage#rewriteResponse", "done": true, "objectSize": fmt.Sprint(len(o.Data)),
		"totalBytesRewritten": fmt.Sprint(len(o.Data)), "resource": s.resource(to, stored)})
}

// PutFolder stores the files of a local folder below a prefix, not as changes.
func (s *Server) PutFolder(dir, prefix string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			s.Put(prefix+"/"+filepath.ToSlash(rel), data)
		}
		return err
	})
}
