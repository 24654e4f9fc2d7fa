package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	fpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	gpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	npb "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opb "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	spb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/predict"
)

//go:embed testdata/make_model.py
var makeModel string

// program makes the test binary run the program itself.
const program = "GORBIT_PREDICT_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(program) != "" {
		main()
	}
	os.Exit(m.Run())
}

// fixture returns a model and its answers on ("a b c") and ("d e", "f g").
func fixture(t *testing.T) (model string, golden [][]float64) {
	t.Helper()
	dir := testkit.Made(t, makeModel)
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "model"), golden
}

// call runs the program within the test.
func call(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, log strings.Builder
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &log)
	return code, out.String(), log.String()
}

func parseAnswers(t *testing.T, stdout string) []predict.Label {
	t.Helper()
	var out []predict.Label
	for line := range strings.Lines(stdout) {
		var a predict.Label
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, a)
	}
	return out
}

func checkAnswers(t *testing.T, stdout string, golden ...[]float64) {
	t.Helper()
	answers := parseAnswers(t, stdout)
	if len(answers) != len(golden) {
		t.Fatalf("%d answers, want %d:\n%s", len(answers), len(golden), stdout)
	}
	for i, a := range answers {
		likeliest := 0
		for j, p := range golden[i] {
			if p > golden[i][likeliest] {
				likeliest = j
			}
			if math.Abs(p-a.Probabilities[j]) > 1e-6 {
				t.Errorf("answer %d: probabilities %v, want %v", i, a.Probabilities, golden[i])
			}
		}
		if want := []string{"bad", "fair", "good"}[likeliest]; a.Label != want || a.Index != likeliest || a.Score != a.Probabilities[likeliest] {
			t.Errorf("answer %d is %+v, want %s", i, a, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	model, golden := fixture(t)
	folder := t.TempDir()
	jsonl := filepath.Join(folder, "texts.jsonl")
	if err := os.WriteFile(jsonl, []byte(`{"text":"d e","text_pair":"f g"}`+"\n"+`{"text":"A  b c","id":7}`), 0o666); err != nil {
		t.Fatal(err)
	}
	tsv := filepath.Join(folder, "texts.tsv")
	if err := os.WriteFile(tsv, []byte("\ufeffa b c\r\nd e\tf g\r\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "lr[1e-5]*")
	if err := os.Symlink(model, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		stdin string
		args  []string
		want  [][]float64
	}{
		{"text", "", []string{"--text", "a b c"}, golden[:1]},
		{"texts with pairs", "", []string{"--text", "d e", "--text-pair", "f g", "--text", "a b c", "--text-pair", ""}, [][]float64{golden[1], golden[0]}},
		{"jsonl", "", []string{"--file", jsonl}, [][]float64{golden[1], golden[0]}},
		{"tsv of lines", "", []string{"--file", tsv, "--input-format", "lines"}, golden},
		{"standard input", "a b c\nd e\tf g\na b c", []string{"--file", "-", "--batch-size", "2"}, [][]float64{golden[0], golden[1], golden[0]}},
		{"no texts", "", []string{"--file", "-"}, nil},
		{"folder named as a pattern", "", []string{"--model", link, "--text", "a b c"}, golden[:1]},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := call(test.stdin, append([]string{"--model", model, "--format", "json"}, test.args...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			checkAnswers(t, stdout, test.want...)
		})
	}
}

// Rows without a text have no answer: the first ends the answers, or all are left out.
func TestSkipBadRows(t *testing.T) {
	model, golden := fixture(t)
	args := []string{"--model", model, "--format", "json", "--file", "-"}
	code, stdout, stderr := call("\n  \na b c\n", args...)
	if code != 3 || stdout != "" || !strings.Contains(stderr, "standard input:1: the text is empty") || !strings.Contains(stderr, "--skip-bad-rows") {
		t.Errorf("exit code %d, %q, %s", code, stdout, stderr)
	}
	code, stdout, stderr = call("\n  \na b c\n", append(args, "--skip-bad-rows")...)
	if code != 0 || !strings.Contains(stderr, "bad row: standard input:2: the text is empty") || !strings.Contains(stderr, "skipped 2 bad rows") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	checkAnswers(t, stdout, golden[0])
}

func TestFormats(t *testing.T) {
	model, golden := fixture(t)
	score := 0.0
	for _, p := range golden[0] {
		score = max(score, p)
	}
	for format, want := range map[string]string{"text": "fair (99.2 %)\n", "tsv": "fair\t0.99"} {
		code, stdout, stderr := call("", "--model", model, "--text", "a b c", "--format", format)
		if code != 0 || stderr != "" || !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: exit code %d, %q, %q; want %q (golden score %f)", format, code, stdout, stderr, want, score)
		}
	}
}

// TestLongTexts passes texts longer than the model's 16 tokens. They are cut, their answers are
// marked, and their number is printed at the end.
func TestLongTexts(t *testing.T) {
	model, _ := fixture(t)
	long := strings.Repeat("a b ", 7) + "a"
	fits := strings.Repeat("a b ", 7)
	args := []string{"--model", model, "--text", long, "--text", fits, "--text", long + " d"}
	code, stdout, stderr := call("", append(args, "--format", "json")...)
	const said = "gorbit-predict: 2 of 3 texts have more than 16 tokens and were cut; their answers use only their beginning\n"
	if code != 0 || stderr != said {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	answers := parseAnswers(t, stdout)
	for i, want := range []bool{true, false, true} {
		if answers[i].Truncated != want {
			t.Errorf("answer %d: truncated is %v", i, answers[i].Truncated)
		}
	}
	if strings.Count(stdout, `"truncated":true`) != 2 || strings.Contains(stdout, "false") {
		t.Errorf("%s", stdout)
	}
	_, stdout, _ = call("", args...)
	for i, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		if strings.HasSuffix(line, "%), truncated") != answers[i].Truncated {
			t.Errorf("answer %d: %s", i, line)
		}
	}
	if _, stdout, _ = call("", append(args, "--format", "tsv")...); strings.Contains(stdout, "truncated") {
		t.Errorf("the columns of tsv are label and score: %s", stdout)
	}
}

// TestWarnsOfPairs passes texts of the other kind than those that the model was trained on. A model
// that does not say its kind gets both without a word, as in TestAnswers.
func TestWarnsOfPairs(t *testing.T) {
	model, golden := fixture(t)
	for pairs, want := range map[bool]string{
		true:  "gorbit-predict: text 1: the model was trained on pairs of texts; its answers for single texts are unreliable\n",
		false: "gorbit-predict: text 2: the model was trained on single texts; its answers for pairs are unreliable\n",
	} {
		dir := filepath.Join(t.TempDir(), "model")
		if err := os.CopyFS(dir, os.DirFS(model)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "assets", "gorbit-serving.json")
		description := map[string]any{}
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &description)
		}
		if err == nil {
			description["pairs"] = pairs
			data, err = json.Marshal(description)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := call("", "--model", dir, "--format", "json", "--text", "a b c", "--text-pair", "", "--text", "d e", "--text-pair", "f g")
		if code != 0 || stderr != want {
			t.Errorf("trained on pairs %v: exit code %d, %q; want %q", pairs, code, stderr, want)
		}
		checkAnswers(t, stdout, golden[:2]...)
	}
}

func TestErrors(t *testing.T) {
	model, _ := fixture(t)
	broken := func(file string, data string) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "model")
		if err := os.CopyFS(dir, os.DirFS(model)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(file))
		err := os.WriteFile(path, []byte(data), 0o666)
		if data == "" {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	changed := func(old, with string) string {
		t.Helper()
		const file = "assets/gorbit-serving.json"
		data, err := os.ReadFile(filepath.Join(model, file))
		if err != nil {
			t.Fatal(err)
		}
		return broken(file, strings.Replace(string(data), old, with, 1))
	}
	empty := t.TempDir()
	endless := broken("assets/vocab.txt", "")
	if err := os.Symlink("/dev/zero", filepath.Join(endless, "assets/vocab.txt")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		code  int
		stdin string
		args  []string
		want  string
	}{
		{"no model", 2, "", []string{"--text", "a"}, "--model is missing"},
		{"nothing to do", 2, "", []string{"--model", model}, "no texts given"},
		{"both", 2, "", []string{"--model", model, "--text", "a", "--file", "b"}, "both --text and --file given"},
		{"pairs", 2, "", []string{"--model", model, "--text", "a", "--text", "b", "--text-pair", "c"}, "2 --text and 1 --text-pair given"},
		{"format", 2, "", []string{"--model", model, "--text", "a", "--format", "xml"}, `--format: format is "xml"; expected text, tsv, csv or json`},
		{"batch size", 2, "", []string{"--model", model, "--text", "a", "--batch-size", "0"}, "--batch-size is 0; expected 1 or more"},
		{"unknown flag", 2, "", []string{"--modle", model}, "unknown flag: --modle"},
		{"argument", 2, "", []string{"--model", model, "text"}, `unexpected argument "text"`},
		{"missing file", 1, "", []string{"--model", model, "--file", filepath.Join(empty, "x.txt")}, "x.txt: no such file"},
		{"missing folder", 1, "", []string{"--model", filepath.Join(empty, "x"), "--text", "a"}, "no such folder"},
		{"empty folder", 1, "", []string{"--model", empty, "--text", "a"}, "not a SavedModel"},
		{"no vocabulary", 3, "", []string{"--model", broken("assets/vocab.txt", ""), "--text", "a"}, "its vocabulary assets/vocab.txt is missing"},
		{"bad vocabulary", 3, "", []string{"--model", broken("assets/vocab.txt", "a\nb\n"), "--text", "a"}, "assets/vocab.txt"},
		{"no description", 1, "", []string{"--model", broken("assets/gorbit-serving.json", ""), "--text", "a"}, "not one written by gorbit export"},
		{"bad graph", 3, "", []string{"--model", broken("saved_model.pb", "no protobuf"), "--text", "a"}, "saved_model.pb cannot be parsed"},
		{"recursive graph", 3, "", []string{"--model", broken("saved_model.pb", recursive(t)), "--text", "a"}, "function f is called by itself"},
		{"no tensor of the graph", 3, "", []string{"--model", changed("StatefulPartitionedCall:1", "Gone:1"), "--text", "a"}, "op Gone not found"},
		{"two graphs", 1, "", []string{"--model", broken("saved_model.cpb", "another"), "--text", "a"}, "and another in saved_model.cpb"},
		{"endless vocabulary", 2, "", []string{"--model", endless, "--text", "a"}, "vocab.txt is a device; expected a regular file"},
		{"cut variables", 3, "", []string{"--model", broken("variables/variables.data-00000-of-00001", "short"), "--text", "a"}, "TensorFlow cannot load it"},
		{"three fields", 3, "a\nb\tc\td\n", []string{"--model", model, "--file", "-"}, "standard input:2: 3 fields"},
		{"not UTF-8", 3, "a\nb\xff\n", []string{"--model", model, "--file", "-"}, "standard input:2: the line is not valid UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := call(test.stdin, test.args...)
			if code != test.code || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want %d, and %q, want a sentence with %q", code, test.code, stderr, test.want)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "gorbit-predict: ") {
				t.Errorf("not one line of the program's: %q", stderr)
			}
		})
	}
}

// recursive returns a SavedModel with a function that calls itself.
func recursive(t *testing.T) string {
	t.Helper()
	f := &fpb.FunctionDef{Signature: &opb.OpDef{Name: "f"}, NodeDef: []*npb.NodeDef{{Name: "again", Op: "f"}}}
	graph := &gpb.GraphDef{Library: &fpb.FunctionDefLibrary{Function: []*fpb.FunctionDef{f}}}
	data, err := proto.Marshal(&spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{{GraphDef: graph}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

//go:embed testdata/make_unsafe.py
var makeUnsafe string

// TestUnsafeModels loads models that reach files, in their signature or while they are loaded.
// Without --allow-op they must be refused before anything has run.
func TestUnsafeModels(t *testing.T) {
	model, _ := fixture(t)
	dir := t.TempDir()
	testkit.RunPython(t, makeUnsafe, model, dir)
	for _, test := range []struct{ name, op, reason, writes string }{
		{"signature", "WriteFile", "writes files", "written"},
		{"saves", "SaveV2", "writes files", "written.index"},
		{"prints", "PrintV2", "writes files", "written"},
		{"reads", "ReadFile", "reads files", ""},
		{"nested", "WriteFile", "writes files", "written"},
		{"main-op", "WriteFile", "writes files", "written"},
		{"init-op", "WriteFile", "writes files", "written"},
		{"restore", "WriteFile", "writes files", "written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := filepath.Join(dir, test.name)
			written := func() bool {
				_, err := os.Stat(filepath.Join(folder, test.writes))
				return test.writes != "" && err == nil
			}
			args := []string{"--model", filepath.Join(folder, "model"), "--text", "a"}
			code, _, stderr := call("", args...)
			want := "is refused: function serving uses " + test.op + ", which " + test.reason + "; if you trust it, add --allow-op " + test.op + "\n"
			if code != 1 || !strings.HasSuffix(stderr, want) {
				t.Errorf("exit code %d: %q, want %q", code, stderr, want)
			}
			if written() {
				t.Fatal("the model wrote its file")
			}
			// The operation really writes its file when it is allowed.
			if code, _, stderr := call("", append(args, "--allow-op", test.op)...); code != 0 || !written() && test.writes != "" {
				t.Errorf("allowed, exit code %d: %s; written: %v", code, stderr, written())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	code, stdout, _ := call("", "--help")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"--model", "--text", "--text-pair", "--file", "--format", "--batch-size", "--allow-op", "Exit codes", "Examples"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the help text does not mention %s", want)
		}
	}
}

// TestProcess runs the program as a process. It checks the exit code, and that TensorFlow's
// library prints nothing.
func TestProcess(t *testing.T) {
	model, golden := fixture(t)
	start := func(args ...string) (stdout, stderr string, err error) {
		cmd := testkit.Command(t, os.Args[0], args...)
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "TF_") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, program+"=1")
		var out, log strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &log
		err = cmd.Run()
		return out.String(), log.String(), err
	}
	stdout, stderr, err := start("--model", model, "--text", "a b c", "--format", "json")
	if err != nil || stderr != "" {
		t.Errorf("%v, standard error: %s", err, stderr)
	}
	checkAnswers(t, stdout, golden[0])
	if _, _, err := start("--bogus"); err == nil || err.Error() != "exit status 2" {
		t.Errorf("a wrong flag gave %v", err)
	}
}

// TestNoTraining checks that the program uses tfgo and not gorbit's own TensorFlow binding, which
// cannot be linked into the same program.
func TestNoTraining(t *testing.T) {
	out, err := testkit.Command(t, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "github.com/galeone/tfgo\n") || strings.Contains(string(out), "wamuir/graft") {
		t.Error("the program must import tfgo and must not import graft")
	}
}

// TestColumns answers the rows of a CSV file, and refuses one whose columns are not clear.
func TestColumns(t *testing.T) {
	model, golden := fixture(t)
	folder := t.TempDir()
	csv, out := filepath.Join(folder, "texts.csv"), filepath.Join(folder, "answers.csv")
	if err := os.WriteFile(csv, []byte("id,first,second\n4,d e,f g\n5,d e,f g\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call("", "--model", model, "--file", csv, "--text-column", "first", "--pair-column", "second", "--id-column", "id", "--out", out)
	got, err := os.ReadFile(out)
	if code != 0 || stdout != "" || stderr != "" || err != nil {
		t.Fatalf("exit code %d: %s %s, error %v", code, stdout, stderr, err)
	}
	lines := strings.Split(string(got), "\n")
	if len(lines) != 4 || lines[0] != "id,label,score,probability_bad,probability_fair,probability_good,truncated" || !strings.HasPrefix(lines[1], "4,") || !strings.HasPrefix(lines[2], "5,") {
		t.Fatalf("answers are\n%s", got)
	}
	fields := strings.Split(lines[1], ",")
	for i, want := range golden[1] {
		if p, err := strconv.ParseFloat(fields[3+i], 64); err != nil || math.Abs(p-want) > 2e-6 {
			t.Errorf("probability %d is %s, expected %f", i, fields[3+i], want)
		}
	}
	code, stdout, stderr = call("", "--model", model, "--file", csv)
	if code != 2 || stdout != "" || !strings.Contains(stderr, `has the columns "id", "first", "second", and none is chosen`) {
		t.Errorf("exit code %d: %s %s", code, stdout, stderr)
	}
}
