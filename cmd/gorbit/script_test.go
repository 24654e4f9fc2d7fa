package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// binaries is the folder for the programs that newUser builds.
var binaries string

// TestMain makes the test binary act as the gorbit command of the scripts, and as the curl of the pages.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){
		"gorbit": func() { os.Exit(run(os.Args[1:])) },
		"curl":   curl,
	})
}

// tests runs the tests with a folder for binaries.
type tests struct{ *testing.M }

func (m tests) Run() int {
	var err error
	if binaries, err = os.MkdirTemp("", "gorbit-test-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(binaries)
	return m.M.Run()
}

// given is the folder of the tables and vocabularies that several scripts use, which they find in $GIVEN.
var given = filepath.Join(testkit.Root(), "cmd/gorbit/testdata/given")

// TestScripts runs the command line as a user would. Scripts find a small export
// in $GRAPH and gs://b/graph, an address to listen on in $ADDRESS, files of pyarrow in $PARQUET, and
// images in $IMAGES.
func TestScripts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs commands in processes of their own")
	}
	graph := exportSmall(t)
	late := time.Now().Add(20 * time.Minute) // for all scripts; a command then prints its goroutines
	if end, ok := t.Deadline(); ok && end.Before(late) {
		late = end
	}
	testscript.Run(t, testscript.Params{
		Dir:      "testdata/script",
		Deadline: late,
		Setup: func(env *testscript.Env) error {
			asElsewhere(env)
			env.Setenv("GRAPH", graph)
			env.Setenv("GIVEN", given)
			env.Setenv("IMAGES", filepath.Join(testkit.Root(), "convert/testdata/images"))
			env.Setenv("PARQUET", filepath.Join(testkit.Root(), "internal/data/table/testdata/parquet"))
			env.Setenv("ESC", "\x1b")
			bucket := gcstest.NewServer("b")
			env.Defer(bucket.Close)
			if err := bucket.PutFolder(graph, "graph"); err != nil {
				return err
			}
			env.Setenv("STORAGE_EMULATOR_HOST", bucket.URL)
			env.Setenv(gcs.CacheVariable, filepath.Join(env.WorkDir, "cache"))
			env.Setenv("ADDRESS", freeAddresses(t, 1)[0])
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitCodeIs,
			"flip":     flipByte,
			"truncate": truncateFile,
			"harmless": isHarmless,
			"listens":  awaitListener,
			"post":     postJSON,
			"answers":  sameAnswer,
			"fetch":    fetchObject,
			"encoder":  writeEncoder,
			"rewrite":  rewriteRecords,
		},
	})
}

// smallModel is a configuration for the vocabulary of the scripts: 40 tokens.
const smallModel = `{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
	"intermediate_size": 64, "vocab_size": 40, "max_position_embeddings": 32}`

func exportSmall(t *testing.T) string {
	t.Helper()
	return testkit.Export(t, smallModel, "--pooling", "mean")
}

// asElsewhere gives a script the settings that make the processor answer as another one, of
// tools/elsewhere.sh. Scripts have no other variables of the tests' environment.
func asElsewhere(env *testscript.Env) {
	for _, name := range []string{"TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", kernels.InstructionsVariable, "GOMAXPROCS"} {
		if value, set := os.LookupEnv(name); set {
			env.Setenv(name, value)
		}
	}
}

// writeEncoder writes the encoder of an export, without its head, as weights: encoder EXPORT FILE.
func writeEncoder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: encoder EXPORT FILE")
	}
	b, err := checkpoint.OpenBundle(filepath.Join(args[0], "variables", "variables"))
	ts.Check(err)
	names := slices.DeleteFunc(b.Names(), func(name string) bool { return !strings.HasPrefix(name, "model/encoder/") })
	values, err := b.Read(context.Background(), names...)
	ts.Check(err)
	var tensors []checkpoint.SafeTensor
	for _, name := range names {
		tensors = append(tensors, checkpoint.SafeTensor{Name: name, Value: values[name]})
	}
	var out bytes.Buffer
	ts.Check(checkpoint.WriteSafetensors(&out, tensors, nil))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), out.Bytes(), 0o644))
}

