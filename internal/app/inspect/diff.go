package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Side is one of two weights to compare.
type Side struct {
	// Path is a checkpoint or a safetensors file.
	Path string
	// Wanted lists the variables of the model with their names in other sources; nil if it is not
	// known.
	Wanted []checkpoint.Wanted
}

// Difference describes how the tensors of two weights differ.
type Difference struct {
	A string `json:"a"`
	B string `json:"b"`
	// Compared are in the order of their names in A, or, if names are mapped by the model of B, in B.
	Compared []TensorDifference `json:"compared"`
	// Equal is the number of compared tensors that have the same numbers.
	Equal int `json:"equal"`
	// Shapes lists tensors of the same name that cannot be compared, with both types.
	Shapes []string `json:"shapes"`
	// OnlyA and OnlyB list what only one side has, but for strings, which are not compared.
	OnlyA []string `json:"only_a"`
	OnlyB []string `json:"only_b"`
	// Strings is the number of tensors of strings and other types that are not numbers.
	Strings int `json:"not_numbers"`
}

// TensorDifference compares a tensor of A with one of B.
type TensorDifference struct {
	A     string  `json:"a"`
	B     string  `json:"b"`
	Shape []int64 `json:"shape"`
	// Transposed means that the matrix is stored in B with its axes swapped.
	Transposed bool `json:"transposed,omitempty"`
	// Max and Mean are those of the absolute differences of the numbers that are finite on both sides.
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
	// Different is the number of elements that differ, those that are not finite included.
	Different int64 `json:"different"`
	Elements  int64 `json:"elements"`
	// NotFinite is the number of elements that are NaN or infinite on one side at least.
	NotFinite int64 `json:"not_finite,omitempty"`
}

// side is an opened Side.
type side struct {
	Side
	src   checkpoint.Source
	names map[string]string // by the entries' own names
}

func openSide(s Side) (*side, func() error, error) {
	src, closing, err := checkpoint.OpenSource(s.Path)
	if err != nil {
		return nil, nil, err
	}
	return &side{s, src, namesOf(src)}, closing, nil
}

// Diff compares two weights. Names are mapped as for initial weights, by the model of one of them.
// Tensors are read in parts, but for a matrix that is transposed.
func Diff(ctx context.Context, a, b Side) (*Difference, error) {
	left, closeLeft, err := openSide(a)
	if err != nil {
		return nil, err
	}
	defer closeLeft()
	right, closeRight, err := openSide(b)
	if err != nil {
		return nil, err
	}
	defer closeRight()
	d := &Difference{A: a.Path, B: b.Path, Compared: []TensorDifference{}, Shapes: []string{}, OnlyA: []string{}, OnlyB: []string{}}
	// The model that is known names the tensors of the other side.
	swapped := a.Wanted == nil && b.Wanted != nil
	if swapped {
		left, right = right, left
	}
	if err := d.compare(ctx, left, right); err != nil {
		return nil, err
	}
	if swapped {
		d.OnlyA, d.OnlyB = d.OnlyB, d.OnlyA
		for i := range d.Compared {
			c := &d.Compared[i]
			c.A, c.B = c.B, c.A
		}
	}
	if len(d.Compared) == 0 && len(d.Shapes) == 0 {
		return nil, fault.Usagef("%s and %s have no tensor in common: %d names against %d, such as %s and %s; expected weights of one model; where the names differ, one side must be a run or an export, which knows the others", a.Path, b.Path,
			len(d.OnlyA), len(d.OnlyB), first(d.OnlyA), first(d.OnlyB))
	}
	return d, nil
}

func first(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return plain(names[0])
}

// compare compares the tensors of base with those that they are in other.
func (d *Difference) compare(ctx context.Context, base, other *side) error {
	foreign := make(map[string][]checkpoint.Candidate)
	for _, w := range base.Wanted {
		foreign[w.Name] = w.Foreign
	}
	entries := make(map[string]checkpoint.Entry)
	var want []checkpoint.Wanted
	for _, e := range base.src.Entries() {
		name := base.names[e.Name]
		if !e.Numeric() {
			if e.Name != checkpoint.ObjectGraphKey {
				d.Strings++
			}
			continue
		}
		entries[name] = e
		want = append(want, checkpoint.Wanted{Name: name, DType: e.DType, Shape: e.Shape, Foreign: foreign[name]})
	}
	report := checkpoint.Compare(other.src, want)
	for _, m := range report.Matched {
		if !m.Source.Numeric() {
			d.Strings++
			continue
		}
		one := TensorDifference{A: m.Name, B: other.names[m.Source.Name], Shape: entries[m.Name].Shape, Transposed: m.Transposed}
		if err := one.measure(ctx, base.src, entries[m.Name], other.src, m.Source); err != nil {
			return err
		}
		if one.Different == 0 {
			d.Equal++
		}
		d.Compared = append(d.Compared, one)
	}
	for _, m := range report.Mismatched {
		d.Shapes = append(d.Shapes, fmt.Sprintf("%s %s%s and %s %s%s", plain(m.Want.Name), checkpoint.DTypeName(m.Want.DType), shapeText(m.Want.Shape),
			plain(other.names[m.Source.Name]), checkpoint.DTypeName(m.Source.DType), shapeText(m.Source.Shape)))
	}
	for _, w := range report.Missing {
		d.OnlyA = append(d.OnlyA, w.Name)
	}
	for _, e := range report.Unused {
		if e.Numeric() {
			d.OnlyB = append(d.OnlyB, other.names[e.Name])
		}
	}
	return nil
}

