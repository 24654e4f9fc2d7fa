package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/app/tracking/trackingtest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// section is a heading of a page, with the commands under it.
type section struct{ page, heading string }

// pagesRun are the commands that TestPagesRun runs.
var pagesRun = []struct {
	name     string
	sections []section
	// follows are pages whose transcripts are run after the sections, in the same folder.
	follows []string
	left    []string
	notLeft []string
}{
	{
		name:     "README",
		sections: []section{{"README.md", "By hand: MRPC"}},
		follows:  []string{"docs/guide/inspect.md", "docs/guide/plan.md", "docs/guide/serve.md", "docs/guide/track.md"},
		left: []string{"data/mrpc/manifest.json", "exports/mrpc/saved_model.pb", "runs/mrpc/metrics.jsonl",
			"runs/mrpc/init.txt", "served/mrpc/assets/gorbit-serving.json"},
		notLeft: []string{"runs/mrpc/eval-dev"}, // gorbit evaluate writes it with --follow only
	},
	{
		name: "guides",
		sections: []section{
			{"docs/guide/start.md", "The programs"}, {"docs/guide/start.md", "The dataset"},
			{"docs/guide/start.md", "The graphs"}, {"docs/guide/start.md", "A run"},
			{"docs/guide/strategies.md", "Sharded optimizer"}, {"docs/guide/precision.md", "Precision"},
			{"docs/measurements/performance.md", "The start"},
		},
		left: []string{"data/mrpc/test-00000-of-00001.tfrecord", "exports/tiny/saved_model.pb", "exports/minilm/saved_model.pb",
			"exports/bf16/saved_model.pb", "runs/mrpc/checkpoints/checkpoint", "runs/r/params.yaml", "runs/start/params.yaml"},
	},
	{
		name: "csv",
		sections: []section{
			{"docs/guide/csv.md", "From rows to a trained model"}, {"docs/guide/csv.md", "What it learned"}, {"docs/guide/csv.md", "Answers over HTTP"},
		},
		left: []string{"data/mine/manifest.json", "runs/mine/metrics.jsonl", "report.html", "served/mine/assets/gorbit-serving.json"},
	},
	{
		name: "workers on fixed ports",
		sections: []section{
			{"docs/guide/start.md", "The dataset"}, {"docs/guide/start.md", "The graphs"},
			{"docs/guide/strategies.md", "Where the time goes"},
		},
		left: []string{"runs/r/params.yaml"},
	},
}

// notRun are the pages with commands that are parsed and not run here, and why.
var notRun = map[string]string{
	"README.md":                            "make demo and make test would run in themselves; other machines, GPUs and TPUs: TestFaults, TestLaunchTrains, TestTrainOnTPU",
	"CONTRIBUTING.md":                      "make and go test would run in themselves",
	"docs/design/architecture.md":          "tests that make test runs",
	"docs/design/crash.md":                 "tests that make test runs",
	"docs/design/input.md":                 "a benchmark; bench/tests/test_command.py makes its tables from raw lines",
	"docs/design/strategy.md":              "tests that make test runs",
	"docs/guide/adapters.md":               "a model of full size; tools/tests/test_lora.py and TestLora of train",
	"docs/guide/convert.md":                "a table of the reader's; TestAnyModel converts one",
	"docs/guide/csv.md":                    "make demo would run in itself",
	"docs/guide/track.md":                  "a run that trains meanwhile, and Weights & Biases; the tests of internal/app/tracking",
	"docs/guide/gcs.md":                    "buckets of Google's; testdata/script/gcs.txtar has a local one",
	"docs/guide/gpu.md":                    "a GPU; bench/tests/test_check_gpu.py checks a CPU in its place",
	"docs/guide/install.md":                "installs outside of the checkout",
	"docs/guide/keras.md":                  "a model of the reader's; TestYourOwnModel exports one",
	"docs/guide/launch.md":                 "other machines and fixed ports; TestLaunchTrains takes free ones",
	"docs/guide/library.md":                "a module of the reader's, which go mod tidy fills from the network; TestLoop and TestAnyModel of examples/customloop",
	"docs/guide/precision.md":              "a benchmark",
	"docs/guide/predict.md":                "runs and tables of the reader's; TestAnyModel and testdata/script/formats.txtar",
	"docs/guide/run.md":                    "data of the reader's, which TestAnyModel has, and a benchmark",
	"docs/guide/serve.md":                  "a model and tokens of the reader's; testdata/script/serve.txtar",
	"docs/guide/serving.md":                "a graph with a head that transformers has; TestWriteHuggingFace of internal/app/servable",
	"docs/guide/strategies.md":             "other machines, GPUs and parts of commands; TestFaults and the tests of train and strategy",
	"docs/guide/texttasks.md":              "texts of the reader's; testdata/texttasks has small ones of each task",
	"docs/guide/tpu.md":                    "a TPU, or the emulator on a fixed port; TestTrainOnTPU, TestReadOnTPU and testdata/script/tpu.txtar take free ones",
	"docs/guide/workers.md":                "other machines; TestWorker and TestFaults",
	"docs/guide/your-own-model.md":         "serves on a fixed port; TestYourOwnModel runs the others",
	"docs/measurements/benchmarks-text.md": "benchmarks; bench/tests/test_command.py makes their tables from raw lines",
	"docs/measurements/benchmarks.md":      "benchmarks of hours; bench/tests/test_command.py makes their tables from raw lines",
	"docs/measurements/gcs.md":             "a benchmark",
	"docs/measurements/keras.md":           "a benchmark; TestYourOwnModel trains the same network",
	"docs/measurements/performance.md":     "benchmarks, which want a machine of their own",
	"docs/measurements/scaling.md":         "writes the page; tools/tests/test_scaling.py compares it",
	"docs/measurements/tpu.md":             "packages of Google's TPU compiler; tools/tests/test_check_tpu.py runs the parts that need none",
}

