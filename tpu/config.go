package tpu

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/web"
)

// Defaults of Config.
const (
	DefaultJob          = "worker"
	DefaultAPI          = "https://tpu.googleapis.com/v2"
	DefaultPort         = "8470"
	DefaultPollInterval = 10 * time.Second
)

// Config says which TPU to find.
type Config struct {
	// Name is the name of a node ("node-1", or in full "projects/P/locations/Z/nodes/N"), a
	// comma-separated list of addresses, or "local". "" means the environment's.
	Name string
	// Project and Zone of a node; "" means those of the environment or the metadata server.
	Project, Zone string
	// Job is the name of the workers' TensorFlow job; "" means DefaultJob.
	Job string
	// API is the base URL of the Cloud TPU API; "" means DefaultAPI. It must be https unless
	// the host is this machine.
	API string
	// ReadyTimeout is how long to wait for a node that is about to be ready; 0 means not at
	// all. It is also the time limit for retries of calls.
	ReadyTimeout time.Duration
	// PollInterval is the time between two polls of a node; 0 means DefaultPollInterval.
	PollInterval time.Duration
	// WaitForNode also waits for a node that was preempted or stopped, because something
	// else, such as a queued resource, is expected to start it again.
	WaitForNode bool
	// Credentials for the API; nil means Application Default Credentials.
	Credentials oauth2.TokenSource
	// Getenv reads the environment, usually os.Getenv. Nil means an empty environment.
	Getenv func(string) string
	// Log receives a line for each poll of a node that is not ready; nil means no log.
	Log *slog.Logger
}

// Local reports whether the name, or the environment's, is that of a TPU of this machine.
func (c Config) Local() bool {
	t, err := targetOf(c)
	return err == nil && t.kind == kindLocal
}

// nodeName matches the node names of the Cloud TPU API. projectName also matches old names with a
// domain.
var (
	nodeName    = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	zoneName    = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+-[a-z]$`)
	projectName = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z0-9][a-z0-9-]*$`)
	jobName     = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	fullName    = regexp.MustCompile(`^projects/([^/]+)/locations/([^/]+)/nodes/([^/]+)$`)
)

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	switch {
	case c.Job != "" && !jobName.MatchString(c.Job):
		return fault.Usagef("job is %q; expected letters, digits and _", c.Job)
	case c.Project != "" && !projectName.MatchString(c.Project):
		return fault.Usagef("project is %q; expected a project ID such as my-project-1; to list yours, run gcloud projects list", c.Project)
	case c.Zone != "" && !zoneName.MatchString(c.Zone):
		return fault.Usagef("zone is %q; expected a zone such as us-central1-b; to list them, run gcloud compute tpus locations list", c.Zone)
	case c.ReadyTimeout < 0:
		return fault.Usagef("ready timeout is %v; expected 0 (do not wait) or more", c.ReadyTimeout)
	case c.PollInterval < 0:
		return fault.Usagef("poll interval is %v; expected 0 (the default, %v) or more", c.PollInterval, DefaultPollInterval)
	}
	if c.API == "" {
		return nil
	}
	u, err := url.Parse(c.API)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && web.IsLoopback(u.Hostname())) {
		return fault.Usagef("API is %q; expected a URL https://HOST/VERSION (http only on this machine, because a token is sent to it)", c.API)
	}
	return nil
}

// kind is the kind of a name.
type kind int

const (
	kindNode kind = iota
	kindAddresses
	kindLocal
)

// target is a parsed name.
type target struct {
	kind          kind
	name          string // of a node
	project, zone string
	addresses     []string
	source        string // where the name comes from, for messages
}

// targetOf parses the name from the configuration or the environment.
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
			project, zone = cmp.Or(project, node.Project), cmp.Or(zone, node.Zone)
		}
	}
	if name == "" {
		return target{}, fault.Usagef("no TPU given; expected --tpu NAME, --tpu grpc://HOST:%s or --tpu local, or %s in the environment", DefaultPort, envName)
	}
	t := target{name: name, project: project, zone: zone, source: source}
	if name == "local" {
		t.kind = kindLocal
		return t, nil
	}
	if m := fullName.FindStringSubmatch(name); m != nil {
		if c.Project != "" && c.Project != m[1] || c.Zone != "" && c.Zone != m[2] {
			return target{}, fault.Usagef("%s: %q is not in project %q and zone %q; omit --tpu-project and --tpu-zone, or use the node's short name", source, name, c.Project, c.Zone)
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
		return target{}, fault.Usagef("%s: TPU name is %q; expected lower-case letters, digits and -, or an address such as grpc://10.0.0.2:%s; to list yours, run gcloud compute tpus tpu-vm list", source, name, DefaultPort)
	}
	return t, Config{Project: t.project, Zone: t.zone}.Validate()
}

// isAddresses reports whether a name is a list of addresses. They have characters that node names
// cannot have.
func isAddresses(name string) bool {
	return strings.ContainsAny(name, ":,[") || net.ParseIP(name) != nil
}

// parseAddresses parses a comma-separated list of addresses and returns them as host:port.
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
		return "", fmt.Errorf("address is %q (%s); expected grpc://HOST:PORT", s, why)
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
			return bad("not HOST:PORT")
		}
	}
	if host == "" || strings.ContainsAny(host, "/@?# \t[]") {
		return bad("no host")
	}
	if (strings.Contains(host, ":") || strings.HasPrefix(rest, "[")) && net.ParseIP(host) == nil {
		return bad("not an IPv6 address")
	}
	if !validPort(port) {
		return bad(fmt.Sprintf("port %q", port))
	}
	return net.JoinHostPort(host, port), nil
}
