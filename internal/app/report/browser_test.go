package report

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// browserVariable names the program of a Chromium, such as chromium-headless-shell, and
// screenshotsVariable a folder for screenshots, if they are wanted.
const (
	browserVariable     = "GORBIT_BROWSER"
	screenshotsVariable = "GORBIT_SCREENSHOTS"
)

// browser is a Chromium that is told by the DevTools protocol, over a pipe, what to do.
type browser struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	id      int
	session string
	// complaints are what the page wrote to the console, and its errors.
	complaints []string
}

// openBrowser starts the browser with an empty page.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	program := os.Getenv(browserVariable)
	if program == "" {
		t.Skipf("no browser is named; set %s to one, such as chromium-headless-shell", browserVariable)
	}
	toBrowser, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "browser-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := testkit.Command(t, program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toBrowser.Close()
	fromBrowser.Close()
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.Close()
		_ = os.RemoveAll(profile) // its children may still write into it
	})
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	target := b.call("Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.call("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil)
	}
	return b
}

// call calls a method and returns its result.
func (b *browser) call(method string, params map[string]any) map[string]any {
	b.t.Helper()
	b.id++
	message := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		message["params"] = map[string]any{}
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	for {
		reply := b.read()
		if id, ok := reply["id"].(float64); !ok || int(id) != b.id {
			continue
		}
		if reply["error"] != nil {
			b.t.Fatalf("%s: %v", method, reply["error"])
		}
		result, _ := reply["result"].(map[string]any)
		return result
	}
}

// read returns the next message, and keeps what the page complains of or asks for.
func (b *browser) read() map[string]any {
	b.t.Helper()
	text, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser has ended: %v", err)
	}
	var m map[string]any
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatal(err)
	}
	switch m["method"] {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		b.complaints = append(b.complaints, string(text))
	case "Network.requestWillBeSent":
		if !strings.Contains(string(text), `"url":"file://`) {
			b.complaints = append(b.complaints, string(text))
		}
	}
	return m
}

// open opens a page in a window of some width, light or dark, and waits until it is loaded.
func (b *browser) open(path string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false})
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	b.call("Page.navigate", map[string]any{"url": "file://" + path})
	for b.read()["method"] != "Page.loadEventFired" {
	}
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	r := b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
	if r["exceptionDetails"] != nil {
		b.t.Fatalf("%s: %v", expression, r["exceptionDetails"])
	}
	result, _ := r["result"].(map[string]any)
	return result["value"]
}

// screenshot keeps a picture of the whole page, if pictures are wanted.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	folder := os.Getenv(screenshotsVariable)
	if folder == "" {
		return
	}
	shot := b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true})
	png, err := base64.StdEncoding.DecodeString(shot["data"].(string))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), png, 0o666)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// key presses a key.
func (b *browser) key(name string) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name})
	}
}

// manyOfAll gives a run long values of 60 params that differ from run to run, and an evaluation and data
// with 472 labels, one of them long.
func manyOfAll(t *testing.T, dir string, number int) {
	t.Helper()
	const labels = 472
	var params, names, counts strings.Builder
	params.WriteString("graph: exports/a-graph-with-a-name-that-is-longer-than-most-are\nseed: 1\ndata:\n  dir: data\n  train: train\n  eval: dev\noptimizer:\n  learning_rate: 0.1\n  hyperparameters:\n")
	for i := range 60 {
		fmt.Fprintf(&params, "    the_probability_of_something_rare_%d: %v\n", i, float64(i)+float64(number)/3)
	}
	for i := range labels {
		if i > 0 {
			names.WriteString(",")
			counts.WriteString(",")
		}
		fmt.Fprintf(&names, `"label-%d"`, i)
		fmt.Fprintf(&counts, "%d", 1000/(i+1)+1)
	}
	fill(t, dir, map[string]string{
		runfolder.Params: params.String(),
		runfolder.Data: fmt.Sprintf(`{"format":"gorbit-dataset","version":1,"task":"classification","columns":{"text":"text","label":"label"},"labels":[%s],"max_length":64,
			"vocab":{"file":"vocab.txt","size":100,"max_word_chars":100},"sources":[],
			"splits":{"train":{"files":[{"name":"train.tfrecord","records":2000,"bytes":1,"sha256":""}],"records":2000,"tokens":20000,"truncated":0,
			"lengths":{"min":3,"max":40,"mean":10,"step":16,"histogram":[1500,400,100]},"label_counts":[%s]}}}`, names.String(), counts.String()),
	})
	addEvaluation(t, dir, 60, labels)
}

