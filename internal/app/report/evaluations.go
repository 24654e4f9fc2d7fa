package report

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html/template"
	"image/png"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// Limits of what a page shows of an evaluation.
const (
	mostClasses  = 40 // in a table
	mostInMatrix = 25 // labels of a matrix
	mostConfused = 20
	mostWorst    = 100
	firstWorst   = 12
	longestText  = 600 // characters
)

// classView is the classes of an evaluation.
type classView struct {
	Title    string
	Of       string
	Each     []evaluation.Class
	Averages []evaluation.Class
	// Left is the number of classes that the table leaves out: those of the highest F1.
	Left     int
	Matrix   [][]cell
	Labels   []string
	Confused []evaluation.Cell
	Errors   *evaluation.Errors
	Metrics  []fact
}

// cell is a cell of a confusion matrix.
type cell struct {
	Count float64
	Share float64 // of its row
	Class string
	Title string
}

// worstView is the worst examples of an evaluation.
type worstView struct {
	Title string
	First []worstRow
	Rest  []worstRow
	// Left is the number of rows that are left out.
	Left int
}

type worstRow struct {
	Loss, Label, Prediction, Probability string
	Text, Pair, Source                   string
	Inputs                               []inputView
}

// inputView is an input of a model that takes no texts: words, or the address of a picture.
type inputView struct {
	Name, Value string
	Picture     template.URL
	Width       int // on the page
}

// Limits of the pictures of a page.
const (
	mostPictures  = 48
	largestSide   = 256 // of what is in a file
	pictureHeight = 56
)

// inputsOf returns what a row says of its inputs; pictures is how many pictures the page may still show.
func inputsOf(row evaluation.Row, pictures *int) []inputView {
	var out []inputView
	for _, in := range row.Inputs {
		v := inputView{Name: in.Name, Value: clip(in.Value, longestText)}
		size, err := png.DecodeConfig(bytes.NewReader(in.PNG))
		if err == nil && *pictures > 0 && min(size.Width, size.Height) > 0 && max(size.Width, size.Height) <= largestSide {
			*pictures--
			v.Width = min(4*pictureHeight, pictureHeight*size.Width/size.Height)
			v.Picture = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(in.PNG))
		}
		if v.Value != "" || v.Picture != "" {
			out = append(out, v)
		}
	}
	return out
}

// evaluate fills in what the files of evaluations say, for each split that of the best evaluation or
// else of the last one.
func (r *runView) evaluate() {
	run := quote(r.Folder)
	which := "latest"
	if r.Best.Known {
		which = "best"
	}
	command := fmt.Sprintf("gorbit evaluate --run %s --checkpoint %s", run, which)
	for _, e := range r.chosen() {
		r.Classes = append(r.Classes, classesOf(e))
		if len(e.Worst) > 0 {
			r.Worst = append(r.Worst, worstOf(e))
		}
	}
	if len(r.Classes) == 0 {
		r.Missing = append(r.Missing, missing{"The table of classes and the confusion matrix: an evaluation writes them.", command})
	}
	if len(r.Worst) == 0 {
		r.Missing = append(r.Missing, missing{"The examples of the highest loss.", command + " --worst 50"})
	}
}

// chosen returns an evaluation of each split: that of the best step, or else the last one.
func (r *runView) chosen() []*evaluation.Evaluation {
	var out []*evaluation.Evaluation
	for _, e := range r.Evaluations { // sorted by split and step
		n := len(out)
		switch {
		case n == 0 || out[n-1].Split != e.Split:
			out = append(out, e)
		case !r.Best.Known || out[n-1].Step != r.Best.Step:
			out[n-1] = e
		}
	}
	return out
}

func classesOf(e *evaluation.Evaluation) classView {
	c := classView{Title: fmt.Sprintf("%s at step %s, %s examples", e.Split, count(e.Step), count(e.Examples)), Errors: e.Errors}
	names := slices.Sorted(maps.Keys(e.Metrics))
	for _, name := range names {
		c.Metrics = append(c.Metrics, fact{name, value(e.Metrics[name])})
	}
	if e.Classes != nil {
		c.Of, c.Each, c.Averages = e.Classes.Of, e.Classes.Each, e.Classes.Averages
		if c.Left = len(c.Each) - mostClasses; c.Left > 0 {
			c.Each = slices.Clone(c.Each)
			slices.SortStableFunc(c.Each, func(a, b evaluation.Class) int {
				switch {
				case a.F1 < b.F1:
					return -1
				case a.F1 > b.F1:
					return 1
				}
				return 0
			})
			c.Each = c.Each[:mostClasses]
		}
	}
	if e.Confusion == nil {
		return c
	}
	if n := len(e.Confusion.Labels); n > mostInMatrix || e.Confusion.Counts == nil {
		c.Confused = first(mostConfused, e.Confusion.Confused)
		return c
	}
	c.Labels = e.Confusion.Labels
	for i, row := range e.Confusion.Counts {
		sum := 0.0
		for _, n := range row {
			sum += n
		}
		var cells []cell
		for j, n := range row {
			at := cell{Count: n, Title: fmt.Sprintf("%s, predicted %s: %s", c.Labels[i], c.Labels[j], value(n))}
			if sum > 0 {
				at.Share = n / sum
			}
			kind := "wrong"
			if i == j {
				kind = "right"
			}
			at.Class = fmt.Sprintf("%s q%d", kind, int(at.Share*9.999))
			cells = append(cells, at)
		}
		c.Matrix = append(c.Matrix, cells)
	}
	return c
}

func worstOf(e *evaluation.Evaluation) worstView {
	w := worstView{Title: fmt.Sprintf("%s at step %s", e.Split, count(e.Step)), Left: max(0, len(e.Worst)-mostWorst)}
	pictures := mostPictures
	for _, row := range first(mostWorst, e.Worst) {
		at := worstRow{Loss: value(float64(row.Loss)), Label: answer(row.Label), Prediction: answer(row.Prediction),
			Text: clip(row.Text, longestText), Pair: clip(row.TextPair, longestText), Source: row.Source(),
			Inputs: inputsOf(row, &pictures)}
		if name, ok := row.Prediction.(string); ok {
			if p, ok := row.Probabilities[name]; ok {
				at.Probability = value(p)
			}
		}
		w.Rest = append(w.Rest, at)
	}
	w.First = first(firstWorst, w.Rest)
	w.Rest = w.Rest[len(w.First):]
	return w
}

// answer writes a label or prediction: a string, a number, or a list of them.
func answer(v any) string {
	switch v := v.(type) {
	case nil:
		return "–"
	case string:
		return v
	case float64:
		return value(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = answer(x)
		}
		return clip(strings.Join(parts, " "), longestText)
	}
	return fmt.Sprint(v)
}
