package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// SchemaTask is the Task of a dataset whose records were made by a schema.
const SchemaTask = "schema"

// Feature describes a feature of the records of a dataset that was made by a schema.
type Feature struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // number, category, text, image or bytes
	// DType is float32, int64, int32, uint8, bool, or string for kind bytes.
	DType string `json:"dtype"`
	// Shape is that of one example: [] for a single value.
	Shape Shape  `json:"shape"`
	Role  string `json:"role"` // input, label, weight or id
	// Categories are the names of the categories in the order of their ids. If Unknown is set, the
	// last one stands for all others.
	Categories []string `json:"categories,omitempty"`
	Unknown    bool     `json:"unknown,omitempty"`
	// Columns are the columns of the sources; none for the number of the row.
	Columns []string `json:"columns,omitempty"`
	// Missing stands for an empty cell, and MissingValues are cells that are empty, too. Separator is
	// between the values of a cell; "" means space.
	Missing       *string  `json:"missing,omitempty"`
	MissingValues []string `json:"missing_values,omitempty"`
	Separator     string   `json:"separator,omitempty"`
	// Encoding says how the pixels of an image are stored: file (PNG or JPEG) or raw.
	Encoding string `json:"encoding,omitempty"`
	// Resize says how images of another size were scaled, and CropToAspectRatio that they were first cut
	// to the proportions of Shape. ConvertColors means that gray images became coloured ones, or the other
	// way, and that their opacity was dropped.
	Resize            string `json:"resize,omitempty"`
	CropToAspectRatio bool   `json:"crop_to_aspect_ratio,omitempty"`
	ConvertColors     bool   `json:"convert_colors,omitempty"`
	// JPEG names what decoded JPEG images, as dataset.Spec does; "" is Go's library.
	JPEG string `json:"jpeg,omitempty"`
	// MaxLength is the most ids of a text, Bare means that they have no special tokens, and Segments
	// is the feature with the texts' numbers.
	MaxLength int    `json:"max_length,omitempty"`
	Bare      bool   `json:"bare,omitempty"`
	Segments  string `json:"segments,omitempty"`
	// Vocab is that of a text; nil in a manifest, which has one for all.
	Vocab *Vocab `json:"vocab,omitempty"`
}

// Shape is the shape of a feature. -1 is an open size, which may differ between examples; in JSON
// it is null.
type Shape []int64

// MarshalJSON writes open sizes as null.
func (s Shape) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads null as an open size.
func (s *Shape) UnmarshalJSON(data []byte) error {
	var sizes []*int64
	if err := json.Unmarshal(data, &sizes); err != nil {
		return err
	}
	*s = Shape{}
	for _, n := range sizes {
		switch {
		case n == nil:
			*s = append(*s, -1)
		case *n < 1:
			return fmt.Errorf("shape has the size %d; expected 1 or more, or null", *n)
		default:
			*s = append(*s, *n)
		}
	}
	return nil
}

// String returns the shape as in JSON.
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, n := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		if n < 0 {
			b.WriteString("null")
		} else {
			fmt.Fprint(&b, n)
		}
	}
	b.WriteByte(']')
	return b.String()
}

func (s Shape) open() bool { return slices.Contains(s, -1) }

// elements returns the number of values, of one step if the first size is open, and whether it is at
// most maxElements.
func (s Shape) elements() (int64, bool) {
	n := int64(1)
	for _, size := range s {
		if size == -1 {
			continue
		}
		if size < 1 || size > maxElements/n {
			return 0, false
		}
		n *= size
	}
	return n, true
}

// Statistics describes the values of a feature in the records of a split.
type Statistics struct {
	// Records is the number of records that have the feature, and Filled those of them with the
	// schema's value in place of an empty cell.
	Records int64 `json:"records"`
	Filled  int64 `json:"filled,omitempty"`
	// Values is the number of values in all records.
	Values int64 `json:"values"`
	// Min and Max are those of all values, the ids of tokens and categories included, and Mean is
	// their mean; absent if there are none, as for images and kind bytes. Only numbers have a mean.
	Min  *float64 `json:"min,omitempty"`
	Max  *float64 `json:"max,omitempty"`
	Mean *float64 `json:"mean,omitempty"`
	// Counts are the numbers of values of each category, in the order of the ids.
	Counts []int64 `json:"counts,omitempty"`
	// Shortest and Longest are the least and the greatest number of steps, if the shape is open.
	Shortest *int64 `json:"shortest,omitempty"`
	Longest  *int64 `json:"longest,omitempty"`

	sum float64
}

// cell is what a record has of a feature.
type cell struct {
	present  bool
	filled   bool
	values   int64
	steps    int64
	min, max float64
	sum      float64
	picks    int // end of its categories among those of the chunk
}

// add adds a value.
func (c *cell) add(x float64) {
	if c.values == 0 || x < c.min {
		c.min = x
	}
	if c.values == 0 || x > c.max {
		c.max = x
	}
	c.values++
	c.sum += x
}

// add adds the cell of a record, whose categories are picks.
func (s *Statistics) add(f *featureSchema, c *cell, picks []int32) {
	if !c.present {
		return
	}
	s.Records++
	if c.filled {
		s.Filled++
	}
	if c.values > 0 && f.kind != KindImage && f.kind != KindBytes {
		if s.Min == nil || c.min < *s.Min {
			s.Min = new(c.min)
		}
		if s.Max == nil || c.max > *s.Max {
			s.Max = new(c.max)
		}
	}
	s.Values += c.values
	s.sum += c.sum
	for _, id := range picks {
		s.Counts[id]++
	}
	if f.shape.open() {
		if s.Shortest == nil || c.steps < *s.Shortest {
			s.Shortest = new(c.steps)
		}
		if s.Longest == nil || c.steps > *s.Longest {
			s.Longest = new(c.steps)
		}
	}
}

// finish computes the mean.
func (s *Statistics) finish(f *featureSchema) {
	if f.kind == KindNumber && s.Values > 0 {
		mean := s.sum / float64(s.Values)
		s.Mean = &mean
	}
}

// Feature returns the feature of a name, or nil.
func (m *Manifest) Feature(name string) *Feature {
	for i := range m.Features {
		if m.Features[i].Name == name {
			return &m.Features[i]
		}
	}
	return nil
}

// featuresFault returns what is wrong with the features of a manifest, or "".
func (m *Manifest) featuresFault() string {
	seen := map[string]bool{}
	for _, f := range m.Features {
		name := table.Clip(fmt.Sprintf("%q", f.Name))
		switch {
		case !validFeature(f.Name) || seen[f.Name]:
			return fmt.Sprintf("feature %s has an invalid name or is listed twice", name)
		case !slices.Contains(allKinds, f.Kind) || !slices.Contains(allRoles, f.Role) || !slices.Contains(append(slices.Clone(allDTypes), "string"), f.DType):
			return fmt.Sprintf("feature %s has kind %s, role %s and dtype %s", name, table.Clip(f.Kind), table.Clip(f.Role), table.Clip(f.DType))
		}
		if _, ok := f.Shape.elements(); !ok {
			return fmt.Sprintf("feature %s has too many values", name)
		}
		seen[f.Name] = true
		for split, s := range m.Splits {
			if s != nil && s.Features[f.Name] != nil && len(s.Features[f.Name].Counts) > len(f.Categories) {
				return fmt.Sprintf("split %s has counts of %d categories of feature %s; expected %d", split, len(s.Features[f.Name].Counts), name, len(f.Categories))
			}
		}
	}
	return ""
}
