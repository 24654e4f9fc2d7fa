package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// DefaultEndpoint is the address of Hugging Face's hub.
const DefaultEndpoint = "https://huggingface.co"

// Config says where to push, and as whom.
type Config struct {
	// Endpoint is the hub's address, such as DefaultEndpoint.
	Endpoint string
	// Repo is the repository, OWNER/NAME.
	Repo string
	// Revision is the branch to commit to, such as main.
	Revision string
	// Token gives write access to the repository.
	Token string
	// Public makes a repository that all may see, if it has to be created.
	Public bool
	// Message is the first line of the commit.
	Message string
	// Log gets a line for each large file and for each attempt that failed.
	Log *slog.Logger
	// Attempts is how often a call is made before it fails; at least 1.
	Attempts int
	// Wait is the time before the second attempt. It doubles for each one after that.
	Wait time.Duration
}

var (
	repoName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	revision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
)

// Validate returns an error of class fault.Usage if a field cannot be.
func (c Config) Validate() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fault.Usagef("the hub's address is %q; expected one such as %s", c.Endpoint, DefaultEndpoint)
	case u.Scheme == "http" && !devices.IsLoopback(u.Hostname()):
		return fault.Usagef("the hub's address is %q, and anyone on the way could read the token; expected https://", c.Endpoint)
	case !repoName.MatchString(c.Repo) || len(c.Repo) > 96 || strings.Contains(c.Repo, "..") || strings.Contains(c.Repo, "--"):
		return fault.Usagef("the repository is %q; expected OWNER/NAME, such as acme/reviews, of letters, digits, dots, - and _", c.Repo)
	case !revision.MatchString(c.Revision) || strings.Contains(c.Revision, ".."):
		return fault.Usagef("the revision is %q; expected the name of a branch, such as main", c.Revision)
	case c.Token == "" || strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fault.Usagef("the hub's token is missing or has other characters than tokens have; make one with write access at %s/settings/tokens, and: export HF_TOKEN=...", DefaultEndpoint)
	case c.Attempts < 1:
		return fault.Usagef("attempts are %d; expected at least 1", c.Attempts)
	}
	return nil
}

// StatusError is an answer of a hub with a status other than success.
type StatusError struct {
	// What names the call, such as "create the repository".
	What string
	// Status is the HTTP status.
	Status int
	// Message is the hub's, in one line, or "".
	Message string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: the hub answers %d %s", e.What, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	switch e.Status {
	case http.StatusUnauthorized:
		text += "; the token is wrong or no longer valid"
	case http.StatusForbidden:
		text += "; the token may not write there: make one with write access to the repository"
	case http.StatusNotFound:
		text += "; there is no such repository or branch, or the token may not see it"
	}
	return text
}

// again reports whether a call with this answer is worth another attempt.
func (e *StatusError) again() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout || e.Status >= 500
}

// client makes calls to one hub.
type client struct {
	Config
	http *http.Client
	hub  *url.URL
}

func newClient(c Config) (*client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	c.Endpoint = strings.TrimRight(c.Endpoint, "/")
	return &client{Config: c, hub: u, http: &http.Client{
		// A redirect to another host would not have the token, and one of an upload has no body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: 5 * time.Minute, TLSHandshakeTimeout: 30 * time.Second, MaxIdleConnsPerHost: partsAtOnce},
	}}, nil
}

// call is a request that can be made more than once.
type call struct {
	what   string
	method string
	url    string
	header map[string]string
	// body returns the content from its start, and its length.
	body func() (io.Reader, int64, error)
}

// maxAnswer bounds how much of an answer is read.
const maxAnswer = 16 << 20

// do makes a call until it succeeds, cannot succeed, or was made Attempts times. It returns the
// answer's content and header.
func (c *client) do(ctx context.Context, r call) ([]byte, http.Header, error) {
	wait := c.Wait
	for attempt := 1; ; attempt++ {
		content, header, err := c.once(ctx, r)
		if err == nil {
			return content, header, nil
		}
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%s: %w", r.what, context.Cause(ctx))
		}
		status := (*StatusError)(nil)
		if permanent := (*permanentError)(nil); errors.As(err, &status) && !status.again() || errors.As(err, &permanent) {
			return nil, nil, err
		}
		if attempt >= c.Attempts {
			return nil, nil, fmt.Errorf("%w; it was tried %s; the same push, made again, uploads what is missing", err, words.Count(int64(attempt), "time"))
		}
		pause := wait + time.Duration(rand.Int64N(int64(wait)/4+1))
		if header != nil {
			if s, e := strconv.Atoi(header.Get("Retry-After")); e == nil && s > 0 {
				pause = max(pause, min(time.Duration(s)*time.Second, 5*time.Minute))
			}
		}
		c.Log.Warn("a call to the hub failed and is made again", "error", err, "attempt", attempt+1, "of", c.Attempts, "in", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%s: %w", r.what, context.Cause(ctx))
		case <-time.After(pause):
		}
		wait *= 2
	}
}

