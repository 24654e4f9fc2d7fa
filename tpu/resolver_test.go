package tpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/tpu"
)

const token = "secret-token"

// environment is a Getenv of a map.
func environment(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

// world is a Cloud TPU API and a metadata server.
type world struct {
	api, metadata *httptest.Server
	calls         atomic.Int64
	asked         atomic.Int64 // of the metadata server
	answers       []answer     // by call, the last for all that follow
	t             *testing.T
}

type answer struct {
	code  int
	body  string
	after string        // Retry-After
	delay time.Duration // before the answer, at most until the client goes
}

func newWorld(t *testing.T, answers ...answer) *world {
	w := &world{t: t, answers: answers}
	w.api = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		n := int(w.calls.Add(1)) - 1
		if got := in.Header.Get("Authorization"); got != "Bearer "+token {
			t.Errorf("the API got authorization %q", got)
		}
		if want := "/v2/projects/proj-1/locations/us-central1-b/nodes/node-1"; in.URL.Path != want {
			t.Errorf("the API was asked for %s, want %s", in.URL.Path, want)
		}
		a := w.answers[min(n, len(w.answers)-1)]
		if a.delay > 0 {
			select {
			case <-time.After(a.delay):
			case <-in.Context().Done():
			}
		}
		if a.after != "" {
			out.Header().Set("Retry-After", a.after)
		}
		if a.code == http.StatusFound {
			out.Header().Set("Location", "http://127.0.0.1:1/stolen")
		}
		out.WriteHeader(a.code)
		io.WriteString(out, a.body)
	}))
	t.Cleanup(w.api.Close)
	w.metadata = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		w.asked.Add(1)
		if in.Header.Get("Metadata-Flavor") != "Google" || in.Header.Get("Authorization") != "" {
			t.Errorf("the metadata server got the headers %v", in.Header)
		}
		out.Header().Set("Metadata-Flavor", "Google")
		switch in.URL.Path {
		case "/computeMetadata/v1/project/project-id":
			io.WriteString(out, "proj-1")
		case "/computeMetadata/v1/instance/zone":
			io.WriteString(out, "projects/12345/zones/us-central1-b\n")
		default:
			http.NotFound(out, in)
		}
	}))
	t.Cleanup(w.metadata.Close)
	return w
}

// config is of the node node-1 in the world.
func (w *world) config() tpu.Config {
	return tpu.Config{Name: "node-1", API: w.api.URL + "/v2", PollInterval: time.Millisecond,
		Credentials: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token}),
		Getenv:      environment(map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(w.metadata.URL, "http://")})}
}

func resolve(t *testing.T, c tpu.Config) (tpu.Cluster, error) {
	t.Helper()
	r, err := tpu.NewResolver(c)
	if err != nil {
		return tpu.Cluster{}, err
	}
	cluster, err := r.Resolve(t.Context())
	if err != nil && strings.Contains(err.Error(), token) {
		t.Errorf("the error contains the token: %v", err)
	}
	return cluster, err
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		name    string
		want    []string // nil is an error
		message string
	}{
		{name: "grpc://10.0.0.2:8470", want: []string{"10.0.0.2:8470"}},
		{name: "grpc://10.0.0.2", want: []string{"10.0.0.2:8470"}},
		{name: "10.0.0.2", want: []string{"10.0.0.2:8470"}},
		{name: "tpu-host:2222", want: []string{"tpu-host:2222"}},
		{name: "grpc://10.0.0.2:8470, grpc://10.0.0.3:8471", want: []string{"10.0.0.2:8470", "10.0.0.3:8471"}},
		{name: "10.0.0.2,grpc://tpu-host", want: []string{"10.0.0.2:8470", "tpu-host:8470"}},
		{name: "grpc://[fd00::1]:8470,[fd00::2],fd00::3", want: []string{"[fd00::1]:8470", "[fd00::2]:8470", "[fd00::3]:8470"}},
		{name: "grpc://", message: `address is "grpc://" (no host); expected`},
		{name: "http://10.0.0.2", message: `scheme "http"`},
		{name: "grpc://10.0.0.2:0", message: `port "0"`},
		{name: "grpc://10.0.0.2:70000", message: `port "70000"`},
		{name: "grpc://10.0.0.2:", message: `port ""`},
		{name: "grpc://user@host:1", message: "no host"},
		{name: "grpc://10.0.0.2:8470/path", message: `port "8470/path"`},
		{name: "10.0.0.2,,10.0.0.3", message: `address is "" (no host); expected`},
		{name: "10.0.0.2,grpc://10.0.0.2:8470", message: "address 10.0.0.2:8470 is given twice"},
		{name: "a:b:c", message: "(not HOST:PORT)"},
		{name: "[no]:1", message: "not an IPv6 address"},
	} {
		cluster, err := resolve(t, tpu.Config{Name: c.name})
		if c.want == nil {
			if err == nil || !strings.Contains(err.Error(), c.message) || fault.Of(err) != fault.Usage {
				t.Errorf("%s: error %v, want a usage error with %q", c.name, err, c.message)
			}
			continue
		}
		if err != nil || !slices.Equal(cluster.Workers, c.want) && cluster.Node == nil {
			// A host without a dot or a port looks like a node's name; in a list it is
			// a host.
			t.Errorf("%s: %v, %v; want %v", c.name, cluster.Workers, err, c.want)
		}
		if cluster.Master() != "grpc://"+c.want[0] || cluster.Job != "worker" {
			t.Errorf("%s: master %s, job %s", c.name, cluster.Master(), cluster.Job)
		}
	}
}