// TestDocumentedCommandsAreRun wants each page whose commands are not all run in notRun, which says why.
func TestDocumentedCommandsAreRun(t *testing.T) {
	run := map[section]bool{}
	followed := map[string]bool{ // by other tests
		"docs/guide/evaluate.md": true, "docs/guide/push.md": true, "docs/guide/report.md": true, "docs/guide/tune.md": true, "docs/guide/your-own-model.md": true,
	}
	for _, tt := range pagesRun {
		for _, page := range tt.follows {
			followed[page] = true
		}
		for _, s := range tt.sections {
			run[s] = true
		}
	}
	for _, page := range documents(t) {
		left := []string{}
		for _, b := range page.blocks() {
			if page.name == "CHANGELOG.md" || run[section{page.name, b.heading}] {
				continue // of the past; run
			}
			for line := range strings.Lines(b.text) {
				prompted := followed[page.name] && strings.HasPrefix(line, "$ ")
				if commandLine.MatchString(strings.TrimSpace(line)) && !prompted && !slices.Contains(left, b.heading) {
					left = append(left, b.heading)
				}
			}
		}
		switch why := notRun[page.name]; {
		case len(left) > 0 && why == "":
			t.Errorf("%s: no test runs the commands under %q; add them to pagesRun, or the page to notRun with the reason", page.name, left)
		case len(left) == 0 && why != "":
			t.Errorf("%s is in notRun, and has no command that is not run; remove it there", page.name)
		}
	}
}

// TestPagesRun runs the commands of README.md and of the guides, in order and in one folder per
// case, and checks the files that they write. Small stand-ins replace MRPC, MiniLM's weights and
// the model sizes, trainings have two steps, and workers listen on free ports; everything else is
// as on the pages.
func TestPagesRun(t *testing.T) {
	t.Parallel()
	exports := t.TempDir()
	for _, tt := range pagesRun {
		t.Run(tt.name, func(t *testing.T) {
			u := newUser(t)
			u.standIn()
			var script strings.Builder
			script.WriteString("set -euo pipefail\n")
			for _, s := range tt.sections {
				commands := commandsUnder(t, s.page, s.heading)
				if len(commands) == 0 {
					t.Fatalf("%s: no command stands under %q", s.page, s.heading)
				}
				script.WriteString(strings.Join(commands, "\n") + "\n")
			}
			cmd := u.command("/bin/bash", "-c", script.String())
			cmd.Env = append(cmd.Env, "PATH="+filepath.Join(u.dir, "standins")+":"+filepath.Join(u.dir, "bin")+":"+os.Getenv("PATH"),
				"GORBIT="+filepath.Join(u.bin, "gorbit"), "EXPORTS="+exports, "PYTHON="+testkit.Python(t), "TF_CPP_MIN_LOG_LEVEL=2", "XDG_CACHE_HOME="+filepath.Join(u.dir, "cache"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, script.String(), out)
			}
			mlflow := trackingtest.New()
			defer mlflow.Close()
			e := &terminal{u: u, env: cmd.Env, addresses: map[string]string{"http://127.0.0.1:5000": mlflow.URL}}
			for _, page := range tt.follows {
				e.follow(t, page, 1)
			}
			for id, run := range mlflow.Runs() {
				if run.Status != "FINISHED" || run.Params["train.steps"] != "2" || len(run.Metrics["eval/accuracy"]) == 0 {
					t.Errorf("MLflow has %s: %+v", id, run)
				}
			}
			for _, name := range tt.left {
				if _, err := os.Stat(filepath.Join(u.dir, name)); err != nil {
					t.Error(err)
				}
			}
			for _, name := range tt.notLeft {
				if _, err := os.Stat(filepath.Join(u.dir, name)); err == nil {
					t.Errorf("%s is there", name)
				}
			}
		})
	}
}

