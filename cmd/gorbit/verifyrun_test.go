package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// verifyRun writes receipts of a trained run and changes the run: a byte of every file in turn, a line, a
// file, the receipt itself and the key.
func verifyRun(t *testing.T, dir, run string, gorbit func(code int, want string, args ...string)) {
	t.Helper()
	in := func(path string) string { return filepath.Join(dir, path) }
	for _, args := range [][]string{{"genpkey", "-algorithm", "ed25519", "-out", "key.pem"}, {"pkey", "-in", "key.pem", "-pubout", "-out", "public.pem"}, {"genpkey", "-algorithm", "ed25519", "-out", "other.pem"}} {
		cmd := exec.Command("openssl", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl: %v\n%s", err, out)
		}
	}
	gorbit(fault.ExitUsage, "has no receipt", "verify", run)
	gorbit(fault.ExitDone, "not signed: ", "verify", run, "--write")
	gorbit(fault.ExitUsage, "already exists", "verify", run, "--write")
	gorbit(fault.ExitDone, "are as the receipt says", "verify", run)
	gorbit(fault.ExitDamaged, "is not signed", "verify", run, "--key", "public.pem")
	gorbit(fault.ExitUsage, "is a public key", "verify", run, "--write", "--overwrite", "--key", "public.pem")
	gorbit(fault.ExitUsage, "openssl genpkey", "verify", run, "--key", run+"/params.yaml")
	gorbit(fault.ExitDone, "signed: ", "verify", run, "--write", "--overwrite", "--key", "key.pem")
	gorbit(fault.ExitDone, "the signature was not checked", "verify", run)
	gorbit(fault.ExitDone, "are as the receipt says", "verify", run, "--key", "public.pem")
	gorbit(fault.ExitDamaged, "has no valid signature", "verify", run, "--key", "other.pem")
	gorbit(fault.ExitUsage, "there is no nowhere", "verify", run, "--data", "nowhere")

	change := func(path, want string, edit func(content []byte) []byte) {
		t.Helper()
		before, err := os.ReadFile(in(path))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in(path), edit(append([]byte(nil), before...)), 0o666); err != nil {
			t.Fatal(err)
		}
		gorbit(fault.ExitDamaged, want, "verify", run, "--key", "key.pem")
		if err := os.WriteFile(in(path), before, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	flip := func(content []byte) []byte { content[len(content)/2] ^= 1; return content }
	shards, err := filepath.Glob(in("data/*.tfrecord"))
	if err != nil || len(shards) == 0 {
		t.Fatalf("%v, %v", shards, err)
	}
	data, err := filepath.Glob(in(run + "/checkpoints/*.data-*"))
	if err != nil || len(data) == 0 {
		t.Fatalf("%v, %v", data, err)
	}
	for _, path := range []string{shards[0], data[0], in(run + "/params.yaml"), in(run + "/graph/saved_model.pb")} {
		path = strings.TrimPrefix(path, dir+"/")
		change(path, filepath.Base(path)+" has SHA-256 ", flip)
	}
	change(run+"/metrics.jsonl", "line 2 is the first that differs", func(content []byte) []byte {
		lines := strings.SplitAfter(string(content), "\n")
		return []byte(lines[0] + strings.Replace(lines[1], `"step":`, `"step" :`, 1) + strings.Join(lines[2:], ""))
	})
	change(run+"/metrics.jsonl", "lines from 2 on are missing", func(content []byte) []byte { return []byte(strings.SplitAfter(string(content), "\n")[0]) })
	change(run+"/metrics.jsonl", "lines from ", func(content []byte) []byte { return append(content, "{}\n"...) })
	change(run+"/receipt.json", "has no valid signature", func(content []byte) []byte {
		at := strings.Index(string(content), `"payload": "`) + 20
		content[at] ^= 1
		return content
	})
	if err := os.Rename(in(run+"/params.yaml"), in("params.yaml")); err != nil {
		t.Fatal(err)
	}
	gorbit(fault.ExitUsage, "is not the folder of a run", "verify", run)
	if err := os.Rename(in("params.yaml"), in(run+"/params.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in(run+"/new.txt"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	gorbit(fault.ExitDone, "new.txt is not in the receipt", "verify", run, "--key", "key.pem")
}
