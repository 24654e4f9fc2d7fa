package prepare

import (
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfjpeg" // a decoder of images
	"github.com/gorbit-ml/gorbit/train/params"
)

// use is the purpose for which a split is opened.
type use int

// The purposes. ToPredict does not read labels.
const (
	ToTrain use = iota
	ToEvaluate
	ToPredict
)

// LayoutFor returns how the records of a split become batches of a graph, within the graph's limits.
// For predictions of packed texts these are the tokens alone: CallFor packs them again.
func LayoutFor(p params.Params, c *graphs.Contract, use use) dataset.Layout {
	if !TakesTokens(c) {
		return denseFor(p, c, use)
	}
	if use == ToPredict && c.HasParts() { // which texts alone do not have
		return CallFor(p, c)
	}
	l := PackedFor(p, c)
	if use == ToPredict {
		l.Labels, l.Standard, l.Extras, l.Targets, l.Masking = packed.LabelsNone, nil, nil, nil, nil
		if c.Feature(packed.TypeIDs) == nil {
			l.Features.TypeIDs = []string{}
		}
	}
	return l
}

// CallFor returns how the texts of a call are packed into rows for predictions of a graph.
func CallFor(p params.Params, c *graphs.Contract) packed.Config {
	l := PackedFor(p, c)
	l.Labels, l.Rows, l.RowExamples, l.Buckets = packed.LabelsNone, 0, 0, nil
	l.Targets = nil
	l.Extras = slices.DeleteFunc(l.Extras, func(s dataset.Spec) bool { return s.Role == dataset.ID && s.Make == "" }) // of records
	if l.Standard != nil {
		l.Standard = append(l.Standard, packed.ClsPositions, packed.ExampleWeights)
	}
	if l.Masking != nil {
		l.Masking.Given = true
	}
	return l
}

// PackedFor returns how tokens are packed into rows for a graph.
func PackedFor(p params.Params, c *graphs.Contract) packed.Config {
	l := p.Packed()
	for name, names := range map[string]*[]string{packed.InputIDs: &l.Features.InputIDs, packed.TypeIDs: &l.Features.TypeIDs,
		packed.LabelIDs: &l.Features.Label, packed.ExampleWeights: &l.Features.Weight} {
		if record, ok := p.Data.Features[name]; ok {
			*names = []string{record}
		}
	}
	l.VocabSize = bound(c, packed.InputIDs)
	l.NumTypes = bound(c, packed.TypeIDs)
	l.MaxTokens, l.Texts = bound(c, packed.PositionIDs), c.Texts()
	// XLA compiles the graph again for every new shape.
	l.FixedRowLength = c.XLA
	for _, f := range c.Features {
		if f.OfTarget() {
			l.Targets = targetsWith(l.Targets, p, c, specOf(p, f))
			continue
		}
		if standardFeature(f) {
			l.Standard = append(l.Standard, f.Name)
			continue
		}
		s := specOf(p, f)
		if f.Name == packed.LabelIDs && s.Record == nil {
			s.Record = packed.DefaultFeatureNames().Label
		}
		l.Extras = append(l.Extras, s)
	}
	if slices.Contains(l.Standard, packed.LabelIDs) {
		l.NumLabels = bound(c, packed.LabelIDs)
	}
	if len(l.Standard) == numStandard {
		l.Standard = nil // all of them
	}
	if m := c.Masking; m != nil {
		l.Masking = &packed.Masking{Probability: p.Data.MaskProbability, MaskToken: int(m.MaskToken), VocabSize: int(m.VocabSize), WholeWords: p.Data.WholeWords, SpanLength: p.Data.MaskSpan, Seed: uint64(p.Seed)}
		if record, ok := p.Data.Features[maskedLabels(c)]; ok {
			l.Masking.Labels = []string{record}
		}
		for _, id := range m.Special {
			l.Masking.Special = append(l.Masking.Special, int(id))
		}
	}
	return l
}

