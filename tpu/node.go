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

// Node is what the Cloud TPU API says of a node, projects.locations.nodes.get of v2
// (https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes). The
// fields of v1 are read as well.
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
	// IPAddress and Port are where v1 has a node of one worker.
	IPAddress string `json:"ipAddress"`
	Port      port   `json:"port"`
}

// Endpoint is a worker's address.
type Endpoint struct {
	IPAddress string `json:"ipAddress"`
	Port      port   `json:"port"`
}

// Symptom is something that went wrong on a node lately.
type Symptom struct {
	CreateTime string `json:"createTime"`
	Type       string `json:"symptomType"`
	Details    string `json:"details"`
	WorkerID   string `json:"workerId"`
}

// port is a port that v1 has as a string and v2 as a number; 0 is none.
type port uint16

// UnmarshalJSON reads either form.
func (p *port) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "" || text == "null" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("port %s: expected 1 to 65535", clip(text))
	}
	*p = port(n)
	return nil
}

// Limits of an answer and of a call.
const (
	maxAnswer   = 4 << 20
	callTimeout = 20 * time.Second
)

// States of a node, by what to do about them.
var (
	comingStates = []string{"CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING"}
	goneStates   = []string{"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING", "HIDDEN", "HIDING"}
)

// ready reports whether a node can be worked with. TensorFlow's client asks for the
// state alone when it connects; a node whose health is known to be bad is one that hangs.
func (n *Node) ready() bool {
	return n.State == "READY" && (n.Health == "HEALTHY" || n.Health == "" || n.Health == "HEALTH_UNSPECIFIED")
}

// addresses returns where the node's workers listen.
func (n *Node) addresses() ([]string, error) {
	endpoints := n.NetworkEndpoints
	if len(endpoints) == 0 && n.IPAddress != "" {
		endpoints = []Endpoint{{n.IPAddress, n.Port}}
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("TPU %s: the Cloud TPU API gives no network endpoints for it", n.Name)
	}
	var out []string
	for i, e := range endpoints {
		if net.ParseIP(e.IPAddress) == nil {
			return nil, fmt.Errorf("TPU %s: the Cloud TPU API gives %q as the address of worker %d, expected an IP address", n.Name, clip(e.IPAddress), i)
		}
		at := DefaultPort
		if e.Port != 0 {
			at = strconv.Itoa(int(e.Port))
		}
		address := net.JoinHostPort(e.IPAddress, at)
		if slices.Contains(out, address) {
			return nil, fmt.Errorf("TPU %s: the Cloud TPU API gives the address %s for two workers", n.Name, address)
		}
		out = append(out, address)
	}
	return out, nil
}

// get asks the API for the node, again where the API asks for patience, until the
// deadline of the context.
func (r *Resolver) get(ctx context.Context) (*Node, error) {
	for attempt := 0; ; attempt++ {
		node, wait, err := r.getOnce(ctx)
		if err == nil || wait == 0 {
			return node, err
		}
		// Full jitter, as https://cloud.google.com/apis/design/errors#retrying_errors has it.
		wait = max(wait, time.Duration(rand.Int64N(int64(min(time.Second<<min(attempt, 5), 30*time.Second)))))
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) < wait {
			return nil, err
		}
		r.log.Warn("asking the Cloud TPU API again", "tpu", r.target.name, "error", err, "in", wait.Round(time.Millisecond))
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// getOnce asks once. A wait above 0 says that the same call may go through after it.
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
		return nil, 0, fmt.Errorf("TPU %s: asking the Cloud TPU API at %s: %w", r.target.name, request.URL.Host, context.Cause(outer))
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
	if err := json.Unmarshal(body, node); err != nil || node.State == "" {
		why := "it has no state"
		if err != nil {
			why = plainJSON(err)
		}
		return nil, 0, fmt.Errorf("TPU %s: %s does not answer as the Cloud TPU API does: %s", r.target.name, request.URL.Host, why)
	}
	node.Name = r.fullName()
	return node, 0, nil
}

// authorized returns a client that sends tokens to the API, and to nobody else: it
// follows no redirection.
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
	return fmt.Errorf("TPU %s: %w: sign in with gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file", r.target.name, err)
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// fetch makes a call and reads the whole of its answer.
func (r *Resolver) fetch(client *http.Client, request *http.Request) (*http.Response, []byte, error) {
	response, err := client.Do(request)
	if err == nil {
		defer response.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err == nil {
			if len(body) > maxAnswer {
				return nil, nil, fmt.Errorf("its answer has more than %d bytes", maxAnswer)
			}
			return response, body, nil
		}
	}
	if cause := context.Cause(request.Context()); cause != nil {
		return nil, nil, cause
	}
	return nil, nil, err
}

// sleep waits, or returns why the context ended.
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
