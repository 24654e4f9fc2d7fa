package tpu

import (
	"fmt"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// GoneError means that a node does not run and will not start by itself: it was preempted,
// terminated, stopped or deleted.
type GoneError struct {
	Node  string // full name
	State string // from the API
}

// Error says what happened to the node and which command to run next.
func (e *GoneError) Error() string {
	name, project, zone := splitName(e.Node)
	where := fmt.Sprintf("--zone=%s --project=%s", zone, project)
	switch e.State {
	case "PREEMPTED":
		return fmt.Sprintf("TPU %s was preempted; delete it (gcloud compute tpus tpu-vm delete %s %s), create it again and repeat the command; "+
			"with --tpu-wait, a run waits until the node has been created again", name, name, where)
	case "STOPPED", "STOPPING":
		return fmt.Sprintf("TPU %s is %s; start it with gcloud compute tpus tpu-vm start %s %s", name, e.State, name, where)
	}
	return fmt.Sprintf("TPU %s is %s; create it again with gcloud compute tpus tpu-vm create %s %s --accelerator-type=TYPE --version=VERSION", name, e.State, name, where)
}

// NotReadyError means that a node was not ready in time.
type NotReadyError struct {
	Node          string // full name
	State, Health string // from the API
	Description   string // of its health, may be ""
	Waited        time.Duration
}

// Error returns the node's state, the time waited, and what to do next.
func (e *NotReadyError) Error() string {
	name, project, zone := splitName(e.Node)
	var b strings.Builder
	fmt.Fprintf(&b, "TPU %s is not ready", name)
	if e.Waited >= time.Second {
		fmt.Fprintf(&b, " after %v", e.Waited.Round(time.Second))
	}
	fmt.Fprintf(&b, ": state %s", e.State)
	if e.Health != "" {
		fmt.Fprintf(&b, ", health %s", e.Health)
	}
	if e.Description != "" {
		fmt.Fprintf(&b, " (%s)", clip(e.Description))
	}
	fmt.Fprintf(&b, "; expected state READY and health HEALTHY; wait longer with --tpu-ready-timeout, or inspect it with gcloud compute tpus tpu-vm describe %s --zone=%s --project=%s", name, zone, project)
	return b.String()
}

// APIError is an error returned by the Cloud TPU API.
type APIError struct {
	Node    string // full name
	Code    int    // of HTTP
	Status  string // such as PERMISSION_DENIED, may be ""
	Message string
}

// Error returns the API's error and what to do next.
func (e *APIError) Error() string {
	name, project, zone := splitName(e.Node)
	text := fmt.Sprintf("TPU %s: the Cloud TPU API answered %d", name, e.Code)
	if e.Status != "" {
		text += " " + clip(e.Status)
	}
	if e.Message != "" {
		text += ": " + clip(e.Message)
	}
	switch e.Code {
	case 401:
		return text + "; sign in with gcloud auth application-default login"
	case 403:
		return fmt.Sprintf("%s; grant the account the role roles/tpu.viewer, and enable the API with gcloud services enable tpu.googleapis.com --project=%s", text, project)
	case 404:
		return fmt.Sprintf("%s; expected a node in zone %s of project %s; to list them, run gcloud compute tpus tpu-vm list --zone=%s --project=%s", text, zone, project, zone, project)
	case 429:
		return text + "; too many calls, try again in a minute"
	}
	if e.Code >= 500 {
		return text + "; try again in a minute"
	}
	return text
}

// Is reports whether the target is the error's class. A node that does not exist or is not
// accessible is a usage error.
func (e *APIError) Is(target error) bool {
	return target == fault.Usage && (e.Code == 403 || e.Code == 404)
}

// splitName returns the parts of a full name.
func splitName(full string) (name, project, zone string) {
	if m := fullName.FindStringSubmatch(full); m != nil {
		return m[3], m[1], m[2]
	}
	return full, "PROJECT", "ZONE"
}

// clip shortens untrusted text to one short line.
func clip(s string) string { return words.Clip(strings.Join(strings.Fields(s), " "), 200) }