// FuzzAddresses: whatever the name, an address that comes out goes in again as itself.
func FuzzAddresses(f *testing.F) {
	for _, s := range []string{"grpc://10.0.0.2:8470,10.0.0.3", "[::1]:1", "a,b:2", "local", "node-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r, err := tpu.NewResolver(tpu.Config{Name: name})
		if err != nil || !strings.ContainsAny(name, ",") {
			return
		}
		cluster, err := r.Resolve(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range cluster.Workers {
			if _, _, err := net.SplitHostPort(address); err != nil {
				t.Fatalf("%q gave %q: %v", name, address, err)
			}
		}
		again, err := resolve(t, tpu.Config{Name: strings.Join(cluster.Workers, ",")})
		if err != nil || !slices.Equal(again.Workers, cluster.Workers) {
			t.Fatalf("%q gave %v, which gave %v, %v", name, cluster.Workers, again.Workers, err)
		}
	})
}

func TestEnvironment(t *testing.T) {
	const gke, name, config = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"
	for _, c := range []struct {
		flag    string
		env     map[string]string
		want    string // the first worker's address
		source  string
		message string
	}{
		{flag: "grpc://flag:1", env: map[string]string{gke: "grpc://gke:1", name: "grpc://name:1"}, want: "flag:1", source: "the name given"},
		{env: map[string]string{gke: "grpc://gke:1,grpc://gke:2", name: "grpc://name:1", config: `{`}, want: "gke:1", source: gke},
		{env: map[string]string{name: "grpc://name:1", config: `{`}, want: "name:1", source: name},
		{env: map[string]string{config: `{"tpu_node_name": "grpc://config:1"}`}, want: "config:1", source: config},
		{message: "no TPU given; expected --tpu NAME"},
		{env: map[string]string{config: `{"tpu_node_name": 7}`}, message: `"tpu_node_name" has the wrong type, number`},
		{env: map[string]string{config: `{"project": "p"}`}, message: `TPU_CONFIG has no "tpu_node_name"`},
		{env: map[string]string{config: `[1]`}, message: "the value has the wrong type, array"},
		{env: map[string]string{config: `{"tpu_`}, message: "invalid JSON at byte 6"},
		{env: map[string]string{name: "Node_1"}, message: `TPU_NAME: TPU name is "Node_1"; expected`},
		{env: map[string]string{config: `{"tpu_node_name": "node-1", "zone": "here"}`}, message: `zone is "here"; expected a zone`},
		{flag: "projects/p/locations/us-central1-b/nodes/n/x", message: "TPU name is "},
	} {
		cluster, err := resolve(t, tpu.Config{Name: c.flag, Getenv: environment(c.env)})
		if c.message != "" {
			if err == nil || !strings.Contains(err.Error(), c.message) || fault.Of(err) != fault.Usage {
				t.Errorf("%v: error %v, want a usage error with %q", c.env, err, c.message)
			}
			continue
		}
		if err != nil || cluster.Workers[0] != c.want || cluster.Source != c.source {
			t.Errorf("%v: %v from %s, %v; want %s from %s", c.env, cluster.Workers, cluster.Source, err, c.want, c.source)
		}
	}
}

