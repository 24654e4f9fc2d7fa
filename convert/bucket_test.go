package convert

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"image"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

// TestInputsInBucket converts files in a bucket whose connections break, and expects what the same
// files on this machine give. Images that a table names are next to it.
func TestInputsInBucket(t *testing.T) {
	server := gcstest.NewServer("b")
	t.Cleanup(server.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	t.Cleanup(vfs.Mount("gs://", gcs.New(gcs.Config{Cache: t.TempDir(), Backoff: time.Millisecond})))

	var rows strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&rows, "{\"text\":\"a film, %s %d\",\"label\":\"%d\"}\n", tokens[i%3], i, i%3)
	}
	plain := rows.String()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(plain)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{
		"data/train.jsonl.gz": packed.String(), "data/dev.jsonl": plain[:strings.LastIndexByte(plain[:len(plain)/2], '\n')+1],
		"data/images.csv": "file\nimages/a.png\n", "data/images/a.png": picture(t, image.NewGray(image.Rect(0, 0, 3, 2)), "png"),
		"schema.yaml": "features: {x: {kind: image, columns: file, shape: [2, 3, 1]}}",
	})
	if err := server.PutFolder(filepath.Join(dir, "data"), "data"); err != nil {
		t.Fatal(err)
	}
	texts := in(dir, Config{TextColumn: "text", LabelColumn: "label"})
	images := Config{Schema: filepath.Join(dir, "schema.yaml")}
	for name, inputs := range map[string][]Input{"texts": {{Train, "train.jsonl.gz"}, {Dev, "dev.jsonl"}}, "images": {{Train, "images.csv"}}} {
		var made [2]string
		for i, from := range []string{filepath.Join(dir, "data"), "gs://b/data"} {
			cfg := texts
			if name == "images" {
				cfg = images
			}
			cfg.Out = filepath.Join(t.TempDir(), "out")
			for _, input := range inputs {
				cfg.Inputs = append(cfg.Inputs, Input{input.Split, vfs.Join(from, input.Path)})
			}
			cut := map[string]bool{}
			server.Fail(func(r *http.Request) *gcstest.Fault {
				if r.Method != http.MethodGet || cut[r.URL.Path] {
					return nil
				}
				cut[r.URL.Path] = true
				return &gcstest.Fault{Stream: true, Bytes: 1000}
			})
			mustRun(t, cfg)
			server.Fail(nil)
			if i > 0 && len(cut) == 0 {
				t.Error("no connection was cut")
			}
			made[i] = cfg.Out
		}
		entries, err := os.ReadDir(made[0])
		if err != nil || len(entries) < 2 {
			t.Fatal(entries, err)
		}
		for _, e := range entries {
			want, err := os.ReadFile(filepath.Join(made[0], e.Name()))
			got, errGot := os.ReadFile(filepath.Join(made[1], e.Name()))
			if err = errors.Join(err, errGot); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s differs, %v", name, e.Name(), err)
			}
		}
	}
	texts.Inputs = []Input{{Train, "gs://b/data"}}
	if _, err := Run(t.Context(), texts, quiet); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "gs://b/data is a folder") {
		t.Errorf("a folder: %v", err)
	}
}
