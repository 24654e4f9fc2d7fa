package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Config says how requests are answered.
type Config struct {
	// MaxBodyBytes is the largest body of a request, and MaxExamples the most examples in it.
	MaxBodyBytes int64
	MaxExamples  int
	// MaxBodiesBytes is the most that the bodies of all requests in progress may have together; 0 is
	// Bodies times MaxBodyBytes. Requests beyond it get the status 503.
	MaxBodiesBytes int64
	// MaxConnections is the most connections at a time. Others wait until one of them ends.
	MaxConnections int
	// BatchTokens is the most tokens of a batch of texts, and BatchExamples the most examples of any
	// batch.
	BatchTokens, BatchExamples int
	// BatchDelay is how long an example waits for others if a lane is free and its batch is not full.
	BatchDelay time.Duration
	// QueueExamples is the most examples of a model that may wait. Requests beyond it get the status
	// 503.
	QueueExamples int
	// Timeout is the longest time from a request's last byte to its answers. Later ones get the
	// status 504.
	Timeout time.Duration
	// RefuseLong refuses texts that are longer than a model's limit. Otherwise they are cut and
	// marked.
	RefuseLong bool
	// Tokens are the bearer tokens of which requests must have one. Without tokens, all requests are
	// answered.
	Tokens []string
	Log    *slog.Logger
}

// Bodies is how many of the largest bodies may be in progress by default.
const Bodies = 8

// DefaultConfig returns the defaults, without a logger.
func DefaultConfig() Config {
	return Config{MaxBodyBytes: 16 << 20, MaxExamples: 1024, MaxConnections: 1024, BatchTokens: 1024, BatchExamples: 256, QueueExamples: 8192, Timeout: 30 * time.Second}
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{{"--max-body", c.MaxBodyBytes}, {"--max-examples", int64(c.MaxExamples)}, {"--max-connections", int64(c.MaxConnections)}, {"--batch-tokens", int64(c.BatchTokens)}, {"--batch-examples", int64(c.BatchExamples)}} {
		if f.value < 1 {
			return fmt.Errorf("%s is %d; expected 1 or more", f.name, f.value)
		}
	}
	switch {
	case c.MaxBodiesBytes != 0 && c.MaxBodiesBytes < c.MaxBodyBytes:
		return fmt.Errorf("--max-bodies is %d; expected %d or more, the most bytes of a request (--max-body)", c.MaxBodiesBytes, c.MaxBodyBytes)
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout is %v; expected more than 0", c.Timeout)
	case c.BatchDelay < 0 || c.BatchDelay > time.Second:
		return fmt.Errorf("--batch-delay is %v; expected 0 to 1s", c.BatchDelay)
	case c.QueueExamples < c.MaxExamples:
		return fmt.Errorf("--queue is %d; expected %d or more, the most examples of a request (--max-examples)", c.QueueExamples, c.MaxExamples)
	case c.Log == nil:
		return errors.New("no logger")
	}
	for _, t := range c.Tokens {
		if len(t) < minTokenBytes {
			return fmt.Errorf("a token of --token-file has %d characters; expected %d or more: make one with openssl rand -hex 32", len(t), minTokenBytes)
		}
	}
	return nil
}

// minTokenBytes is the length of the shortest token.
const minTokenBytes = 16

// Server answers requests with models. It is an http.Handler.
type Server struct {
	Config
	models  map[string]*served
	metrics *metrics
	mux     *http.ServeMux
	tokens  [][sha256.Size]byte
	bodies  budget
	parsing *semaphore.Weighted // of bytes of bodies
	images  *room
	ready   atomic.Bool
}

// served is a model and what makes its batches.
type served struct {
	Model
	batcher   *batcher
	generator *generator // nil unless it continues texts
	warn      sync.Once
}