func TestLocal(t *testing.T) {
	c, err := resolve(t, tpu.Config{Name: "local", Job: "trainer"})
	if err != nil || !c.Local || c.Master() != "" || len(c.Workers) != 0 || c.Job != "trainer" {
		t.Errorf("%+v, %v", c, err)
	}
}

const readyNode = `{"name": "projects/proj-1/locations/us-central1-b/nodes/node-1", "state": "READY", "health": "HEALTHY",
  "acceleratorType": "v3-8", "networkEndpoints": [{"ipAddress": "10.1.0.2", "port": 8470}, {"ipAddress": "10.1.0.3", "port": "8471"}, {"ipAddress": "fd00::4"}]}`

func TestNode(t *testing.T) {
	w := newWorld(t, answer{code: 200, body: readyNode})
	c, err := resolve(t, w.config())
	if want := []string{"10.1.0.2:8470", "10.1.0.3:8471", "[fd00::4]:8470"}; err != nil || !slices.Equal(c.Workers, want) {
		t.Fatalf("%v, %v; want %v", c.Workers, err, want)
	}
	if c.Master() != "grpc://10.1.0.2:8470" || c.Node.AcceleratorType != "v3-8" {
		t.Errorf("master %s, node %+v", c.Master(), c.Node)
	}
	if n := w.asked.Load(); n != 2 {
		t.Errorf("the metadata server was asked %d times, want 2", n)
	}
	// What is given is not asked for, whichever way it is given.
	given := w.config()
	given.Project, given.Zone = "proj-1", "us-central1-b"
	full := w.config()
	full.Name = "projects/proj-1/locations/us-central1-b/nodes/node-1"
	fromEnv := w.config()
	fromEnv.Name = ""
	fromEnv.Getenv = environment(map[string]string{"TPU_CONFIG": `{"tpu_node_name": "node-1", "project": "proj-1", "zone": "us-central1-b"}`})
	for _, config := range []tpu.Config{given, full, fromEnv} {
		if _, err := resolve(t, config); err != nil {
			t.Error(err)
		}
	}
	if n := w.asked.Load(); n != 2 {
		t.Errorf("the metadata server was asked %d times, want 2", n)
	}
	full.Project = "other"
	if _, err := resolve(t, full); err == nil || !strings.Contains(err.Error(), "is not in project") {
		t.Errorf("a contradiction: %v", err)
	}
	// The first version of the API has one worker's address in the node itself.
	w = newWorld(t, answer{code: 200, body: `{"state": "READY", "ipAddress": "10.1.0.9", "port": "8479"}`})
	config := w.config()
	config.Getenv = environment(map[string]string{"GCE_METADATA_IP": strings.TrimPrefix(w.metadata.URL, "http://")})
	if c, err := resolve(t, config); err != nil || c.Master() != "grpc://10.1.0.9:8479" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestWaitsForReady(t *testing.T) {
	w := newWorld(t, answer{code: 200, body: `{"state": "CREATING"}`}, answer{code: 200, body: `{"state": "STARTING"}`},
		answer{code: 200, body: `{"state": "READY", "health": "TIMEOUT"}`}, answer{code: 200, body: readyNode})
	config := w.config()
	var log bytes.Buffer
	config.Log = slog.New(slog.NewTextHandler(&log, nil))
	config.ReadyTimeout = time.Minute
	if _, err := resolve(t, config); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "waiting for the TPU"); n != 3 || !strings.Contains(log.String(), "state=STARTING") || !strings.Contains(log.String(), "health=TIMEOUT") {
		t.Errorf("%d lines of waiting, want 3:\n%s", n, log.String())
	}
	if strings.Contains(log.String(), token) {
		t.Error("the log contains the token")
	}
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		state, health string
		gone          bool
		message       string
	}{
		{"PREEMPTED", "", true, "was preempted; delete it (gcloud compute tpus tpu-vm delete node-1 --zone=us-central1-b --project=proj-1), create it again"},
		{"TERMINATED", "", true, "is TERMINATED; create it again with gcloud compute tpus tpu-vm create node-1"},
		{"STOPPED", "", true, "is STOPPED; start it with gcloud compute tpus tpu-vm start node-1"},
		{"STOPPING", "", true, "start it with"},
		{"DELETING", "", true, "create it again"},
		{"HIDDEN", "", true, "create it again"},
		{"CREATING", "", false, "is not ready: state CREATING (being mended); expected state READY and health HEALTHY"},
		{"RESTARTING", "", false, "state RESTARTING"},
		{"REPAIRING", "", false, "state REPAIRING"},
		{"SOMETHING_NEW", "", false, "state SOMETHING_NEW"},
		{"READY", "UNHEALTHY_MAINTENANCE", false, "state READY, health UNHEALTHY_MAINTENANCE (being mended)"},
	} {
		w := newWorld(t, answer{code: 200, body: fmt.Sprintf(`{"state": %q, "health": %q, "healthDescription": "being\n mended"}`, c.state, c.health)})
		_, err := resolve(t, w.config())
		gone, late := new(tpu.GoneError), new(tpu.NotReadyError)
		if errors.As(err, &gone) != c.gone || errors.As(err, &late) == c.gone || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.state, err, c.message)
		}
		if n := w.calls.Load(); n != 1 {
			t.Errorf("%s: %d calls", c.state, n)
		}
	}
}

