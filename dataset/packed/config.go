package packed

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Packing is how examples are laid into rows.
type Packing string

// The ways to pack.
const (
	// PackBestFit searches for the number and the length of rows that hold the
	// examples of a batch in the fewest cells. It is the default.
	PackBestFit Packing = "best-fit"
	// PackFirstFit puts each example of a batch, in the order drawn, into the
	// first row that has room for it.
	PackFirstFit Packing = "first-fit"
	// PackNone gives every example a row of its own, as long as the longest
	// example of the batch.
	PackNone Packing = "none"
)

// Labels says whether records must have a label.
type Labels = dataset.Labels

// The requirements for labels. Without one, the label is 0.
const (
	LabelsRequired = dataset.LabelsRequired
	LabelsOptional = dataset.LabelsOptional
	LabelsNone     = dataset.LabelsNone
)

// FeatureNames lists the names under which the features of a record are looked
// up. If a record has several of them, the first in the list is used. A nil list
// means the default; an empty list that is not nil means that the feature is not
// read.
type FeatureNames struct {
	InputIDs []string // token ids
	TypeIDs  []string // segment of each token; all 0 if not read, or by default if no record has it
	Mask     []string // 1 for a token, 0 for padding, which is dropped; may be absent from a record
	Label    []string // class number
	Real     []string // 0 in records that only fill up a batch, which are dropped; may be absent from a record
	Weight   []string `json:",omitempty"` // float: the weight of the example; 1 if not read, which is the default, and in records without it
}

// DefaultFeatureNames returns the default names: first those of gorbit convert, then
// those of the tools of BERT, the Model Garden and Hugging Face.
func DefaultFeatureNames() FeatureNames {
	return FeatureNames{
		InputIDs: []string{"input_ids", "input_word_ids"},
		TypeIDs:  []string{"segment_ids", "token_type_ids", "input_type_ids", "type_ids"},
		Mask:     []string{"input_mask", "attention_mask"},
		Label:    []string{"label_ids", "label", "labels"},
		Real:     []string{"is_real_example"},
	}
}

// DefaultRowLength is the row length of a Config that gives none.
const DefaultRowLength = 128

const maxRowLength = 1 << 16

// Config says what a record holds and how the examples of a batch are packed into rows. The zero
// value of a field means its default. A Config is a [dataset.Layout].
type Config struct {
	// Packing is PackBestFit by default.
	Packing Packing
	// RowLength is the maximum length of a row, and so of an example, in tokens;
	// DefaultRowLength by default.
	RowLength int
	// MaxTokens is the maximum length of an example, or of a part of one (MakeParts), if it is less than
	// that of a row, for instance because the model has fewer positions; 0 means RowLength.
	MaxTokens int
	// Texts is the number of texts of an example, if there are several that a model encodes each by
	// itself: TypeIDs has the text of each token, 0, then 1, and so on. PositionIDs begin anew with
	// each text, and MaxTokens is that of a text. Examples without labels may have fewer texts.
	Texts int `json:",omitempty"`
	// FixedRowLength makes all rows RowLength long. Otherwise the rows of a
	// batch are no longer than they need to be.
	FixedRowLength bool
	// Rows fixes the number of rows of every batch, and so the shape of its features: see Shape. A
	// batch then takes as many of the next records as fit, at most BatchSize of the dataset; those
	// that do not fit come first in the next batch. The rows are RowLength long, whatever
	// FixedRowLength says. 0 means as many rows as a batch needs.
	Rows int
	// RowExamples is the most examples of one of the fixed Rows, so that the number of examples has a
	// fixed shape as well; by default one for every 8 positions, rounded up.
	RowExamples int
	// Buckets are more lengths of rows, ascending and below RowLength. A batch with fixed Rows then has
	// rows of one of these lengths, or of RowLength: one of a few shapes. See Shapes.
	Buckets []int
	// Truncate shortens an example that is longer than RowLength or MaxTokens: it
	// keeps the first tokens and the last one, which is the final [SEP]. Without
	// Truncate such an example is an error, and one that has parts always is.
	Truncate bool

	// Features are the names of features in the records.
	Features FeatureNames
	// Labels is LabelsRequired by default.
	Labels Labels
	// NumLabels, VocabSize and NumTypes are exclusive upper limits of the labels, the
	// token ids and the type ids, which start at 0. 0 means no limit.
	NumLabels, VocabSize, NumTypes int

	// Standard are the names of the standard features that a batch has; nil means all seven. What is
	// not in a batch is not read.
	Standard []string `json:",omitempty"`
	// Extras are features in addition to the standard ones. Those with an open axis, which must be the
	// first of Shape, have a value for each token: [-1] becomes [R, S]. The others have a value for
	// each example, or are made as Make says; features of masked tokens are single values, and become
	// [P]. With LabelsNone those of the role Label are left out.
	Extras []dataset.Spec `json:",omitempty"`
	// Targets are the targets that an encoder-decoder model makes of the examples; nil if there are none.
	Targets *Targets `json:",omitempty"`
	// Masking makes the tokens that a masked language model predicts; nil masks nothing.
	Masking *Masking `json:",omitempty"`
}