// permanentError is the error of a call that another attempt cannot mend.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

func (c *client) once(ctx context.Context, r call) ([]byte, http.Header, error) {
	var body io.Reader
	var length int64
	if r.body != nil {
		var err error
		if body, length, err = r.body(); err != nil {
			return nil, nil, &permanentError{fmt.Errorf("%s: %w", r.what, err)}
		}
	}
	request, err := http.NewRequestWithContext(ctx, r.method, r.url, body)
	if err != nil {
		return nil, nil, &permanentError{fmt.Errorf("%s: the answer of the hub has an address that cannot be read; expected https://", r.what)}
	}
	if request.ContentLength = length; length == 0 {
		request.Body = http.NoBody
	}
	request.Header.Set("User-Agent", "gorbit")
	for name, value := range r.header {
		request.Header.Set(name, value)
	}
	// Large files go to addresses that carry their own permission, on other hosts.
	if c.own(request.URL) && request.Header.Get("Authorization") == "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	} else if request.URL.Scheme != "https" && !devices.IsLoopback(request.URL.Hostname()) {
		return nil, nil, &permanentError{fmt.Errorf("%s: the answer of the hub has the address %s://%s; expected https://", r.what, request.URL.Scheme, request.URL.Host)}
	}
	response, err := c.http.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // addresses may hold permissions, and stay out of messages
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the connection was closed before there was an answer")
		}
		err = fmt.Errorf("%s: %w", r.what, err)
		if changed := (*changedError)(nil); errors.As(err, &changed) {
			return nil, nil, &permanentError{err}
		}
		return nil, nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", r.what, err)
	}
	if len(content) > maxAnswer {
		return nil, nil, &permanentError{fmt.Errorf("%s: the hub's answer is longer than %d bytes", r.what, maxAnswer)}
	}
	if to, err := response.Location(); err == nil && response.StatusCode/100 == 3 {
		return nil, nil, &permanentError{fmt.Errorf("%s: %w", r.what, c.redirected(request.URL, to))}
	}
	if response.StatusCode/100 != 2 {
		return nil, response.Header, &StatusError{What: r.what, Status: response.StatusCode, Message: c.message(content, response.Header)}
	}
	return content, response.Header, nil
}

// own reports whether an address is the hub's, which alone gets the token.
func (c *client) own(u *url.URL) bool { return u.Host == c.hub.Host && u.Scheme == c.hub.Scheme }

// redirected returns the error of an answer that names another address.
func (c *client) redirected(from, to *url.URL) error {
	place := &url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path} // the rest may hold a permission
	switch {
	case !c.own(from):
		return fmt.Errorf("the storage of the hub redirects to %s; redirects are not followed", place)
	case c.own(to):
		return fmt.Errorf("the hub redirects to %s; redirects are not followed: has the repository another name now?", place)
	}
	return fmt.Errorf("the hub redirects to %s; redirects are not followed: if that is your hub, set HF_ENDPOINT to %s://%s", place, to.Scheme, to.Host)
}

// message returns what a hub says of an error, in one line and without the token.
func (c *client) message(content []byte, header http.Header) string {
	text := header.Get("X-Error-Message")
	var said struct{ Error, Message string }
	if text == "" && json.Unmarshal(content, &said) == nil {
		text = said.Error
		if text == "" {
			text = said.Message
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "..."
	}
	return strings.ReplaceAll(text, c.Token, "(token)")
}

// post sends JSON and decodes the answer, if out is not nil.
func (c *client) post(ctx context.Context, what, address string, in, out any, header map[string]string) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	h := map[string]string{"Content-Type": "application/json"}
	for name, value := range header {
		h[name] = value
	}
	content, _, err := c.do(ctx, call{what: what, method: http.MethodPost, url: address, header: h,
		body: func() (io.Reader, int64, error) { return bytes.NewReader(body), int64(len(body)), nil }})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("%s: the hub's answer is not what was expected: %w", what, err)
	}
	return nil
}
