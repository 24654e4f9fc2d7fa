package packed

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Example is a tokenized text with its special tokens and without padding.
type Example struct {
	IDs     []int32
	TypeIDs []int32 // one for each of IDs, or none, which means all 0
	Label   int32
	Labeled bool // whether Label is set
}

// FromExamples packs examples into one batch, as a Dataset does with records.
// It uses only the fields Packing, RowLength, FixedRowLength, Rows, RowExamples, Truncate, Labels,
// NumLabels, VocabSize and NumTypes of the configuration. For an example that
// violates them it returns a RecordError without a file.
func FromExamples(cfg Config, examples []Example) (*dataset.Batch, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validateRows(len(examples)); err != nil {
		return nil, err
	}
	if err := cfg.validateFeatures(); err != nil {
		return nil, err
	}
	if len(examples) == 0 {
		return nil, errors.New("a batch has 0 examples; expected 1 or more")
	}
	a := newAssembler(&cfg, new(pool))
	for i, e := range examples {
		bad := func(feature, reason string) error {
			return &dataset.RecordError{Record: int64(i), Feature: feature, Reason: reason}
		}
		ids, types := e.IDs, e.TypeIDs
		if len(types) > 0 && len(types) != len(ids) {
			return nil, bad(TypeIDs, reasonLength(len(types), len(ids), "token ids"))
		}
		if reason := appendTokens(a, ids, nil, inputIDs); reason != "" {
			return nil, bad(InputIDs, reason)
		}
		if reason := appendTokens(a, types, nil, typeIDs); reason != "" {
			return nil, bad(TypeIDs, reason)
		}
		labeled := e.Labeled && cfg.Labels != LabelsNone
		if a.extras != nil {
			complete, missing := a.extras.defaults(len(ids))
			if missing != "" {
				return nil, bad(missing, "is missing")
			}
			a.complete = complete
		}
		if a.targets != nil {
			return nil, bad(TargetIDs, "is missing; expected examples of records")
		}
		switch {
		case !cfg.wants(LabelIDs):
			labeled = cfg.Labels != LabelsNone
		case labeled:
			if reason := cfg.checkLabel(int64(e.Label)); reason != "" {
				return nil, bad(LabelIDs, reason)
			}
		case cfg.Labels == LabelsRequired:
			return nil, bad(LabelIDs, "is missing")
		}
		if reason := a.end(dataset.RecordID{File: -1, Record: int64(i)}, e.Label, labeled, 1); reason != "" {
			return nil, bad(InputIDs, reason)
		}
	}
	if cfg.Rows > 0 {
		if reason := a.packFixed(); reason != "" {
			return nil, errors.New(reason)
		}
	}
	return a.Batch(), nil
}

func reasonLength(have, want int, what string) string {
	return fmt.Sprintf("has %d values; expected %d, one for each of the %s", have, want, what)
}

// checkLabel returns what is wrong with a label.
func (c *Config) checkLabel(v int64) string {
	switch {
	case c.NumLabels > 0 && (v < 0 || v >= int64(c.NumLabels)):
		return fmt.Sprintf("is %d; expected a label of 0 to %d", v, c.NumLabels-1)
	case v < math.MinInt32 || v > math.MaxInt32:
		return fmt.Sprintf("is %d; expected a 32-bit label", v)
	case v < 0:
		return fmt.Sprintf("is %d; expected a label of 0 or more", v)
	}
	return ""
}

// assembler collects the examples of one batch and lays them into rows. It and
// its memory are reused from batch to batch.
type assembler struct {
	cfg     *Config // with its defaults
	pool    *pool
	decoded *records // nil in one that is given no records

	tokens  [2][]int32 // input and type ids, one example after the other
	lengths []int32
	labels  []int32
	weights []float32 // empty if all are 1
	records []dataset.RecordID
	extras  *extras  // nil if there are none
	targets *targets // nil if there are none

	want     [standardFeatures]bool // the standard features of a batch
	complete bool                   // the example being collected has the labels among the extras

	start              int // first token of the example being collected
	labeled, truncated int
	packer             packer
	used, seqs         []int32 // of fixed rows: tokens and examples so far
	bucket             int     // of fixed rows: the length of the batch's rows
}

