package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/summary"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)> "quoted" & 'single' </style> https://example.com/x`

// fill writes files into a folder.
func fill(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

const journal = `{"event":"start","time":"2026-01-02T03:04:05Z","process":7,"host":"box","gorbit":"0.1.0","go":"go1.26","tensorflow":"2.18.1","processor":"A CPU","cores":2,"memory_mib":24000,"devices":["/device:CPU:0"],"model":"bert-classifier","parameters":4369666,"step":0,"steps":STEPS,"steps_per_epoch":100,"examples":3200,"best":"accuracy","mode":"max"}
{"event":"end","time":"2026-01-02T03:05:05Z","process":7,"outcome":"finished","step":STEPS,"seconds":60.5,"peak_memory_mib":512}
`

// makeRun writes the folder of a run of some steps that logged each of them, and evaluated 20 times.
func makeRun(t testing.TB, dir string, steps int, rate float64) {
	t.Helper()
	var metrics bytes.Buffer
	w, err := summary.NewWriter(filepath.Join(dir, "train"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= steps; i++ {
		x := float64(i) / float64(steps)
		loss := 0.7*math.Exp(-4*x) + 0.05*math.Sin(float64(i)) + 0.1
		fmt.Fprintf(&metrics, `{"phase":"train","step":%d,"outputs":{"accuracy":%v,"gradient_norm":%v,"learning_rate":%v,"loss":%v}}`+"\n",
			i, 1-loss, math.Exp(3*math.Sin(float64(i)/7)), rate*(1-x), loss)
		w.Scalar("examples_per_second", int64(i), 270+20*math.Sin(float64(i)))
		w.Scalar("memory_mib", int64(i), 400+100*x)
		w.Scalar("padding_percent", int64(i), 2)
		w.Scalar("replica_0/examples_per_second", int64(i), 10)
		if i%max(1, steps/20) == 0 {
			fmt.Fprintf(&metrics, `{"phase":"eval","step":%d,"outputs":{"accuracy":%v,"loss":%v}}`+"\n", i, 0.5+0.4*x-0.3*x*x*x*x, 0.7-0.4*x)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, map[string]string{
		runfolder.Params:  fmt.Sprintf("graph: exports/tiny\nseed: 1\ndata:\n  dir: data\n  train: train\n  eval: dev\n  row_length: 64\noptimizer:\n  learning_rate: %v\n", rate),
		runfolder.Metrics: metrics.String(),
		runfolder.Journal: strings.ReplaceAll(journal, "STEPS", fmt.Sprint(steps)),
		runfolder.Init:    "model.safetensors: 1 matched, 1 missing, 0 mismatched, 1 unused\n  matched     a <- x float32[2]\n  missing     model/classifier/bias float32[2]\n  unused      pooler float32[2]\n",
		runfolder.History: `{"step":10,"param":"train.steps","old":10,"new":100}` + "\n",
	})
}

// addEvaluation writes the file of an evaluation, with texts that would run as a script.
func addEvaluation(t testing.TB, dir string, step int64, classes int) {
	t.Helper()
	e := &evaluation.Evaluation{By: evaluation.ByEvaluate, Task: "classification", Split: "dev", Step: step, Examples: 100, Metrics: runner.Outputs{"accuracy": 0.9, "mcc": math.NaN()},
		Worst: []evaluation.Row{{File: "dev.tsv", Line: 5, Text: hostile, Label: "c0", Prediction: "c1", Probabilities: runner.Outputs{"c1": 0.97}, Loss: 3.5, Weight: 1,
			Inputs: []evaluation.Input{{Name: "age", Value: "31"}, {Name: "photo", PNG: picture(t, 8, 4)}, {Name: "huge", PNG: picture(t, 300, 1)}, {Name: "none", PNG: []byte(hostile)}}}}}
	flat := make([]float64, classes*classes)
	names := make([]string, classes)
	e.Classes = &evaluation.Classes{Of: evaluation.OfLabel}
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
		flat[i*classes+i], flat[i*classes+(i+1)%classes] = 40, 10
		e.Classes.Each = append(e.Classes.Each, evaluation.Class{Name: names[i], Precision: 0.8, Recall: 0.8, F1: 0.8, Support: 50, Predicted: 50, Right: 40})
	}
	e.Classes.Averages = []evaluation.Class{{Name: evaluation.Macro, F1: 0.8}}
	e.Detail.Confusion = evaluation.NewConfusion(flat, classes, names)
	if _, err := evaluation.Write(dir, e); err != nil {
		t.Fatal(err)
	}
}

// picture returns a PNG.
func picture(t testing.TB, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// write returns the page of some run folders.
func write(t testing.TB, folders ...string) string {
	t.Helper()
	p := Page{Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: "0.1.0", Defaults: map[string]string{"seed": "42", "data.dir": ""}}
	for _, folder := range folders {
		r, err := runfolder.Read(folder, true, p.Made)
		if err != nil {
			t.Fatal(err)
		}
		evaluations, err := evaluation.List(folder)
		if err != nil {
			t.Fatal(err)
		}
		p.Runs = append(p.Runs, Run{r, evaluations})
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// all returns the elements of a page with the given name and, unless it is "", class.
func all(n *html.Node, name, class string) (out []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == name && (class == "" || strings.Contains(" "+attribute(d, "class")+" ", " "+class+" ")) {
			out = append(out, d)
		}
	}
	return out
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the text of an element.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func parse(t testing.TB, page string) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// checkClosed checks that a page asks for nothing, runs only its own script, and marks nothing twice.
func checkClosed(t *testing.T, page string) *html.Node {
	t.Helper()
	root := parse(t, page)
	ids := map[string]bool{}
	for d := range root.Descendants() {
		if d.Type != html.ElementNode {
			continue
		}
		for _, a := range d.Attr {
			switch {
			case a.Key == "href" && strings.HasPrefix(a.Val, "#"):
			case d.Data == "img" && a.Key == "src" && strings.HasPrefix(a.Val, "data:image/png;base64,"): // of an example
			case a.Key == "href", a.Key == "src", a.Key == "srcset", a.Key == "action", a.Key == "style", a.Key == "data", strings.HasPrefix(a.Key, "on"):
				t.Errorf("<%s> has %s=%q", d.Data, a.Key, a.Val)
			case a.Key == "id" && ids[a.Val]:
				t.Errorf("two elements have the id %q", a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			}
		}
		switch d.Data {
		case "link", "iframe", "object", "embed", "base", "form":
			t.Errorf("the page has a <%s>", d.Data)
		}
	}
	for _, a := range all(root, "a", "") {
		if !ids[strings.TrimPrefix(attribute(a, "href"), "#")] {
			t.Errorf("nothing has the id of %s", attribute(a, "href"))
		}
	}
	policy := ""
	for _, m := range all(root, "meta", "") {
		if attribute(m, "http-equiv") == "Content-Security-Policy" {
			policy = attribute(m, "content")
		}
	}
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	style, scripts := all(root, "style", ""), all(root, "script", "")
	if len(style) != 1 || len(scripts) != 2 {
		t.Fatalf("the page has %d style sheets and %d scripts; expected 1 and 2", len(style), len(scripts))
	}
	for _, part := range []*html.Node{style[0], scripts[1]} {
		sum := sha256.Sum256([]byte(text(part)))
		if !strings.Contains(policy, base64.StdEncoding.EncodeToString(sum[:])) {
			t.Errorf("the policy does not allow the page's own <%s>", part.Data)
		}
		if found := regexp.MustCompile(`url\(|@import|https?:|fetch\(|XMLHttp|import\(`).FindString(text(part)); found != "" {
			t.Errorf("the page's <%s> has %s", part.Data, found)
		}
	}
	if kind := attribute(scripts[0], "type"); kind != "application/json" {
		t.Errorf("the page's data are of type %q", kind)
	}
	var data pageData
	if err := json.Unmarshal([]byte(text(scripts[0])), &data); err != nil || len(data.Charts) != len(all(root, "figure", "chart")) {
		t.Errorf("the data are of %d charts, %v; expected %d", len(data.Charts), err, len(all(root, "figure", "chart")))
	}
	return root
}

func TestPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run <b>")
	makeRun(t, dir, 100, 1e-4)
	addEvaluation(t, dir, 100, 3)
	page := write(t, dir)
	root := checkClosed(t, page)
	whole := text(root)
	for _, want := range []string{"best accuracy", "at step 70", "finished", "100 of 100", "1 epoch", "1:01", "512 MiB", "4.36M", // the summary
		"gorbit export --run '", "Loss", "Accuracy", "Learning rate", "Gradient norm", "Throughput", "Memory", "Padding in rows", "1 more chart", // curves
		hostile, "dev.tsv:5", "Confusion matrix", "80.0 %", "macro avg", "NaN", // results
		"model/classifier/bias float32[2]", "model.safetensors", // weights
		"data.row_length", "optimizer.learning_rate", "after step", "A CPU", "2.18.1", "23.4 GiB"} {
		if !strings.Contains(whole, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if n := len(all(root, "td", "right")); n != 3 {
		t.Errorf("the matrix has %d cells on its diagonal; expected 3", n)
	}
	if n := len(all(root, "circle", "best")); n != 1 {
		t.Errorf("%d points are marked as best; expected 1", n)
	}
	if got := all(root, "img", ""); len(got) != 1 || attribute(got[0], "width") != "112" || attribute(got[0], "alt") != "the image photo" || !strings.Contains(whole, "age 31") {
		t.Errorf("the page has %d pictures of the worst example, and its age: %v; expected that of 8 by 4 pixels", len(got), strings.Contains(whole, "age 31"))
	}
	for _, c := range all(root, "figure", "chart") {
		logs := len(all(c, "svg", "log"))
		if title := text(all(c, "h3", "")[0]); (title == "Gradient norm" || title == "Loss") != (logs == 1) {
			t.Errorf("%s has %d logarithmic scales", title, logs)
		}
		for _, path := range all(c, "path", "") {
			if d := attribute(path, "d"); !strings.HasPrefix(d, "M") || strings.Contains(d, "NaN") {
				t.Errorf("a path is %.40q", d)
			}
		}
	}
}

// TestLacking shows runs that lack much, and what the page says of that.
func TestLacking(t *testing.T) {
	params := "graph: g\ndata:\n  dir: d\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"nothing was logged", map[string]string{runfolder.Params: params, runfolder.Metrics: ""},
			[]string{"stopped", "No steps were logged yet.", "gorbit train --params", "an evaluation writes them", "--worst 50", "they have no manifest", "the run has no journal"}},
		{"damaged lines", map[string]string{runfolder.Params: params, runfolder.Metrics: "?\n" + `{"phase":"train","step":5,"outputs":{"loss":1}}` + "\n"},
			[]string{"Not everything could be read", "metrics.jsonl: cannot read line 1", "Loss", "not evaluated"}},
		{"no journal", map[string]string{runfolder.Params: params, runfolder.Metrics: `{"phase":"eval","step":5,"outputs":{"loss":1.5}}` + "\n"},
			[]string{"loss in evaluation", "1.5", "the run does not say what is best"}},
		{"no loss is finite", map[string]string{runfolder.Params: params, runfolder.Metrics: `{"phase":"train","step":5,"outputs":{"loss":"NaN","learning_rate":0.1}}` + "\n"},
			[]string{"Learning rate", "NaN"}},
		{"a loss is not finite", map[string]string{runfolder.Params: params, runfolder.Metrics: `{"phase":"train","step":5,"outputs":{"loss":"+Inf"}}` + "\n" + `{"phase":"train","step":6,"outputs":{"loss":2}}` + "\n"},
			[]string{"train has 1 values that are not finite"}},
		{"failed", map[string]string{runfolder.Params: params, runfolder.Metrics: "", runfolder.Journal: strings.Replace(strings.ReplaceAll(journal, "STEPS", "9"), `"finished"`, `"failed","error":"disk full"`, 1)},
			[]string{"failed", "disk full", "once the cause is mended"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, tt.files)
			whole := text(checkClosed(t, write(t, dir)))
			for _, want := range tt.want {
				if !strings.Contains(whole, want) {
					t.Errorf("the page does not say %q:\n%s", want, whole)
				}
			}
		})
	}
}

func TestManyRuns(t *testing.T) {
	dir := t.TempDir()
	var folders []string
	for i, name := range []string{"one", "two", "sub/two"} {
		folder := filepath.Join(dir, name)
		makeRun(t, folder, 40, 1e-4*float64(1+i))
		folders = append(folders, folder)
	}
	addEvaluation(t, folders[1], 40, 60)
	root := checkClosed(t, write(t, folders...))
	if n := len(all(root, "input", "show")); n != 3 {
		t.Errorf("%d runs can be hidden; expected 3", n)
	}
	differing := all(root, "table", "differ")
	if len(differing) != 1 || !strings.Contains(text(differing[0]), "optimizer.learning_rate") || strings.Contains(text(differing[0]), "seed") {
		t.Errorf("the table of what differs is wrong: %d", len(differing))
	}
	if n := len(all(root, "details", "run")); n != 6 {
		t.Errorf("%d sections of a run can be folded; expected its results and its initial weights, of 3 runs", n)
	}
	loss := all(root, "figure", "chart")[0]
	for _, class := range []string{"r0", "r1", "r2"} {
		if n := len(all(loss, "path", class)); n < 2 {
			t.Errorf("the loss has %d curves of %s; expected that of training and of evaluation", n, class)
		}
	}
	whole := text(root)
	for _, want := range []string{filepath.Clean(folders[2]), "20 others are left out", "Most confused"} {
		if !strings.Contains(whole, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if err := (Page{}).Write(&bytes.Buffer{}); err == nil {
		t.Error("a page of no run is written")
	}
}

// TestLongRun holds the size of the page of a run that logged many steps.
func TestLongRun(t *testing.T) {
	dir := t.TempDir()
	makeRun(t, dir, 20_000, 1e-4)
	page := write(t, dir)
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes; expected at most 1 MiB", len(page))
	}
	for _, path := range all(parse(t, page), "path", "curve") {
		if n := strings.Count(attribute(path, "d"), "L") + 1; n > mostPoints {
			t.Errorf("a curve has %d points; expected at most %d", n, mostPoints)
		}
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"runs/a": "runs/a", "a b": "'a b'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'"} {
		if got := quote(word); got != want {
			t.Errorf("quote(%s) = %s; expected %s", word, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{"0.00024218945123456 0.0005 1 linear", "0.000242189 0.0005 1 linear"},
		{"0.12345678 0.12345679", "0.12345678 0.12345679"}, // as different as they are
		{"0.12345678 0.12345678 2.5", "0.123457 0.123457 2.5"},
		{"123456789 1e-05", "123456789 1e-05"},
	} {
		var got []string
		for _, v := range shorten(strings.Fields(tt.values)) {
			got = append(got, v.Short)
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s is shown as %s; expected %s", tt.values, got, tt.want)
		}
	}
}