// New returns a server of models, which is ready. Call Close at the end.
func New(models []Model, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{Config: c, models: make(map[string]*served, len(models)), metrics: newMetrics(), mux: http.NewServeMux()}
	for _, m := range models {
		if err := m.Validate(); err != nil {
			return nil, err
		}
		if s.models[m.Name] != nil {
			return nil, fmt.Errorf("two models have the name %s; expected different names: NAME=FOLDER", m.Name)
		}
		s.models[m.Name] = &served{Model: m}
	}
	if s.bodies.left = c.MaxBodiesBytes; s.bodies.left == 0 {
		s.bodies.left = Bodies * c.MaxBodyBytes
	}
	s.parsing, s.images = semaphore.NewWeighted(max(c.MaxBodyBytes, smallBody)), newRoom(s.bodies.left)
	for _, t := range c.Tokens {
		s.tokens = append(s.tokens, sha256.Sum256([]byte(t)))
	}
	for _, m := range s.models {
		m.batcher = newBatcher(s.batches(&m.Model))
		s.metrics.add(m)
		if m.Generates == nil {
			continue
		}
		var err error
		if m.generator, err = newGenerator(m.Generates, c.QueueExamples); err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	s.routes()
	s.ready.Store(true)
	return s, nil
}

// batches says how the batches of a model are made.
func (s *Server) batches(m *Model) batcherConfig {
	b := batcherConfig{
		lanes: m.Lanes, cost: s.BatchTokens, examples: s.BatchExamples, delay: s.BatchDelay, queue: s.QueueExamples,
		batched: func(batch []item, waited time.Duration) { s.metrics.batched(m.Name, batch, waited) },
	}
	// A call of the model has no deadline: other requests share it.
	if m.Texts != nil {
		b.compute = func(batch []item) ([]predict.Result, error) { return m.Texts.compute(context.Background(), batch) }
	} else {
		b.cost = b.examples
		b.compute = func(batch []item) ([]predict.Result, error) { return m.Features.compute(context.Background(), batch) }
	}
	return b
}

// Warm calls every model once on each of its lanes, so that the first requests do not wait for what
// TensorFlow does in first calls.
func (s *Server) Warm(ctx context.Context) error {
	for _, m := range s.models {
		g, ctx := errgroup.WithContext(ctx)
		for range m.Lanes {
			g.Go(func() error { return m.warmUp(ctx) })
		}
		if m.generator != nil {
			g.Go(func() error { return m.generator.warmUp(ctx) })
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("model %s: its first call failed: %w", m.Name, err)
		}
	}
	return nil
}

// warmUp calls the model with an example of its own.
func (m *Model) warmUp(ctx context.Context) error {
	if m.sourced() {
		return nil
	}
	if m.Texts == nil {
		_, err := m.Features.compute(ctx, nil)
		return err
	}
	e := m.Texts.Tokenizer.EncodeBatch([]text.Pair{{A: "a"}}, m.Texts.MaxLength)
	_, err := m.Texts.compute(ctx, []item{{example: example{encoding: e[0]}}})
	return err
}

// Drain makes /readyz say that the server is not ready. Requests are still answered.
func (s *Server) Drain() { s.ready.Store(false) }

// Close waits until the examples in the queues are answered, and refuses others.
func (s *Server) Close() {
	s.Drain()
	for _, m := range s.models {
		m.batcher.close()
		if m.generator != nil {
			m.generator.close()
		}
	}
}

func (s *Server) routes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	s.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, "stopping\n")
			return
		}
		io.WriteString(w, "ok\n")
	})
	s.mux.Handle("GET /metrics", s.guarded(s.metrics.handler().ServeHTTP))
	s.mux.Handle("GET /v1/models", s.guarded(s.list))
	s.mux.Handle("POST /v1/embeddings", s.guarded(s.embed))
	s.mux.Handle("POST /v1/completions", s.guarded(s.complete(completions)))
	s.mux.Handle("POST /v1/chat/completions", s.guarded(s.complete(conversations)))
	for _, path := range []string{"/v1/models/{model}", "/v1/models/{model}/versions/{version}"} {
		s.mux.Handle("POST "+path, s.guarded(s.post))
		s.mux.Handle("GET "+path, s.guarded(s.status))
		s.mux.Handle("GET "+path+"/metadata", s.guarded(s.metadata))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &statusError{http.StatusNotFound, fmt.Sprintf("%s %s is not served; expected POST /v1/models/NAME:predict, or see the documentation of gorbit serve", r.Method, words.Clip(r.URL.Path, 60))})
	})
}