// TestInBrowser looks at pages in a real browser: they fit a phone, follow the colours of the system,
// show values at the pointer and the keys, hide runs, and have nothing that the browser complains of.
func TestInBrowser(t *testing.T) {
	b := openBrowser(t)
	dir := t.TempDir()
	for i, name := range []string{"first", "second", "third"} {
		makeRun(t, filepath.Join(dir, name), 400, 1e-4*float64(1+i))
	}
	addEvaluation(t, filepath.Join(dir, "first"), 280, 3)
	var trials []string
	for i := range MaxRuns { // of a study with long names, many params and many labels
		trial := filepath.Join(dir, "a-study-whose-name-says-all-that-was-thought-of-beforehand", "trials", fmt.Sprintf("%04d", i))
		makeRun(t, trial, 60, 1e-4*float64(1+i))
		manyOfAll(t, trial, i)
		trials = append(trials, trial)
	}
	pages := map[string]string{"wide": write(t, trials[0]), "study": write(t, trials...), "one": write(t, filepath.Join(dir, "first")),
		"many": write(t, filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "third"))}
	for name, page := range pages {
		fill(t, dir, map[string]string{name + ".html": page})
		for _, view := range []struct {
			width  int
			scheme string
		}{{1280, "light"}, {1280, "dark"}, {390, "light"}, {390, "dark"}} {
			b.open(filepath.Join(dir, name+".html"), view.width, view.scheme)
			if wide := b.eval("document.documentElement.scrollWidth").(float64); int(wide) > view.width {
				t.Errorf("%s: the page is %v pixels wide in a window of %d", name, wide, view.width)
			}
			if seen := b.eval(`[...document.querySelectorAll(".differ tbody tr:first-child td:nth-child(2)")].every(e => e.getBoundingClientRect().right <= innerWidth)`); seen != true {
				t.Errorf("%s: in a window of %d pixels the names of params push all of their values out", name, view.width)
			}
			if dark := b.eval("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"; dark != (view.scheme == "dark") {
				t.Errorf("%s: the page is dark: %v, with the scheme %s", name, dark, view.scheme)
			}
			if small := b.eval(`[...document.querySelectorAll(".plot.linear text")].filter(e => parseFloat(getComputedStyle(e).fontSize) < 10).length`); small != 0.0 {
				t.Errorf("%s: %v labels are smaller than 10 pixels", name, small)
			}
			b.screenshot(fmt.Sprintf("%s-%d-%s", name, view.width, view.scheme))
		}
	}

	tip := func() string {
		return b.eval(`document.getElementById("tip").hidden ? "" : document.getElementById("tip").innerText`).(string)
	}
	b.open(filepath.Join(dir, "many.html"), 1280, "light")
	b.eval(`document.querySelector(".chart").scrollIntoView()`)
	at := b.eval(`(() => { const r = document.querySelector(".chart .plot").getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] })()`).([]any)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": at[0], "y": at[1]})
	if said := tip(); !strings.HasPrefix(said, "step ") || strings.Count(said, "train: 0.") != 3 || strings.Count(said, "dev: 0.") != 3 {
		t.Errorf("the pointer shows %q; expected a step, and two curves of each run", said)
	}
	b.screenshot("pointer")
	b.eval(`document.getElementById("show-1").click(); document.querySelector(".tolog").click()`)
	b.eval(`document.querySelector(".chart .area").focus()`)
	b.key("End")
	if said := tip(); !strings.HasPrefix(said, "step 400\n") || strings.Count(said, "train: 0.") != 2 || strings.Contains(said, "second") {
		t.Errorf("the key End shows %q; expected step 400 of the two runs that are not hidden", said)
	}
	b.key("ArrowLeft")
	if said := tip(); strings.HasPrefix(said, "step 400\n") || said == "" {
		t.Errorf("the key to the left shows %q; expected the step before", said)
	}
	if shown := b.eval(`["linear", "log"].map(k => getComputedStyle(document.querySelector(".chart .plot." + k)).display).join()`); shown != "none,block" {
		t.Errorf("the linear and the logarithmic scale are %v; expected none,block", shown)
	}
	if shown := b.eval(`getComputedStyle(document.querySelector(".chart path.r1")).display`); shown != "none" {
		t.Errorf("a curve of a hidden run is %v", shown)
	}
	b.screenshot("keys")
	b.key("Escape")
	if said := tip(); said != "" {
		t.Errorf("after Escape the page shows %q", said)
	}
	lookAtAxes(t, b, filepath.Join(dir, "many.html"))
	for _, c := range b.complaints {
		t.Errorf("the browser says %.400s", c)
	}
}

