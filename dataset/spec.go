package dataset

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/data/pixels"
)

// Role is what a feature is for.
type Role string

// The roles of features.
const (
	Input  Role = "input"  // what a prediction needs; the default
	Label  Role = "label"  // the answer
	Weight Role = "weight" // how much an example counts; 1 in records that do not have it
	ID     Role = "id"     // passed on as it is
)

// Labels says whether records must have the features with the role Label.
type Labels string

// The requirements for labels.
const (
	LabelsRequired Labels = "required" // a record without a label is an error; the default
	LabelsOptional Labels = "optional" // a record without a label has the padding as its label and does not count in Labeled of its batch
	LabelsNone     Labels = "none"     // labels are not read
)

// Spec says how a feature of a batch is made from records. The layouts of packages dataset/dense and
// dataset/packed have lists of them. Lists in records become values as follows:
//
//   - int64: the values of any DType, within its range and the bounds; a bool is 0 or 1, and a float32
//     has at most 24 bits.
//   - float: values of float32.
//   - bytes: one string with all values, little-endian and of exactly the expected size, or a PNG or
//     JPEG image for a uint8 of shape [height, width] or [height, width, channels], with 1, 3 or 4
//     channels. Several strings are the slices along the first axis of Shape.
//   - the lists of features of a SequenceExample: each step is a slice along the first axis of Shape.
type Spec struct {
	// Name is the feature's name in a batch.
	Name string
	// Record are the names under which it is looked up in records, the first one first; nil means
	// Name.
	Record []string
	DType  DType
	// Shape is the shape of one example, without the axis of the examples; nil is a single value.
	// One axis may be -1: it is open, and each example has its own length there.
	Shape []int
	// Role is Input by default.
	Role Role
	// Make names what a layout computes instead of reading it; "" is the record's values.
	Make string
	// Minimum and Below are the bounds of integers: Minimum <= value < Below. If only Below is set,
	// Minimum is 0. nil is no bound.
	Minimum, Below *int64
	// Resize scales images of another size to Shape, which then has no open axis: "bilinear", "antialias"
	// or "nearest", as docs/reference/batches.md describes them. With "", the default, another size is an
	// error. Crop first cuts them down to the proportions of Shape.
	Resize string `json:",omitempty"`
	Crop   bool   `json:",omitempty"`
	// JPEG names what decodes JPEG images: "go", the default, or "tensorflow", which gives the pixels of
	// tf.io.decode_jpeg and is there in programs that use package train.
	JPEG string `json:",omitempty"`
	// Pad is the value after the end of an open axis, and that of examples that only fill a batch.
	Pad float64
}

// maxValues is the maximum number of values of one example.
const maxValues = 1 << 28

// Validate returns an error for the first field that makes no sense.
func (s Spec) Validate() error {
	if s.Name == "" {
		return errors.New("a feature has no name")
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("feature %s "+format, append([]any{s.Name}, args...)...)
	}
	size, open := 1, 0
	for _, d := range s.Shape {
		switch {
		case d == -1:
			open++
		case d < 1 || d > maxValues/size:
			return fail("has shape %v; expected axes of 1 or more, or -1 for an open one, and at most %d values", s.Shape, maxValues)
		default:
			size *= d
		}
	}
	if _, err := pixels.DecoderOf(s.JPEG); err != nil {
		return fail("decodes %w", err)
	}
	low, high := s.Range()
	switch {
	case s.DType.Size() == 0:
		return fail("has dtype %q; expected uint8, int32, int64, float32 or bool", s.DType)
	case open > 1:
		return fail("has shape %v; expected at most one open axis", s.Shape)
	case s.Role != "" && s.Role != Input && s.Role != Label && s.Role != Weight && s.Role != ID:
		return fail("has role %q; expected %s, %s, %s or %s", s.Role, Input, Label, Weight, ID)
	case s.Role == Weight && s.DType != Float32:
		return fail("has role %s and dtype %s; expected float32", Weight, s.DType)
	case s.Role == Weight && s.Pad != 0:
		return fail("has role %s and is padded with %v; expected 0", Weight, s.Pad)
	case s.DType == Float32 && (s.Minimum != nil || s.Below != nil):
		return fail("has bounds and dtype float32; expected bounds of integers only")
	case s.Resize != "" && !slices.Contains(pixels.Resizes, s.Resize):
		return fail("is resized by %q; expected %s", s.Resize, strings.Join(pixels.Resizes, " or "))
	case s.Resize == "" && s.Crop:
		return fail("is cut to the proportions of its shape, and not resized; expected a way to resize")
	case low > high:
		return fail("has bounds that leave %d to %d; expected at least one value within %s", low, high, s.DType)
	case s.DType != Float32 && (s.Pad != math.Trunc(s.Pad) || !within(s.Pad, s.DType)):
		return fail("is padded with %v; expected a value of %s", s.Pad, s.DType)
	}
	return nil
}

// within reports whether a whole number is one of an integer dtype.
func within(x float64, d DType) bool {
	low, high := d.limits()
	return x >= float64(low) && x <= float64(high) && (d != Int64 || math.Abs(x) <= 1<<53)
}

// limits returns the least and the greatest integer of a dtype. Those of float32 are the greatest up
// to which all integers are exact.
func (d DType) limits() (low, high int64) {
	switch d {
	case Uint8:
		return 0, math.MaxUint8
	case Bool:
		return 0, 1
	case Int32:
		return math.MinInt32, math.MaxInt32
	case Float32:
		return -1 << 24, 1 << 24
	}
	return math.MinInt64, math.MaxInt64
}

// Range returns the least and the greatest integer that a record may have for the feature.
func (s Spec) Range() (low, high int64) {
	low, high = s.DType.limits()
	switch {
	case s.Minimum != nil:
		low = max(low, *s.Minimum)
	case s.Below != nil:
		low = max(low, 0)
	}
	if s.Below != nil {
		high = min(high, *s.Below-1)
	}
	return low, high
}

// Names returns the names under which the feature is looked up in records.
func (s Spec) Names() []string {
	if s.Record == nil {
		return []string{s.Name}
	}
	return s.Record
}

// Open returns the number of the open axis of Shape, or -1.
func (s Spec) Open() int {
	for i, d := range s.Shape {
		if d == -1 {
			return i
		}
	}
	return -1
}

// String describes what the values depend on, such as "image uint8 [28 28 1]". Bounds, which are only
// checked, are left out.
func (s Spec) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.Name, s.DType)
	if len(s.Shape) > 0 {
		fmt.Fprintf(&b, " %v", s.Shape)
	}
	if s.Role != "" && s.Role != Input {
		fmt.Fprintf(&b, ", a %s", s.Role)
	}
	if s.Make != "" {
		fmt.Fprintf(&b, ", made as %s", s.Make)
	}
	if s.Record != nil {
		fmt.Fprintf(&b, ", from %s", strings.Join(s.Record, " or "))
	}
	if s.Resize != "" {
		fmt.Fprintf(&b, ", resized by %s", s.Resize)
	}
	if s.Crop {
		b.WriteString(", cut to its proportions")
	}
	if s.JPEG != "" && s.JPEG != pixels.Go {
		fmt.Fprintf(&b, ", JPEG by %s", s.JPEG)
	}
	if s.Pad != 0 {
		fmt.Fprintf(&b, ", padded with %v", s.Pad)
	}
	return b.String()
}