// TestWaitsForPreempted: a run that waits continues when the node is made again under its name.
func TestWaitsForPreempted(t *testing.T) {
	gone := answer{code: 404, body: `{"error": {"status": "NOT_FOUND", "message": "no such node"}}`}
	w := newWorld(t, answer{code: 200, body: `{"state": "PREEMPTED"}`}, answer{code: 200, body: `{"state": "DELETING"}`}, gone,
		answer{code: 200, body: `{"state": "CREATING"}`}, answer{code: 200, body: readyNode})
	config := w.config()
	config.ReadyTimeout, config.WaitForNode = time.Minute, true
	if _, err := resolve(t, config); err != nil {
		t.Fatal(err)
	}
	// A node that was never there is not waited for.
	w = newWorld(t, gone)
	config = w.config()
	config.ReadyTimeout, config.WaitForNode = time.Minute, true
	var missing *tpu.APIError
	if _, err := resolve(t, config); !errors.As(err, &missing) || missing.Code != 404 {
		t.Error(err)
	}
}

func TestAPIErrors(t *testing.T) {
	for _, c := range []struct {
		answer  answer
		message string
		class   fault.Class
		calls   int64
	}{
		{answer{code: 401, body: `{"error": {"status": "UNAUTHENTICATED"}}`}, "answered 401 UNAUTHENTICATED; sign in with gcloud auth application-default login", fault.Failed, 1},
		{answer{code: 403, body: `{"error": {"status": "PERMISSION_DENIED", "message": "tpu.nodes.get is missing"}}`}, "tpu.nodes.get is missing; grant the account the role roles/tpu.viewer", fault.Usage, 1},
		{answer{code: 404}, "expected a node in zone us-central1-b of project proj-1", fault.Usage, 1},
		{answer{code: 400, body: strings.Repeat("x", 1000)}, "the Cloud TPU API answered 400", fault.Failed, 1},
		{answer{code: 429, after: "100"}, "too many calls", fault.Failed, 1},
		{answer{code: 503, after: "100"}, "answered 503; try again", fault.Failed, 1},
		{answer{code: 302}, "answered 302", fault.Failed, 1},
		{answer{code: 200, body: "<html>"}, "is not the Cloud TPU API: invalid JSON at byte 1", fault.Failed, 1},
		{answer{code: 200, body: `{}`}, "the reply has no state", fault.Failed, 1},
		{answer{code: 200, body: `{"state": 3}`}, `"state" has the wrong type, number`, fault.Failed, 1},
		{answer{code: 200, body: `{"state": "READY", "networkEndpoints": [{"ipAddress": "10.0.0.1", "port": 99999}]}`}, "port is 99999", fault.Failed, 1},
		{answer{code: 200, body: `{"state": "READY"}`}, "no network endpoints", fault.Failed, 1},
		{answer{code: 200, body: `{"state": "READY", "networkEndpoints": [{"ipAddress": "evil.example/x"}]}`}, "expected an IP address", fault.Failed, 1},
		{answer{code: 200, body: `{"state": "READY", "networkEndpoints": [{"ipAddress": "10.0.0.1"}, {"ipAddress": "10.0.0.1", "port": 8470}]}`}, "for two workers", fault.Failed, 1},
		{answer{code: 200, body: strings.Repeat(" ", 5<<20)}, "is not the Cloud TPU API: the reply has more than 4194304 bytes", fault.Failed, 1},
		{answer{code: 503, after: "100", body: strings.Repeat(" ", 5<<20)}, "answered 503; try again", fault.Failed, 1},
	} {
		w := newWorld(t, c.answer)
		config := w.config()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		r, err := tpu.NewResolver(config)
		if err == nil {
			_, err = r.Resolve(ctx)
		}
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.message) || fault.Of(err) != c.class {
			t.Errorf("%d %.40s: %v (%s), want %q (%s)", c.answer.code, c.answer.body, err, fault.Of(err), c.message, c.class)
			continue
		}
		if len(err.Error()) > 600 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: a message of %d bytes", c.answer.code, len(err.Error()))
		}
		if n := w.calls.Load(); n != c.calls {
			t.Errorf("%d: %d calls, want %d", c.answer.code, n, c.calls)
		}
	}
}

