package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestPush pushes a folder, and the checkpoints of a run, also with the commands of docs/guide/push.md.
func TestPush(t *testing.T) {
	t.Parallel()
	h := hubtest.New()
	t.Cleanup(h.Close)
	u := newUser(t)
	env := []string{"HF_ENDPOINT=" + h.URL, "HF_TOKEN=" + hubtest.Token, "HF_HOME=" + filepath.Join(u.dir, "hf-home")}
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

	pushStrategiesOf(t, h, graph, gorbit)
	readFromHub(t, u, h, graph, gorbit)
	verifyRun(t, u.dir, "runs/reviews", gorbit)

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
		{"push", "model", "--repo", "a/b", "--strategy", "end"}, {"push", "--run", "runs/reviews", "--repo", "a/b", "--follow", "--strategy", "never"}, {"push", "--run", "runs/reviews", "--repo", "a/b", "--dataset"},
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

// readFromHub converts, trains and pulls with paths of the hub that has the pushed model acme/reviews, and
// then without the hub.
func readFromHub(t *testing.T, u *user, h *hubtest.Hub, graph string, gorbit func(code int, want string, args ...string)) {
	t.Helper()
	read := func(path string) []byte {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(u.dir, path))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	h.Put("datasets/acme/texts", map[string][]byte{"csv/train.tsv": read("reviews.tsv")})
	gorbit(fault.ExitDone, "wrote data-hub", "convert", "--tokenizer", "hub:acme/reviews", "--train", "hub:datasets/acme/texts/csv/train.tsv",
		"--text-column", "text", "--label-column", "label", "--labels", "bad,good", "--max-length", "24", "--out", "data-hub")
	shards, err := filepath.Glob(filepath.Join(u.dir, "data", "*.tfrecord"))
	if err != nil || len(shards) == 0 {
		t.Fatalf("%v, %v", shards, err)
	}
	for _, s := range shards {
		if string(read(filepath.Join("data-hub", filepath.Base(s)))) != string(read(filepath.Join("data", filepath.Base(s)))) {
			t.Errorf("%s differs from that of files of this machine", s)
		}
	}
	commit := h.Repo("acme/reviews").Commit()
	train := func(run string, more ...string) {
		t.Helper()
		gorbit(fault.ExitDone, "initial weights from ", append([]string{"train", "--graph", graph, "--data", "hub:datasets/acme/records", "--init", "hub:acme/reviews",
			"--run", run, "--steps", "1", "--batch-size", "8", "--learning-rate", "1e-3", "--eval-interval", "-2"}, more...)...)
		if got := string(read(run + "/init.txt")); !strings.Contains(got, commit) {
			t.Errorf("init.txt does not say the commit %s:\n%s", commit, got)
		}
	}
	train("runs/hub")
	gorbit(fault.ExitDone, "/snapshots/"+commit+"/config.json\n", "pull", "hub:acme/reviews@"+commit+"/config.json")
	requests := len(h.Requests())
	train("runs/offline", "--offline")
	gorbit(fault.ExitFailed, "leave out --offline", "pull", "hub:acme/none", "--offline")
	if got := len(h.Requests()); got != requests {
		t.Errorf("%d requests with --offline", got-requests)
	}
	gorbit(fault.ExitUsage, "expected one path of a hub", "pull", "acme/reviews")
	gorbit(fault.ExitUsage, "gorbit push", "train", "--graph", graph, "--data", "data", "--run", "hub:acme/reviews/run", "--steps", "1")
}

// pushStrategiesOf pushes checkpoints to train on from: the older one is removed, and another run continues
// from the newer one. It pushes the run's data, too.
func pushStrategiesOf(t *testing.T, h *hubtest.Hub, graph string, gorbit func(code int, want string, args ...string)) {
	t.Helper()
	h.Put("acme/kept", map[string][]byte{"last-checkpoint/checkpoints/ckpt-1.index": []byte("old"), "notes.txt": []byte("x")})
	gorbit(fault.ExitDone, "pushed ", "push", "--run", "runs/reviews", "--repo", "acme/kept", "--follow", "--strategy", "checkpoint", "--timeout", "1s")
	kept := h.Repo("acme/kept").Files
	if kept["last-checkpoint/checkpoints/ckpt-1.index"] != nil || kept["last-checkpoint/checkpoints/ckpt-2.index"] == nil || kept["notes.txt"] == nil || kept["model.safetensors"] == nil {
		t.Errorf("%v", slices.Sorted(maps.Keys(kept)))
	}
	gorbit(fault.ExitDone, "acme/kept has all files already", "push", "--run", "runs/reviews", "--repo", "acme/kept", "--follow", "--strategy", "checkpoint", "--timeout", "1s")
	gorbit(fault.ExitDone, "step=2", "train", "--graph", graph, "--data", "data", "--run", "runs/continued", "--resume-from", "hub:acme/kept/last-checkpoint/checkpoints/ckpt-2",
		"--steps", "3", "--batch-size", "8", "--learning-rate", "1e-3", "--checkpoint-interval", "1", "--eval-interval", "-2")
	gorbit(fault.ExitDone, "pushed ", "push", "--run", "runs/reviews", "--repo", "acme/all", "--follow", "--strategy", "all_checkpoints", "--timeout", "1s")
	if h.Repo("acme/all").Files["checkpoint-2/checkpoints/ckpt-2.index"] == nil {
		t.Error("there is no checkpoint-2")
	}
	gorbit(fault.ExitDone, "created the private repository acme/records", "push", "data", "--dataset", "--repo", "acme/records")
	if h.Repo("datasets/acme/records").Files["manifest.json"] == nil {
		t.Error("there is no dataset")
	}
}