// targetsWith returns how targets are packed with one more of their features.
func targetsWith(t *packed.Targets, p params.Params, c *graphs.Contract, s dataset.Spec) *packed.Targets {
	if t == nil {
		t = &packed.Targets{RowLength: p.Data.TargetRowLength, MaxTokens: bound(c, packed.TargetPositionIDs)}
		if g := c.Generation; g != nil && g.PadTokenID != nil && !slices.Contains(g.EOSTokenIDs, *g.PadTokenID) {
			t.Padding = g.PadTokenID
		}
	}
	s.Make = strings.TrimPrefix(s.Make, "target_") // as those of sources are made
	if s.Name == packed.TargetIDs && s.Record == nil {
		s.Record = slices.DeleteFunc(packed.DefaultTargetIDs(), func(name string) bool { return name != s.Name && c.Feature(name) != nil })
	}
	t.Features = append(t.Features, s)
	return t
}

// numStandard is the number of standard features of package packed.
const numStandard = 7

// standardFeature reports whether a feature is one that package packed makes by its name.
func standardFeature(f graphs.Feature) bool {
	is := func(dtype, made string, axes ...string) bool {
		return f.DType == dtype && (f.Make == made || f.Make == "" && made == f.Name) && slices.Equal(f.Axes, axes)
	}
	switch f.Name {
	case packed.InputIDs, packed.TypeIDs:
		return is("int32", "", AxisRows, AxisLength)
	case packed.PositionIDs:
		return is("int32", f.Name, AxisRows, AxisLength) || is("int32", graphs.MakeTextPositions, AxisRows, AxisLength)
	case packed.SequenceIDs:
		return is("int32", f.Name, AxisRows, AxisLength)
	case packed.ClsPositions:
		return is("int32", "starts", AxisExamples)
	case packed.LabelIDs:
		return is("int32", "", AxisExamples)
	case packed.ExampleWeights:
		return is("float32", "", AxisExamples)
	}
	return false
}

// Names of axes in contracts.
const (
	AxisExamples = "examples"
	AxisRows     = "rows"
	AxisLength   = "length"
)

// denseFor returns how examples are stacked for a graph.
func denseFor(p params.Params, c *graphs.Contract, use use) dense.Config {
	l := dense.Config{
		MaxLength:   p.Data.RowLength,
		Truncate:    p.Data.Truncate,
		FixedLength: c.XLA && p.Data.RowLength > 0,
		EvenParts:   !c.Additive,
	}
	if use != ToPredict { // answers come in the order of the records
		l.Buckets, _ = p.Data.BucketLengths() // checked by Validate
	}
	if p.Strategy.Kind() == devices.TPU {
		// A TPU's programs are for one shape.
		l.Examples, l.FixedLength = p.Train.BatchSize, p.Data.RowLength > 0
	}
	for _, f := range c.Features {
		l.Features = append(l.Features, specOf(p, f))
	}
	if use == ToPredict {
		l.Labels = dataset.LabelsNone
		l.Features = slices.DeleteFunc(l.Features, func(s dataset.Spec) bool { return s.Role != dataset.Input })
	}
	return l
}

// specOf returns how a feature of a graph is made from records.
func specOf(p params.Params, f graphs.Feature) dataset.Spec {
	s := dataset.Spec{Name: f.Name, DType: dataset.DType(f.DType), Role: dataset.Role(f.Role), Make: f.Make, Minimum: f.Minimum, Below: f.Below, Pad: f.Pad}
	if record, ok := p.Data.Features[f.Name]; ok {
		s.Record = []string{record}
	}
	shape := f.Shape[min(1, len(f.Shape)):]
	if len(f.Axes) > 1 && f.Axes[0] == AxisRows {
		s.Shape, shape = []int{-1}, f.Shape[2:] // one for each token
	}
	for _, d := range shape {
		s.Shape = append(s.Shape, int(d))
	}
	if mayHaveImages(s) {
		s.JPEG = p.Data.JPEG
	}
	if p.Data.Resize != "" && takesImages(s) {
		s.Resize, s.Crop = p.Data.Resize, p.Data.CropToAspectRatio
		if s.Role == dataset.Label { // classes of pixels, which have no mean
			s.Resize = string(pixels.Nearest)
		}
	}
	return s
}

