package evaluation

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

// What WriteTable shows of many classes.
const (
	mostRows  = 50 // classes; of more, the worst leastRows
	leastRows = 20
	mostPairs = 10 // largest counts of a confusion matrix that is too wide
)

// WriteTable writes what an evaluation has in addition to its metrics as tables for people. Lines
// are at most columns wide, which shortens texts; 0 means no limit.
func (e *Evaluation) WriteTable(w io.Writer, columns int) error {
	var b strings.Builder
	e.Classes.write(&b)
	if e.Task == "classification" && e.Classes != nil && len(e.Classes.Each) == 2 {
		fmt.Fprintf(&b, "\nprecision, recall and f1 of the output are those of %s\n", e.Classes.Each[1].Name)
	}
	e.Confusion.write(&b, columns)
	e.Errors.write(&b)
	writeWorst(&b, e.Worst, columns)
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Classes) write(b *strings.Builder) {
	if c == nil {
		return
	}
	rows := [][]string{{c.Of, "precision", "recall", "f1", "support"}}
	add := func(all []Class) {
		for _, r := range all {
			rows = append(rows, []string{r.Name, fixed(r.Precision), fixed(r.Recall), fixed(r.F1), weight(r.Support)})
		}
	}
	if n := len(c.Each); n > mostRows {
		worst := slices.Clone(c.Each)
		slices.SortStableFunc(worst, func(a, b Class) int { return cmp.Compare(a.F1, b.F1) })
		add(worst[:leastRows])
		rows = append(rows, []string{fmt.Sprintf("... and %d more of a higher f1", n-leastRows)})
	} else {
		add(c.Each)
	}
	add(c.Averages)
	writeRows(b, rows, 1)
}

func (c *Confusion) write(b *strings.Builder, columns int) {
	if c == nil {
		return
	}
	if len(c.Labels) <= mostRows && c.Counts != nil {
		if rows := c.matrix(); columns <= 0 || width(rows) <= columns {
			writeRows(b, rows, 1)
			return
		}
	}
	if len(c.Confused) > 0 {
		writeRows(b, c.pairs("most often confused: label", mostPairs), 2)
	}
}

// matrix returns the rows of the matrix with their heads.
func (c *Confusion) matrix() [][]string {
	rows := [][]string{append([]string{"label \\ predicted"}, c.Labels...)}
	for i, counts := range c.Counts {
		row := []string{c.Labels[i]}
		for _, v := range counts {
			row = append(row, weight(v))
		}
		rows = append(rows, row)
	}
	return rows
}

// pairs returns rows of the largest counts, at most a given number, with their heads.
func (c *Confusion) pairs(head string, most int) [][]string {
	rows := [][]string{{head, "predicted", "count"}}
	for _, cell := range c.Confused[:min(len(c.Confused), most)] {
		rows = append(rows, []string{cell.Label, cell.Prediction, weight(cell.Count)})
	}
	return rows
}

// Markdown returns the matrix as a table, or the largest counts if there are many classes.
func (c *Confusion) Markdown() string {
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			fmt.Fprintf(&b, "| %s ", strings.NewReplacer("|", "\\|", "\n", " ").Replace(cell))
		}
		b.WriteString("|\n")
	}
	rows := c.pairs("label", leastRows)
	if len(c.Labels) <= leastRows {
		rows = c.matrix()
	}
	line(rows[0])
	line(slices.Repeat([]string{"---"}, len(rows[0])))
	for _, row := range rows[1:] {
		line(row)
	}
	return b.String()
}

func (e *Errors) write(b *strings.Builder) {
	if e == nil {
		return
	}
	head, of, absolute := []string{"quantile"}, []string{"prediction - label"}, []string{"|prediction - label|"}
	for i, q := range e.Quantiles {
		head = append(head, strconv.FormatFloat(q.At, 'g', -1, 64))
		of = append(of, short(float64(q.Value)))
		absolute = append(absolute, short(float64(e.AbsoluteQuantiles[i].Value)))
	}
	writeRows(b, [][]string{head, of, absolute}, 1)
	fmt.Fprintf(b, "mean of prediction - label: %s\n", short(float64(e.Mean)))
}

