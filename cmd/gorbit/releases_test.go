package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var record = flag.Bool("record", false, "write the numbers of releases in testdata/releases that have none")

// releaseTolerance is how far numbers of an earlier release may be away: as far as the rounding of another
// processor takes a training of a few steps.
const releaseTolerance = 1e-3

// TestReleases opens what earlier releases wrote, which testdata/releases/make.sh made with each: it
// checks the receipt, evaluates, predicts, serves, trains on, begins a training, and takes weights.
func TestReleases(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("testdata/releases/*/run")
	if err != nil || len(folders) == 0 {
		t.Fatalf("%q, %v; expected the folders of releases", folders, err)
	}
	for _, folder := range folders {
		release := filepath.Dir(folder)
		t.Run(filepath.Base(release), func(t *testing.T) {
			u := newUser(t)
			if err := os.CopyFS(u.dir, os.DirFS(release)); err != nil {
				t.Fatal(err)
			}
			got := u.openRelease()
			file := filepath.Join(release, "numbers.json")
			text, err := os.ReadFile(file)
			if os.IsNotExist(err) && *record {
				if text, err = json.MarshalIndent(got, "", " "); err == nil {
					err = os.WriteFile(file, append(text, '\n'), 0o666)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]float64
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if value, ok := got[name]; !ok || !(math.Abs(value-want[name]) <= releaseTolerance*max(1, math.Abs(want[name]))) {
					t.Errorf("%s is %v; expected %v, as the release computed", name, value, want[name])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d numbers; expected %d", len(got), len(want))
			}
		})
	}
}

// openRelease takes the files of a release in the user's folder through the commands, and returns the
// numbers that come of them.
func (u *user) openRelease() map[string]float64 {
	u.t.Helper()
	got := map[string]float64{}
	// The run's params name the folder where its data were.
	if out := u.run("gorbit", "verify", "run", "--key", "public.pem", "--data", "data"); !strings.Contains(out, "are as the receipt says") || strings.Contains(out, "not checked") {
		u.t.Errorf("gorbit verify says %s", out)
	}
	u.run("gorbit", "inspect", "export")
	u.run("gorbit", "inspect", "data")
	u.run("gorbit", "inspect", "served")
	var evaluated struct{ Outputs map[string]float64 }
	if line := u.run("gorbit", "evaluate", "--run", "run", "--checkpoint", "latest", "--json", "--set", "data.dir=data"); json.Unmarshal([]byte(line), &evaluated) != nil {
		u.t.Fatalf("evaluate printed %s", line)
	}
	for name, value := range evaluated.Outputs {
		got["evaluate: "+name] = value
	}
	texts := []string{"the film was great", "dull music and a poor plot"}
	words := []string{"--format", "json"}
	for _, text := range texts {
		words = append(words, "--text", text)
	}
	answers := map[string][]prediction{
		"predict":        predictions(u.t, u.run("gorbit", append([]string{"predict", "--run", "run"}, words...)...)),
		"gorbit-predict": predictions(u.t, u.run("gorbit-predict", append([]string{"--model", "served"}, words...)...)),
		"serve":          u.served(texts),
	}
	for program, all := range answers {
		if len(all) != len(texts) {
			u.t.Errorf("%s gave %d answers; expected %d", program, len(all), len(texts))
		}
		for i, answer := range all {
			for k, p := range answer.Probabilities {
				got[fmt.Sprintf("%s: %q/%d", program, texts[i], k)] = p
			}
		}
	}
	flags := []string{"--graph", "export", "--data", "data", "--batch-size", "8", "--schedule", "constant", "--seed", "5"}
	train := func(run string, more ...string) {
		u.t.Helper()
		u.run("gorbit", slices.Concat([]string{"train", "--run", run}, flags, more)...)
		got[run] = u.lastLoss(run)
	}
	train("begun", "--learning-rate", "0.02", "--steps", "3")
	train("weights", "--learning-rate", "1e-30", "--steps", "1", "--init", "run")
	train("run", "--learning-rate", "0.02", "--steps", "16") // the same command goes on
	return got
}

// lastLoss returns the loss of a run's last evaluation in training.
func (u *user) lastLoss(run string) float64 {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.dir, run, "metrics.jsonl"))
	if err != nil {
		u.t.Fatal(err)
	}
	loss := math.NaN()
	for line := range strings.Lines(string(text)) {
		var m struct {
			Phase   string
			Outputs struct{ Loss float64 }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			u.t.Fatalf("%s: %v", line, err)
		}
		if m.Phase == "eval" {
			loss = m.Outputs.Loss
		}
	}
	return loss
}

// served returns the answers of gorbit serve.
func (u *user) served(texts []string) []prediction {
	u.t.Helper()
	address := freeAddresses(u.t, 1)[0]
	cmd := u.command("gorbit", "serve", "model=served", "--listen", address)
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			u.t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			u.t.Errorf("gorbit serve ended with %v", err)
		}
	}()
	body, err := json.Marshal(map[string]any{"instances": texts})
	if err != nil {
		u.t.Fatal(err)
	}
	var response *http.Response
	for late := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		response, err = http.Post("http://"+address+"/v1/models/model:predict", "application/json", strings.NewReader(string(body)))
		if err == nil || time.Now().After(late) {
			break
		}
	}
	if err != nil {
		u.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var answer struct{ Predictions []prediction }
	if err != nil || json.Unmarshal(text, &answer) != nil {
		u.t.Fatalf("gorbit serve answers %s, %v", text, err)
	}
	return answer.Predictions
}
