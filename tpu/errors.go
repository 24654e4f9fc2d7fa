package tpu

import (
	"fmt"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// GoneError is a node that does not run and will not start by itself: it was preempted,
// terminated, stopped or deleted.
type GoneError struct {
	Node  string // full name
	State string // as the API says it
}

// Error says what happened to the node and what to type next.
func (e *GoneError) Error() string {
	name, project, zone := splitName(e.Node)
	where := fmt.Sprintf("--zone=%s --project=%s", zone, project)
	switch e.State {
	case "PREEMPTED":
		return fmt.Sprintf("TPU %s was preempted: delete it and make it anew (gcloud compute tpus tpu-vm delete %s %s), then type the same command; "+
			"with --tpu-wait a run waits for a node that is made anew", name, name, where)
	case "STOPPED", "STOPPING":
		return fmt.Sprintf("TPU %s is %s: start it with gcloud compute tpus tpu-vm start %s %s", name, e.State, name, where)
	}
	return fmt.Sprintf("TPU %s is %s: make it anew with gcloud compute tpus tpu-vm create %s %s --accelerator-type=TYPE --version=VERSION", name, e.State, name, where)
}

// NotReadyError is a node that was not ready in time.
type NotReadyError struct {
	Node          string // full name
	State, Health string // as the API says them
	Description   string // of its health, maybe ""
	Waited        time.Duration
}

// Error says how the node is, for how long it was waited, and what to type next.
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
	fmt.Fprintf(&b, "; expected state READY and health HEALTHY: wait longer with --tpu-ready-timeout, or look at it with gcloud compute tpus tpu-vm describe %s --zone=%s --project=%s", name, zone, project)
	return b.String()
}

// APIError is an answer of the Cloud TPU API that is no node.
type APIError struct {
	Node    string // full name
	Code    int    // of HTTP
	Status  string // such as PERMISSION_DENIED, maybe ""
	Message string
}

// Error gives the API's answer and what to type next.
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
		return fmt.Sprintf("%s; give the account the role roles/tpu.viewer, and switch the API on with gcloud services enable tpu.googleapis.com --project=%s", text, project)
	case 404:
		return fmt.Sprintf("%s; expected a node in zone %s of project %s: gcloud compute tpus tpu-vm list --zone=%s --project=%s shows them", text, zone, project, zone, project)
	case 429:
		return text + "; too many calls: try again in a minute"
	}
	if e.Code >= 500 {
		return text + "; try again in a minute"
	}
	return text
}

// Is reports whether the target is the error's class: a node that does not exist or may not
// be seen is a mistake of whoever named it.
func (e *APIError) Is(target error) bool {
	return target == fault.Usage && (e.Code == 403 || e.Code == 404)
}

// splitName cuts a full name into its parts.
func splitName(full string) (name, project, zone string) {
	if m := fullName.FindStringSubmatch(full); m != nil {
		return m[3], m[1], m[2]
	}
	return full, "PROJECT", "ZONE"
}

// clip makes a short line of a text that came from elsewhere.
func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