func writeWorst(b *strings.Builder, all []Row, columns int) {
	if len(all) == 0 {
		return
	}
	rows := [][]string{{"loss", "label", "predicted", "source", "text"}}
	for _, r := range all {
		prediction := Answer(r.Prediction)
		if p, ok := r.Probabilities[prediction]; ok {
			prediction += " " + strconv.FormatFloat(p, 'f', 2, 64)
		}
		text := r.Text
		if r.TextPair != "" {
			text += " | " + r.TextPair
		}
		rows = append(rows, []string{fixed(float64(r.Loss)), Answer(r.Label), prediction, r.Source(), oneLine(text)})
	}
	if !slices.ContainsFunc(all, func(r Row) bool { return r.Text+r.TextPair != "" }) {
		for i := range rows {
			rows[i] = rows[i][:4]
		}
	}
	var text strings.Builder
	writeRows(&text, rows, len(rows[0]))
	for line := range strings.Lines(text.String()) {
		b.WriteString(shortened(strings.TrimRight(line, " \n"), columns) + "\n")
	}
}

// writeRows writes an empty line and rows in columns. The first ones are aligned to the left, left
// of them, the others to the right.
func writeRows(b *strings.Builder, rows [][]string, left int) {
	widths := widthsOf(rows)
	b.WriteByte('\n')
	for _, row := range rows {
		for i, cell := range row {
			space := ""
			if len(row) > 1 {
				space = strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell))
			}
			if i > 0 {
				b.WriteString("  ")
			}
			switch {
			case i >= left:
				b.WriteString(space + cell)
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + space)
			}
		}
		b.WriteByte('\n')
	}
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		if len(row) == 1 && len(widths) > 1 {
			continue // a remark
		}
		for i, cell := range row {
			widths[i] = max(widths[i], uniseg.StringWidth(cell))
		}
	}
	return widths
}

func width(rows [][]string) int {
	sum := -2
	for _, w := range widthsOf(rows) {
		sum += w + 2
	}
	return sum
}

// shortened returns a line of at most a given number of columns; 0 means no limit.
func shortened(line string, columns int) string {
	if columns <= 0 || uniseg.StringWidth(line) <= columns {
		return line
	}
	var b strings.Builder
	rest, state, used := line, -1, 0
	for rest != "" {
		var cluster string
		var w int
		if cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state); used+w > columns-3 {
			break
		}
		b.WriteString(cluster)
		used += w
	}
	return b.String() + "..."
}

// oneLine returns a text without line breaks and control characters.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || unicode.IsControl(r) }), " ")
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// weight formats a sum of weights, which is most often a whole number.
func weight(v float64) string {
	if v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Board is where Show shows an evaluation: an event file of TensorBoard.
type Board interface {
	Scalar(tag string, step int64, value float64)
	Text(tag string, step int64, text string)
	Flush() error
}

// Show shows the classes and the confusion matrix in TensorBoard: precision, recall and F1 of each
// class under eval_class/NAME, unless there are more than 50, and the matrix as a text. Tags begin with
// the prefix. Metrics are the runner's.
func (e *Evaluation) Show(b Board, prefix string) error {
	if e.Classes != nil && len(e.Classes.Each) <= mostRows {
		for _, c := range e.Classes.Each {
			tag := prefix + "eval_class/" + c.Name
			b.Scalar(tag+"/precision", e.Step, c.Precision)
			b.Scalar(tag+"/recall", e.Step, c.Recall)
			b.Scalar(tag+"/f1", e.Step, c.F1)
		}
	}
	if e.Confusion != nil {
		b.Text(prefix+"eval_class/confusion", e.Step, e.Confusion.Markdown())
	}
	return b.Flush()
}
