// Package gcs makes the buckets of Google Cloud Storage a file system of package vfs, for
// paths of the form gs://BUCKET/PATH.
//
// Importing the package registers the scheme. Nothing is read and no client is made before the
// first path is used. Requests use Application Default Credentials, or none if the environment
// variable STORAGE_EMULATOR_HOST names an emulator.
//
// Reading: [Store] lists folders and reads files in ranges. A file that is read again and again
// is copied to this machine once, see cache.go. Every read is of one generation of an object: a
// file that is replaced while it is read is an error, never a mixture.
//
// Writing: a bucket knows no rename, no append and no folder, so files are not written in place.
// [Store.Work] makes a folder of a bucket a local folder to work in, whose files are uploaded
// whole when they are synced, each with a precondition on the generation that it replaces.
// [Store.Publish] uploads a finished folder, the file that readers look for last. Both hold a
// lease on the folder, see lease.go.
package gcs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/web"
)

// The environment variables that configure the file system of gs://.
const (
	CacheVariable     = vfs.CacheVariable  // folder for copies
	CacheSizeVariable = "GORBIT_CACHE_GIB" // size of the copies of data, in GiB
)

// Scheme is that of paths of buckets.
const Scheme = "gs"

func init() {
	vfs.Register(Scheme, func() vfs.ReadFS { return New(Config{}) })
}

// Config configures a Store. The zero value has usable defaults.
type Config struct {
	// Cache is the folder for copies and for the folders that are worked in. "" means
	// $GORBIT_CACHE, or gorbit in the user's cache folder.
	Cache string
	// CacheBytes is the most that copies of files of records take up. 0 means
	// $GORBIT_CACHE_GIB, or 50 GiB.
	CacheBytes int64
	// Deadline limits each request with its retries; for the transfer of a file, the time
	// without progress. 0 means 2 minutes.
	Deadline time.Duration
	// Stall is the time without a byte after which a connection is given up, and the request
	// is tried again on another. 0 means 20 seconds.
	Stall time.Duration
	// Backoff is the first pause before a request is tried again; later ones are longer. 0
	// means 250 milliseconds.
	Backoff time.Duration
	// Lease is how long the lease on a folder is valid without being renewed. 0 means one
	// minute.
	Lease time.Duration
	// ChunkBytes is the size of the parts in which large files are uploaded, a multiple of
	// 256 KiB. 0 means 16 MiB.
	ChunkBytes int
	// Log gets a line if there are no credentials; nil means nobody.
	Log *slog.Logger

	// authorize adds credentials to requests; nil means Application Default Credentials.
	authorize func(ctx context.Context, base *http.Transport) (http.RoundTripper, error)
}

const (
	defaultCacheGiB = 50
	defaultDeadline = 2 * time.Minute
	defaultStall    = 20 * time.Second
	defaultBackoff  = 250 * time.Millisecond
	longestBackoff  = 15 * time.Second
	defaultLease    = time.Minute
	defaultChunk    = 16 << 20
	chunkUnit       = 256 << 10
)

// withDefaults fills the zero fields.
func (c Config) withDefaults() (Config, error) {
	if c.Cache == "" {
		var err error
		if c.Cache, err = vfs.CacheFolder(); err != nil {
			return c, err
		}
	}
	if c.CacheBytes == 0 {
		gib := int64(defaultCacheGiB)
		if text := os.Getenv(CacheSizeVariable); text != "" {
			var err error
			if gib, err = strconv.ParseInt(text, 10, 32); err != nil || gib < 0 {
				return c, fault.Usagef("%s is %q; expected a number of GiB, 0 or more", CacheSizeVariable, text)
			}
		}
		c.CacheBytes = max(gib<<30, 1)
	}
	abs, err := filepath.Abs(c.Cache)
	if err != nil {
		return c, err
	}
	c.Cache = abs
	for _, d := range []struct {
		field    *time.Duration
		default_ time.Duration
	}{{&c.Deadline, defaultDeadline}, {&c.Stall, defaultStall}, {&c.Backoff, defaultBackoff}, {&c.Lease, defaultLease}} {
		if *d.field == 0 {
			*d.field = d.default_
		}
	}
	if c.ChunkBytes == 0 {
		c.ChunkBytes = defaultChunk
	}
	return c, nil
}

// Store is the file system of gs://. It is safe for concurrent use.
type Store struct {
	given Config
	once  sync.Once
	cfg   Config // with defaults
	api   *storage.Client
	err   error // why there is no client
	cache *cache
}

var _ vfs.Remote = (*Store)(nil)

// New returns the file system with a configuration. It connects when it is first used.
func New(c Config) *Store { return &Store{given: c} }

// connect makes the client.
func (s *Store) connect() error {
	s.once.Do(func() {
		if s.cfg, s.err = s.given.withDefaults(); s.err != nil {
			return
		}
		s.cache = newCache(filepath.Join(s.cfg.Cache, "objects"), s.cfg.CacheBytes)
		s.api, s.err = newClient(s.cfg)
	})
	return s.err
}