// part is the number of elements that are compared at a time.
const part = 1 << 14

// measure reads both tensors and compares them.
func (t *TensorDifference) measure(ctx context.Context, a checkpoint.Source, ofA checkpoint.Entry, b checkpoint.Source, ofB checkpoint.Entry) (err error) {
	left, err := checkpoint.OpenValues(ctx, a, ofA)
	if err != nil {
		return err
	}
	defer left.Close()
	right, err := checkpoint.OpenValues(ctx, b, ofB)
	if err != nil {
		return err
	}
	defer right.Close()
	next := right.Next
	if t.Transposed {
		if next, err = transposed(right, ofB.Shape); err != nil {
			return err
		}
	}
	x, y := make([]float64, part), make([]float64, part)
	var sum float64
	for {
		n, err := left.Next(x)
		m, otherErr := next(y[:max(n, 1)])
		if errors.Is(err, io.EOF) && errors.Is(otherErr, io.EOF) {
			break
		}
		if err := errors.Join(err, otherErr); err != nil {
			return err
		}
		if m != n {
			return fmt.Errorf("%s and %s differ in size", t.A, t.B)
		}
		for i := range n {
			sum += t.add(x[i], y[i])
		}
	}
	if finite := t.Elements - t.NotFinite; finite > 0 {
		t.Mean = sum / float64(finite)
	}
	return nil
}

// add counts a pair of elements and returns their absolute difference, or 0 if one is not finite.
func (t *TensorDifference) add(a, b float64) float64 {
	t.Elements++
	if a != b && !(math.IsNaN(a) && math.IsNaN(b)) {
		t.Different++
	}
	diff := math.Abs(a - b)
	if notFinite(a) || notFinite(b) {
		t.NotFinite++
		return 0
	}
	t.Max = max(t.Max, diff)
	return diff
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// mostTransposed limits the elements of a matrix that is held in memory.
const mostTransposed = 1 << 30

// transposed returns a function like Next of the transpose of a matrix, which it reads as a whole.
func transposed(v *checkpoint.Values, shape []int64) (func([]float64) (int, error), error) {
	rows, columns := shape[0], shape[1]
	if rows > 0 && columns > mostTransposed/rows {
		return nil, fmt.Errorf("a matrix of %d by %d is too large to be transposed", rows, columns)
	}
	all := make([]float32, 0, rows*columns)
	buf := make([]float64, part)
	for {
		n, err := v.Next(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for _, x := range buf[:n] {
			all = append(all, float32(x))
		}
	}
	at := int64(0)
	return func(out []float64) (int, error) {
		n := min(int64(len(out)), int64(len(all))-at)
		if n == 0 {
			return 0, io.EOF
		}
		for i := range n {
			row, column := (at+i)/rows, (at+i)%rows
			out[i] = float64(all[column*columns+row])
		}
		at += n
		return int(n), nil
	}, nil
}

// Write writes the differences as text. Tensors that are equal are only counted.
func (d *Difference) Write(out io.Writer) error {
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tabs, "  A\t%s\n  B\t%s\n", d.A, d.B)
	fmt.Fprintf(tabs, "  compared\t%d tensors, of which %d are equal and %d differ\n", len(d.Compared), d.Equal, len(d.Compared)-d.Equal)
	if d.Strings > 0 {
		fmt.Fprintf(tabs, "  not compared\t%d tensors of strings\n", d.Strings)
	}
	if d.Equal < len(d.Compared) {
		fmt.Fprintf(tabs, "\n  max\tmean\tdifferent\ttensor\n")
	}
	for _, c := range d.Compared {
		if c.Different == 0 {
			continue
		}
		name := plain(c.A)
		if c.B != c.A {
			name += " = " + plain(c.B)
		}
		if c.Transposed {
			name += " transposed"
		}
		if c.NotFinite > 0 {
			name += fmt.Sprintf(" (%d not finite)", c.NotFinite)
		}
		fmt.Fprintf(tabs, "  %.3g\t%.3g\t%d of %d\t%s\n", c.Max, c.Mean, c.Different, c.Elements, name)
	}
	for _, l := range []struct {
		title string
		names []string
	}{{"other shapes", d.Shapes}, {"only in A", d.OnlyA}, {"only in B", d.OnlyB}} {
		if len(l.names) == 0 {
			continue
		}
		fmt.Fprintf(tabs, "\n%s: %d\n", l.title, len(l.names))
		for _, name := range l.names {
			if l.title != "other shapes" {
				name = plain(name)
			}
			fmt.Fprintf(tabs, "  %s\n", strings.TrimSpace(name))
		}
	}
	return tabs.Flush()
}
