package chart

import (
	"math"
	"strings"
)

// Points are the points of a series, whose steps rise. Values that are not finite are not drawn.
type Points struct {
	Steps  []int64
	Values []float64
}

// Terminal draws a line with Braille characters, each of 2 by 4 dots, and other points above it as
// "o". The lines of text have at most the given number of columns, 20 at least; there are height of
// them for the curve, 2 at least, and two for the steps. last is the step at the right end.
func Terminal(line, marks Points, last int64, columns, height int) []string {
	columns, height = max(columns, 20), max(height, 2)
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range []Points{line, marks} {
		for i, v := range p.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
				last = max(last, p.Steps[i])
			}
		}
	}
	if low > high {
		return []string{"(nothing to draw yet)"}
	}
	y, ticks := Linear(low, high, max(2, height/2))
	at := map[int]string{} // labels by row
	margin := 0
	for i, label := range Labels(ticks) {
		if row := int((1 - y.At(ticks[i])) * float64(height)); row >= 0 && row < height {
			at[row] = label
			margin = max(margin, len(label))
		}
	}
	width := columns - margin - 2
	c := newCanvas(width, height)
	x := Scale{High: max(float64(last), 1)}
	dots := func(step, v float64) (float64, float64) {
		return x.At(step) * float64(2*width-1), (1 - y.At(v)) * float64(4*height-1)
	}
	// More than two points for a dot would hide each other.
	px, py := math.NaN(), math.NaN()
	for _, b := range Downsample(line.Steps, line.Values, 4*width) {
		if math.IsNaN(b.Mean) {
			px = math.NaN()
			continue
		}
		nx, ny := dots(b.Middle(), b.Mean)
		if math.IsNaN(px) {
			px, py = nx, ny
		}
		c.line(px, py, nx, ny)
		px, py = nx, ny
	}
	for i, v := range marks.Values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			mx, my := dots(float64(marks.Steps[i]), v)
			c.cells[int(my)/4][int(mx)/2] = 'o'
		}
	}
	var out []string
	for row, cells := range c.cells {
		label, axis := at[row], "│"
		if label != "" {
			axis = "┤"
		}
		out = append(out, strings.Repeat(" ", margin-len(label))+label+" "+axis+strings.TrimRight(string(cells), "\u2800"))
	}
	return append(out, strings.Repeat(" ", margin+1)+"└"+strings.Repeat("─", width), stepsBelow(x, width, margin+2))
}

// stepsBelow returns the line of the steps below a curve.
func stepsBelow(x Scale, width, margin int) string {
	row := []byte(strings.Repeat(" ", margin+width))
	free := 0
	for _, step := range Steps(0, x.High, max(1, min(6, width/12))) {
		label := Label(step)
		from := margin + int(x.At(step)*float64(width-1)) - len(label)/2
		if from = min(from, len(row)-len(label)); from < free {
			continue
		}
		copy(row[from:], label)
		free = from + len(label) + 1
	}
	return strings.TrimRight(string(row), " ")
}

// canvas is a picture of Braille characters.
type canvas struct{ cells [][]rune }

func newCanvas(width, height int) *canvas {
	c := &canvas{cells: make([][]rune, height)}
	for i := range c.cells {
		c.cells[i] = []rune(strings.Repeat("\u2800", width))
	}
	return c
}

// braille has the bit of each dot of a character, by column and row (Unicode 15, chapter 21.1).
var braille = [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}

// line draws a line between two dots.
func (c *canvas) line(fromX, fromY, toX, toY float64) {
	n := max(1, math.Ceil(max(math.Abs(toX-fromX), math.Abs(toY-fromY))))
	for i := 0.0; i <= n; i++ {
		x, y := int(math.Round(fromX+(toX-fromX)*i/n)), int(math.Round(fromY+(toY-fromY)*i/n))
		if y >= 0 && y/4 < len(c.cells) && x >= 0 && x/2 < len(c.cells[0]) {
			c.cells[y/4][x/2] |= braille[x%2][y%4]
		}
	}
}
