// Package report writes a page about runs: one HTML file that needs no server and no network, and
// that shows nothing but what is in the folders of the runs.
//
// The charts are drawn here, as SVG, so that the page is complete without its script. The script adds
// the values under the pointer or the cursor keys, and draws the charts again for another axis, a part of it,
// smoothed curves, or without the runs that are hidden; it sorts the table of several runs. The page's Content-Security-Policy allows its own
// style sheet and script, by their checksums, and nothing else. All text of runs is escaped.
package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// MaxRuns is the largest number of runs of a page: more curves cannot be told apart.
const MaxRuns = 8

// Run is a run of a page.
type Run struct {
	*runfolder.Run
	// Evaluations are the files of evaluations in the run.
	Evaluations []*evaluation.Evaluation
}

// Page is what a page shows.
type Page struct {
	Runs []Run
	// Defaults are the values of params that were not set, by name, as in Run.Params.
	Defaults map[string]string
	// Made is the time of the page, and Version that of the program.
	Made    time.Time
	Version string
}

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/style.css
	styleCSS string
	//go:embed page/script.js
	scriptJS string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"value":    value,
		"percent":  percent,
		"duration": runfolder.Duration,
		"count":    count[int],
		"number":   func(v runner.Number) string { return value(float64(v)) },
		"ratio":    func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) },
		"share":    func(v float64) string { return place(min(max(v, 0), 1)) },
		"first":    first[string],
	}).Parse(pageHTML))
)

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	if n := len(p.Runs); n < 1 || n > MaxRuns {
		return fmt.Errorf("report: %d runs; expected 1 to %d", n, MaxRuns)
	}
	var b bytes.Buffer // so that a failure leaves no half page
	if err := page.Execute(&b, p.view()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err := b.WriteTo(w)
	return err
}

// view is the data of the template.
type view struct {
	Title, Policy string
	Style         template.CSS
	Script        template.JS
	Made, Version string
	Many          bool
	// Open says that the sections of each run are unfolded at first: there are few.
	Open bool
	Runs []*runView
	// Compared is the table of several runs.
	Compared *comparison
	// Main are the charts of the loss and of the metric that the best step is chosen by, Charts those of all
	// else that was learned, System those of speed and memory, and More are of lesser interest.
	Main, Charts, System, More []*chart
	// Bands says that a curve has a band.
	Bands bool
	// Data are the charts' points, for the script.
	Data pageData
}

// runView is what the page shows of a run.
type runView struct {
	Run
	Name    string
	Number  int
	Tiles   []tile
	Next    string // the command to type next
	NextFor string
	Classes []classView
	Worst   []worstView
	Data    *dataView
	Params  []param
	All     []param
	Env     []fact
	Missing []missing
}

// tile is a figure of the summary.
type tile struct{ Label, Value, Note, Class string }

// fact is a row of a table of two columns.
type fact struct{ Label, Value string }

// missing says what a run lacks, and the command that makes it.
type missing struct{ What, Command string }

func (p Page) view() *view {
	v := &view{Policy: policy(), Style: template.CSS(styleCSS), Script: template.JS(scriptJS),
		Made: p.Made.Format("2 January 2006, 15:04"), Version: p.Version, Many: len(p.Runs) > 1, Open: len(p.Runs) <= 3}
	for i, name := range names(p.Runs) {
		r := &runView{Run: p.Runs[i], Name: name, Number: i}
		r.summarize()
		r.evaluate()
		r.describeData()
		r.describeParams(p.Defaults)
		r.describeMachine()
		v.Runs = append(v.Runs, r)
		v.Data.Runs = append(v.Data.Runs, r.axes())
	}
	v.Title = v.Runs[0].Name
	if v.Many {
		v.Title = fmt.Sprintf("%d runs", len(v.Runs))
		v.compare()
	}
	v.drawCharts()
	return v
}

// names returns a name for each run: that of its folder, or its path if others have the same.
func names(runs []Run) []string {
	seen := map[string]int{}
	for _, r := range runs {
		seen[base(r.Folder)]++
	}
	out := make([]string, len(runs))
	for i, r := range runs {
		if out[i] = base(r.Folder); seen[out[i]] > 1 {
			out[i] = filepath.Clean(r.Folder)
		}
	}
	return out
}

// base returns the name of a folder, also of "." and "..".
func base(folder string) string {
	if abs, err := filepath.Abs(folder); err == nil {
		folder = abs
	}
	return filepath.Base(folder)
}

// policy returns the Content-Security-Policy of the page.
func policy() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; img-src data:; style-src " + hash(styleCSS) + "; script-src " + hash(scriptJS) + "; base-uri 'none'; form-action 'none'"
}

// first returns at most the first n elements.
func first[T any](n int, all []T) []T { return all[:min(n, len(all))] }