// The standard features by number, as in standard. The first two are the kinds of token numbers, as
// indices of assembler.tokens. Those below grids have a number for each cell, those below exampleWeights are int32.
const (
	inputIDs = iota
	typeIDs
	sequenceIDs
	positionIDs
	clsPositions
	labelIDs
	exampleWeights
	grids = clsPositions
)

func newAssembler(cfg *Config, free *pool) *assembler {
	a := &assembler{cfg: cfg, pool: free, extras: newExtras(cfg, &free.extras), targets: newTargets(cfg, free), complete: true, bucket: len(cfg.Buckets)}
	for i, name := range standard {
		a.want[i] = cfg.wants(name)
	}
	return a
}

// Begin implements dataset.EpochAssembler.
func (a *assembler) Begin(epoch int64) {
	if a.extras != nil && a.extras.masks != nil {
		a.extras.masks.epoch = epoch
	}
}

// keep drops all examples but the first n, whose tokens dropExample has dropped.
func (a *assembler) keep(n int) {
	a.lengths, a.labels, a.records = a.lengths[:n], a.labels[:n], a.records[:n]
	a.weights = a.weights[:min(n, len(a.weights))]
	if a.extras != nil {
		a.extras.keep(n)
	}
	if a.targets != nil {
		a.targets.keep(n)
	}
}

// weight returns the weight of an example.
func (a *assembler) weight(i int) float32 {
	if len(a.weights) == 0 {
		return 1
	}
	return a.weights[i]
}

// dropExample drops the tokens of the example that is being collected.
func (a *assembler) dropExample() {
	for i, t := range a.tokens {
		a.tokens[i] = t[:min(a.start, len(t))]
	}
	if a.extras != nil {
		a.extras.keep(len(a.lengths))
	}
	if a.targets != nil {
		a.targets.keep(len(a.lengths))
	}
}

// Reset implements dataset.Assembler.
func (a *assembler) Reset() {
	for i := range a.tokens {
		a.tokens[i] = a.tokens[i][:0]
	}
	a.lengths, a.labels, a.records = a.lengths[:0], a.labels[:0], a.records[:0]
	a.weights = a.weights[:0]
	a.start, a.labeled, a.truncated = 0, 0, 0
	if a.extras != nil {
		a.extras.reset()
	}
	if a.targets != nil {
		a.targets.reset()
	}
	a.used, a.seqs, a.bucket = a.used[:0], a.seqs[:0], len(a.cfg.Buckets)
}

// appendTokens appends the token numbers of an example, except where mask is 0.
// It returns what is wrong with a number, or "".
func appendTokens[T int32 | int64](a *assembler, values []T, mask []int64, kind int) string {
	limit, what := uint64(math.MaxInt32)+1, ""
	switch {
	case kind == inputIDs && a.cfg.VocabSize > 0:
		limit, what = min(limit, uint64(a.cfg.VocabSize)), "the size of the vocabulary"
	case kind == typeIDs && a.cfg.NumTypes > 0:
		limit, what = min(limit, uint64(a.cfg.NumTypes)), "the number of token types"
	}
	outside := func(i int) string {
		v := values[i]
		if what == "" {
			return fmt.Sprintf("has %d at position %d; expected 0 to %d", v, i, limit-1)
		}
		return fmt.Sprintf("has %d at position %d; expected 0 to %d, because %s is %d", v, i, limit-1, what, limit)
	}
	dst := a.tokens[kind]
	if mask != nil {
		for i, v := range values {
			if mask[i] == 0 {
				continue
			}
			if uint64(v) >= limit { // negative numbers as well
				return outside(i)
			}
			dst = append(dst, int32(v))
		}
		a.tokens[kind] = dst
		return ""
	}
	n := len(dst)
	dst = slices.Grow(dst, len(values))[:n+len(values)]
	to := dst[n:]
	over := uint64(0) // its highest bit is set if a number is out of range
	for i, v := range values[:len(to)] {
		to[i] = int32(v)
		over |= uint64(v) | (limit - 1 - uint64(v))
	}
	if over>>63 != 0 {
		return outside(slices.IndexFunc(values, func(v T) bool { return uint64(v) >= limit }))
	}
	a.tokens[kind] = dst
	return ""
}

