package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestAnyModel goes the way of a user with a table and a model that the Go side knows nothing of: it is
// converted by a schema, trained on, evaluated and answered, by the run and by the served model alike.
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
		b.WriteString("id,a,b,c,d,flower\n")
		for i := range n {
			kind := (i*7 + seed) % 3
			fmt.Fprintf(&b, "f%d", i)
			for k := range 4 {
				fmt.Fprintf(&b, ",%.2f", 2*float64(kind*(k+1)%3)+float64((i*(k+3)+seed)%10)/10)
			}
			fmt.Fprintf(&b, ",%s\n", []string{"aster", "iris", "rose"}[kind])
		}
		return b.String()
	}
	write("train.csv", table(120, 1))
	write("dev.csv", table(30, 2))
	write("new.csv", table(5, 5))
	write("new.jsonl", `{"id": 1, "a": 0.5, "b": 0.5, "c": 0.25, "d": 0}`+"\n")
	write("wrong.csv", "id,a,b,c,d\n1,0,0,0,0\n2,0,x,0,0\n")
	write("short.csv", "id,a,b,c\n1,0,0,0\n")
	write("schema.yaml", `features:
  measures: {kind: number, columns: [a, b, c, d]}
  kind: {kind: category, column: flower, role: label, categories: [aster, iris, rose]}
`)
	graph := filepath.Join(testkit.Models(t), "flowers")
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
	if out := run("gorbit", "evaluate", "--run", "run", "--json"); !strings.Contains(out, `"found":`) {
		t.Errorf("evaluated %s", out)
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
	if err != nil || len(rows) != 6 || strings.Join(rows[0], ",") != "id,a,b,c,d,flower,label,score,probability_aster,probability_iris,probability_rose" {
		t.Fatalf("%v\n%s", err, a)
	}
	for _, row := range rows[1:] {
		if row[5] != row[6] {
			t.Errorf("a %s is taken for a %s", row[5], row[6])
		}
	}
	others, err := csv.NewReader(strings.NewReader(b)).ReadAll()
	if err != nil || len(others) != len(rows) {
		t.Fatalf("%v\n%s", err, b)
	}
	for i, row := range rows[1:] {
		var p, q float64
		fmt.Sscan(row[7], &p)
		fmt.Sscan(others[i+1][7], &q)
		if row[6] != others[i+1][6] || math.Abs(p-q) > 1e-5 {
			t.Errorf("the run says %v, the served model %v", row, others[i+1])
		}
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(read("of-served-new.jsonl")), &object); err != nil || object["id"] != 1.0 || object["label"] == nil {
		t.Errorf("%v: %v", err, object)
	}
	for _, program := range [][]string{{"gorbit", "predict", "--run", "run"}, {"gorbit-predict", "--model", "served"}} {
		ask := func(want string, args ...string) {
			t.Helper()
			refused(want, program[0], append(program[1:], args...)...)
		}
		ask("takes no texts", "--text", "roses are red")
		ask(`wrong.csv:3: column "b" is "x"; expected a finite number`, "--file", "wrong.csv")
		ask(`short.csv:1: has no column "d"`, "--file", "short.csv")
	}
	refused("takes no texts; leave it out", "gorbit", "export", "--run", "run", "--out", "served2", "--vocab", "new.csv")
}