// ServeHTTP implements http.Handler. It logs every request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	l := &logged{ResponseWriter: w, status: http.StatusOK}
	s.mux.ServeHTTP(l, r)
	level := slog.LevelInfo
	if r.Method == http.MethodGet && l.status == http.StatusOK {
		level = slog.LevelDebug // of probes, which come all the time
	}
	s.Log.Log(r.Context(), level, "request", "method", r.Method, "path", r.URL.Path, "status", l.status,
		"examples", l.examples, "bytes", l.bytes, "took", time.Since(start).Round(time.Microsecond), "from", r.RemoteAddr)
}

// logged remembers what the log says of a response.
type logged struct {
	http.ResponseWriter
	status, examples, bytes int
}

func (l *logged) WriteHeader(status int) {
	if status >= http.StatusOK {
		l.status = status
	}
	l.ResponseWriter.WriteHeader(status)
}

func (l *logged) Write(b []byte) (int, error) {
	n, err := l.ResponseWriter.Write(b)
	l.bytes += n
	return n, err
}

// Unwrap is for http.ResponseController.
func (l *logged) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// guarded lets requests with a token pass.
func (s *Server) guarded(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(r.Header.Get("Authorization")) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, &statusError{http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN with a token of this server"})
			return
		}
		h(w, r)
	})
}

// allowed reports whether a header has one of the tokens. The time it takes says nothing about them.
func (s *Server) allowed(header string) bool {
	if len(s.tokens) == 0 {
		return true
	}
	scheme, token, _ := strings.Cut(header, " ")
	given, ok := sha256.Sum256([]byte(strings.TrimSpace(token))), 0
	for _, t := range s.tokens {
		ok |= subtle.ConstantTimeCompare(given[:], t[:])
	}
	return ok == 1 && strings.EqualFold(scheme, "Bearer")
}

// model returns the model that a path names.
func (s *Server) model(name, version string) (*served, error) {
	m := s.models[name]
	if m == nil {
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("model %s is not served; expected one of %s", words.Clip(name, 60), strings.Join(s.names(), ", "))}
	}
	if version != "" && version != strconv.FormatInt(m.Version, 10) {
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("version %s of model %s is not served; expected %d", words.Clip(version, 60), name, m.Version)}
	}
	return m, nil
}

func (s *Server) names() []string {
	return slices.Sorted(maps.Keys(s.models))
}

// post answers POST /v1/models/NAME[/versions/N]:VERB.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	name, version := r.PathValue("model"), r.PathValue("version")
	last := &name
	if version != "" {
		last = &version
	}
	path, verb, _ := strings.Cut(*last, ":")
	*last = path
	m, err := s.model(name, version)
	if err != nil {
		fail(w, err)
		return
	}
	f, ok := verbs[verb]
	if !ok {
		fail(w, &statusError{http.StatusNotFound, fmt.Sprintf("the path ends in %q; expected :predict, :answer, :classify or :regress", ":"+words.Clip(verb, 60))})
		return
	}
	held := int64(0) // of the budget
	defer func() { s.bodies.give(held) }()
	body, err := s.answer(w, r, m, f, &held)
	// From here on the answer is in memory, in place of the request.
	s.bodies.give(held - int64(len(body)))
	held = int64(len(body))
	code, unread := http.StatusOK, false
	if err != nil {
		if unread = errors.Is(err, errBusy) || errors.As(err, new(*http.MaxBytesError)); unread {
			w.Header().Set("Connection", "close")
		}
		code = s.failed(w, m, err)
	} else {
		w.Header().Set("Content-Type", "application/json")
		w.Write(body) // the client may be gone
	}
	s.metrics.answered(m.Name, verb, code, time.Since(start))
	if unread {
		discard(w, r)
	}
}