// end finishes the example whose tokens and extras were appended before. It returns what is
// wrong with the length, or "". Missing types are 0.
func (a *assembler) end(id dataset.RecordID, label int32, labeled bool, weight float32) string {
	start := a.start
	n := len(a.tokens[inputIDs]) - start
	if n == 0 {
		return "has no tokens; expected at least one"
	}
	if len(a.tokens[typeIDs]) == start && a.want[typeIDs] {
		a.tokens[typeIDs] = append(a.tokens[typeIDs], make([]int32, n)...)
	}
	limit, what := a.cfg.limit(), "the limit of"
	if limit == a.cfg.RowLength {
		what = "the row length of"
	}
	if reason := a.checkParts(n); reason != "" {
		return reason
	}
	cut := false
	if n > limit {
		if !a.cfg.Truncate || a.cfg.parts() {
			return fmt.Sprintf("has %d tokens, more than %s %d", n, what, limit)
		}
		for i, t := range a.tokens {
			if len(t) == 0 {
				continue // no types
			}
			t[start+limit-1] = t[len(t)-1]
			a.tokens[i] = t[:start+limit]
		}
		if a.extras != nil {
			a.extras.cut(n, limit)
		}
		n, cut = limit, true
	}
	if a.cfg.Texts > 1 {
		if reason := a.checkTexts(); reason != "" {
			return reason
		}
	}
	if a.targets != nil {
		a.targets.end()
		cut = cut || a.targets.shortened
	}
	if cut {
		a.truncated++
	}
	if a.extras != nil && a.extras.masks != nil {
		if reason := a.extras.masks.checkGiven(a.cfg, n); reason != "" {
			return reason
		}
	}
	if labeled && a.complete {
		a.labeled++
	}
	if !labeled {
		label = 0
	}
	if a.extras != nil && a.extras.masks != nil {
		a.extras.masks.choose(a.tokens[inputIDs][start:start+n], id)
	}
	if weight != 1 && len(a.weights) == 0 {
		for range a.lengths {
			a.weights = append(a.weights, 1)
		}
	}
	if weight != 1 || len(a.weights) > 0 {
		a.weights = append(a.weights, weight)
	}
	a.start += n
	a.lengths = append(a.lengths, int32(n))
	a.labels = append(a.labels, label)
	a.records = append(a.records, id)
	return ""
}

// checkTexts returns what is wrong with the texts of the example that is being collected, or "".
func (a *assembler) checkTexts() string {
	text, length := int32(0), 0
	for i, t := range a.tokens[typeIDs][a.start:] {
		if t == text+1 && length > 0 {
			text, length = t, 0
		}
		if length++; t != text {
			return fmt.Sprintf("has a token of text %d at position %d, in text %d; expected texts 0 to %d, one after the other, in %s", t, i, text, a.cfg.Texts-1, TypeIDs)
		}
		if a.cfg.MaxTokens > 0 && length > a.cfg.MaxTokens {
			return fmt.Sprintf("has more than %d tokens in text %d; expected at most as many as the graph has positions", a.cfg.MaxTokens, text)
		}
	}
	if int(text)+1 < a.cfg.Texts && a.cfg.Labels != LabelsNone {
		return fmt.Sprintf("has %d texts; expected %d, which %s tells apart", text+1, a.cfg.Texts, TypeIDs)
	}
	return ""
}

// restart lets positions begin anew with each text.
func restart(positions, texts []int32) {
	first := int32(0)
	for i := 1; i < len(texts); i++ {
		if texts[i] != texts[i-1] {
			first = positions[i]
		}
		positions[i] -= first
	}
}

// Batch implements dataset.Assembler.
func (a *assembler) Batch() *dataset.Batch {
	if s := a.cfg.Shape(1); s.Rows > 0 {
		return a.lay(s.Rows, a.cfg.lengths()[a.bucket], s.Examples) // AddAt and packFixed have set the places
	}
	if len(a.lengths) == 0 {
		return a.nothing()
	}
	if a.targets != nil {
		rows, length := a.packSides()
		return a.lay(rows, length, len(a.lengths))
	}
	rows, length := a.packer.pack(a.cfg.Packing, a.lengths, a.cfg.RowLength, a.cfg.FixedRowLength)
	return a.lay(rows, length, len(a.lengths))
}

// pairs returns the pairs of tokens of which attention has values.
func (a *assembler) pairs() (sum int64) {
	for i, l := range a.lengths {
		sum += a.extras.parts(i).pairs(l)
	}
	return sum
}

