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

// Resolver finds a TPU. Its methods may be called one at a time.
type Resolver struct {
	target      target
	job         string
	api         string
	readyBy     time.Duration
	interval    time.Duration
	waitForNode bool
	credentials oauth2.TokenSource
	client      *http.Client // for the API, made when it is first needed
	plain       *http.Client // without credentials
	getenv      func(string) string
	log         *slog.Logger
}

// Cluster is a TPU's workers.
type Cluster struct {
	// Local is a TPU of this machine, which has no addresses.
	Local bool
	// Job is the name of the workers' TensorFlow job.
	Job string
	// Workers are the addresses of its tasks, host:port, in order.
	Workers []string
	// Source is where the TPU's name came from: "the name given" or a variable.
	Source string
	// Node is what the API says of it, nil where the API was not asked.
	Node *Node
}

// Master is the target of a session with the TPU, "" for a local one.
func (c Cluster) Master() string {
	if c.Local || len(c.Workers) == 0 {
		return ""
	}
	return "grpc://" + c.Workers[0]
}

// NewResolver reads the environment and checks what can be checked without asking
// anybody.
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

// fullName is the node's name for the API.
func (r *Resolver) fullName() string {
	return fmt.Sprintf("projects/%s/locations/%s/nodes/%s", r.target.project, r.target.zone, r.target.name)
}

// Resolve returns where the TPU's workers are. A node of the API must be ready: one that
// will be is waited for, at most for ReadyTimeout, with a log line for each look.
//
// The error is a *GoneError for a node that was preempted, stopped or terminated, a
// *NotReadyError for one that was not ready in time, and an *APIError where the API has
// no node to tell of.
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

// awaitReady looks at the node until it is ready.
func (r *Resolver) awaitReady(ctx context.Context) (*Node, error) {
	start := time.Now()
	var last *Node
	for {
		// A call is given its time even where nothing is waited for.
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
			r.log.Warn("the TPU is in a state that is not known here", "tpu", r.target.name, "state", clip(node.State))
		}
		last = node
		waited := time.Since(start)
		if waited+r.interval > r.readyBy {
			return nil, &NotReadyError{Node: node.Name, State: node.State, Health: node.Health, Description: node.HealthDescription, Waited: waited}
		}
		r.log.Info("waiting for the TPU", "tpu", r.target.name, "state", node.State, "health", node.Health,
			"waited", waited.Round(time.Second), "at most", r.readyBy)
		if err := sleep(ctx, r.interval); err != nil {
			return nil, err
		}
	}
}

var errTooLate = errors.New("too late")

// awaited reports whether an error is a node that is being made anew: it was there a
// moment ago, and the run is to wait for it.
func (r *Resolver) awaited(err error, last *Node) bool {
	var answer *APIError
	return r.waitForNode && last != nil && errors.As(err, &answer) && answer.Code == http.StatusNotFound
}
