package report

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// A table has all metrics at the best step of each run, and the params that differ, with what they are sorted by.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	metrics := func(best, other float64) string {
		return fmt.Sprintf(`{"phase":"train","step":8,"outputs":{"loss":0.5}}
{"phase":"eval","step":10,"outputs":{"accuracy":%v,"f1":0.25,"loss":%v}}
{"phase":"train","step":16,"outputs":{"loss":0.4}}
{"phase":"eval","step":20,"outputs":{"accuracy":0.1,"f1":0.75,"loss":0.1}}
`, best, other)
	}
	for name, m := range map[string]string{"a": metrics(0.5, 2), "b": metrics(0.75, 3)} {
		makeRun(t, filepath.Join(dir, name), 20, map[string]float64{"a": 1e-4, "b": 5e-4}[name])
		fill(t, filepath.Join(dir, name), map[string]string{runfolder.Metrics: m})
	}
	addEvaluation(t, filepath.Join(dir, "b"), 10, 2)
	table := all(checkClosed(t, write(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"))), "table", "compare")
	if len(table) != 1 {
		t.Fatalf("%d tables compare runs; expected 1", len(table))
	}
	row := func(n *html.Node, with func(*html.Node) string) string {
		var out []string
		for c := range n.ChildNodes() {
			if c.Type == html.ElementNode {
				out = append(out, strings.TrimSpace(with(c)))
			}
		}
		return strings.Join(out, "|")
	}
	rows := all(table[0], "tr", "")
	for i, want := range []string{
		"|at the best step|params that differ|the run",
		"run|accuracy|step|loss|training loss|f1|mcc|optimizer.learning_rate|state|steps|time|examples/s",
		"a|0.5|10|2|0.5|0.25|–|0.0001|finished|20 / 20|1:01|",
		"b|0.75|10|3|0.5|0.25|NaN|0.0005|finished|20 / 20|1:01|",
	} {
		if got := row(rows[i], text); !strings.HasPrefix(got, want) {
			t.Errorf("row %d is %s\nexpected %s", i, got, want)
		}
	}
	key := func(n *html.Node) string { return attribute(n, "data-key") }
	if got, want := row(rows[3], key), "b|0.75|10|3|0.5|0.25|NaN|0.0005|finished|20|60.5|"; !strings.HasPrefix(got, want) {
		t.Errorf("the keys are %s\nexpected %s", got, want)
	}
	var top []string
	for _, cell := range all(table[0], "td", "top") {
		top = append(top, text(cell))
	}
	if !reflect.DeepEqual(top, []string{"2", "0.75"}) { // of the rows, one after the other
		t.Errorf("the best of a column are %v; expected accuracy 0.75 and loss 2", top)
	}
}

// Curves are drawn by time and examples as the journal tells them, also where a process was killed and the next one
// made some of its steps again.
func TestAxes(t *testing.T) {
	phase := func(step int64, elapsed float64, examples int64) runfolder.Phase {
		return runfolder.Phase{Kind: runfolder.Training, Step: step, Elapsed: elapsed, Examples: examples}
	}
	r := &runView{Run: Run{Run: &runfolder.Run{Processes: []runfolder.Process{
		{Start: runfolder.Start{StepsPerEpoch: 8}, Phases: []runfolder.Phase{phase(10, 5, 100), {Kind: runfolder.Evaluating, Step: 10, Elapsed: 6}, phase(20, 12, 100)}},
		{Start: runfolder.Start{StepsPerEpoch: 8, Step: 10}, Phases: []runfolder.Phase{phase(30, 7, 200)}, End: &runfolder.End{Seconds: 9}},
	}}}}
	want := runData{StepsPerEpoch: 8, Steps: []number{10, 10, 30}, Seconds: []number{5, 12, 19}, Examples: []number{100, 100, 300}}
	if got := r.axes(); !reflect.DeepEqual(got, want) {
		t.Errorf("axes are %+v; expected %+v", got, want)
	}
}

// The features of data that a schema made are described.
func TestFeatures(t *testing.T) {
	dir := t.TempDir()
	makeRun(t, dir, 20, 1e-4)
	fill(t, dir, map[string]string{runfolder.Data: `{"format":"gorbit-dataset","version":1,"task":"schema","labels":["cat","dog"],"sources":[],
		"features":[{"name":"age","kind":"number","dtype":"float32","shape":[],"role":"input","columns":["age"]},
			{"name":"animal","kind":"category","dtype":"int64","shape":[],"role":"label","categories":["cat","dog"],"columns":["animal"]}],
		"splits":{"train":{"files":[{"name":"train.tfrecord","records":8,"bytes":1,"sha256":""}],"records":8,"tokens":0,"truncated":0,"lengths":{"min":0,"max":0,"mean":0,"step":16,"histogram":[]},
			"label_counts":[2,6],"features":{"age":{"records":8,"filled":1,"values":8,"min":2,"max":90.5,"mean":40.25},"animal":{"records":8,"values":8,"min":0,"max":1,"counts":[2,6]}}}}}`})
	tables := all(checkClosed(t, write(t, dir)), "table", "features")
	if len(tables) != 1 {
		t.Fatalf("%d tables of features; expected 1", len(tables))
	}
	said := strings.Join(strings.Fields(strings.NewReplacer("<", " ").Replace(text(tables[0]))), " ")
	for _, want := range []string{"ageinput numbertrain81240.2590.5", "animallabel categorytrain8dog 75.0 %, cat 25.0 %"} {
		if !strings.Contains(said, want) {
			t.Errorf("the table is %s\nexpected %s in it", said, want)
		}
	}
}

// rgb is a colour; each part is from 0 to 1.
type rgb [3]float64

func hex(t *testing.T, s string) rgb {
	t.Helper()
	if s = strings.TrimPrefix(s, "#"); len(s) == 3 {
		s = string([]byte{s[0], s[0], s[1], s[1], s[2], s[2]})
	}
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil || len(s) != 6 {
		t.Fatalf("%q is no colour: %v", s, err)
	}
	return rgb{float64(n>>16&255) / 255, float64(n>>8&255) / 255, float64(n&255) / 255}
}

// contrast is that of two colours by WCAG 2.
func contrast(a, b rgb) float64 {
	light := func(c rgb) float64 {
		for i, v := range c {
			if c[i] = v / 12.92; v > 0.03928 {
				c[i] = math.Pow((v+0.055)/1.055, 2.4)
			}
		}
		return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
	}
	x, y := light(a), light(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Whatever has a colour of the style sheet can be read on each ground that it may stand on, in the light and in the
// dark, and on paper.
func TestContrast(t *testing.T) {
	const least = 4.5
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(styleCSS, -1)
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`[{; ](?:color|fill): var\(--([\w-]+)\)`).FindAllStringSubmatch(styleCSS, -1) {
		used[m[1]] = true
	}
	if len(blocks) != 3 || len(used) < 10 {
		t.Fatalf("%d sets of colours, %d colours of text; expected those of light, dark and paper", len(blocks), len(used))
	}
	base := map[string]string{} // of the light, which paper changes
	for i, block := range blocks {
		name, vars := []string{"light", "dark", "paper"}[i], map[string]string{}
		for k, v := range base {
			vars[k] = v
		}
		for _, m := range regexp.MustCompile(`--([\w-]+): ([^;]+);`).FindAllStringSubmatch(block[1], -1) {
			if vars[m[1]] = m[2]; i == 0 {
				base[m[1]] = m[2]
			}
		}
		check := func(color, ground string, b rgb) {
			if c := contrast(hex(t, vars[color]), b); c < least {
				t.Errorf("%s: --%s on %s has a contrast of %.2f; expected %v", name, color, ground, c, least)
			}
		}
		for color := range used {
			for _, ground := range []string{"bg", "panel"} {
				check(color, "--"+ground, hex(t, vars[ground]))
			}
		}
		for _, color := range []string{"text", "soft", "accent"} {
			check(color, "--warn", hex(t, vars["warn"]))
		}
		// The cells of a confusion matrix.
		for _, shade := range []string{"right", "wrong"} {
			parts := strings.Split(vars[shade], ", ")
			for _, m := range regexp.MustCompile(`\.(q\d) \{ background: rgba\(var\(--shade\), ([\d.]+)\)`).FindAllStringSubmatch(styleCSS, -1) {
				alpha, err := strconv.ParseFloat(m[2], 64)
				if err != nil {
					t.Fatal(err)
				}
				ground := hex(t, vars["bg"])
				for k := range ground {
					part, err := strconv.ParseFloat(parts[k], 64)
					if err != nil {
						t.Fatal(err)
					}
					ground[k] = alpha*part/255 + (1-alpha)*ground[k]
				}
				check("text", "."+shade+"."+m[1], ground)
			}
		}
	}
}

// Two pages of equal runs are the same bytes.
func TestSamePage(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		makeRun(t, filepath.Join(dir, name), 30, 1e-4)
	}
	first := write(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	for range 3 {
		if write(t, filepath.Join(dir, "a"), filepath.Join(dir, "b")) != first {
			t.Fatal("a page that is made again is another one")
		}
	}
}