// commandsUnder returns the command lines of the blocks under a heading of a page.
func commandsUnder(t *testing.T, page, heading string) []string {
	t.Helper()
	var lines []string
	for _, d := range documents(t) {
		if d.name != page {
			continue
		}
		for _, b := range d.blocks() {
			if b.heading != heading {
				continue
			}
			for _, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
				if commandLine.MatchString(line) || regexp.MustCompile(`^(export|time|cp|mkdir) `).MatchString(line) {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

// standIn writes what the pages assume: programs in bin, the Python environment, the vocabulary and
// weights of MiniLM, MRPC's files, and a make that does nothing.
func (u *user) standIn() {
	u.t.Helper()
	const hidden, layers, inner, positions = 32, 1, 64, 64
	words := strings.Fields("[PAD] [UNK] [CLS] [SEP] [MASK] he left early went home before the end . said so it was a long day and they came back")
	config, err := json.Marshal(map[string]int{"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 4,
		"intermediate_size": inner, "vocab_size": len(words), "max_position_embeddings": positions})
	if err != nil {
		u.t.Fatal(err)
	}
	vocab := strings.Join(words, "\n") + "\n"
	weights := string(safetensorsOfBERT(u.t, len(words), hidden, layers, inner, positions))
	header := "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
	rows := func(from, to int, newline string) string {
		lines := []string{header}
		for i := from; i < to; i++ {
			second := "they came back"
			if i%2 == 1 {
				second = "he went home early"
			}
			lines = append(lines, fmt.Sprintf("%d\t%d\t%d\the left early and said so\t%s .", i%2, 1000+i, 2000+i, second))
		}
		return strings.Join(lines, newline) + newline
	}
	ids := ""
	for i := 24; i < 32; i++ {
		ids += fmt.Sprintf("%d\t%d\n", 1000+i, 2000+i)
	}
	var mine strings.Builder
	mine.WriteString("text,label\n")
	for i := range 200 {
		fmt.Fprintf(&mine, "\"he left early, they came back %d\",%s\n", i, []string{"negative", "positive"}[i%2])
	}
	for name, content := range map[string]string{
		"standins/config.json": string(config),
		"vocab.txt":            vocab, ".cache/minilm/vocab.txt": vocab,
		"model.safetensors": weights, ".cache/minilm/model.safetensors": weights,
		"train.tsv": rows(0, 24, "\n"), "dev.tsv": rows(24, 32, "\n"),
		"msr_paraphrase_train.txt": "\ufeff" + rows(0, 32, "\r\n"), "msr_paraphrase_test.txt": "\ufeff" + rows(32, 40, "\r\n"),
		"dev_ids.tsv":   ids,
		"mine.csv":      mine.String(),
		"standins/make": "#!/bin/bash\n",
		// The pages' runs take minutes: two steps of eight examples show that they start and end. Workers
		// of the pages' fixed ports are started for the command, on free ones.
		"bin/gorbit": `#!/bin/bash
case $1 in train) set -- "$@" --steps 2 --batch-size 8 --set data.row_length=64 ;; plan) set -- "$@" --probe-steps 1 --set data.row_length=64 ;; esac
case $1 in serve) # which would not end, on a port that another may have
  timeout -s INT 300 "$GORBIT" "$@" --listen 127.0.0.1:0 >serving 2>&1 &
  until grep -q 'listening on' serving; do kill -0 $! 2>/dev/null && sleep 0.05 || { cat serving; exit 1; }; done
  kill $!; wait $! || true; exit 0 ;;
esac
workers=()
trap '[ ${#workers[@]} = 0 ] || kill "${workers[@]}"' EXIT
for port in 7601 7602; do
  case "$*" in *127.0.0.1:$port*)
    "$GORBIT" worker --listen 127.0.0.1:0 --threads 1 >"worker-$port" 2>/dev/null &
    workers+=($!)
    until address=$(grep -o '127.0.0.1:[0-9]*' "worker-$port"); do kill -0 $! && sleep 0.05 || exit 1; done
    set -- "${@//127.0.0.1:$port/$address}" ;;
  esac
done
"$GORBIT" "$@"
`,
		// Every configuration is the small one. Each kind of export is made once, for all cases.
		".venv/bin/python": `#!/bin/bash
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
args=() out=
while [ $# -gt 0 ]; do
  case $1 in
  --config) args+=(--config "$root/standins/config.json"); shift ;;
  --out) out=$2; shift ;;
  *) args+=("$1") ;;
  esac
  shift
done
made=$EXPORTS/$(echo "${args[*]//$root/}" | md5sum | cut -c1-32)
[ -d "$made" ] || "$PYTHON" "${args[@]}" --out "$made"
mkdir -p "$(dirname "$out")"
cp -r "$made" "$out"
`,
	} {
		path := filepath.Join(u.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			u.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o777); err != nil {
			u.t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(u.bin, "gorbit-predict"), filepath.Join(u.dir, "bin", "gorbit-predict")); err != nil {
		u.t.Fatal(err)
	}
	if _, err := exec.LookPath("md5sum"); err != nil {
		u.t.Fatal(err)
	}
}

// safetensorsOfBERT returns a file of weights with Hugging Face's names; all values are 0.01.
func safetensorsOfBERT(t *testing.T, vocab, hidden, layers, inner, positions int) []byte {
	t.Helper()
	shapes := map[string][]int{
		"embeddings.word_embeddings.weight":       {vocab, hidden},
		"embeddings.position_embeddings.weight":   {positions, hidden},
		"embeddings.token_type_embeddings.weight": {2, hidden},
		"embeddings.LayerNorm.weight":             {hidden},
		"embeddings.LayerNorm.bias":               {hidden},
	}
	for i := range layers {
		for name, shape := range map[string][2]int{
			"attention.self.query": {hidden, hidden}, "attention.self.key": {hidden, hidden}, "attention.self.value": {hidden, hidden},
			"attention.output.dense": {hidden, hidden}, "intermediate.dense": {inner, hidden}, "output.dense": {hidden, inner},
			"attention.output.LayerNorm": {hidden, 0}, "output.LayerNorm": {hidden, 0},
		} {
			name = fmt.Sprintf("encoder.layer.%d.%s", i, name)
			shapes[name+".bias"] = []int{shape[0]}
			shapes[name+".weight"] = slices.DeleteFunc(shape[:], func(n int) bool { return n == 0 })
		}
	}
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	entries, data := map[string]entry{}, new(bytes.Buffer)
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		n := 1
		for _, size := range shapes[name] {
			n *= size
		}
		start := data.Len()
		for range n {
			if err := binary.Write(data, binary.LittleEndian, float32(0.01)); err != nil {
				t.Fatal(err)
			}
		}
		entries[name] = entry{"F32", shapes[name], [2]int{start, data.Len()}}
	}
	header, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data.Bytes()...)
}

// TestReadmeFigures checks the speeds in README.md against the benchmark's table.
func TestReadmeFigures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(testkit.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, table, ok := strings.Cut(read("docs/measurements/benchmarks.md"), "<!-- bench:begin train-minilm-mrpc -->")
	if !ok {
		t.Fatal("benchmarks.md has no table of minilm with MRPC's lengths")
	}
	table, _, _ = strings.Cut(table, "<!-- bench:end")
	least := map[string]float64{} // a peer's best setting
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		ratio := regexp.MustCompile(`^([0-9.]+) \(.*times$`).FindStringSubmatch(cells[min(4, len(cells)-1)])
		if ratio == nil {
			continue
		}
		value, err := strconv.ParseFloat(ratio[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, peer := range []string{"Orbit", "Keras", "Hugging Face"} {
			if strings.HasPrefix(cells[0], "| "+peer) && (least[peer] == 0 || value < least[peer]) {
				least[peer] = value
			}
		}
	}
	readme := strings.Join(strings.Fields(read("README.md")), " ")
	for _, tt := range []struct {
		claim string
		peers []string
	}{
		{`([0-9.]+) times the Hugging Face Trainer's best setting`, []string{"Hugging Face"}},
		{`([0-9.]+) times Orbit and Keras`, []string{"Orbit", "Keras"}},
	} {
		match := regexp.MustCompile(tt.claim).FindStringSubmatch(readme)
		if match == nil {
			t.Errorf("README.md does not say %s", tt.claim)
			continue
		}
		claimed, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		slowest := least[tt.peers[0]]
		for _, peer := range tt.peers {
			slowest = min(slowest, least[peer])
		}
		if slowest == 0 || claimed > slowest || claimed < slowest-0.1 {
			t.Errorf("README.md says %q; the table has %v", match[0], slowest)
		}
	}
}
