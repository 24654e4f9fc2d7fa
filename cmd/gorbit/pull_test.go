package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
)

// TestPull prints paths that are there, and of checkpoints what their files begin with. The beginning of
// another name is a mistake.
func TestPull(t *testing.T) {
	h := hubtest.New()
	t.Cleanup(h.Close)
	h.Put("acme/encoder", map[string][]byte{"config.json": []byte("{}"), "vocab.txt": []byte("[PAD]"), "ckpt-1.index": []byte("x"), "ckpt-1.data-00000-of-00001": []byte("y")})
	u := newUser(t)
	pull := func(path string) (local, said string, err error) {
		cmd := u.command("gorbit", "pull", path)
		cmd.Env = append(cmd.Env, "HF_ENDPOINT="+h.URL, "HF_TOKEN="+hubtest.Token, "HF_HOME="+t.TempDir())
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), stderr.String(), err
	}
	for path, there := range map[string]string{"": "/vocab.txt", "/config.json": "", "/ckpt-1": ".index"} {
		local, said, err := pull("hub:acme/encoder" + path)
		if _, statErr := os.Stat(local + there); err != nil || statErr != nil {
			t.Errorf("%s: %v, %v\n%s", path, err, statErr, said)
		}
	}
	if local, said, err := pull("hub:acme/encoder/config"); err == nil || local != "" || !strings.Contains(said, "hub:acme/encoder/config: file does not exist in the repository") {
		t.Errorf("%s, %v\n%s", local, err, said)
	}
}