// rewriteRecords writes the records of a file as other programs do: padded, with an attention_mask, without
// segments, and with the label as the feature target, or without any: rewrite FROM TO none|gzip|zlib LABEL.
func rewriteRecords(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: rewrite FROM TO none|gzip|zlib LABEL")
	}
	compression, err := tfrecord.ParseCompression(args[2])
	ts.Check(err)
	in, err := tfrecord.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer in.Close()
	out, err := tfrecord.Create(ts.MkAbs(args[1]), tfrecord.Compress(compression))
	ts.Check(err)
	for {
		record, err := in.Next()
		if err == io.EOF {
			break
		}
		ts.Check(err)
		features, err := tfrecord.ParseExample(record)
		ts.Check(err)
		var ids, mask, label []int64
		for _, f := range features {
			switch f.Name {
			case "input_ids":
				ids = append(slices.Clone(f.Int64s), make([]int64, 20-len(f.Int64s))...)
				mask = append(slices.Repeat([]int64{1}, len(f.Int64s)), make([]int64, 20-len(f.Int64s))...)
			case "label_ids":
				label = f.Int64s
			}
		}
		with := []tfrecord.Feature{tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("attention_mask", mask...)}
		if args[3] != "none" {
			with = append(with, tfrecord.Int64Feature(args[3], label...))
		}
		example, err := tfrecord.AppendExample(nil, with...)
		ts.Check(err)
		ts.Check(out.Write(example))
	}
	ts.Check(out.Close())
}

// exitCodeIs runs a command and compares its exit code: exitcode 2 gorbit train. Its output can be
// checked with stdout and stderr, as after exec.
func exitCodeIs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// awaitListener waits until something listens: listens HOST:PORT.
func awaitListener(ts *testscript.TestScript, _ bool, args []string) {
	for late := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", args[0])
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(late) {
			ts.Fatalf("nothing listens: %v", err)
		}
	}
}

// postJSON sends a request: post URL-WITHOUT-SCHEME BODY [TOKEN]. Standard output gets the status and the
// body of the response.
func postJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: post URL BODY [TOKEN]")
	}
	r, err := http.NewRequest("POST", "http://"+args[0], strings.NewReader(args[1]))
	ts.Check(err)
	if len(args) == 3 {
		r.Header.Set("Authorization", "Bearer "+args[2])
	}
	response, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s", response.StatusCode, body)
}

// sameAnswer holds that the last response has the one answer of a file, but for rounding: answers FILE.
func sameAnswer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answers FILE")
	}
	type answer struct {
		Label         string    `json:"label"`
		Probabilities []float64 `json:"probabilities"`
	}
	var want answer
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &want))
	var got struct{ Answers, Predictions []answer }
	_, body, _ := strings.Cut(ts.ReadFile("stdout"), " ")
	ts.Check(json.Unmarshal([]byte(body), &got))
	all := append(got.Answers, got.Predictions...)
	if len(all) != 1 || all[0].Label != want.Label || len(all[0].Probabilities) != len(want.Probabilities) {
		ts.Fatalf("got %+v, want %+v", all, want)
	}
	for i, p := range want.Probabilities {
		if math.Abs(all[0].Probabilities[i]-p) > 1e-6 {
			ts.Fatalf("got %+v, want %+v", all, want)
		}
	}
}

// fetchObject copies an object of the bucket to a file: fetch OBJECT FILE.
func fetchObject(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fetch OBJECT FILE")
	}
	response, err := http.Get(ts.Getenv("STORAGE_EMULATOR_HOST") + "/b/" + args[0])
	ts.Check(err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	ts.Check(err)
	if response.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", args[0], response.Status)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), content, 0o644))
}

// isHarmless holds that the output of the last command has nothing in it that a terminal would do.
func isHarmless(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: harmless")
	}
	for _, name := range []string{"stdout", "stderr"} {
		if text := ts.ReadFile(name); text != shown.Text(text) {
			ts.Fatalf("%s is %q", name, text)
		}
	}
}

// flipByte changes one bit of a file: flip FILE OFFSET.
func flipByte(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	var offset int
	_, err := fmt.Sscan(args[1], &offset)
	ts.Check(err)
	content, err := os.ReadFile(path)
	ts.Check(err)
	content[offset] ^= 4
	ts.Check(os.WriteFile(path, content, 0o644))
}

// truncateFile cuts a file: truncate FILE LENGTH.
func truncateFile(ts *testscript.TestScript, _ bool, args []string) {
	var length int64
	_, err := fmt.Sscan(args[1], &length)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), length))
}