// lookAtAxes draws the curves of a page by other axes, a part of them, smoothed and without a run, and sorts its
// table.
func lookAtAxes(t *testing.T, b *browser, page string) {
	t.Helper()
	b.open(page, 1280, "light")
	const ticks = `[...document.querySelectorAll(".tick, .ytick, .xtick, .chart .plot .between")].map(e => e.textContent || e.getAttribute("y1")).join(" ")`
	set := func(id, event string, value any) {
		b.eval(fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %v; e.dispatchEvent(new Event(%q)) })()`, id, value, event))
	}
	is := func(what, expression string, want any) {
		t.Helper()
		if got := b.eval(expression); got != want {
			t.Errorf("%s: %v; expected %v", what, got, want)
		}
	}
	const loss = `document.querySelector(".chart .plot.linear")`
	drawn := b.eval(ticks)
	set("smooth", "input", 0) // draws the charts again
	is("the ticks that the script draws", ticks, drawn)
	set("smooth", "input", 0.9)
	is("pale curves, as they were logged", loss+`.querySelectorAll(".curve.pale").length`, 3.0)
	set("smooth", "input", 0)
	set("axis", "change", `"epoch"`)
	is("epochs", `[...`+loss+`.querySelectorAll(".xtick")].map(e => e.textContent).join(" ")`, "0 0.5 1 1.5 2 2.5 3 3.5 4")
	set("axis", "change", `"step"`)
	is("times of runs without phases", `document.querySelector("#axis option[value=seconds]").disabled`, true)
	b.eval(`document.getElementById("zoom-in").click()`)
	is("the middle half of 400 steps", `[...`+loss+`.querySelectorAll(".xtick")].map(e => e.textContent).join(" ")`, "100 150 200 250 300")
	b.eval(`document.getElementById("zoom-all").click()`)
	is("all of it", ticks, drawn)
	b.eval(`document.querySelector(".chart[data-chart='2'] .legend li").click()`) // the learning rate of the first run
	is("the run's box", `document.getElementById("show-0").checked`, false)
	b.eval(`document.getElementById("show-2").click()`)
	is("the greatest learning rate without that of the third run", `[...document.querySelectorAll(".chart[data-chart='2'] .plot.linear .ytick")].at(-1).textContent`, "2e-4")
	b.eval(`[...document.querySelectorAll(".compare th button")].find(e => e.textContent === "optimizer.learning_rate").click()`)
	is("the greatest learning rate first", `[...document.querySelectorAll(".compare tbody th")].map(e => e.innerText.trim()).join(" ")`, "third second first")
}
