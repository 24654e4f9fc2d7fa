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
		switch {
		case labeled:
			if reason := cfg.checkLabel(int64(e.Label)); reason != "" {
				return nil, bad(LabelIDs, reason)
			}
		case cfg.Labels == LabelsRequired:
			return nil, bad(LabelIDs, "is missing")
		}
		if reason := a.end(dataset.RecordID{File: -1, Record: int64(i)}, e.Label, labeled); reason != "" {
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
	records []dataset.RecordID

	start              int // first token of the example being collected
	labeled, truncated int
	count              []int32 // 0, 1, 2, ...
	packer             packer
	used, seqs         []int32 // of fixed rows: tokens and examples so far
}

// The two kinds of token numbers, as indices of assembler.tokens.
const (
	inputIDs = iota
	typeIDs
)

func newAssembler(cfg *Config, free *pool) *assembler {
	return &assembler{cfg: cfg, pool: free}
}

// dropExample drops the tokens of the example that is being collected.
func (a *assembler) dropExample() {
	for i, t := range a.tokens {
		a.tokens[i] = t[:a.start]
	}
}

// Reset implements dataset.Assembler.
func (a *assembler) Reset() {
	for i := range a.tokens {
		a.tokens[i] = a.tokens[i][:0]
	}
	a.lengths, a.labels, a.records = a.lengths[:0], a.labels[:0], a.records[:0]
	a.start, a.labeled, a.truncated = 0, 0, 0
	a.used, a.seqs = a.used[:0], a.seqs[:0]
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

// end finishes the example whose tokens were appended before. It returns what is
// wrong with the length, or "". Missing types are 0.
func (a *assembler) end(id dataset.RecordID, label int32, labeled bool) string {
	start := a.start
	n := len(a.tokens[inputIDs]) - start
	if n == 0 {
		return "has no tokens; expected at least one"
	}
	if len(a.tokens[typeIDs]) == start {
		a.tokens[typeIDs] = append(a.tokens[typeIDs], make([]int32, n)...)
	}
	limit, what := a.cfg.limit(), "the limit of"
	if limit == a.cfg.RowLength {
		what = "the row length of"
	}
	if n > limit {
		if !a.cfg.Truncate {
			return fmt.Sprintf("has %d tokens, more than %s %d", n, what, limit)
		}
		for i, t := range a.tokens {
			t[start+limit-1] = t[len(t)-1]
			a.tokens[i] = t[:start+limit]
		}
		n = limit
		a.truncated++
	}
	if labeled {
		a.labeled++
	} else {
		label = 0
	}
	a.start += n
	a.lengths = append(a.lengths, int32(n))
	a.labels = append(a.labels, label)
	a.records = append(a.records, id)
	return ""
}

// Batch implements dataset.Assembler.
func (a *assembler) Batch() *dataset.Batch {
	if s := a.cfg.Shape(1); s.Rows > 0 {
		return a.lay(s.Rows, s.RowLength, s.Examples) // AddAt and packFixed have set the places
	}
	if len(a.lengths) == 0 {
		return a.nothing()
	}
	rows, length := a.packer.pack(a.cfg.Packing, a.lengths, a.cfg.RowLength, a.cfg.FixedRowLength)
	return a.lay(rows, length, len(a.lengths))
}

// lay returns a batch of the examples at their places in rows of a length. The axis of examples has
// n places, of which those without an example weigh 0.
func (a *assembler) lay(rows, length, n int) *dataset.Batch {
	// One allocation holds all numbers of a type.
	cells := rows * length
	m := a.pool.take(4*cells+2*n, n)
	ints := m.ints
	take := func(n int) []int32 {
		t := ints[:n:n]
		ints = ints[n:]
		return t
	}
	ids, types, seqs, positions := take(cells), take(cells), take(cells), take(cells)
	cls, labels := take(n), take(n)
	weights := m.floats
	for len(a.count) < length {
		a.count = append(a.count, int32(len(a.count)))
	}

	from := 0
	for i, p := range a.packer.places[:len(a.lengths)] {
		l := int(a.lengths[i])
		at := int(p.row)*length + int(p.start)
		copy(ids[at:], a.tokens[inputIDs][from:from+l])
		copy(types[at:], a.tokens[typeIDs][from:from+l])
		copy(positions[at:], a.count[:l])
		seq := seqs[at : at+l]
		for k := range seq {
			seq[k] = p.seq
		}
		cls[i] = int32(at)
		weights[i] = 1
		from += l
	}
	copy(labels, a.labels)

	// Another allocation holds everything that describes them.
	b := &struct {
		dataset.Batch
		features [7]dataset.Feature
		shapes   [3]int
		lease    lease
	}{shapes: [...]int{rows, length, n}, lease: lease{a.pool, m}}
	grid, axis := b.shapes[:2:2], b.shapes[2:3:3]
	b.features = [...]dataset.Feature{
		{Name: InputIDs, Shape: grid, Int32: ids},
		{Name: TypeIDs, Shape: grid, Int32: types},
		{Name: SequenceIDs, Shape: grid, Int32: seqs},
		{Name: PositionIDs, Shape: grid, Int32: positions},
		{Name: ClsPositions, Shape: axis, Int32: cls},
		{Name: LabelIDs, Shape: axis, Int32: labels},
		{Name: ExampleWeights, Shape: axis, Float32: weights},
	}
	b.Batch = dataset.Batch{
		Features:  b.features[:],
		Examples:  len(a.lengths),
		Labeled:   a.labeled,
		Truncated: a.truncated,
		Tokens:    from,
		Rows:      rows,
		RowLength: length,
		Records:   append([]dataset.RecordID(nil), a.records...),
		Lease:     &b.lease,
	}
	return &b.Batch
}