// TestRepeats: a call that the API asks to repeat goes through in the end.
func TestRepeats(t *testing.T) {
	w := newWorld(t, answer{code: 429}, answer{code: 200, body: readyNode})
	if _, err := resolve(t, w.config()); err != nil {
		t.Fatal(err)
	}
	if n := w.calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestEndpoints: an endpoint that refuses, one that accepts and says nothing, one that
// speaks something else.
func TestEndpoints(t *testing.T) {
	refuses, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			// An answer to no request yet is another error of the client's.
			_, _ = c.Read(make([]byte, 4096))
			io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
			c.Close()
		}
	}()
	silent := newWorld(t, answer{code: 200, delay: time.Minute})
	for _, c := range []struct{ name, api, message string }{
		{"refuses", "http://" + refuses.Addr().String(), "connection refused; check the network"},
		{"other", "http://" + other.Addr().String(), "malformed HTTP"},
		{"silent", silent.api.URL, "deadline exceeded"},
	} {
		w := newWorld(t, answer{code: 200})
		config := w.config()
		config.API = c.api + "/v2"
		r, err := tpu.NewResolver(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err = r.Resolve(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.name, err, c.message)
		}
	}
}

func TestMetadataServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		message string
	}{
		{"of something else", func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "hello") }, "unexpected reply 200 OK"},
		{"without the answer", func(out http.ResponseWriter, in *http.Request) {
			out.Header().Set("Metadata-Flavor", "Google")
			http.NotFound(out, in)
		}, "unexpected reply 404 Not Found to project/project-id"},
		{"with a strange answer", func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Metadata-Flavor", "Google")
			io.WriteString(out, "a project?")
		}, `the metadata server returned "a project?" as this machine's project; set --tpu-project`},
	} {
		server := httptest.NewServer(c.handler)
		_, err := resolve(t, tpu.Config{Name: "node-1", Getenv: environment(map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(server.URL, "http://")})})
		server.Close()
		if err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), "set --tpu-project") {
			t.Errorf("%s: %v, want %q", c.name, err, c.message)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config  tpu.Config
		message string
	}{
		{tpu.Config{Name: "n", Zone: "us"}, `zone is "us"`},
		{tpu.Config{Name: "n", Project: "a/b"}, `project is "a/b"`},
		{tpu.Config{Name: "n", Job: "a b"}, `job is "a b"`},
		{tpu.Config{Name: "n", API: "http://example.com/v2"}, "http only on this machine"},
		{tpu.Config{Name: "n", API: "ftp://localhost"}, "expected a URL"},
		{tpu.Config{Name: "n", ReadyTimeout: -1}, "ready timeout"},
		{tpu.Config{Name: "n", PollInterval: -1}, "poll interval"},
	} {
		if _, err := tpu.NewResolver(c.config); err == nil || !strings.Contains(err.Error(), c.message) || fault.Of(err) != fault.Usage {
			t.Errorf("%+v: %v, want a usage error with %q", c.config, err, c.message)
		}
	}
}

func ExampleResolver() {
	r, err := tpu.NewResolver(tpu.Config{Name: "grpc://10.0.0.2,grpc://10.0.0.3:8471"})
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster, err := r.Resolve(context.Background())
	fmt.Println(cluster.Master(), cluster.Workers, err)
	// Output: grpc://10.0.0.2:8470 [10.0.0.2:8470 10.0.0.3:8471] <nil>
}
