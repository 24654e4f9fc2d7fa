package columns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Column collects the values of one feature, example after example.
type Column interface {
	// Add adds the values of an example: those of the list, if it was found, otherwise those of v.
	// It returns the example's length on the open axis, 1 if there is none, or what is wrong. After
	// an error, Keep must be called before anything else.
	Add(v *tfrecord.Value, list *tfrecord.List) (length int, reason string)
	// Fill adds an example of a length on the open axis whose values are all x.
	Fill(length int, x float64)
	// Copy adds example i of a feature that was laid out by Stack or Pad, with a length on the open
	// axis.
	Copy(from *dataset.Feature, i, length int)
	// Append adds an example with the values from one place of a feature to another. Places count
	// along the open axis, if there is one, which must be the first; otherwise they are examples.
	Append(from *dataset.Feature, start, end int)
	// Mark sets value i of the last example to 1.
	Mark(i int)
	// Select keeps those places of the last example, along the open axis, where mask is not 0.
	Select(mask []int64)
	// Head keeps the first n places of the last example, along the open axis.
	Head(n int)
	// Ends keeps the first n-1 places of the last example, along the open axis, and the last one.
	Ends(n int)
	// Keep drops all but the first n examples.
	Keep(n int)
	// Len returns the number of examples.
	Len() int
	// Begin drops all examples, and uses the memory of a feature that is no longer needed.
	Begin(memory *dataset.Feature)

	// Stack returns the examples one after the other, and takes the memory out of the column. Examples
	// without an open axis are added up to n, and their values are x.
	Stack(n int, x float64) dataset.Feature
	// Pad returns the examples with an open axis of a length. Examples of one place are added up to n.
	// What has no value has the pad.
	Pad(n, length int) dataset.Feature
	// Scatter returns rows of cells: the places of example i, along the open axis, are in the cells
	// from starts[i] on. Other cells have the pad. The shape begins with the given axes.
	Scatter(cells int, starts []int, shape ...int) dataset.Feature
}

// New returns a column. The spec must be valid.
func New(spec dataset.Spec) Column {
	switch spec.DType {
	case dataset.Uint8, dataset.Bool:
		return newColumn[uint8](spec)
	case dataset.Int32:
		return newColumn[int32](spec)
	case dataset.Int64:
		return newColumn[int64](spec)
	}
	return newColumn[float32](spec)
}

// number is the type of a column's values. A bool is kept as a uint8.
type number interface {
	uint8 | int32 | int64 | float32
}

type column[T number] struct {
	spec         dataset.Spec
	axis         int // the open one, or -1
	outer, inner int // numbers of values before and after the open axis; inner is all, if none is open
	low, high    int64
	pixels       int // number of last axes that an image has, or 0
	scaler       pixels.Scaler
	jpeg         pixels.Decoder

	values []T
	ends   []int // of the examples, in values
	laid   []T   // memory for Pad and Scatter
	most   int   // values of the largest batch so far, without an open axis
}

func newColumn[T number](spec dataset.Spec) *column[T] {
	c := &column[T]{spec: spec, axis: spec.Open(), outer: 1, inner: 1}
	for i, d := range spec.Shape {
		switch {
		case i < c.axis:
			c.outer *= d
		case i > c.axis:
			c.inner *= d
		}
	}
	c.low, c.high = spec.Range()
	if spec.DType == dataset.Uint8 {
		c.pixels = imageAxes(spec.Shape)
		c.scaler.Resize, c.scaler.Crop = pixels.Resize(spec.Resize), spec.Crop
		c.jpeg, _ = pixels.DecoderOf(spec.JPEG) // Validate has had it
	}
	return c
}

// MostOpen is the maximum number of values of an example with an open axis.
const MostOpen = 1 << 26

