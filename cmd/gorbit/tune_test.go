package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestTune runs the commands of docs/guide/tune.md and compares what they print with the page. The same
// study is then killed in the middle of a trial, and must end with the same trials, bit for bit.
func TestTune(t *testing.T) {
	t.Parallel()
	const page = "docs/guide/tune.md"
	u := newUser(t)
	tiny(t, u)
	text, err := os.ReadFile(filepath.Join(testkit.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	_, study, ok := strings.Cut(string(text), "# study.yaml\n")
	study, _, ended := strings.Cut(study, "```")
	if !ok || !ended {
		t.Fatalf("%s has no study.yaml", page)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "study.yaml"), []byte(study), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, dir: u.dir, env: append(u.command("gorbit").Env, "PATH="+u.bin+":"+os.Getenv("PATH"))}
	if err := r.follow(io.Discard, page); err != nil {
		t.Fatal(err)
	}
	args := []string{"tune", "--study", "killed", "--config", "study.yaml"}
	killed := u.start(t, args...)
	killed.await("an evaluation", func() bool {
		metrics, _ := os.ReadFile(filepath.Join(u.dir, "killed/trials/0001/metrics.jsonl"))
		return bytes.Contains(metrics, []byte(`"phase":"eval"`))
	})
	if err := killed.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed.wait()
	u.run("gorbit", args...)
	if got, want := told(t, filepath.Join(u.dir, "killed")), told(t, filepath.Join(u.dir, "studies/rate")); got != want {
		t.Errorf("the study that was killed ends with\n%s\nexpected\n%s", got, want)
	}
	for trial := range 3 {
		name := fmt.Sprintf("trials/%04d/metrics.jsonl", trial)
		got, err := os.ReadFile(filepath.Join(u.dir, "killed", name))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Join(u.dir, "studies/rate", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is\n%s\nexpected\n%s%v", name, got, want, err)
		}
	}
}

// told returns the journal of a study without its times, its name and its configuration.
func told(t *testing.T, folder string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, "journal.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["op_code"].(float64) < 4 {
			continue
		}
		delete(line, "datetime_start")
		delete(line, "datetime_complete")
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return strings.Join(out, "\n")
}

// tiny writes the export exports/tiny and the data data/reviews, of a few words.
func tiny(t *testing.T, u *user) {
	t.Helper()
	var vocab strings.Builder
	vocab.WriteString("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n")
	for i := range 33 {
		fmt.Fprintf(&vocab, "w%d\n", i)
	}
	rows := "label\ttext\nbad\tw0 w1 bad\ngood\tgood w2\nbad\tbad w3 w4\ngood\tw5 good\nbad\tw1 bad\ngood\tw2 good w3\nbad\tw4 w4 bad\ngood\tgood w5 w5\n"
	for name, content := range map[string]string{"vocab.txt": vocab.String(), "train.tsv": rows} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(u.dir, "exports"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exportSmall(t), filepath.Join(u.dir, "exports/tiny")); err != nil {
		t.Fatal(err)
	}
	u.run("gorbit", "convert", "--vocab", "vocab.txt", "--train", "train.tsv", "--dev", "train.tsv", "--text-column", "text", "--label-column", "label", "--max-length", "16", "--out", "data/reviews")
}
