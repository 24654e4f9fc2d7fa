package tpu

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// theirs runs the function of TensorFlow's script that sets the variables, without TensorFlow, and
// prints those that it has set.
const theirs = `
import json, os, sys, types, urllib.request

def get(url, headers):
    url = url.replace("metadata.google.internal", os.environ["GCE_METADATA_HOST"])
    request = urllib.request.Request(url, headers=headers)
    return types.SimpleNamespace(text=urllib.request.urlopen(request).read().decode())

source = open(sys.argv[1]).read()
source = source[source.index("def get_metadata"):source.index("def main")]
before = dict(os.environ)
exec(source, space := {"os": os, "requests": types.SimpleNamespace(get=get)})
space["setup_env_vars"]()
print(json.dumps({k: v for k, v in os.environ.items() if before.get(k) != v}))
`

// metadataOf serves what the metadata server of a host of a TPU answers, and returns its address.
func metadataOf(t *testing.T, worker, kind, endpoints, ip string) string {
	t.Helper()
	answers := map[string]string{"attributes/agent-worker-number": worker, "attributes/accelerator-type": kind,
		"attributes/worker-network-endpoints": endpoints, "network-interfaces/0/ip": ip}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/instance/")]
		if w.Header().Set("Metadata-Flavor", "Google"); !ok || r.Header.Get("Metadata-Flavor") != "Google" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestVariablesAreTensorFlows(t *testing.T) {
	found, _ := filepath.Glob("../.cache/check-tpu/passes/lib/python3.*/site-packages/tensorflow/python/tools/grpc_tpu_worker.py")
	if len(found) == 0 {
		t.Skip("TensorFlow's wheel for TPUs is not here; make check-tpu-passes fetches it")
	}
	pod := "unknown:unknown:10.0.0.2,unknown:unknown:10.0.0.3"
	for _, c := range [][4]string{
		{"0", "v2-8", "unknown:unknown:10.0.0.2", "10.0.0.2"}, {"1", "v3-32", pod, "10.0.0.3"},
		{"1", "v4-32", pod, "10.0.0.3"}, {"0", "v5p-128", pod, "10.0.0.2"}, {"0", "v5litepod-16", pod, "10.0.0.2"},
	} {
		address := metadataOf(t, c[0], c[1], c[2], c[3])
		cmd := exec.Command("../.venv/bin/python", "-c", theirs, found[0])
		cmd.Env = append(os.Environ(), "GCE_METADATA_HOST="+address)
		printed, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]string
		if err := json.Unmarshal(printed, &want); err != nil {
			t.Fatal(err)
		}
		delete(want, "TPU_STDERR_LOG_LEVEL") // the user's choice
		host, err := ThisHost(t.Context(), func(name string) string { return map[string]string{envMetadataHost: address}[name] })
		if err != nil {
			t.Fatal(err)
		}
		got := host.Variables
		if host.Kind != c[1] || host.PJRT() != strings.HasPrefix(c[1], "v5litepod") {
			t.Errorf("host %+v, want a %s", host, c[1])
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s: %s=%q, want %q", c[1], name, got[name], want[name])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", c[1], got, want)
		}
	}
}

func TestThisHostRefuses(t *testing.T) {
	for want, c := range map[string][2]string{
		"set TPU_HOST_BOUNDS":        {"v2-64", "a:b:10.0.0.2"},
		"expected NAME:PORT:ADDRESS": {"v4-32", "10.0.0.2"},
	} {
		host := metadataOf(t, "0", c[0], c[1], "10.0.0.2")
		_, err := ThisHost(t.Context(), func(name string) string { return map[string]string{envMetadataHost: host}[name] })
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", c, err, want)
		}
	}
}