// answer returns the body of a response. It adds what the request took of the budget to held.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, m *served, f form, held *int64) ([]byte, error) {
	data, err := s.body(w, r, held)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.until(w, r)
	defer cancel()
	in, err := s.parse(ctx, m, f, data)
	if err != nil {
		return nil, err
	}
	if l, ok := w.(*logged); ok {
		l.examples = in.count()
	}
	m.checkPairs(in, s.Log)
	results, err := m.batcher.answer(ctx, in.examples)
	if err != nil {
		return nil, err
	}
	body, truncated, err := m.respond(in, results)
	if err != nil {
		return nil, err
	}
	for _, e := range in.examples {
		if e.cut {
			truncated++
			m.warn.Do(func() {
				s.Log.Warn("texts that were too long were cut; their answers use only their beginning", "model", m.Name)
			})
		}
	}
	s.metrics.examples.WithLabelValues(m.Name).Add(float64(in.count()))
	s.metrics.truncated.WithLabelValues(m.Name).Add(float64(truncated))
	return body, nil
}

// smallBody is the most bytes of a body that does not wait until others are parsed.
const smallBody = 16 << 10

// parse parses a body.
func (s *Server) parse(ctx context.Context, m *served, f form, body []byte) (*request, error) {
	done, err := s.turn(ctx, body)
	if err != nil {
		return nil, err
	}
	defer done()
	return m.parse(f, body, limits{s.MaxExamples, s.RefuseLong, s.images})
}

// turn waits until a body may be parsed, and returns what is to be called after that. Lists of small numbers
// take many times their text for a moment, so that no more is parsed at the same time than the largest body
// has. This costs nothing where there are no large ones.
func (s *Server) turn(ctx context.Context, body []byte) (done func(), err error) {
	n := int64(len(body))
	if n <= smallBody {
		return func() {}, nil
	}
	return func() { s.parsing.Release(n) }, s.parsing.Acquire(ctx, n)
}

// checkPairs warns, once, of pairs for a model of single texts, or the other way round.
func (m *served) checkPairs(r *request, log *slog.Logger) {
	if r.raw || m.Texts == nil || m.Texts.Pairs == nil {
		return
	}
	for _, e := range r.examples {
		if e.text != nil && (e.text.B != "") != *m.Texts.Pairs {
			m.warn.Do(func() { log.Warn(predict.PairsMessage(*m.Texts.Pairs), "model", m.Name) })
			return
		}
	}
}

// failed writes the response to a request that failed, and returns its status.
func (s *Server) failed(w http.ResponseWriter, m *served, err error) int {
	tooLarge := (*http.MaxBytesError)(nil)
	known := (*statusError)(nil)
	switch {
	case errors.As(err, &known):
	case errors.As(err, &tooLarge):
		known = &statusError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", tooLarge.Limit)}
	case errors.Is(err, errFull), errors.Is(err, errBusy), errors.Is(err, errClosed):
		w.Header().Set("Retry-After", "1")
		known = &statusError{http.StatusServiceUnavailable, err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF):
		known = &statusError{statusClientGone, "the client is gone"}
	case errors.Is(err, context.DeadlineExceeded):
		known = &statusError{http.StatusGatewayTimeout, fmt.Sprintf("there was no answer within %v", s.Timeout)}
	case fault.Of(err) == fault.Usage: // of a text that the model does not answer
		known = &statusError{http.StatusBadRequest, err.Error()}
	default:
		s.Log.Error("a request failed", "model", m.Name, "error", err)
		known = &statusError{http.StatusInternalServerError, "the model failed; see the log of the server"}
	}
	fail(w, known)
	return known.status
}

// statusClientGone is what the log says of a client that did not wait. It gets no response.
const statusClientGone = 499

// fail writes an error as TensorFlow Serving does.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if known := (*statusError)(nil); errors.As(err, &known) {
		status = known.status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}