// wants reports whether batches have a standard feature.
func (c *Config) wants(name string) bool {
	return c.Standard == nil || slices.Contains(c.Standard, name)
}

var _ dataset.FittedLayout = Config{}

// Validate implements dataset.Layout.
func (c Config) Validate(examples int) error {
	c = c.withDefaults()
	switch {
	case len(c.Features.InputIDs) == 0:
		return errors.New("no feature name is given for token ids")
	case len(c.Features.Label) == 0 && c.Labels == LabelsRequired && c.wants(LabelIDs):
		return errors.New("labels are required, but no feature name is given for them")
	}
	if err := c.validateRows(examples); err != nil {
		return err
	}
	if err := c.validateFeatures(); err != nil {
		return err
	}
	return c.validateFixed(examples)
}

// validateFeatures checks which features batches have.
func (c *Config) validateFeatures() error {
	seen := map[string]bool{}
	for _, name := range standard {
		if c.wants(name) {
			seen[name] = true
		}
	}
	for _, name := range c.Standard {
		if !slices.Contains(standard[:], name) {
			return fmt.Errorf("standard feature is %q; expected some of %v", name, standard)
		}
	}
	if !c.wants(ExampleWeights) && c.Labels != LabelsNone {
		return fmt.Errorf("batches have no %s; expected them, so that an example can have weight 0", ExampleWeights)
	}
	for _, f := range c.Extras {
		if err := c.validateExtra(f); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("feature %s is given twice", f.Name)
		}
		seen[f.Name] = true
	}
	if err := c.validateParts(); err != nil {
		return err
	}
	if c.Targets != nil {
		if err := c.validateTargets(seen); err != nil {
			return err
		}
	}
	return c.validateMasking()
}

// validateRows checks the part of the configuration that FromExamples uses, for a batch of so many
// examples.
func (c Config) validateRows(examples int) error {
	switch {
	case c.Packing != PackBestFit && c.Packing != PackFirstFit && c.Packing != PackNone:
		return fmt.Errorf("packing is %q; expected %q, %q or %q", c.Packing, PackBestFit, PackFirstFit, PackNone)
	case c.RowLength < 1 || c.RowLength > maxRowLength:
		return fmt.Errorf("row length is %d tokens; expected 1 to %d", c.RowLength, maxRowLength)
	case int64(examples)*int64(c.RowLength) > math.MaxInt32:
		return fmt.Errorf("a batch of %d examples in rows of %d tokens is too large: positions must be below 2^31", examples, c.RowLength)
	case c.Texts < 0 || c.Texts > 1 && (!c.wants(TypeIDs) || c.Truncate):
		return fmt.Errorf("examples have %d texts; expected 0 or more, and of several texts %s and no truncation", c.Texts, TypeIDs)
	case c.MaxTokens < 0:
		return fmt.Errorf("maximum tokens of an example is %d; expected 0 (the row length) or more", c.MaxTokens)
	case c.Labels != LabelsRequired && c.Labels != LabelsOptional && c.Labels != LabelsNone:
		return fmt.Errorf("labels are %q; expected %q, %q or %q", c.Labels, LabelsRequired, LabelsOptional, LabelsNone)
	case c.NumLabels < 0 || c.VocabSize < 0 || c.NumTypes < 0:
		return fmt.Errorf("numbers of labels, tokens and types are %d, %d and %d; expected 0 (no limit) or more", c.NumLabels, c.VocabSize, c.NumTypes)
	}
	return nil
}