func (c *column[T]) Add(v *tfrecord.Value, list *tfrecord.List) (length int, reason string) {
	from := len(c.values)
	if list != nil && list.Found {
		if reason := c.checkSteps(list); reason != "" {
			return 0, reason
		}
		v = &list.Value
	}
	switch v.Kind {
	case tfrecord.KindInt64:
		to := c.grow(len(v.Int64s))
		if i := convert(to, v.Int64s, c.low, c.high); i >= 0 {
			return 0, c.outside(v.Int64s[i], i)
		}
	case tfrecord.KindFloat:
		to, ok := any(c.grow(len(v.Floats))).([]float32)
		if !ok {
			return 0, fmt.Sprintf("has float values; expected int64 or bytes, because its dtype is %s; the model may declare it as float32", c.spec.DType)
		}
		copy(to, v.Floats)
	case tfrecord.KindBytes:
		if reason := c.addBytes(v.Bytes, list != nil && list.Found); reason != "" {
			return 0, reason
		}
	}
	n := len(c.values) - from
	c.ends = append(c.ends, len(c.values))
	switch {
	case c.axis < 0 && n != c.inner && len(c.spec.Shape) == 0 && isOneHot(v.Int64s):
		return 0, fmt.Sprintf("has %d values, which are 0 but for a 1; expected 1, the number of the class; the model may declare it as float32 of the shape [%d]", n, n)
	case c.axis < 0 && n != c.inner:
		return 0, fmt.Sprintf("has %d values; expected %d%s", n, c.inner, ofShape(c.spec.Shape))
	case c.axis < 0:
		return 1, ""
	case n%(c.outer*c.inner) != 0:
		return 0, fmt.Sprintf("has %d values; expected a multiple of %d%s", n, c.outer*c.inner, ofShape(c.spec.Shape))
	case n > MostOpen:
		return 0, fmt.Sprintf("has %d values; expected at most %d", n, MostOpen)
	}
	return n / (c.outer * c.inner), ""
}

// outside says that a value is out of range.
func (c *column[T]) outside(x int64, at int) string {
	reason := fmt.Sprintf("has %d at position %d; expected %d to %d", x, at, c.low, c.high)
	if c.spec.Role == dataset.Label && c.spec.Below != nil && x == *c.spec.Below {
		reason += "; labels that begin with 1 need a model with one class more"
	}
	return reason
}

// isOneHot reports whether integers are those of a class among several.
func isOneHot(values []int64) bool {
	ones := 0
	for _, v := range values {
		if v != 0 && v != 1 {
			return false
		}
		ones += int(v)
	}
	return ones == 1
}

func ofShape(shape []int) string {
	if len(shape) < 2 {
		return ""
	}
	return fmt.Sprintf(", the shape %v", shape)
}

// checkSteps returns what is wrong with the form of a list of features.
func (c *column[T]) checkSteps(l *tfrecord.List) string {
	shape := c.spec.Shape
	switch {
	case len(shape) == 0:
		return "is a list of steps; expected a feature of the context, because it has one value for an example"
	case l.Mixed > 0:
		return fmt.Sprintf("has %v values in step %d and others before it; expected one kind", l.Kind, l.Mixed)
	case shape[0] >= 0 && len(l.Ends) != shape[0]:
		return fmt.Sprintf("has %d steps; expected %d", len(l.Ends), shape[0])
	case c.axis > 0:
		return fmt.Sprintf("is a list of steps; expected a feature of the context, because axis %d of its shape %v is open", c.axis, shape)
	}
	each := 1 // a string is a whole step
	if l.Kind != tfrecord.KindBytes {
		for _, d := range shape[1:] {
			each *= d
		}
	}
	from := 0
	for i, end := range l.Ends {
		if end-from != each {
			return fmt.Sprintf("has %d values in step %d; expected %d", end-from, i, each)
		}
		from = end
	}
	return ""
}

// grow adds n values and returns them.
func (c *column[T]) grow(n int) []T {
	at := len(c.values)
	c.values = slices.Grow(c.values, n)[:at+n]
	return c.values[at:]
}

// convert converts integers, and returns the place of the first one out of range, or -1.
func convert[T number](to []T, from []int64, low, high int64) int {
	span, over := uint64(high)-uint64(low), uint64(0)
	to = to[:len(from)]
	for i, v := range from {
		to[i] = T(v)
		if d := uint64(v) - uint64(low); d > span {
			over |= 1
		}
	}
	if over == 0 {
		return -1
	}
	return slices.IndexFunc(from, func(v int64) bool { return v < low || v > high })
}

// addBytes adds values that are strings. Steps are the slices along the first axis, as several strings
// are.
func (c *column[T]) addBytes(all [][]byte, steps bool) string {
	shape := c.spec.Shape
	if len(all) != 1 || steps {
		if len(shape) == 0 || c.axis > 0 || shape[0] >= 0 && shape[0] != len(all) {
			return fmt.Sprintf("has %d byte strings; expected one%s", len(all), ofShape(shape))
		}
		shape = shape[1:]
	}
	for i, b := range all {
		of := shape
		// One image may be the only slice of a feature with an axis before those of an image.
		if c.pixels > 0 && len(of) == c.pixels+1 && pixels.Format(b) != "" {
			of = of[1:]
		}
		if reason := c.addString(b, of); reason != "" {
			if len(all) > 1 {
				return fmt.Sprintf("has a byte string %d that %s", i, reason)
			}
			return reason
		}
	}
	return ""
}

