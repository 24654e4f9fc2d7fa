package hubfs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/web"
	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// DefaultEndpoint is the address of Hugging Face's hub.
const DefaultEndpoint = "https://huggingface.co"

// Account says which hub to speak to, as whom, and with how much patience.
type Account struct {
	// Endpoint is the hub's address, such as DefaultEndpoint.
	Endpoint string
	// Token is sent to the hub's own address; "" reads what all may read.
	Token string
	// Log gets a line for each large file and for each attempt that failed.
	Log *slog.Logger
	// Attempts is how often a call is made before it fails; at least 1.
	Attempts int
	// Wait is the time before the second attempt. It doubles for each one after that.
	Wait time.Duration
	// Stall is the time without a byte after which an attempt fails; 0 means DefaultStall.
	Stall time.Duration
}

// DefaultStall is the time without a byte after which a connection is given up.
const DefaultStall = 30 * time.Second

// Validate returns an error of class fault.Usage if a field cannot be.
func (a Account) Validate() error {
	u, err := url.Parse(a.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fault.Usagef("the hub's address is %q; expected one such as %s", a.Endpoint, DefaultEndpoint)
	case u.Scheme == "http" && !web.IsLoopback(u.Hostname()):
		return fault.Usagef("the hub's address is %q, and anyone on the way could read the token; expected https://", a.Endpoint)
	case strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fault.Usagef("the hub's token has other characters than tokens have; see %s/settings/tokens, and: export HF_TOKEN=...", DefaultEndpoint)
	case a.Attempts < 1:
		return fault.Usagef("attempts are %d; expected at least 1", a.Attempts)
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
	// Reads is set if the call only reads.
	Reads bool
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: the hub answers %d %s", e.What, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	switch {
	case e.Reads && e.Status == http.StatusUnauthorized:
		text += "; there is no such repository, or only some may read it: export HF_TOKEN=... with a token that may"
	case e.Reads && e.Status == http.StatusForbidden:
		text += "; the token may not read it: accept the terms on the repository's page, or use another token"
	case e.Reads && e.Status == http.StatusNotFound:
		text += "; there is no such repository, revision or file, or the token may not see it"
	case e.Status == http.StatusUnauthorized:
		text += "; the token is wrong or no longer valid"
	case e.Status == http.StatusForbidden:
		text += "; the token may not write there: make one with write access to the repository"
	case e.Status == http.StatusNotFound:
		text += "; there is no such repository or branch, or the token may not see it"
	}
	return text
}

// again reports whether a call with this answer is worth another attempt.
func (e *StatusError) again() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout || e.Status >= 500
}

// Client makes calls to one hub.
type Client struct {
	Account
	http *http.Client
	hub  *url.URL
}

// NewClient returns a client that makes no call yet.
func NewClient(a Account) (*Client, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Endpoint)
	if err != nil {
		return nil, err
	}
	a.Endpoint = strings.TrimRight(a.Endpoint, "/")
	a.Stall = cmp.Or(a.Stall, DefaultStall)
	transport := web.Transport(a.Stall)
	// A file that stalls must not hide behind another on its connection. What Go's transport offers servers
	// was cloned with it, and would be taken at its word by those that speak HTTP/2.
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig = &tls.Config{NextProtos: []string{"http/1.1"}}
	return &Client{Account: a, hub: u, http: &http.Client{
		// A redirect to another host must not have the token, and one of an upload has no body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}}, nil
}

// Call is a request that can be made more than once.
type Call struct {
	// What names the call in messages.
	What   string
	Method string
	URL    string
	Header map[string]string
	// Body returns the content from its start, and its length.
	Body func() (io.Reader, int64, error)
	// Advice ends the message of a call that was given up.
	Advice string
}

// reads reports whether a call changes nothing, so that its redirects may be followed.
func (r Call) reads() bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// maxAnswer bounds how much of an answer is read.
const maxAnswer = 16 << 20

// Do makes a call until it succeeds, cannot succeed, or was made Attempts times. It returns the
// answer's content and header.
func (c *Client) Do(ctx context.Context, r Call) (content []byte, header http.Header, err error) {
	err = c.again(ctx, r, func() (http.Header, bool, error) {
		content, header, err = c.once(ctx, r)
		return header, false, err
	})
	if err != nil {
		return nil, nil, err
	}
	return content, header, nil
}

// again calls once until it succeeds, cannot succeed, or has failed Attempts times without getting on.
func (c *Client) again(ctx context.Context, r Call, once func() (header http.Header, moved bool, err error)) error {
	wait := c.Wait
	for attempt := 1; ; attempt++ {
		header, moved, err := once()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", r.What, context.Cause(ctx))
		}
		status := (*StatusError)(nil)
		if permanent := (*permanentError)(nil); errors.As(err, &status) && !status.again() || errors.As(err, &permanent) {
			return err
		}
		if moved {
			attempt, wait = 0, c.Wait
		}
		if attempt >= c.Attempts {
			return fmt.Errorf("%w; it was tried %s%s", err, words.Count(int64(attempt), "time"), r.Advice)
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
			return fmt.Errorf("%s: %w", r.What, context.Cause(ctx))
		case <-time.After(pause):
		}
		wait *= 2
	}
}

