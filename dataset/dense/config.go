package dense

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// What a feature can be made of, as Make of its Spec, instead of the values of records.
const (
	MakeMask   = "mask"   // 1 where an example has a value on the open axis, of shape [-1]
	MakeLength = "length" // the example's length on the open axis, a single value
)

// Config says what a record holds and how a batch is made of it. The zero value of a field means its
// default. A Config is a [dataset.Layout].
type Config struct {
	// Features are the features of a batch, in its order.
	Features []dataset.Spec
	// Labels is dataset.LabelsRequired by default. With LabelsNone a batch has no features of the role
	// Label.
	Labels dataset.Labels

	// MaxLength is the maximum length of an example on the open axis; 0 means no limit.
	MaxLength int
	// Truncate shortens an example that is longer: it keeps the first values. Without it such an
	// example is an error.
	Truncate bool
	// FixedLength makes all batches MaxLength long, or as long as their bucket.
	FixedLength bool
	// Buckets are more lengths of batches, ascending and below MaxLength. A batch then holds examples of
	// one bucket: those that the next shorter one does not hold. It is made once enough of them wait, so
	// the batches of an epoch hold each record once, in another order.
	Buckets []int
	// Examples fixes the number of examples of every batch: if there are fewer, the rest has weight 0.
	// 0 means as many as there are.
	Examples int
	// EvenParts gives all micro-batches the same number of examples, or one less, whatever their
	// lengths. It is for models in which examples of a micro-batch depend on each other.
	EvenParts bool
}

var _ dataset.SizedLayout = Config{}

// maxLength is the maximum of MaxLength.
const maxLength = 1 << 24

// maxStackedBytes is the most memory of a batch whose examples have the greatest length.
const maxStackedBytes = 1 << 36

// Validate implements dataset.Layout.
func (c Config) Validate(examples int) error {
	c = c.withDefaults()
	if len(c.Features) == 0 {
		return errors.New("no features are given")
	}
	weighted, open := false, false
	seen := map[string]bool{}
	for _, f := range c.Features {
		if err := c.validateFeature(f); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("feature %s is given twice", f.Name)
		}
		seen[f.Name] = true
		weighted = weighted || f.Role == dataset.Weight
		open = open || f.Make == "" && f.Open() >= 0 && c.reads(f)
	}
	switch {
	case c.Labels != dataset.LabelsRequired && c.Labels != dataset.LabelsOptional && c.Labels != dataset.LabelsNone:
		return fmt.Errorf("labels are %q; expected %q, %q or %q", c.Labels, dataset.LabelsRequired, dataset.LabelsOptional, dataset.LabelsNone)
	case c.MaxLength < 0 || c.MaxLength > maxLength:
		return fmt.Errorf("maximum length of an example is %d; expected 0 (no limit) to %d", c.MaxLength, maxLength)
	case c.MaxLength == 0 && (c.FixedLength || c.Truncate):
		return errors.New("the maximum length of an example is not set; expected one, because lengths are fixed or examples are shortened")
	case c.Examples < 0 || c.Examples > 0 && c.Examples < examples:
		return fmt.Errorf("fixed number of examples is %d; expected 0 (as many as a batch has), or at least the batch size of %d", c.Examples, examples)
	case !weighted && c.Labels != dataset.LabelsNone:
		return fmt.Errorf("no feature has the role %s; expected one, so that an example can have weight 0", dataset.Weight)
	}
	if bytes := float64(c.ExampleBytes()) * float64(max(examples, c.Examples)); bytes > maxStackedBytes {
		return fmt.Errorf("a batch of %d examples of %d bytes each takes %.3g bytes; expected at most %.3g", max(examples, c.Examples), c.ExampleBytes(), bytes, float64(maxStackedBytes))
	}
	for _, f := range c.Features {
		if f.Make != "" && !open {
			return fmt.Errorf("feature %s is made as %s, but no feature with an open axis is read from records; expected one", f.Name, f.Make)
		}
	}
	return c.validateBuckets(examples, open)
}

