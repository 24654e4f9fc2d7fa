package tpu

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// Defaults of a Config.
const (
	DefaultJob          = "worker"
	DefaultAPI          = "https://tpu.googleapis.com/v2"
	DefaultPort         = "8470"
	DefaultPollInterval = 10 * time.Second
)

// Config says which TPU to find.
type Config struct {
	// Name is a node's name ("node-1", or in full
	// "projects/P/locations/Z/nodes/N"), addresses with commas between, or "local".
	// "" asks the environment.
	Name string
	// Project and Zone of a node; "" asks the environment and the metadata server.
	Project, Zone string
	// Job is the name of the TensorFlow job that the workers are; "" is DefaultJob.
	Job string
	// API is the URL that the Cloud TPU API is below; "" is DefaultAPI. It is https
	// unless the host is this machine.
	API string
	// ReadyTimeout is how long to wait for a node that is on its way to being ready; 0
	// is not at all. It is also the deadline of calls that the API asks to repeat.
	ReadyTimeout time.Duration
	// PollInterval is the time between two looks at a node; 0 is DefaultPollInterval.
	PollInterval time.Duration
	// WaitForNode makes a node that was preempted or stopped one to wait for as well:
	// somebody, such as a queued resource, is expected to start it again.
	WaitForNode bool
	// Credentials for the API; nil is Application Default Credentials.
	Credentials oauth2.TokenSource
	// Getenv reads the environment. Nil is an empty one: commands give os.Getenv.
	Getenv func(string) string
	// Log takes a line for each look at a node that is not ready; nil is none.
	Log *slog.Logger
}

// nodeName is what the Cloud TPU API takes as a node's name; projectName also allows the
// older names that belong to a domain.
var (
	nodeName    = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	zoneName    = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+-[a-z]$`)
	projectName = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*$`)
	jobName     = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	fullName    = regexp.MustCompile(`^projects/([^/]+)/locations/([^/]+)/nodes/([^/]+)$`)
)

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	switch {
	case c.Job != "" && !jobName.MatchString(c.Job):
		return fault.Usagef("job %q: expected letters, digits and _", c.Job)
	case c.Project != "" && !projectName.MatchString(c.Project):
		return fault.Usagef("project %q: expected a project's ID, such as my-project-1; gcloud projects list shows yours", c.Project)
	case c.Zone != "" && !zoneName.MatchString(c.Zone):
		return fault.Usagef("zone %q: expected a zone, such as us-central1-b; gcloud compute tpus locations list shows them", c.Zone)
	case c.ReadyTimeout < 0:
		return fault.Usagef("ready timeout %v: expected 0 (do not wait) or more", c.ReadyTimeout)
	case c.PollInterval < 0:
		return fault.Usagef("poll interval %v: expected 0 (%v) or more", c.PollInterval, DefaultPollInterval)
	}
	if c.API == "" {
		return nil
	}
	u, err := url.Parse(c.API)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return fault.Usagef("API %q: expected a URL of the form https://HOST/VERSION (http on this machine only: a token is sent to it)", c.API)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// kind is what a name stands for.
type kind int

const (
	kindNode kind = iota
	kindAddresses
	kindLocal
)

// target is what is to be resolved, before anybody was asked.
type target struct {
	kind          kind
	name          string // of a node
	project, zone string
	addresses     []string
	source        string // where the name comes from, for people
}

// targetOf reads the flags and the environment.
func targetOf(c Config) (target, error) {
	getenv := c.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	name, project, zone, source := strings.TrimSpace(c.Name), c.Project, c.Zone, "the name given"
	for _, variable := range []string{envGKE, envName} {
		if name == "" {
			name, source = strings.TrimSpace(getenv(variable)), variable
		}
	}
	if name == "" {
		if value := getenv(envConfig); value != "" {
			node, err := parseTPUConfig(value)
			if err != nil {
				return target{}, err
			}
			name, source = node.Name, envConfig
			if project == "" {
				project = node.Project
			}
			if zone == "" {
				zone = node.Zone
			}
		}
	}
	if name == "" {
		return target{}, fault.Usagef("no TPU is named: give --tpu NAME, --tpu grpc://HOST:%s or --tpu local, or set %s", DefaultPort, envName)
	}
	t := target{name: name, project: project, zone: zone, source: source}
	if name == "local" {
		t.kind = kindLocal
		return t, nil
	}
	if m := fullName.FindStringSubmatch(name); m != nil {
		if c.Project != "" && c.Project != m[1] || c.Zone != "" && c.Zone != m[2] {
			return target{}, fault.Usagef("%s: %q is not in project %q and zone %q: leave --tpu-project and --tpu-zone out, or give the node's short name", source, name, c.Project, c.Zone)
		}
		t.project, t.zone, t.name = m[1], m[2], m[3]
	} else if isAddresses(name) {
		t.kind = kindAddresses
		var err error
		if t.addresses, err = parseAddresses(name); err != nil {
			return target{}, fault.Usagef("%s: %w", source, err)
		}
		return t, nil
	}
	if !nodeName.MatchString(t.name) {
		return target{}, fault.Usagef("%s: %q is no name of a TPU: expected lower-case letters, digits and -, or an address such as grpc://10.0.0.2:%s; gcloud compute tpus tpu-vm list shows yours", source, name, DefaultPort)
	}
	return t, Config{Project: t.project, Zone: t.zone}.Validate()
}

// isAddresses reports whether a name is addresses: no node's name has any of their signs.
func isAddresses(name string) bool {
	return strings.ContainsAny(name, ":,[") || net.ParseIP(name) != nil
}

// parseAddresses reads addresses with commas between, and returns them as host:port.
func parseAddresses(list string) ([]string, error) {
	var out []string
	seen := make(map[string]bool)
	for _, part := range strings.Split(list, ",") {
		part = strings.TrimSpace(part)
		address, err := parseAddress(part)
		if err != nil {
			return nil, err
		}
		if seen[address] {
			return nil, fmt.Errorf("address %s is given twice", address)
		}
		seen[address] = true
		out = append(out, address)
	}
	return out, nil
}

func parseAddress(s string) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("address %q: %s: expected grpc://HOST:PORT", s, why)
	}
	rest := s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		if scheme != "grpc" {
			return bad(fmt.Sprintf("scheme %q", scheme))
		}
		rest = after
	}
	host, port := rest, DefaultPort
	switch {
	case net.ParseIP(rest) != nil:
	case strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]"):
		host = rest[1 : len(rest)-1]
	case strings.Contains(rest, ":"):
		var err error
		if host, port, err = net.SplitHostPort(rest); err != nil {
			return bad("no host and port")
		}
	}
	if host == "" || strings.ContainsAny(host, "/@?# \t[]") {
		return bad("no host")
	}
	if (strings.Contains(host, ":") || strings.HasPrefix(rest, "[")) && net.ParseIP(host) == nil {
		return bad("no IPv6 address")
	}
	if !validPort(port) {
		return bad(fmt.Sprintf("port %q", port))
	}
	return net.JoinHostPort(host, port), nil
}