// permanentError is the error of a call that another attempt cannot mend.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Permanent marks an error, such as one of a call's body, as one that another attempt cannot mend.
func Permanent(err error) error { return &permanentError{err} }

func (c *Client) once(ctx context.Context, r Call) ([]byte, http.Header, error) {
	response, err := c.follow(ctx, r, false)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	content, err := c.content(r, response)
	return content, response.Header, err
}

// content reads an answer, which is an error if its status is not one of success.
func (c *Client) content(r Call, response *http.Response) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.What, c.broken(err))
	}
	if len(content) > maxAnswer {
		return nil, &permanentError{fmt.Errorf("%s: the hub's answer is longer than %d bytes", r.What, maxAnswer)}
	}
	if to, err := response.Location(); err == nil && response.StatusCode/100 == 3 {
		return nil, &permanentError{fmt.Errorf("%s: %w", r.What, c.redirected(response.Request.URL, to))}
	}
	if response.StatusCode/100 != 2 {
		return nil, &StatusError{What: r.What, Status: response.StatusCode, Message: c.message(content, response.Header), Reads: r.reads()}
	}
	return content, nil
}

// send makes one request and returns the answer, whatever its status is.
func (c *Client) send(ctx context.Context, r Call) (*http.Response, error) {
	var body io.Reader
	var length int64
	if r.Body != nil {
		var err error
		if body, length, err = r.Body(); err != nil {
			return nil, &permanentError{fmt.Errorf("%s: %w", r.What, err)}
		}
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, &permanentError{fmt.Errorf("%s: the answer of the hub has an address that cannot be read; expected https://", r.What)}
	}
	if request.ContentLength = length; length == 0 {
		request.Body = http.NoBody
	}
	request.Header.Set("User-Agent", "gorbit")
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	// Large files are at addresses that carry their own permission, on other hosts.
	if c.own(request.URL) {
		if c.Token != "" && request.Header.Get("Authorization") == "" {
			request.Header.Set("Authorization", "Bearer "+c.Token)
		}
	} else if request.URL.Scheme != "https" && !web.IsLoopback(request.URL.Hostname()) {
		return nil, &permanentError{fmt.Errorf("%s: the answer of the hub has the address %s://%s; expected https://", r.What, request.URL.Scheme, request.URL.Host)}
	}
	response, err := c.http.Do(request)
	if err == nil {
		return response, nil
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // addresses may hold permissions, and stay out of messages
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection was closed before there was an answer")
	}
	return nil, fmt.Errorf("%s: %w", r.What, c.broken(err))
}

// broken says of the error of a connection what it means.
func (c *Client) broken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no byte came or went for %v", c.Stall)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection was closed before the end")
	}
	return err
}

// own reports whether an address is the hub's, which alone gets the token.
func (c *Client) own(u *url.URL) bool { return u.Host == c.hub.Host && u.Scheme == c.hub.Scheme }

// redirected returns the error of an answer that names another address.
func (c *Client) redirected(from, to *url.URL) error {
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
func (c *Client) message(content []byte, header http.Header) string {
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
	if c.Token == "" {
		return text
	}
	return strings.ReplaceAll(text, c.Token, "(token)")
}

// Post sends JSON and decodes the answer, if out is not nil.
func (c *Client) Post(ctx context.Context, r Call, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	header := map[string]string{"Content-Type": "application/json"}
	for name, value := range r.Header {
		header[name] = value
	}
	r.Method, r.Header = http.MethodPost, header
	r.Body = func() (io.Reader, int64, error) { return bytes.NewReader(body), int64(len(body)), nil }
	content, _, err := c.Do(ctx, r)
	if err != nil || out == nil {
		return err
	}
	return decode(r, content, out)
}

// decode reads the JSON of an answer.
func decode(r Call, content []byte, out any) error {
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("%s: the hub's answer is not what was expected: %w", r.What, err)
	}
	return nil
}