// addString adds the values of a string, which have a shape.
func (c *column[T]) addString(b []byte, shape []int) string {
	size, open := 1, false
	for _, d := range shape {
		if d < 0 {
			open = true
		} else {
			size *= d
		}
	}
	whole := size * c.spec.DType.Size()
	if format := pixels.Format(b); format != "" && c.pixels > 0 && len(shape) == c.pixels {
		made, reason := c.openImage(format, b, shape)
		switch {
		case reason == "":
			var to []uint8
			if reason := made.decode(func(n int) []uint8 { to = any(c.grow(n)).([]uint8); return to }); reason != "" {
				return reason
			}
			return c.check(any(to).([]T))
		case len(b) != whole || open:
			return reason
		}
		// Raw values may happen to begin as an image does.
	}
	// Four or eight letters are a number, too, but a huge one.
	text := len(shape) == 0 && c.spec.DType != dataset.Uint8 && isText(b)
	switch format := pixels.Format(b); {
	case len(b) != whole && format != "" && c.spec.DType != dataset.Uint8 && imageAxes(shape) > 0:
		return fmt.Sprintf("is a %s image, and the feature is %s; expected a feature of uint8, as which the model may declare it", format, c.spec.DType)
	case text && (len(b) != whole || c.spec.DType == dataset.Int32 || c.spec.DType == dataset.Int64):
		return fmt.Sprintf("is the text %q; expected a number of %s; write the records with numbers", b[:min(len(b), 40)], c.spec.DType)
	case len(b) != whole && c.pixels > 0 && pixels.Other(b) != "":
		return fmt.Sprintf("is a %s image; expected a PNG or JPEG image, or %d values of %s%s", pixels.Other(b), size, c.spec.DType, ofShape(shape))
	case !open && len(b) != whole && len(b) == size:
		return fmt.Sprintf("has %d bytes; expected %d, which are %d values of %s%s; it has as many values of uint8, as which the model may declare the feature", len(b), whole, size, c.spec.DType, ofShape(shape))
	case !open && len(b) != whole:
		return fmt.Sprintf("has %d bytes; expected %d, which are %d values of %s%s%s", len(b), whole, size, c.spec.DType, ofShape(shape), c.orImage())
	case open && (len(b)%whole != 0 || len(b)/c.spec.DType.Size() > MostOpen):
		return fmt.Sprintf("has %d bytes; expected a multiple of %d, for values of %s%s%s", len(b), whole, c.spec.DType, ofShape(shape), c.orImage())
	}
	to := c.grow(len(b) / c.spec.DType.Size())
	raw(to, b)
	return c.check(to)
}

// check says which of the values of a string is out of range.
func (c *column[T]) check(values []T) string {
	if c.spec.DType == dataset.Bool || c.spec.Below != nil || c.spec.Minimum != nil {
		for i, x := range values {
			if v := int64(x); v < c.low || v > c.high {
				return c.outside(v, i)
			}
		}
	}
	return ""
}

