package convert

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the manifests in testdata anew")

func TestManifest(t *testing.T) {
	half := 0.5
	cfg := in(write(t, map[string]string{"x.tsv": "t\tl\na b\t0.5\nc\t0\n", "y.tsv": "t\na\n"}), Config{
		TextColumn: "t", LabelColumn: "l", LabelThreshold: &half, Shards: 2, Inputs: []Input{{Train, "x.tsv"}, {Test, "y.tsv"}},
	})
	m := mustRun(t, cfg)
	for _, path := range []string{cfg.Out, filepath.Join(cfg.Out, ManifestName)} {
		got, err := ReadManifest(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s holds\n%+v, Run gave\n%+v", path, got, m)
		}
	}
	data, err := os.ReadFile(filepath.Join(cfg.Out, ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		put(t, "testdata/manifest.json", string(data))
	}
	want, err := os.ReadFile("testdata/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != string(want) {
		t.Errorf("the manifest is not that of testdata:\n%s", data)
	}
}

func TestReadManifestErrors(t *testing.T) {
	whole, err := os.ReadFile("testdata/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) string {
		t.Helper()
		if !strings.Contains(string(whole), old) {
			t.Fatalf("the manifest has no %s", old)
		}
		return strings.Replace(string(whole), old, new, 1)
	}
	tests := []struct{ name, content, want string }{
		{"empty", "", "is not a manifest: unexpected end of JSON input"},
		{"other JSON", `{"a": 1}`, `has format ""; expected "gorbit-dataset"`},
		{"list", `[]`, "is not a manifest: json: cannot unmarshal array"},
		{"version", swap(`"version": 1`, `"version": 2`), "has version 2; expected 1"},
		{"version of another type", swap(`"version": 1`, `"version": "2"`), "is not a manifest: json: cannot unmarshal string"},
		{"broken off", string(whole[:len(whole)/2]), "is not a manifest: unexpected end of JSON input"},
		{"file outside", swap(`"name": "train-00000-of-00002.tfrecord"`, `"name": "../x"`), `split train: file "../x" is listed twice or outside the folder`},
		{"file twice", swap(`"name": "train-00000-of-00002.tfrecord"`, `"name": "train-00001-of-00002.tfrecord"`), `split train: file "train-00001-of-00002.tfrecord" is listed twice or outside the folder`},
		{"vocabulary outside", swap(`"file": "vocab.txt"`, `"file": "/etc/passwd"`), `the vocabulary is "/etc/passwd" with 19 ids`},
		{"no vocabulary", swap(`"size": 19`, `"size": 0`), `the vocabulary is "vocab.txt" with 0 ids`},
		{"records", swap(`"records": 2`, `"records": 3`), "split train has 3 records; expected 2, the sum of its files"},
		{"fewer than none", swap(`"bytes": 107`, `"bytes": -1`), "has 1 records in -1 bytes"},
		{"labels", swap(`"positive"`, `"negative"`), `label 1 is empty or declared twice: "negative"`},
		{"length", swap(`"max_length": 128`, `"max_length": 0`), "the maximum length is 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), ManifestName)
			put(t, path, tt.content)
			_, err := ReadManifest(path)
			var me *ManifestError
			if !errors.As(err, &me) || me.Path != path || !strings.Contains(me.Reason, tt.want) {
				t.Errorf("got %v, expected %s", err, tt.want)
			}
		})
	}
	if _, err := ReadManifest(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: got %v", err)
	}
}

func TestVerify(t *testing.T) {
	cfg := in(write(t, map[string]string{"x.tsv": manyRows(20)}), Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "x.tsv"}}})
	m := mustRun(t, cfg)
	file := filepath.Join(cfg.Out, "train-00000-of-00001.tfrecord")
	vocab := filepath.Join(cfg.Out, "vocab.txt")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(path, reason string) {
		t.Helper()
		err := m.Verify(context.Background(), cfg.Out)
		var me *ManifestError
		if !errors.As(err, &me) || me.Path != path || !strings.Contains(me.Reason, reason) {
			t.Errorf("got %v, expected %s: %s", err, path, reason)
		}
	}
	if err := m.Verify(context.Background(), cfg.Out); err != nil {
		t.Error(err)
	}
	put(t, file, string(data[:len(data)-1]))
	verify(file, "bytes; expected")
	data[len(data)/2] ^= 1
	put(t, file, string(data))
	verify(file, "has SHA-256")
	os.Remove(file)
	verify(file, "is missing")
	put(t, vocab, "other")
	verify(vocab, "has SHA-256")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Verify(ctx, cfg.Out); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
