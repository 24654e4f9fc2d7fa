package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/app/hub/hubtest"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestPush pushes a folder, and the checkpoints of a run, also with the commands of docs/guide/push.md.
func TestPush(t *testing.T) {
	t.Parallel()
	h := hubtest.New()
	t.Cleanup(h.Close)
	u := newUser(t)
	env := []string{"HF_ENDPOINT=" + h.URL, "HF_TOKEN=" + hubtest.Token}
	gorbit := func(code int, want string, args ...string) {
		t.Helper()
		cmd := u.command("gorbit", args...)
		cmd.Env = append(cmd.Env, env...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
			t.Errorf("%q: exit code %d, expected %d and %q:\n%s", args, got, code, want, out)
		}
		if strings.Contains(string(out), hubtest.Token) {
			t.Errorf("%q prints the token:\n%s", args, out)
		}
	}
	model := filepath.Join(u.dir, "model")
	if err := os.Mkdir(model, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "config.json"), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	gorbit(fault.ExitDone, "created the private repository acme/model\npushed 1 file ", "push", "model", "--repo", "acme/model")
	gorbit(fault.ExitDone, "acme/model has all files already", "push", "model", "--repo", "acme/model")
	gorbit(fault.ExitFailed, "may not write there", "push", "model", "--repo", "forbidden/reviews")

	u.write(40)
	u.run("gorbit", "convert", "--vocab", "vocab.txt", "--train", "reviews.tsv", "--text-column", "text", "--label-column", "label", "--labels", "bad,good", "--max-length", "24", "--out", "data")
	graph := testkit.Export(t, `{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 29, "max_position_embeddings": 32}`)
	u.run("gorbit", "train", "--graph", graph, "--data", "data", "--run", "runs/reviews", "--steps", "2", "--batch-size", "8", "--learning-rate", "1e-3", "--checkpoint-interval", "1", "--eval-interval", "-2")
	r := &reader{t: t, dir: u.dir, env: append(u.command("gorbit").Env, append(env, "PATH="+u.bin+":"+os.Getenv("PATH"))...)}
	if err := r.follow(io.Discard, "docs/guide/push.md"); err != nil {
		t.Error(err)
	}
	gorbit(fault.ExitDone, "pushed ", "push", "--run", "runs/reviews", "--repo", "acme/followed", "--follow", "--every", "5", "--timeout", "1s")
	repo := h.Repo("acme/followed")
	if repo == nil || len(repo.Commits) != 1 || repo.Commits[0] != "Step 2 of reviews" || len(repo.Files["model.safetensors"]) == 0 || !strings.Contains(string(repo.Files["README.md"]), "# followed") {
		t.Errorf("%+v", repo)
	}

	weights := filepath.Join(u.dir, "hf", "reviews", "model.safetensors")
	content, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(weights, content, 0o666); err != nil {
		t.Fatal(err)
	}
	gorbit(fault.ExitDamaged, "checksum is", "push", "hf/reviews", "--repo", "acme/damaged")
	if h.Repo("acme/damaged") != nil {
		t.Error("damaged weights were pushed")
	}

	for _, args := range [][]string{
		{"push", "model"}, {"push", "--repo", "a/b"}, {"push", "model", "--repo", "b"}, {"push", "model", "--run", "runs/reviews", "--repo", "a/b"},
		{"push", "model", "--repo", "a/b", "--follow"}, {"push", "model", "--repo", "a/b", "--every", "2"}, {"push", "--run", "runs/reviews", "--repo", "a/b", "--follow", "--every", "0"},
		{"push", "model", "--repo", "a/b", "--format", "savedmodel"}, {"push", "runs/reviews", "--repo", "a/b"},
	} {
		gorbit(fault.ExitUsage, "gorbit: ", args...)
	}
	env[1] = "HF_TOKEN_PATH=" + filepath.Join(u.dir, "token")
	gorbit(fault.ExitUsage, "HF_TOKEN=", "push", "model", "--repo", "acme/model")
	if err := os.WriteFile(filepath.Join(u.dir, "token"), []byte(hubtest.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gorbit(fault.ExitDone, "has all files already", "push", "model", "--repo", "acme/model")
}
