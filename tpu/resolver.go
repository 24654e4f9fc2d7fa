package tpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"golang.org/x/oauth2"
)

// Resolver finds a TPU. It is not safe for concurrent use.
type Resolver struct {
	target      target
	job         string
	api         string
	readyBy     time.Duration
	interval    time.Duration
	waitForNode bool
	credentials oauth2.TokenSource
	client      *http.Client // for the API, made on first use
	plain       *http.Client // without credentials
	getenv      func(string) string
	log         *slog.Logger
}

// Cluster describes the workers of a TPU.
type Cluster struct {
	// Local is true for a TPU of this machine, which has no addresses.
	Local bool
	// Job is the name of the workers' TensorFlow job.
	Job string
	// Workers are the addresses of the tasks, host:port, in order.
	Workers []string
	// Source is where the TPU's name came from: "the name given" or an environment variable.
	Source string
	// Node is the API's description of the TPU; nil if the API was not used.
	Node *Node
}

// Master returns the target of a session with the TPU, "" for a local one.
func (c Cluster) Master() string {
	if c.Local || len(c.Workers) == 0 {
		return ""
	}
	return "grpc://" + c.Workers[0]
}

// NewResolver checks the configuration and reads the environment. It makes no network calls.
func NewResolver(c Config) (*Resolver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t, err := targetOf(c)
	if err != nil {
		return nil, err
	}
	r := &Resolver{
		target:      t,
		job:         cmp.Or(c.Job, DefaultJob),
		api:         cmp.Or(c.API, DefaultAPI),
		readyBy:     c.ReadyTimeout,
		interval:    cmp.Or(c.PollInterval, DefaultPollInterval),
		waitForNode: c.WaitForNode,
		credentials: c.Credentials,
		plain:       &http.Client{CheckRedirect: noRedirect, Transport: &http.Transport{Proxy: nil}},
		getenv:      c.Getenv,
		log:         c.Log,
	}
	if r.getenv == nil {
		r.getenv = func(string) string { return "" }
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r, nil
}

// fullName returns the node's full name in the API.
func (r *Resolver) fullName() string {
	return fmt.Sprintf("projects/%s/locations/%s/nodes/%s", r.target.project, r.target.zone, r.target.name)
}

// Resolve returns the workers of the TPU. If a node of the API is about to be ready, Resolve polls
// it for up to ReadyTimeout, with a log line for each poll.
//
// It returns a *GoneError for a node that was preempted, stopped or terminated, a *NotReadyError
// for a node that was not ready in time, and an *APIError if the API returned an error.
func (r *Resolver) Resolve(ctx context.Context) (Cluster, error) {
	c := Cluster{Job: r.job, Source: r.target.source}
	switch r.target.kind {
	case kindLocal:
		c.Local = true
		return c, nil
	case kindAddresses:
		c.Workers = slices.Clone(r.target.addresses)
		return c, nil
	}
	if err := r.locate(ctx); err != nil {
		return c, err
	}
	node, err := r.awaitReady(ctx)
	if err != nil {
		return c, err
	}
	for _, s := range node.Symptoms {
		r.log.Warn("the TPU had a symptom", "tpu", r.target.name, "symptom", clip(s.Type), "worker", clip(s.WorkerID), "time", clip(s.CreateTime), "details", clip(s.Details))
	}
	c.Node = node
	c.Workers, err = node.addresses()
	return c, err
}

// awaitReady polls the node until it is ready.
func (r *Resolver) awaitReady(ctx context.Context) (*Node, error) {
	start := time.Now()
	var last *Node
	for {
		// A call has time to complete even if ReadyTimeout is 0.
		left := max(r.readyBy-time.Since(start), callTimeout)
		calling, cancel := context.WithTimeoutCause(ctx, left, errTooLate)
		node, err := r.get(calling)
		cancel()
		switch {
		case errors.Is(err, errTooLate):
			return nil, fmt.Errorf("TPU %s: the Cloud TPU API did not answer in %v; check the network", r.target.name, left.Round(time.Second))
		case err != nil && !r.awaited(err, last):
			return nil, err
		case err != nil:
			node = &Node{Name: r.fullName(), State: "DELETED"}
		case node.ready():
			return node, nil
		case slices.Contains(goneStates, node.State) && !r.waitForNode:
			return nil, &GoneError{Node: node.Name, State: node.State}
		case node.State != "READY" && !slices.Contains(comingStates, node.State) && !slices.Contains(goneStates, node.State):
			r.log.Warn("the TPU is in an unknown state", "tpu", r.target.name, "state", clip(node.State))
		}
		last = node
		waited := time.Since(start)
		if waited+r.interval > r.readyBy {
			return nil, &NotReadyError{Node: node.Name, State: node.State, Health: node.Health, Description: node.HealthDescription, Waited: waited}
		}
		r.log.Info("waiting for the TPU", "tpu", r.target.name, "state", node.State, "health", node.Health,
			"waited", waited.Round(time.Second), "timeout", r.readyBy)
		if err := sleep(ctx, r.interval); err != nil {
			return nil, err
		}
	}
}

var errTooLate = errors.New("too late")

// awaited reports whether an error means that a node is being created again: it existed before, and
// the caller wants to wait for it.
func (r *Resolver) awaited(err error, last *Node) bool {
	var answer *APIError
	return r.waitForNode && last != nil && errors.As(err, &answer) && answer.Code == http.StatusNotFound
}
