package tpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// Node is a node of the Cloud TPU API, as returned by projects.locations.nodes.get of v2
// (https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes). It also has the
// fields of v1.
type Node struct {
	Name              string     `json:"name"`
	State             string     `json:"state"`
	Health            string     `json:"health"`
	HealthDescription string     `json:"healthDescription"`
	AcceleratorType   string     `json:"acceleratorType"`
	RuntimeVersion    string     `json:"runtimeVersion"`
	TensorFlowVersion string     `json:"tensorflowVersion"`
	NetworkEndpoints  []Endpoint `json:"networkEndpoints"`
	Symptoms          []Symptom  `json:"symptoms"`
	// IPAddress and Port are the address of a node with one worker in v1.
	IPAddress string `json:"ipAddress"`
	Port      port   `json:"port"`
}

// Endpoint is a worker's address.
type Endpoint struct {
	IPAddress string `json:"ipAddress"`
	Port      port   `json:"port"`
}

// Symptom is a recent problem of a node.
type Symptom struct {
	CreateTime string `json:"createTime"`
	Type       string `json:"symptomType"`
	Details    string `json:"details"`
	WorkerID   string `json:"workerId"`
}

// port is a port, which is a string in v1 and a number in v2; 0 means none.
type port uint16

// UnmarshalJSON parses both forms.
func (p *port) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "" || text == "null" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("port is %s; expected 1 to 65535", clip(text))
	}
	*p = port(n)
	return nil
}

// Limits of a call: the bytes of the reply, and the time.
const (
	maxAnswer   = 4 << 20
	callTimeout = 20 * time.Second
)

// States of a node: those that lead to READY, and those that do not.
var (
	comingStates = []string{"CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING"}
	goneStates   = []string{"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING", "HIDDEN", "HIDING"}
)

// ready reports whether a node can be used. TensorFlow's client checks only the state, but a
// session with an unhealthy node hangs.
func (n *Node) ready() bool {
	return n.State == "READY" && (n.Health == "HEALTHY" || n.Health == "" || n.Health == "HEALTH_UNSPECIFIED")
}

// addresses returns the addresses of the node's workers.
func (n *Node) addresses() ([]string, error) {
	endpoints := n.NetworkEndpoints
	if len(endpoints) == 0 && n.IPAddress != "" {
		endpoints = []Endpoint{{n.IPAddress, n.Port}}
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("TPU %s: the Cloud TPU API returned no network endpoints", n.Name)
	}
	var out []string
	for i, e := range endpoints {
		if net.ParseIP(e.IPAddress) == nil {
			return nil, fmt.Errorf("TPU %s: the Cloud TPU API returned %q as the address of worker %d; expected an IP address", n.Name, clip(e.IPAddress), i)
		}
		at := DefaultPort
		if e.Port != 0 {
			at = strconv.Itoa(int(e.Port))
		}
		address := net.JoinHostPort(e.IPAddress, at)
		if slices.Contains(out, address) {
			return nil, fmt.Errorf("TPU %s: the Cloud TPU API returned the address %s for two workers", n.Name, address)
		}
		out = append(out, address)
	}
	return out, nil
}

// get requests the node from the API. It retries temporary errors until the deadline of the
// context.
func (r *Resolver) get(ctx context.Context) (*Node, error) {
	for attempt := 0; ; attempt++ {
		node, wait, err := r.getOnce(ctx)
		if err == nil || wait == 0 {
			return node, err
		}
		// Full jitter, see https://cloud.google.com/apis/design/errors#retrying_errors.
		wait = max(wait, time.Duration(rand.Int64N(int64(min(time.Second<<min(attempt, 5), 30*time.Second)))))
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) < wait {
			return nil, err
		}
		r.log.Warn("retrying the call of the Cloud TPU API", "tpu", r.target.name, "error", err, "in", wait.Round(time.Millisecond))
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// getOnce makes one request. If wait is more than 0, the call may succeed after that time.
func (r *Resolver) getOnce(ctx context.Context) (node *Node, wait time.Duration, err error) {
	client, err := r.authorized(ctx)
	if err != nil {
		return nil, 0, err
	}
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer in %v", callTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.api, "/")+"/"+r.fullName(), nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Accept", "application/json")
	response, body, err := r.fetch(client, request)
	if outer.Err() != nil {
		return nil, 0, fmt.Errorf("TPU %s: call the Cloud TPU API at %s: %w", r.target.name, request.URL.Host, context.Cause(outer))
	}
	if err != nil {
		var credentials *oauth2.RetrieveError
		if errors.As(err, &credentials) {
			return nil, 0, r.noCredentials(fmt.Errorf("%s %s", credentials.ErrorCode, credentials.ErrorDescription))
		}
		return nil, time.Second, fmt.Errorf("TPU %s: the Cloud TPU API at %s: %w; check the network", r.target.name, request.URL.Host, err)
	}
	if response.StatusCode != http.StatusOK {
		err := &APIError{Node: r.fullName(), Code: response.StatusCode}
		var answer struct {
			Error struct{ Status, Message string }
		}
		if json.Unmarshal(body, &answer) == nil {
			err.Status, err.Message = answer.Error.Status, answer.Error.Message
		}
		switch response.StatusCode {
		case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			wait = time.Second
			if seconds, e := strconv.Atoi(response.Header.Get("Retry-After")); e == nil && seconds > 0 && seconds < 3600 {
				wait = time.Duration(seconds) * time.Second
			}
		}
		return nil, wait, err
	}
	node = new(Node)
	err = json.Unmarshal(body, node)
	why := ""
	switch {
	case len(body) > maxAnswer:
		why = fmt.Sprintf("the reply has more than %d bytes", maxAnswer)
	case err != nil:
		why = plainJSON(err)
	case node.State == "":
		why = "the reply has no state"
	}
	if why != "" {
		return nil, 0, fmt.Errorf("TPU %s: %s is not the Cloud TPU API: %s", r.target.name, request.URL.Host, why)
	}
	node.Name = r.fullName()
	return node, 0, nil
}

// authorized returns a client that sends tokens to the API. It does not follow redirects, so that
// nobody else gets them.
func (r *Resolver) authorized(ctx context.Context) (*http.Client, error) {
	if r.client != nil {
		return r.client, nil
	}
	source := r.credentials
	if source == nil {
		// The credentials outlive this call.
		found, err := google.FindDefaultCredentials(context.WithoutCancel(ctx), "https://www.googleapis.com/auth/cloud-platform")
		if err != nil {
			return nil, r.noCredentials(errors.New("no Application Default Credentials were found"))
		}
		source = found.TokenSource
	}
	r.client = &http.Client{Transport: &oauth2.Transport{Source: source}, CheckRedirect: noRedirect}
	return r.client, nil
}

func (r *Resolver) noCredentials(err error) error {
	return fmt.Errorf("TPU %s: %w; sign in with gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file", r.target.name, err)
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// fetch sends a request and reads the reply: all of it, or maxAnswer bytes and one more.
func (r *Resolver) fetch(client *http.Client, request *http.Request) (*http.Response, []byte, error) {
	response, err := client.Do(request)
	if err == nil {
		defer response.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err == nil {
			return response, body, nil
		}
	}
	if cause := context.Cause(request.Context()); cause != nil {
		return nil, nil, cause
	}
	return nil, nil, err
}

// sleep waits for d. If the context ends first, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