// isText reports whether bytes look like a word, rather than like numbers.
func isText(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (c *column[T]) orImage() string {
	if c.pixels == 0 {
		return ""
	}
	return ", or a PNG or JPEG image"
}

// raw converts little-endian bytes.
func raw[T number](to []T, b []byte) {
	switch to := any(to).(type) {
	case []uint8:
		copy(to, b)
	case []float32:
		for i := range to {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []int32:
		for i := range to {
			to[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []int64:
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
}

func (c *column[T]) Fill(length int, x float64) {
	n := c.inner
	if c.axis >= 0 {
		n *= c.outer * length
	}
	fill(c.grow(n), T(x))
	c.ends = append(c.ends, len(c.values))
}

func fill[T number](to []T, x T) {
	if x == 0 {
		clear(to)
		return
	}
	for i := range to {
		to[i] = x
	}
}

func (c *column[T]) Copy(from *dataset.Feature, i, length int) {
	all := *c.of(from)
	if c.axis < 0 {
		copy(c.grow(c.inner), all[i*c.inner:])
	} else {
		places := from.Shape[1+c.axis]
		for o := i * c.outer; o < (i+1)*c.outer; o++ {
			copy(c.grow(length*c.inner), all[o*places*c.inner:])
		}
	}
	c.ends = append(c.ends, len(c.values))
}

func (c *column[T]) Append(from *dataset.Feature, start, end int) {
	copy(c.grow((end-start)*c.inner), (*c.of(from))[start*c.inner:end*c.inner])
	c.ends = append(c.ends, len(c.values))
}

// last returns where the last example begins, and its length on the open axis.
func (c *column[T]) last() (from, length int) {
	k := len(c.ends) - 1
	if k > 0 {
		from = c.ends[k-1]
	}
	return from, (c.ends[k] - from) / (c.outer * c.inner)
}

func (c *column[T]) Mark(i int) {
	from, _ := c.last()
	c.values[from+i] = 1
}

func (c *column[T]) Select(mask []int64) {
	from, _ := c.last()
	to := from
	for i, m := range mask {
		if m != 0 {
			copy(c.values[to:to+c.inner], c.values[from+i*c.inner:])
			to += c.inner
		}
	}
	c.cut(to)
}

// cut ends the last example at a value.
func (c *column[T]) cut(end int) {
	c.values = c.values[:end]
	c.ends[len(c.ends)-1] = end
}

func (c *column[T]) Head(n int) {
	from, length := c.last()
	for o := range c.outer {
		copy(c.values[from+o*n*c.inner:][:n*c.inner], c.values[from+o*length*c.inner:])
	}
	c.cut(from + c.outer*n*c.inner)
}

func (c *column[T]) Ends(n int) {
	from, length := c.last()
	copy(c.values[from+(n-1)*c.inner:][:c.inner], c.values[from+(length-1)*c.inner:])
	c.cut(from + n*c.inner)
}

func (c *column[T]) Keep(n int) {
	end := 0
	if n > 0 {
		end = c.ends[n-1]
	}
	c.values, c.ends = c.values[:end], c.ends[:n]
}

func (c *column[T]) Len() int { return len(c.ends) }

func (c *column[T]) Begin(memory *dataset.Feature) {
	c.ends, c.values = c.ends[:0], c.values[:0]
	switch {
	case memory != nil && c.axis < 0:
		c.values = (*c.of(memory))[:0]
	case memory != nil:
		c.laid = (*c.of(memory))[:0]
	case c.values == nil:
		c.values = make([]T, 0, c.most)
	}
}

func (c *column[T]) Stack(n int, x float64) dataset.Feature {
	for len(c.ends) < n {
		c.Fill(1, x)
	}
	out := c.feature(c.values, append([]int{len(c.ends)}, c.spec.Shape...))
	c.most, c.values = max(c.most, len(c.values)), nil
	return out
}

func (c *column[T]) Pad(n, length int) dataset.Feature {
	to := c.take(n * c.outer * length * c.inner)
	at, from := 0, 0
	for _, end := range c.ends {
		own := (end - from) / c.outer
		for range c.outer {
			copy(to[at:at+own], c.values[from:from+own])
			fill(to[at+own:at+length*c.inner], T(c.spec.Pad))
			from, at = from+own, at+length*c.inner
		}
	}
	fill(to[at:], T(c.spec.Pad))
	shape := append([]int{n}, c.spec.Shape...)
	shape[1+c.axis] = length
	return c.feature(to, shape)
}

func (c *column[T]) Scatter(cells int, starts []int, shape ...int) dataset.Feature {
	to := c.take(cells * c.inner)
	fill(to, T(c.spec.Pad))
	from := 0
	for i, end := range c.ends {
		copy(to[starts[i]*c.inner:], c.values[from:end])
		from = end
	}
	return c.feature(to, append(shape, c.spec.Shape[1:]...))
}

// take returns memory for n values.
func (c *column[T]) take(n int) []T {
	to := slices.Grow(c.laid[:0], n)[:n]
	c.laid = nil
	return to
}

// feature returns a feature of values.
func (c *column[T]) feature(values []T, shape []int) dataset.Feature {
	if values == nil {
		values = []T{}
	}
	f := dataset.Feature{Name: c.spec.Name, Shape: shape}
	*c.of(&f) = values
	return f
}

// of returns the slice of a feature that holds the column's values.
func (c *column[T]) of(f *dataset.Feature) *[]T {
	var at any
	switch any(*new(T)).(type) {
	case uint8:
		if c.spec.DType == dataset.Bool {
			// A bool is a byte that is 0 or 1.
			return (*[]T)(unsafe.Pointer(&f.Bool))
		}
		at = &f.Uint8
	case int32:
		at = &f.Int32
	case int64:
		at = &f.Int64
	default:
		at = &f.Float32
	}
	return at.(*[]T)
}