// newClient returns a client that gives up connections that stall, and tries again what may be
// tried again. All requests may be: they read, or have preconditions.
func newClient(c Config) (*storage.Client, error) {
	ctx := context.Background()
	base := web.Transport(c.Stall)
	hc := &http.Client{Transport: base}
	if os.Getenv("STORAGE_EMULATOR_HOST") == "" && c.authorize == nil {
		c.authorize = func(ctx context.Context, base *http.Transport) (http.RoundTripper, error) {
			return htransport.NewTransport(ctx, base, option.WithScopes(storage.ScopeReadWrite))
		}
	}
	if c.authorize != nil {
		switch authorized, err := c.authorize(ctx, base); {
		case err == nil:
			hc.Transport = authorized
		case strings.Contains(err.Error(), "could not find default credentials"):
			if c.Log != nil {
				c.Log.Warn("no credentials for Google Cloud Storage were found; buckets are read as by anyone, which works if they are public")
			}
		default: // there are some, which are wrong
			return nil, fmt.Errorf("%w; expected %s", err, credentials)
		}
	}
	api, err := storage.NewClient(ctx, option.WithHTTPClient(hc), storage.WithDisabledClientMetrics())
	if err != nil {
		return nil, err
	}
	api.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithErrorFunc(temporary),
		storage.WithBackoff(gax.Backoff{Initial: c.Backoff, Max: max(c.Backoff, longestBackoff), Multiplier: 2}))
	return api, nil
}

// credentials says how to have some.
const credentials = "credentials for Google Cloud Storage: run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"

// temporary reports whether a request that failed may succeed if it is tried again.
func temporary(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var timeout interface{ Timeout() bool }
	return storage.ShouldRetry(err) || errors.As(err, &timeout) && timeout.Timeout()
}

// limited returns a context for one request with its retries.
func (s *Store) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.cfg.Deadline, &silentError{s.cfg.Deadline})
}

// silentError says that a bucket did not answer in time.
type silentError struct{ within time.Duration }

func (e *silentError) Error() string { return fmt.Sprintf("no answer within %v", e.within) }

// location is a parsed path: an object, or a folder, which is a prefix of objects.
type location struct{ bucket, object string }

// parse parses gs://BUCKET/PATH.
func parse(name string) (location, error) {
	rest, ok := strings.CutPrefix(vfs.Clean(name), Scheme+"://")
	bucket, object, _ := strings.Cut(rest, "/")
	if !ok || bucket == "" || bucket == "." || bucket == ".." || strings.ContainsRune(object, 0) {
		return location{}, &fs.PathError{Op: "open", Path: name, Err: errors.New("is not the path of a bucket; expected gs://BUCKET/PATH")}
	}
	return location{bucket, object}, nil
}

func (l location) String() string {
	if l.object == "" {
		return Scheme + "://" + l.bucket
	}
	return Scheme + "://" + l.bucket + "/" + l.object
}

// within returns the location of a path below this one.
func (l location) within(path string) location {
	return location{l.bucket, strings.TrimPrefix(l.object+"/"+path, "/")}
}

// prefix is the prefix of the objects in the folder.
func (l location) prefix() string {
	if l.object == "" {
		return ""
	}
	return l.object + "/"
}

// handle returns the client's handle of the object.
func (s *Store) handle(l location) *storage.ObjectHandle {
	return s.api.Bucket(l.bucket).Object(l.object)
}

// ErrChanged says that an object was replaced or deleted by another program.
var ErrChanged = errors.New("was changed by another program")

// fail returns an error of the file system for an error of the client. It never contains a URL,
// because that of an upload is a right to write.
func fail(ctx context.Context, op string, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: reason(ctx, err)}
}

// reason turns an error of the client into one that says what to do.
func reason(ctx context.Context, err error) error {
	var api *googleapi.Error
	var transport *url.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return err // of this machine's disk
	case errors.Is(err, storage.ErrObjectNotExist):
		return fs.ErrNotExist
	case errors.Is(err, storage.ErrBucketNotExist):
		return fmt.Errorf("%w: %w", vfs.ErrNoBucket, fs.ErrNotExist)
	case ctx.Err() != nil:
		cause := context.Cause(ctx)
		var silent *silentError
		if errors.As(cause, &silent) && errors.As(err, &api) {
			return fmt.Errorf("%w; the last answer was %s", cause, status(api))
		}
		return cause
	case errors.As(err, &api):
		switch api.Code {
		case http.StatusPreconditionFailed:
			return ErrChanged
		case http.StatusNotFound:
			return fs.ErrNotExist
		case http.StatusUnauthorized:
			return &accessError{status(api), "expected " + credentials}
		case http.StatusForbidden:
			return &accessError{status(api), "give the account the role Storage Object User on the bucket (to read only, Storage Object Viewer)"}
		}
		return errors.New(status(api))
	case errors.As(err, &transport):
		return reason(ctx, transport.Err)
	}
	if strings.Contains(err.Error(), "default credentials") {
		return errors.New("no credentials; expected " + credentials)
	}
	return err
}

// status describes an answer in one line.
func status(e *googleapi.Error) string {
	message, _, _ := strings.Cut(strings.TrimSpace(e.Message), "\n")
	return fmt.Sprintf("%d %s", e.Code, cmp.Or(message, http.StatusText(e.Code)))
}

// accessError says that an account may not do something.
type accessError struct{ status, mend string }

func (e *accessError) Error() string {
	return fmt.Sprintf("access denied (%s); %s", e.status, e.mend)
}

// Is reports whether the target is fs.ErrPermission.
func (e *accessError) Is(target error) bool { return target == fs.ErrPermission }