// Settings implements dataset.Layout.
func (c Config) Settings() []dataset.Setting {
	c = c.withDefaults()
	all := []dataset.Setting{
		{Key: "packing", Name: "the packing", Value: string(c.Packing)},
		{Key: "row_length", Name: "the row length", Value: c.RowLength},
		{Key: "fixed_row_length", Name: "the fixed row length", Value: c.FixedRowLength},
		{Key: "truncate", Name: "truncation", Value: c.Truncate},
	}
	if c.Rows > 0 {
		all = append(all, dataset.Setting{Key: "rows", Name: "the fixed number of rows", Value: c.Rows},
			dataset.Setting{Key: "row_examples", Name: "the most examples of a row", Value: c.RowExamples})
	}
	if len(c.Buckets) > 0 {
		all = append(all, dataset.Setting{Key: "buckets", Name: "the buckets of row lengths", Value: fmt.Sprint(c.Buckets)})
	}
	return append(all, c.extraSettings()...)
}

// limit returns the maximum length of an example.
func (c *Config) limit() int {
	if c.MaxTokens > 0 && !c.parts() {
		return min(c.MaxTokens*max(1, c.Texts), c.RowLength)
	}
	return c.RowLength
}

// Assemblers implements dataset.Layout. The assemblers share the memory of released batches.
func (c Config) Assemblers() func() dataset.Assembler {
	c = c.withDefaults()
	free := new(pool)
	return func() dataset.Assembler {
		a := newAssembler(&c, free)
		a.decoded = newRecords(&c, a.extras, a.targets)
		return a
	}
}

// withDefaults returns the configuration with defaults in place of zeros.
func (c Config) withDefaults() Config {
	c.Packing = cmp.Or(c.Packing, PackBestFit)
	c.RowLength = cmp.Or(c.RowLength, DefaultRowLength)
	c.Labels = cmp.Or(c.Labels, LabelsRequired)
	if c.Rows > 0 {
		c.FixedRowLength = true
		c.RowExamples = cmp.Or(c.RowExamples, (c.RowLength+defaultShare-1)/defaultShare)
	}
	if c.Targets != nil {
		t := *c.Targets
		t.RowLength = cmp.Or(t.RowLength, c.RowLength)
		c.Targets = &t
	}
	if c.Masking != nil {
		m := *c.Masking
		m.Probability = cmp.Or(m.Probability, DefaultMaskProbability)
		if m.WordStarts == nil {
			m.WordStarts = []string{DefaultWordStarts}
		}
		if m.Labels == nil {
			m.Labels = []string{DefaultMaskedLabels}
		}
		c.Masking = &m
	}
	d := DefaultFeatureNames()
	for _, f := range []struct{ names, defaults *[]string }{
		{&c.Features.InputIDs, &d.InputIDs},
		{&c.Features.TypeIDs, &d.TypeIDs},
		{&c.Features.Mask, &d.Mask},
		{&c.Features.Label, &d.Label},
		{&c.Features.Real, &d.Real},
	} {
		if *f.names == nil {
			*f.names = *f.defaults
		}
	}
	if !c.wants(TypeIDs) {
		c.Features.TypeIDs = []string{}
	}
	if !c.wants(LabelIDs) {
		c.Features.Label = []string{}
	}
	return c
}
