package packed

import (
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// What an extra feature can be made of, as Make of its Spec, instead of the values of records. R is the
// number of rows, S their length, B the number of examples and P that of masked tokens.
const (
	MakeSequenceIDs     = "sequence_ids"     // int32 [R, S]: as the standard feature
	MakePositionIDs     = "position_ids"     // int32 [R, S]: as the standard feature
	MakeExampleIDs      = "example_ids"      // int32 [R, S]: number of the example on the axis of examples; B in padding
	MakeStarts          = "starts"           // int32 [B]: index of the example's first token in the flattened rows
	MakeOffset          = "offset"           // int32 [B]: the record's number of a token, as an index in the flattened rows
	MakeParts           = "parts"            // int32 [B, C]: index of the first token of each part of the example, see parts.go
	MakeMultiHot        = "multi_hot"        // float32 [B, C]: 1 for the numbers that the record lists
	MakeMaskedPositions = "masked_positions" // int32 [P]: index of the token in the flattened rows
	MakeMaskedLabels    = "masked_labels"    // int32 [P]: the token that was there
	MakeMaskedWeights   = "masked_weights"   // float32 [P]: the weight of its example, 0 where P is only filled up
)

// validateExtra returns what is wrong with an extra feature.
func (c *Config) validateExtra(f dataset.Spec) error {
	if err := f.Validate(); err != nil {
		return err
	}
	dtype, shape := dataset.Int32, 0
	switch f.Make {
	case "":
		if len(f.Names()) == 0 {
			return fmt.Errorf("feature %s has an empty list of names in records", f.Name)
		}
		if f.Open() > 0 {
			return fmt.Errorf("feature %s has shape %v; expected its first axis to be the open one, with a value for each token", f.Name, f.Shape)
		}
		return nil
	case MakeMultiHot:
		dtype, shape = dataset.Float32, 1
		if f.Open() >= 0 {
			return fmt.Errorf("feature %s is made as %s and has shape %v; expected the number of labels", f.Name, f.Make, f.Shape)
		}
	case MakeSequenceIDs, MakePositionIDs, MakeExampleIDs:
		shape = 1
		if f.Open() != 0 {
			return fmt.Errorf("feature %s is made as %s and has shape %v; expected [-1], a value for each token", f.Name, f.Make, f.Shape)
		}
	case MakeStarts, MakeOffset:
	case MakeParts:
		if shape = 1; f.Open() >= 0 {
			return fmt.Errorf("feature %s is made as %s and has shape %v; expected the most parts of an example", f.Name, f.Make, f.Shape)
		}
	case MakeMaskedPositions, MakeMaskedLabels, MakeMaskedWeights:
		if f.Make == MakeMaskedWeights {
			dtype = dataset.Float32
		}
		if c.Masking == nil {
			return fmt.Errorf("feature %s is made as %s, but no masking is set", f.Name, f.Make)
		}
	default:
		return fmt.Errorf("feature %s is made as %q, which packed rows do not know", f.Name, f.Make)
	}
	switch {
	case f.DType != dtype:
		return fmt.Errorf("feature %s is made as %s and has dtype %s; expected %s", f.Name, f.Make, f.DType, dtype)
	case len(f.Shape) != shape:
		return fmt.Errorf("feature %s is made as %s and has shape %v; expected %d axes", f.Name, f.Make, f.Shape, shape)
	}
	return nil
}

// readsExtra reports whether an extra feature is read from records, and wantsExtra whether it is in
// batches at all.
func readsExtra(f dataset.Spec) bool {
	return f.Make == "" || f.Make == MakeOffset || f.Make == MakeParts || f.Make == MakeMultiHot
}

func (c *Config) wantsExtra(f dataset.Spec) bool {
	return f.Role != dataset.Label || c.Labels != LabelsNone
}

// extras collects the features of a batch in addition to the standard ones.
type extras struct {
	cfg    *Config
	all    []extra
	masks  *masks // nil without masking
	pool   *columns.Pool
	memory []dataset.Feature // of a batch that was released, or nil
	lent   bool              // the memory of the columns is that of the last batch
	starts []int             // of the examples in the flattened rows, while a batch is laid
}

// extra is one of them.
type extra struct {
	spec    dataset.Spec
	fields  columns.Fields // if it is read
	column  columns.Column // of values that are read; nil otherwise
	offsets []int32        // of MakeOffset and MakeParts: the tokens' numbers in their examples
	each    int            // how many offsets an example has
}

// perToken reports whether the values that are read are those of tokens.
func (x *extra) perToken() bool { return x.column != nil && x.spec.Open() == 0 }

// newExtras returns nil if there are none.
func newExtras(cfg *Config, free *columns.Pool) *extras {
	if len(cfg.Extras) == 0 {
		return nil
	}
	e := &extras{cfg: cfg, pool: free, lent: true}
	for _, f := range cfg.Extras {
		if !cfg.wantsExtra(f) {
			continue
		}
		x := extra{spec: f, each: 1}
		if f.Make == MakeParts {
			x.each = f.Shape[0]
		}
		if f.Make == "" || f.Make == MakeMultiHot {
			x.column = columns.New(f)
		}
		e.all = append(e.all, x)
	}
	if cfg.Masking != nil {
		e.masks = newMasks(cfg.Masking)
	}
	e.reset()
	return e
}

// names sets the fields of the features that are read, whose names a decoder has from first on. It
// returns the names.
func (e *extras) names(first int) (names []string) {
	for i := range e.all {
		if x := &e.all[i]; readsExtra(x.spec) {
			x.fields = columns.Fields{Names: x.spec.Names(), First: first + len(names)}
			names = append(names, x.fields.Names...)
		}
	}
	if e.masks != nil && !e.masks.Given {
		e.masks.before = columns.Fields{Names: e.masks.Labels, First: first + len(names)}
		names = append(names, e.masks.Labels...)
	}
	if e.masks != nil && e.masks.wholeWords() {
		e.masks.fields = columns.Fields{Names: e.masks.WordStarts, First: first + len(names)}
		names = append(names, e.masks.WordStarts...)
	}
	return names
}

func (e *extras) reset() {
	if e.lent {
		e.memory, e.lent = e.pool.Take(), false
	}
	for i := range e.all {
		x := &e.all[i]
		x.offsets = x.offsets[:0]
		switch {
		case x.column == nil:
		case e.memory == nil:
			x.column.Begin(nil)
		default:
			x.column.Begin(&e.memory[i])
		}
	}
	if e.masks != nil {
		e.masks.keep(0)
	}
}

// keep drops all examples but the first n.
func (e *extras) keep(n int) {
	for i := range e.all {
		x := &e.all[i]
		if x.column != nil {
			x.column.Keep(min(n, x.column.Len()))
		}
		x.offsets = x.offsets[:min(n*x.each, len(x.offsets))]
	}
	if e.masks != nil {
		e.masks.keep(n)
	}
}

// read adds the values of a record with a number of tokens, of which those with mask 0 are padding. It
// reports whether the record has all labels, or returns the feature that is not as expected and what is
// wrong with it.
func (e *extras) read(values *tfrecord.Values, data []byte, tokens int, mask []int64) (labeled bool, name, reason string) {
	labeled = true
	for i := range e.all {
		x := &e.all[i]
		if !readsExtra(x.spec) {
			continue
		}
		name, v, list, reason := x.fields.Find(values)
		switch {
		case reason != "":
		case v != nil:
			reason = x.add(v, list, tokens, mask)
		case x.spec.Role == dataset.Weight:
			x.fill(tokens, 1)
		case x.spec.Role == dataset.Label && e.cfg.Labels == LabelsOptional:
			labeled = false
			x.fill(tokens, x.spec.Pad)
		default:
			reason = columns.Missing(x.fields.Names, data)
		}
		if reason != "" {
			return false, name, reason
		}
		if x.perToken() && mask != nil {
			x.column.Select(mask)
		}
	}
	if e.masks != nil && !e.masks.Given {
		if name, reason := e.masks.readLabels(values, tokens, mask); reason != "" {
			return false, name, reason
		}
	}
	if e.masks != nil && e.masks.wholeWords() && e.masks.given == nil {
		name, v, _, reason := e.masks.fields.Find(values)
		switch {
		case reason != "":
		case v == nil:
			reason = columns.Missing(e.masks.fields.Names, data)
		default:
			reason = e.masks.readStarts(v, tokens, mask)
		}
		if reason != "" {
			return false, name, reason
		}
	}
	return labeled, "", ""
}

// add adds the values of a record.
func (x *extra) add(v *tfrecord.Value, list *tfrecord.List, tokens int, mask []int64) string {
	if x.spec.Make == "" {
		length, reason := x.column.Add(v, list)
		switch {
		case reason != "":
			return reason
		case x.perToken() && length != tokens:
			return reasonLength(length, tokens, "token ids")
		case x.spec.Role == dataset.Weight:
			return columns.CheckWeights(v)
		}
		return ""
	}
	if v.Kind != tfrecord.KindInt64 {
		return fmt.Sprintf("has %v values; expected int64", v.Kind)
	}
	if x.spec.Make == MakeMultiHot {
		x.column.Fill(1, 0)
		n := int64(x.spec.Shape[0])
		for _, label := range v.Int64s {
			if label < 0 || label >= n {
				return fmt.Sprintf("has label %d; expected 0 to %d", label, n-1)
			}
			x.column.Mark(int(label))
		}
		return ""
	}
	if x.spec.Make == MakeParts {
		return x.addParts(v.Int64s, tokens, mask)
	}
	if len(v.Int64s) != 1 {
		return fmt.Sprintf("has %d values; expected the number of one token", len(v.Int64s))
	}
	return x.addOffset(v.Int64s[0], tokens, mask)
}

// addOffset adds the number of a token.
func (x *extra) addOffset(at int64, tokens int, mask []int64) string {
	if at < 0 || at >= int64(tokens) {
		return fmt.Sprintf("is %d; expected the number of a token, 0 to %d", at, tokens-1)
	}
	if mask != nil {
		if mask[at] == 0 {
			return fmt.Sprintf("is %d, which is padding; expected the number of a token", at)
		}
		padding := int64(0)
		for _, m := range mask[:at] {
			padding += 1 - m
		}
		at -= padding
	}
	x.offsets = append(x.offsets, int32(at))
	return ""
}

// fill adds an example whose values are all the same.
func (x *extra) fill(tokens int, value float64) {
	switch {
	case x.spec.Make == MakeOffset || x.spec.Make == MakeParts:
		for range x.each {
			x.offsets = append(x.offsets, 0)
		}
	case x.column != nil && x.perToken():
		x.column.Fill(tokens, value)
	case x.column != nil:
		x.column.Fill(1, value)
	}
}

// defaults adds an example that was not read from a record. The feature that is missing is returned if
// it must not be.
func (e *extras) defaults(tokens int) (labeled bool, missing string) {
	labeled = true
	for i := range e.all {
		x := &e.all[i]
		switch {
		case !readsExtra(x.spec):
		case x.spec.Make == MakeParts: // one
			x.fill(tokens, 0)
		case x.spec.Role == dataset.Weight:
			x.fill(tokens, 1)
		case x.spec.Role == dataset.Label && e.cfg.Labels == LabelsOptional:
			labeled = false
			x.fill(tokens, x.spec.Pad)
		default:
			return false, x.spec.Name
		}
	}
	if e.masks != nil && e.masks.wholeWords() {
		return false, e.masks.WordStarts[0]
	}
	return labeled, ""
}

// empty adds an example of a token that only fills up a batch.
func (e *extras) empty() {
	for i := range e.all {
		x := &e.all[i]
		if x.spec.Role == dataset.Weight {
			x.fill(1, 0)
		} else {
			x.fill(1, x.spec.Pad)
		}
	}
	if e.masks != nil {
		e.masks.end()
	}
}

// cut shortens the last example from n tokens to the first ones up to a limit and the last one. The
// number of a token that is gone becomes 0.
func (e *extras) cut(n, limit int) {
	for i := range e.all {
		x := &e.all[i]
		if x.perToken() {
			x.column.Ends(limit)
		}
		if x.spec.Make == MakeOffset {
			switch at := &x.offsets[len(x.offsets)-1]; {
			case int(*at) == n-1:
				*at = int32(limit - 1)
			case int(*at) >= limit-1:
				*at = 0
			}
		}
	}
	if e.masks != nil && e.masks.given != nil {
		e.masks.given[limit-1] = e.masks.given[n-1]
		e.masks.given = e.masks.given[:limit]
	} else if e.masks != nil && e.masks.wholeWords() {
		e.masks.starts[limit-1] = e.masks.starts[n-1]
		e.masks.starts = e.masks.starts[:limit]
	}
}

// source is a batch whose examples are copied.
type source struct {
	features    []*dataset.Feature // of the extras
	predictions []span             // of the examples, among the masked tokens
}

// of returns the batch as a source. spans are those of its examples.
func (e *extras) of(b *dataset.Batch, spans []span) (*source, error) {
	s := new(source)
	for i := range e.all {
		f := b.Feature(e.all[i].spec.Name)
		if f == nil {
			return nil, fmt.Errorf("the batch has no feature %s; expected the features of its layout", e.all[i].spec.Name)
		}
		s.features = append(s.features, f)
		if e.all[i].spec.Make == MakeMaskedPositions {
			s.predictions = predictionsOf(f.Int32, spans)
		}
	}
	return s, nil
}

// copy adds example i of a source, which has the given span.
func (e *extras) copy(s *source, i int, at span) {
	var labels []int32
	for k := range e.all {
		x, f := &e.all[k], s.features[k]
		switch {
		case x.perToken():
			x.column.Append(f, at.from, at.to)
		case x.column != nil:
			x.column.Copy(f, i, 1)
		case x.spec.Make == MakeOffset || x.spec.Make == MakeParts:
			for _, v := range f.Int32[i*x.each : (i+1)*x.each] {
				x.offsets = append(x.offsets, v-int32(at.from))
			}
		case x.spec.Make == MakeMaskedLabels:
			labels = f.Int32
		}
	}
	if e.masks == nil {
		return
	}
	for k := range e.all {
		if e.all[k].spec.Make == MakeMaskedPositions {
			for p := s.predictions[i].from; p < s.predictions[i].to; p++ {
				label := int32(0)
				if labels != nil {
					label = labels[p]
				}
				e.masks.add(s.features[k].Int32[p]-int32(at.from), label)
			}
		}
	}
	e.masks.end()
}

// laid are examples at their places in rows of a length, with n places on the axis of examples.
type laid struct {
	places          []place
	lengths         []int32
	weight          func(example int) float32
	rows, length, n int
}

// lay returns the features of examples that have their places.
func (e *extras) lay(at laid) []dataset.Feature {
	e.starts = e.starts[:0]
	for _, p := range at.places[:len(at.lengths)] {
		e.starts = append(e.starts, int(p.row)*at.length+int(p.start))
	}
	out := make([]dataset.Feature, len(e.all), len(e.all)+standardFeatures)
	for i := range e.all {
		x := &e.all[i]
		switch {
		case x.perToken():
			out[i] = x.column.Scatter(at.rows*at.length, e.starts, at.rows, at.length)
		case x.column != nil:
			out[i] = x.column.Stack(at.n, x.spec.Pad)
		default:
			out[i] = e.made(i, at)
		}
	}
	e.lent = true
	return out
}

// made returns a feature that is made of places or of masked tokens.
func (e *extras) made(i int, l laid) dataset.Feature {
	x := &e.all[i]
	f := dataset.Feature{Name: x.spec.Name}
	ints := func(shape ...int) []int32 {
		f.Shape = shape
		var memory []int32
		if e.memory != nil {
			memory = e.memory[i].Int32
		}
		f.Int32 = zeros(memory, f.Size())
		return f.Int32
	}
	// each calls a function with the cells of each example.
	each := func(set func(example int, cells []int32)) {
		all := ints(l.rows, l.length)
		for k, at := range e.starts {
			set(k, all[at:at+int(l.lengths[k])])
		}
	}
	switch x.spec.Make {
	case MakeSequenceIDs:
		each(func(k int, cells []int32) { e.parts(k).number(cells, l.places[k]) })
	case MakePositionIDs:
		each(func(k int, cells []int32) { e.parts(k).count(cells) })
	case MakeExampleIDs:
		fill(ints(l.rows, l.length), int32(l.n))
		for k, at := range e.starts {
			fill(f.Int32[at:at+int(l.lengths[k])], int32(k))
		}
	case MakeStarts:
		to := ints(l.n)
		for k, at := range e.starts {
			to[k] = int32(at)
		}
	case MakeOffset, MakeParts:
		to := ints(append([]int{l.n}, x.spec.Shape...)...)
		for k, at := range e.starts {
			for j := k * x.each; j < (k+1)*x.each; j++ {
				to[j] = int32(at) + x.offsets[j]
			}
		}
	case MakeMaskedPositions, MakeMaskedLabels:
		to := ints(e.masks.places(e.cfg, l.rows))
		from := int32(0)
		for k, end := range e.masks.ends {
			for p := from; p < end; p++ {
				if to[p] = e.masks.labels[p]; x.spec.Make == MakeMaskedPositions {
					to[p] = int32(e.starts[k]) + e.masks.at[p]
				}
			}
			from = end
		}
	case MakeMaskedWeights:
		f.Shape = []int{e.masks.places(e.cfg, l.rows)}
		var memory []float32
		if e.memory != nil {
			memory = e.memory[i].Float32
		}
		f.Float32 = zeros(memory, f.Shape[0])
		from := int32(0)
		for k, end := range e.masks.ends {
			for p := from; p < end; p++ {
				f.Float32[p] = l.weight(k)
			}
			from = end
		}
	}
	return f
}

func fill(to []int32, x int32) {
	for i := range to {
		to[i] = x
	}
}

// predictionsOf finds the masked tokens of each example: they are in the order of the examples, and
// ascend within one. Those that only fill up the axis follow.
func predictionsOf(positions []int32, spans []span) []span {
	out := make([]span, len(spans))
	p := 0
	for i, s := range spans {
		out[i].from = p
		for before := -1; p < len(positions) && int(positions[p]) >= s.from && int(positions[p]) < s.to && int(positions[p]) > before; p++ {
			before = int(positions[p])
		}
		out[i].to = p
	}
	return out
}

// settings returns the settings of extra features and masking.
func (c *Config) extraSettings() []dataset.Setting {
	var all []dataset.Setting
	if len(c.Extras) > 0 {
		var names []string
		for _, f := range c.Extras {
			names = append(names, f.String())
		}
		all = append(all, dataset.Setting{Key: "features", Name: "the list of extra features", Value: fmt.Sprint(names)})
	}
	if c.Targets != nil {
		var names []string
		for _, f := range c.Targets.Features {
			names = append(names, f.String())
		}
		all = append(all, dataset.Setting{Key: "target_row_length", Name: "the row length of targets", Value: c.Targets.RowLength},
			dataset.Setting{Key: "target_features", Name: "the list of features of targets", Value: fmt.Sprint(names)})
	}
	if c.Masking != nil {
		all = append(all, dataset.Setting{Key: "masking", Name: "the masking", Value: c.Masking.String()})
	}
	return all
}

// hasExtra reports whether there is an extra feature that is made in a way.
func (c *Config) hasExtra(made string) bool {
	return slices.ContainsFunc(c.Extras, func(f dataset.Spec) bool { return f.Make == made })
}