func (c *Config) validateFeature(f dataset.Spec) error {
	if err := f.Validate(); err != nil {
		return err
	}
	switch {
	case f.Make == MakeMask && (len(f.Shape) != 1 || f.Shape[0] != -1):
		return fmt.Errorf("feature %s is made as %s and has shape %v; expected [-1]", f.Name, MakeMask, f.Shape)
	case f.Make == MakeMask && f.Pad != 0:
		return fmt.Errorf("feature %s is made as %s and is padded with %v; expected 0", f.Name, MakeMask, f.Pad)
	case f.Make == MakeLength && len(f.Shape) > 0:
		return fmt.Errorf("feature %s is made as %s and has shape %v; expected a single value", f.Name, MakeLength, f.Shape)
	case f.Make == MakeLength && f.DType.Size() < 4:
		return fmt.Errorf("feature %s is made as %s and has dtype %s; expected int32, int64 or float32", f.Name, MakeLength, f.DType)
	case f.Make != "" && f.Make != MakeMask && f.Make != MakeLength:
		return fmt.Errorf("feature %s is made as %q; expected %q, %q, or nothing for the values of records", f.Name, f.Make, MakeMask, MakeLength)
	case f.Make == "" && len(f.Names()) == 0:
		return fmt.Errorf("feature %s has an empty list of names in records", f.Name)
	case c.Truncate && f.Open() > 0:
		return fmt.Errorf("feature %s has shape %v, and examples are shortened; expected its first axis to be the open one", f.Name, f.Shape)
	}
	return nil
}

// reads reports whether a feature is in batches at all.
func (c *Config) reads(f dataset.Spec) bool {
	return f.Role != dataset.Label || c.Labels != dataset.LabelsNone
}

// Settings implements dataset.Layout.
func (c Config) Settings() []dataset.Setting {
	c = c.withDefaults()
	var all []string
	for _, f := range c.Features {
		all = append(all, f.String())
	}
	out := []dataset.Setting{
		{Key: "layout", Name: "the layout", Value: "dense"},
		{Key: "features", Name: "the list of features", Value: strings.Join(all, "; ")},
		{Key: "max_length", Name: "the maximum length", Value: c.MaxLength},
		{Key: "truncate", Name: "truncation", Value: c.Truncate},
		{Key: "fixed_length", Name: "the fixed length", Value: c.FixedLength, Padding: true},
		{Key: "examples", Name: "the fixed number of examples", Value: c.Examples, Padding: true},
	}
	if len(c.Buckets) > 0 {
		out = append(out, dataset.Setting{Key: "buckets", Name: "the list of buckets", Value: fmt.Sprint(c.Buckets)})
	}
	return out
}

// ExampleBytes implements dataset.SizedLayout. Open axes count as MaxLength long, or as 1 where there is
// no such limit.
func (c Config) ExampleBytes() (bytes int) {
	for _, f := range c.Features {
		n := f.DType.Size()
		for _, d := range f.Shape {
			if d < 0 {
				d = max(1, c.MaxLength)
			}
			n *= d
		}
		bytes += n
	}
	return bytes
}

func (c Config) withDefaults() Config {
	c.Labels = cmp.Or(c.Labels, dataset.LabelsRequired)
	return c
}

// Assemblers implements dataset.Layout. The assemblers share the memory of released batches.
func (c Config) Assemblers() func() dataset.Assembler {
	p := newPlan(c)
	return func() dataset.Assembler {
		a := newAssembler(p)
		a.decoder = tfrecord.NewSequenceDecoder(p.names...)
		return a
	}
}

// plan is what the assemblers of a Config share.
type plan struct {
	cfg    Config // with its defaults
	specs  []dataset.Spec
	fields []columns.Fields // of the specs that are read
	names  []string         // for the decoder
	open   bool             // whether a feature with an open axis is read
	pool   columns.Pool
}

func newPlan(c Config) *plan {
	c = c.withDefaults()
	p := &plan{cfg: c}
	for _, f := range c.Features {
		if !c.reads(f) {
			continue
		}
		p.specs = append(p.specs, f)
		own := columns.Fields{First: len(p.names)}
		if f.Make == "" {
			own.Names = f.Names()
			p.open = p.open || f.Open() >= 0
		}
		p.fields = append(p.fields, own)
		p.names = append(p.names, own.Names...)
	}
	return p
}
