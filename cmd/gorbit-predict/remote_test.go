package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
)

// TestBuckets has the model, the texts and the answers in a bucket.
func TestBuckets(t *testing.T) {
	model, golden := fixture(t)
	bucket := gcstest.NewServer("b")
	t.Cleanup(bucket.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", bucket.URL)
	t.Setenv(gcs.CacheVariable, filepath.Join(t.TempDir(), "cache"))
	if err := bucket.PutFolder(model, "served"); err != nil {
		t.Fatal(err)
	}
	var texts bytes.Buffer
	z := gzip.NewWriter(&texts)
	if _, err := z.Write([]byte(`{"id":1,"text":"d e","text_pair":"f g"}` + "\n" + `{"id":2,"text":"a b c","text_pair":""}` + "\n")); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	bucket.Put("texts.jsonl.gz", texts.Bytes())

	args := []string{"--model", "gs://b/served", "--file", "gs://b/texts.jsonl.gz", "--text-column", "text", "--pair-column", "text_pair", "--out", "gs://b/out/answers.jsonl"}
	if code, _, stderr := call("", args...); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	answers := bucket.State()["out/answers.jsonl"].Data
	local := filepath.Join(t.TempDir(), "texts.jsonl.gz")
	if err := os.WriteFile(local, texts.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	code, want, stderr := call("", "--model", model, "--file", local, "--text-column", "text", "--pair-column", "text_pair")
	if code != 0 || string(answers) != want || strings.Count(want, "\n") != len(golden) {
		t.Errorf("exit code %d, the bucket has %q, expected %q; %s", code, answers, want, stderr)
	}
	if code, _, stderr := call("", args...); code != 2 || !strings.Contains(stderr, "gs://b/out/answers.jsonl already exists; choose another name, or add --overwrite") {
		t.Errorf("again: exit code %d, %q", code, stderr)
	}
	if code, _, stderr := call("", "--model", "gs://b/none", "--text", "a"); code != 1 || stderr != "gorbit-predict: open gs://b/none: file does not exist\n" {
		t.Errorf("no model: exit code %d, %q", code, stderr)
	}
}

// TestHub has the model and the texts in a hub.
func TestHub(t *testing.T) {
	model, golden := fixture(t)
	hub := hubtest.New()
	t.Cleanup(hub.Close)
	t.Setenv("HF_ENDPOINT", hub.URL)
	t.Setenv("HF_TOKEN", hubtest.Token)
	t.Setenv("HF_HOME", t.TempDir())
	files := map[string][]byte{"texts.jsonl": []byte(`{"text":"d e","text_pair":"f g"}` + "\n" + `{"text":"a b c","text_pair":""}` + "\n")}
	err := filepath.WalkDir(model, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(model, path)
		if err == nil {
			files[filepath.ToSlash(name)], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	hub.Put("acme/served", files)
	local := filepath.Join(t.TempDir(), "texts.jsonl")
	if err := os.WriteFile(local, files["texts.jsonl"], 0o666); err != nil {
		t.Fatal(err)
	}
	_, want, _ := call("", "--model", model, "--file", local)
	code, got, stderr := call("", "--model", "hub:acme/served", "--file", "hub:acme/served/texts.jsonl")
	if code != 0 || got != want || strings.Count(want, "\n") != len(golden) {
		t.Errorf("exit code %d, %q, expected %q; %s", code, got, want, stderr)
	}
	if code, _, stderr := call("", "--model", "hub:acme/none", "--text", "a"); code == 0 || !strings.Contains(stderr, "hub:acme/none") {
		t.Errorf("no model: exit code %d, %q", code, stderr)
	}
}
