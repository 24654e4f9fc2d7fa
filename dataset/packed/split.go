package packed

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/data/heap"
)

// Split divides the examples of a batch into n batches with about the same number of
// tokens, and packs each into rows of its own. The examples of a part keep their order.
// It uses only Packing, RowLength, FixedRowLength, Rows and RowExamples of the configuration. Fixed
// rows stay as they are, and the parts have the Shape of n.
//
// Every example is in exactly one part. If there are fewer examples than parts, the
// remaining parts have one token in an example of weight 0. Examples and Tokens of
// such a batch are 0.
func (c Config) Split(b *dataset.Batch, n int) ([]*dataset.Batch, error) {
	c = c.withDefaults()
	if err := c.validateRows(b.Examples); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("number of parts of a batch is %d; expected 1 or more", n)
	}
	if c.Rows > 0 {
		return c.divideFixed(b, n)
	}
	examples, err := spans(b)
	if err != nil {
		return nil, err
	}
	out := make([]*dataset.Batch, n)
	a := newAssembler(&c, new(pool))
	from, err := a.source(b, examples)
	if err != nil {
		return nil, err
	}
	for i, part := range share(from.sizes(), n) {
		a.Reset()
		for _, e := range part {
			a.copy(from, e)
		}
		out[i] = a.Batch()
		out[i].PartOf(b)
	}
	return out, nil
}

// batch is one whose examples are copied.
type batch struct {
	*dataset.Batch
	spans              []span
	ids, types, labels []int32 // nil if the batch does not have them
	weights            []float32
	extras             *source
	targets            *source // with targetSpans; nil if there are none
	targetSpans        []span
}

// sizes returns the number of tokens of each example, with those of its target.
func (b *batch) sizes() []int {
	out := make([]int, len(b.spans))
	for i, s := range b.spans {
		out[i] = s.to - s.from
		if b.targets != nil {
			out[i] += b.targetSpans[i].to - b.targetSpans[i].from
		}
	}
	return out
}

// source returns a batch to copy examples from.
func (a *assembler) source(b *dataset.Batch, examples []span) (*batch, error) {
	from := &batch{Batch: b, spans: examples}
	for _, f := range b.Features {
		switch f.Name {
		case InputIDs:
			from.ids = f.Int32
		case TypeIDs:
			from.types = f.Int32
		case LabelIDs:
			from.labels = f.Int32
		case ExampleWeights:
			from.weights = f.Float32
		}
	}
	var err error
	if a.extras != nil {
		if from.extras, err = a.extras.of(b, examples); err != nil {
			return nil, err
		}
	}
	if a.targets != nil {
		l, ok := b.Lease.(*lease)
		if !ok || l.targetSpans == nil && len(examples) > 0 {
			return nil, errors.New("the batch has no targets; expected the features of its layout")
		}
		from.targetSpans = l.targetSpans
		from.targets, err = a.targets.of(b, l.targetSpans)
	}
	return from, err
}

// copy adds an example of another batch.
func (a *assembler) copy(b *batch, e int) {
	s := b.spans[e]
	label := int32(0)
	if b.labels != nil {
		label = b.labels[e]
	}
	if b.ids != nil {
		a.tokens[inputIDs] = append(a.tokens[inputIDs], b.ids[s.from:s.to]...)
	}
	if b.types != nil {
		a.tokens[typeIDs] = append(a.tokens[typeIDs], b.types[s.from:s.to]...)
	}
	if b.weights != nil {
		a.weights = append(a.weights, b.weights[e])
	}
	a.lengths = append(a.lengths, int32(s.to-s.from))
	a.labels, a.records = append(a.labels, label), append(a.records, b.Records[e])
	if a.extras != nil {
		a.extras.copy(b.extras, e, s)
	}
	if a.targets != nil {
		t := b.targetSpans[e]
		a.targets.copy(b.targets, e, t)
		a.targets.lengths = append(a.targets.lengths, int32(t.to-t.from))
	}
}

// Divide implements dataset.Layout with Split. If longRows is more than the configured row length,
// and rows are packed by best fit without a fixed length and without targets, the micro-batches have
// rows of up to longRows tokens. A single micro-batch with the same rows is the batch itself. The micro-batches of
// a batch with fixed rows have its rows, in the Shape of n.
func (c Config) Divide(b *dataset.Batch, n, longRows int) ([]*dataset.Batch, error) {
	c, longer := c.withDefaults().longRows(longRows)
	if c.Rows > 0 && n > 1 {
		return c.divideFixed(b, n)
	}
	if n == 1 && !longer {
		return []*dataset.Batch{b}, nil
	}
	return c.Split(b, n)
}

// longRows returns the configuration, whose defaults are set, with rows of up to n
// tokens, and true, if rows may be that long.
func (c Config) longRows(n int) (Config, bool) {
	if c.Packing != PackBestFit || c.FixedRowLength || c.Targets != nil || n <= c.RowLength {
		return c, false
	}
	c.RowLength = n
	return c, true
}

// nothing returns a batch of one token in an example of weight 0, which does not change
// any sum.
func (a *assembler) nothing() *dataset.Batch {
	a.Reset()
	a.tokens[inputIDs], a.tokens[typeIDs] = append(a.tokens[inputIDs], 0), append(a.tokens[typeIDs], 0)
	a.lengths, a.labels, a.weights = append(a.lengths, 1), append(a.labels, 0), append(a.weights, 0)
	if a.extras != nil {
		a.extras.empty()
	}
	if a.targets != nil {
		a.targets.empty()
	}
	b := a.Batch()
	b.Examples, b.Tokens, b.Pairs, b.TargetTokens, b.TargetPairs = 0, 0, 0, 0, 0
	return b
}

// span is the range of an example's tokens in the flattened rows.
type span struct{ from, to int }

// spans finds the examples in the rows.
func spans(b *dataset.Batch) ([]span, error) {
	if b.Features == nil {
		return nil, errors.New("the batch has been released")
	}
	if b.Examples == 0 {
		return nil, nil
	}
	if l, ok := b.Lease.(*lease); ok && l.spans != nil {
		return l.spans, nil
	}
	if b.Feature(SequenceIDs) == nil || b.Feature(ClsPositions) == nil {
		return nil, errors.New("the batch was made by another layout")
	}
	sequences, cls := b.Feature(SequenceIDs).Int32, b.Feature(ClsPositions).Int32[:b.Examples]
	out := make([]span, len(cls))
	for i, at := range cls {
		from := int(at)
		row := sequences[from : (from/b.RowLength+1)*b.RowLength]
		n := slices.IndexFunc(row, func(s int32) bool { return s != row[0] })
		if n < 0 {
			n = len(row)
		}
		out[i] = span{from, from + n}
	}
	return out, nil
}

// share divides examples of so many tokens among n parts: the longest first, each to the part with the
// fewest tokens so far, and the first such part in a tie.
func share(sizes []int, n int) [][]int {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return sizes[j] - sizes[i] })
	parts := make([][]int, n)
	var least heap.Heap[int] // parts by their number of tokens
	for i := range parts {
		least.Push(uint64(i), i)
	}
	for _, e := range order {
		tokens, part := least[0].Key>>32, least[0].Value
		parts[part] = append(parts[part], e)
		least.Replace((tokens+uint64(sizes[e]))<<32|uint64(part), part)
	}
	for _, p := range parts {
		slices.Sort(p)
	}
	return parts
}