// lay returns a batch of the examples at their places in rows of a length. The axis of examples has
// n places, of which those without an example weigh 0.
func (a *assembler) lay(rows, length, n int) *dataset.Batch {
	// One allocation holds all numbers of a type.
	cells := rows * length
	size := 0
	for i, want := range a.want[:exampleWeights] {
		switch {
		case want && i < grids:
			size += cells
		case want:
			size += n
		}
	}
	weights := 0
	if a.want[exampleWeights] {
		weights = n
	}
	m := a.pool.take(size, weights)
	numbers := m.ints
	var of [exampleWeights][]int32 // nil for those that are not wanted
	for i, want := range a.want[:exampleWeights] {
		size := cells
		if i >= grids {
			size = n
		}
		if want {
			of[i], numbers = numbers[:size:size], numbers[size:]
		}
	}
	tokens := a.place(&of, m.floats, length)

	// Another allocation holds everything that describes them.
	b := &struct {
		dataset.Batch
		features [standardFeatures]dataset.Feature
		shapes   [3]int
		lease    lease
	}{shapes: [...]int{rows, length, n}, lease: lease{from: a.pool, memory: m}}
	gridShape, axisShape := b.shapes[:2:2], b.shapes[2:3:3]
	features := b.features[:0]
	for i, want := range a.want {
		switch {
		case !want:
		case i < grids:
			features = append(features, dataset.Feature{Name: standard[i], Shape: gridShape, Int32: of[i]})
		case i < exampleWeights:
			features = append(features, dataset.Feature{Name: standard[i], Shape: axisShape, Int32: of[i]})
		default:
			features = append(features, dataset.Feature{Name: standard[i], Shape: axisShape, Float32: m.floats})
		}
	}
	if a.extras != nil {
		b.lease.extras = a.extras.lay(laid{a.packer.places, a.lengths, a.weight, rows, length, n})
		features = append(features, b.lease.extras...)
	}
	if a.targets != nil {
		at := laid{a.targets.places, a.targets.lengths, a.weight, rows, a.targets.rowLength, n}
		b.lease.targets, b.lease.targetSpans = a.targets.lay(at), at.spans()
		features = append(features, b.lease.targets...)
	}
	if !a.want[sequenceIDs] || !a.want[clsPositions] || a.cfg.parts() {
		b.lease.spans = laid{places: a.packer.places, lengths: a.lengths, length: length}.spans()
	}
	b.Batch = dataset.Batch{
		Features:  features,
		Examples:  len(a.lengths),
		Labeled:   a.labeled,
		Truncated: a.truncated,
		Tokens:    tokens,
		Pairs:     a.pairs(),
		Rows:      rows,
		RowLength: length,
		Records:   append([]dataset.RecordID(nil), a.records...),
		Lease:     &b.lease,
	}
	a.targets.count(&b.Batch, a.lengths)
	return &b.Batch
}

// place puts the examples into the standard features of rows of a length, and returns the number of
// their tokens.
func (a *assembler) place(of *[exampleWeights][]int32, weights []float32, length int) (tokens int) {
	ids, types, seqs, positions, cls := of[inputIDs], of[typeIDs], of[sequenceIDs], of[positionIDs], of[clsPositions]
	from := 0
	for i, p := range a.packer.places[:len(a.lengths)] {
		l := int(a.lengths[i])
		at := int(p.row)*length + int(p.start)
		if ids != nil {
			copy(ids[at:], a.tokens[inputIDs][from:from+l])
		}
		if types != nil {
			copy(types[at:], a.tokens[typeIDs][from:from+l])
		}
		if positions != nil {
			a.extras.parts(i).count(positions[at : at+l])
			if a.cfg.Texts > 1 {
				restart(positions[at:at+l], a.tokens[typeIDs][from:from+l])
			}
		}
		if seqs != nil {
			a.extras.parts(i).number(seqs[at:at+l], p)
		}
		if cls != nil {
			cls[i] = int32(at)
		}
		from += l
	}
	copy(of[labelIDs], a.labels)
	if copy(weights, a.weights) == 0 {
		for i := range weights[:min(len(weights), len(a.lengths))] {
			weights[i] = 1
		}
	}
	return from
}

// spans returns where the examples are in the flattened rows.
func (l laid) spans() []span {
	out := make([]span, len(l.lengths))
	for i, p := range l.places[:len(l.lengths)] {
		from := int(p.row)*l.length + int(p.start)
		out[i] = span{from, from + int(l.lengths[i])}
	}
	return out
}
