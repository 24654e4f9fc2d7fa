package main

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// TestTPUDescribe queries a Cloud TPU API with Application Default Credentials: the key of a
// service account, which is exchanged for a token.
func TestTPUDescribe(t *testing.T) {
	const token = "the-token"
	mux := http.NewServeMux()
	mux.HandleFunc("/token", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		io.WriteString(out, `{"access_token": "`+token+`", "token_type": "Bearer", "expires_in": 3600}`)
	})
	mux.HandleFunc("/v2/projects/p-1/locations/us-central1-b/nodes/node-1", func(out http.ResponseWriter, in *http.Request) {
		if in.Header.Get("Authorization") != "Bearer "+token {
			http.Error(out, "{}", http.StatusUnauthorized)
			return
		}
		io.WriteString(out, `{"state": "READY", "health": "HEALTHY", "acceleratorType": "v3-8", "runtimeVersion": "tpu-vm-tf-2.18.0-pjrt",
			"networkEndpoints": [{"ipAddress": "10.1.0.2", "port": 8470}, {"ipAddress": "10.1.0.3", "port": 8470}],
			"symptoms": [{"createTime": "2026-01-02T03:04:05Z", "symptomType": "HBM_OUT_OF_MEMORY", "details": "full", "workerId": "0"}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t, server.URL+"/token"))
	for _, name := range []string{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"} {
		t.Setenv(name, "")
	}
	flags := []string{"--tpu-api", server.URL + "/v2", "--tpu-project", "p-1", "--tpu-zone", "us-central1-b"}
	for _, c := range []struct {
		args []string
		want []string
		code int
	}{
		{args: append([]string{"node-1"}, flags...), want: []string{"state  ", "READY", "v3-8", "tpu-vm-tf-2.18.0-pjrt",
			"HBM_OUT_OF_MEMORY worker 0: full", "grpc://10.1.0.2:8470", "/job:worker/task:1", "10.1.0.3:8470"}},
		{args: append([]string{"node-1", "--json"}, flags...), want: []string{`"master": "grpc://10.1.0.2:8470"`, `"port": 8470`}},
		{args: []string{"grpc://10.0.0.2"}, want: []string{"the name given", "grpc://10.0.0.2:8470"}},
		{args: []string{"local"}, want: []string{"this machine"}},
		{want: []string{"no TPU given"}, code: fault.ExitUsage},
		{args: []string{"a", "b"}, want: []string{"2 names given; expected one"}, code: fault.ExitUsage},
		{args: []string{"local", "--tpu-zone", "here"}, want: []string{`zone is "here"`}, code: fault.ExitUsage},
		{args: append([]string{"node-2"}, flags...), want: []string{"answered 404", "gcloud compute tpus tpu-vm list"}, code: fault.ExitUsage},
	} {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append([]string{"tpu", "describe", "--progress", "off"}, c.args...))
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		text := out.String()
		if err != nil {
			text += err.Error()
		}
		if exitCode(err) != c.code {
			t.Errorf("%v: %v (exit code %d), want %d", c.args, err, exitCode(err), c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, text)
			}
		}
		if strings.Contains(text, token) {
			t.Errorf("%v: the output contains the token", c.args)
		}
	}
}

// serviceAccount writes the key file of a service account.
func serviceAccount(t *testing.T, tokenURL string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "gorbit@p-1.iam.gserviceaccount.com", "private_key_id": "1", "project_id": "p-1", "token_uri": tokenURL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