// ChooseJPEG sets data.jpeg to the fastest decoder that there is if it is not given and the graph may take
// images. It is for runs that begin.
func (s *Setup) ChooseJPEG() {
	if s.Params.Data.JPEG == "" && s.TakesImages() {
		s.Params.Data.JPEG = pixels.Fastest()
	}
}

// TakesImages reports whether the graph has a feature that may be PNG or JPEG images in records.
func (s *Setup) TakesImages() bool {
	return slices.ContainsFunc(s.Export.Contract.Features, func(f graphs.Feature) bool { return mayHaveImages(specOf(s.Params, f)) })
}

// mayHaveImages reports whether records may have PNG or JPEG images for a feature.
func mayHaveImages(s dataset.Spec) bool {
	return s.DType == dataset.Uint8 && len(s.Shape) >= 2 && s.Make == ""
}

// takesImages reports whether a feature may be a PNG or JPEG image of one size.
func takesImages(s dataset.Spec) bool {
	return mayHaveImages(s) && s.Open() < 0
}

// checkFeatures returns an error if data.features names a feature that a graph does not read.
func checkFeatures(p params.Params, c *graphs.Contract) error {
	var read []string
	for _, f := range c.Features {
		if f.Make == "" || f.Make == packed.MakeMaskedLabels {
			read = append(read, f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Data.Features)) {
		switch {
		case !slices.Contains(read, name):
			return params.Errorf("data.features."+name, ": the graph reads no such feature from records; expected one of %s%s", strings.Join(read, ", "), words.DidYouMean(name, read))
		case p.Data.Features[name] == "":
			return params.Errorf("data.features."+name, "is empty; expected the name of a feature in the records")
		}
	}
	return nil
}

// maskedLabels returns the name of a graph's feature of what the masked tokens were, or "".
func maskedLabels(c *graphs.Contract) string {
	for _, f := range c.Features {
		if f.Make == packed.MakeMaskedLabels {
			return f.Name
		}
	}
	return ""
}

// bound returns the limit of a graph's feature of integers from 0, or 0 if there is none.
func bound(c *graphs.Contract, feature string) int {
	if f := c.Feature(feature); f != nil {
		return f.Classes()
	}
	return 0
}

// positions returns how many tokens a graph has positions for, or 0 if that is unknown. Those of examples
// with parts begin again with each, which the layout checks.
func positions(c *graphs.Contract) int {
	if c.HasParts() {
		return 0
	}
	return bound(c, packed.PositionIDs)
}

// mostTokens returns the most tokens of an example of a graph, or 0 if unknown.
func mostTokens(c *graphs.Contract) int { return positions(c) * c.Texts() }

// TakesTokens reports whether a graph takes tokens of texts, packed into rows.
func TakesTokens(c *graphs.Contract) bool { return c.Input != graphs.InputDense }

// VocabSizeOf returns the number of tokens that a graph knows, or 0 if it takes no tokens.
func VocabSizeOf(c *graphs.Contract) int {
	if !TakesTokens(c) {
		return 0
	}
	return bound(c, packed.InputIDs)
}

// ClassesOf returns the names of a label's classes, or nil if the data does not name them. record is the
// name of the label in the records.
func ClassesOf(c *graphs.Contract, label, record string, m *convert.Manifest) []string {
	f := c.Feature(label)
	if f == nil || m == nil {
		return nil
	}
	names := m.Labels
	if made := m.Feature(record); made != nil {
		names = made.Categories
	}
	n := f.Classes()
	if last := len(f.Shape) - 1; n == 0 && last > 0 {
		n = int(f.Shape[last]) // one number for each class
	}
	if n != len(names) {
		return nil
	}
	return names
}

// AxisPredictions is the axis of masked tokens.
const AxisPredictions = "predictions"
