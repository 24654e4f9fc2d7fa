package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestAnyModel goes the way of a user with a table of images and numbers, and with a model in one file of
// Python, which the command of users exported: the table is converted by a schema, trained on, evaluated
// and answered, by the run and by the served model alike.
//
// Long: one way, from the table to the answers.
func TestAnyModel(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	table := func(n, seed int) string {
		var b strings.Builder
		b.WriteString("id,a,b,c,d,photo,flower\n")
		for i := range n {
			kind := (i*7 + seed) % 3
			fmt.Fprintf(&b, "f%d", i)
			for k := range 4 {
				fmt.Fprintf(&b, ",%.2f", 2*float64(kind*(k+1)%3)+float64((i*(k+3)+seed)%10)/10)
			}
			fmt.Fprintf(&b, ",photos/%d-%d.png,%s\n", kind, i%4, []string{"aster", "iris", "rose"}[kind])
		}
		return b.String()
	}
	if err := os.Mkdir(filepath.Join(u.dir, "photos"), 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		photo := image.NewNRGBA(image.Rect(0, 0, 6+i%3, 7)) // of several sizes
		for k := range photo.Pix {
			photo.Pix[k] = uint8(80*(i/4) + 5*((k*(i+3))%7))
			if k%4 == 3 {
				photo.Pix[k] = 255
			}
		}
		var file bytes.Buffer
		if err := png.Encode(&file, photo); err != nil {
			t.Fatal(err)
		}
		write(fmt.Sprintf("photos/%d-%d.png", i/4, i%4), file.String())
	}
	write("train.csv", table(120, 1))
	write("dev.csv", table(30, 2))
	write("new.csv", table(5, 5))
	write("new.jsonl", `{"id": 1, "a": 0.5, "b": 0.5, "c": 0.25, "d": 0, "photo": "photos/0-1.png"}`+"\n")
	write("wrong.csv", "id,a,b,c,d,photo\n1,0,0,0,0,photos/0-0.png\n2,0,x,0,0,photos/0-0.png\n")
	write("gone.csv", "id,a,b,c,d,photo\n1,0,0,0,0,photos/9-0.png\n")
	write("short.csv", "id,a,b,c,photo\n1,0,0,0,photos/0-0.png\n")
	write("schema.yaml", `features:
  image: {kind: image, column: photo, shape: [6, 6, 3], resize: bilinear}
  measures: {kind: number, columns: [a, b, c, d]}
  kind: {kind: category, column: flower, role: label, categories: [aster, iris, rose]}
  name: {column: id, role: id}
`)
	graph := filepath.Join(testkit.Models(t), "plants")
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := u.command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	refused := func(want, program string, args ...string) {
		t.Helper()
		out, err := u.command(program, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s %s: %v\n%s\nexpected %s", program, strings.Join(args, " "), err, out, want)
		}
	}
	run("gorbit", "convert", "--schema", "schema.yaml", "--train", "train.csv", "--dev", "dev.csv", "--out", "data")
	run("gorbit", "train", "--graph", graph, "--data", "data", "--run", "run", "--steps", "80", "--learning-rate", "0.1", "--schedule", "constant")
	if out := run("gorbit", "evaluate", "--run", "run", "--json", "--predictions", "dev.jsonl"); !strings.Contains(out, `"accuracy":`) {
		t.Errorf("evaluated %s", out)
	}
	if content, err := os.ReadFile(filepath.Join(u.dir, "dev.jsonl")); err != nil || !strings.Contains(string(content), `"id":"f7","file":"dev.csv","line":9,`) {
		t.Errorf("%v, evaluated each:\n%s\nexpected the row of id f7", err, content)
	}
	if out := run("gorbit", "predict", "--run", "run", "--split", "dev", "--format", "json"); strings.Count(out, "\n") < 30 || !strings.Contains(out, `"label":"iris"`) {
		t.Errorf("answers to a split: %s", out)
	}
	run("gorbit", "export", "--run", "run", "--out", "served")
	for _, file := range []string{"new.csv", "new.jsonl"} {
		run("gorbit", "predict", "--run", "run", "--file", file, "--out", "of-run-"+file)
		run("gorbit-predict", "--model", "served", "--file", file, "--out", "of-served-"+file)
	}
	read := func(name string) string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(u.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	a, b := read("of-run-new.csv"), read("of-served-new.csv")
	rows, err := csv.NewReader(strings.NewReader(a)).ReadAll()
	if err != nil || len(rows) != 6 || strings.Join(rows[0], ",") != "id,a,b,c,d,photo,flower,label,score,probability_aster,probability_iris,probability_rose" {
		t.Fatalf("%v\n%s", err, a)
	}
	for _, row := range rows[1:] {
		if row[6] != row[7] {
			t.Errorf("a %s is taken for a %s", row[6], row[7])
		}
	}
	others, err := csv.NewReader(strings.NewReader(b)).ReadAll()
	if err != nil || len(others) != len(rows) {
		t.Fatalf("%v\n%s", err, b)
	}
	for i, row := range rows[1:] {
		var p, q float64
		fmt.Sscan(row[8], &p)
		fmt.Sscan(others[i+1][8], &q)
		if row[7] != others[i+1][7] || math.Abs(p-q) > 1e-5 {
			t.Errorf("the run says %v, the served model %v", row, others[i+1])
		}
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(read("of-served-new.jsonl")), &object); err != nil || object["id"] != 1.0 || object["label"] == nil {
		t.Errorf("%v: %v", err, object)
	}
	servedRows(t, u)
	for _, program := range [][]string{{"gorbit", "predict", "--run", "run"}, {"gorbit-predict", "--model", "served"}} {
		ask := func(want string, args ...string) {
			t.Helper()
			refused(want, program[0], append(program[1:], args...)...)
		}
		ask("takes no texts", "--text", "roses are red")
		ask(`wrong.csv:3: column "b" is "x"; expected a finite number`, "--file", "wrong.csv")
		ask(`gone.csv:2: column "photo"`, "--file", "gone.csv")
		ask(`short.csv:1: has no column "d"`, "--file", "short.csv")
	}
	refused("takes no texts; leave it out", "gorbit", "export", "--run", "run", "--out", "served2", "--vocab", "new.csv")
}

// servedRows asks for a row of the table over HTTP, with an image of another size than the model's: of the
// run and of the model that was exported.
func servedRows(t *testing.T, u *user) {
	t.Helper()
	const bodies = 32 << 20
	server := u.command("gorbit", "serve", "run", "served", "--listen", "127.0.0.1:0", "--max-bodies", fmt.Sprint(bodies))
	out, err := server.StdoutPipe()
	if err != nil || server.Start() != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	photo, readErr := os.ReadFile(filepath.Join(u.dir, "photos", "1-2.png"))
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	row, err := json.Marshal(map[string]any{"examples": []any{map[string]any{"a": 2, "b": "4.1", "c": 0.1, "d": 2, "photo": map[string][]byte{"b64": photo}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"run", "served"} {
		answer, err := http.Post(strings.TrimSpace(strings.TrimPrefix(line, "listening on "))+"/v1/models/"+model+":answer", "", bytes.NewReader(row))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if answer.Body.Close(); err != nil || answer.StatusCode != 200 || !bytes.Contains(body, []byte(`"label":"iris"`)) {
			t.Errorf("%s: status %d, %s, %v; expected an iris", model, answer.StatusCode, body, err)
		}
	}
	before := devices.PeakResident(server.Process.Pid)
	hostile := []byte(`{"inputs":{"a":[` + strings.Repeat("1,", 8388580) + `1]}}`)
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			answer, err := http.Post(strings.TrimSpace(strings.TrimPrefix(line, "listening on "))+"/v1/models/run:predict", "", bytes.NewReader(hostile))
			if err != nil {
				t.Error(err)
				return
			}
			if answer.Body.Close(); answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("status %d for a request with too many rows", answer.StatusCode)
			}
		})
	}
	done.Wait()
	if grown := devices.PeakResident(server.Process.Pid) - before; grown > 4*bodies+24*(16<<20) { // as docs/guide/serve.md says
		t.Errorf("four requests of %d bytes took %d, and may have %d", len(hostile), grown, bodies)
	}
}
