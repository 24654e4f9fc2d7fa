package packed

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Targets says how the targets of an encoder-decoder model are packed. An example is then a source, as
// without targets, and a target. A batch has as many rows of targets as of sources, and a row has the
// same examples, in the same order and with the same numbers, on both sides. T is the length of a row
// of targets.
type Targets struct {
	// RowLength is the maximum length of a row of targets, and so of a target, in tokens; that of the
	// rows of sources by default.
	RowLength int
	// MaxTokens is the maximum length of a target if it is less than that of a row; 0 means RowLength.
	MaxTokens int
	// Features are the features with a value for each token of the targets, or that are made as
	// sequence_ids, position_ids or example_ids of them: [-1] becomes [R, T]. One is TargetIDs, whose
	// values in records are the tokens. Numbers of IgnoredLabel at their end are padding, which is
	// dropped from all features.
	Features []dataset.Spec
	// Padding is the model's token of padding, with which targets in records must not end, since it would be
	// learned; nil if there is none.
	Padding *int32
}

// IgnoredLabel is the number in the place of a token with which records fill up targets, as Hugging
// Face's tools write them.
const IgnoredLabel = -100

// DefaultTargetIDs are the names under which TargetIDs is looked up in records, by default: that of
// gorbit convert, and those of Hugging Face's tools.
func DefaultTargetIDs() []string { return []string{TargetIDs, "labels", "decoder_target_ids"} }

// limit returns the maximum length of a target.
func (t *Targets) limit() int {
	if t.MaxTokens > 0 {
		return min(t.MaxTokens, t.RowLength)
	}
	return t.RowLength
}

// validateTargets checks the targets. seen has the names of the other features.
func (c *Config) validateTargets(seen map[string]bool) error {
	t := c.withDefaults().Targets
	switch {
	case t.RowLength < 1 || t.RowLength > maxRowLength:
		return fmt.Errorf("row length of targets is %d tokens; expected 1 to %d", t.RowLength, maxRowLength)
	case t.MaxTokens < 0:
		return fmt.Errorf("maximum tokens of a target is %d; expected 0 (the row length) or more", t.MaxTokens)
	case c.Masking != nil:
		return fmt.Errorf("there are targets, and masking is set; expected no masking")
	}
	ids := -1
	for i, f := range t.Features {
		if err := c.validateExtra(f); err != nil {
			return err
		}
		if seen[f.Name] {
			return fmt.Errorf("feature %s is given twice", f.Name)
		}
		seen[f.Name] = true
		if f.Open() != 0 {
			return fmt.Errorf("feature %s of targets has shape %v; expected -1 first, a value for each token", f.Name, f.Shape)
		}
		if f.Name == TargetIDs {
			ids = i
		}
	}
	if ids < 0 {
		return fmt.Errorf("targets have no feature %s; expected one, their tokens", TargetIDs)
	}
	if f := t.Features[ids]; f.DType != dataset.Int32 || f.Make != "" || len(f.Shape) != 1 {
		return fmt.Errorf("feature %s is %s; expected int32 [-1], read from records", TargetIDs, f)
	}
	return nil
}

// targets collects the targets of a batch.
type targets struct {
	*extras           // their features
	limit     int     // of a target
	truncate  bool    // cut longer ones
	padding   *int32  // the token that no target ends with; nil for none
	ids       *extra  // the tokens
	tokens    int     // of the target being collected
	shortened bool    // whether it was cut
	lengths   []int32 // of the targets
	places    []place // in the rows of targets
	rowLength int     // of the batch's rows of targets
	mask      []int64 // of the target being collected: 0 in padding
}

// newTargets returns nil if there are none.
func newTargets(cfg *Config, free *pool) *targets {
	if cfg.Targets == nil {
		return nil
	}
	side := &Config{Extras: cfg.Targets.Features, Labels: cfg.Labels}
	t := &targets{extras: newExtras(side, &free.targets), limit: cfg.Targets.limit(), truncate: cfg.Truncate, padding: cfg.Targets.Padding}
	for i := range t.all {
		if x := &t.all[i]; x.spec.Name == TargetIDs {
			t.ids = x
		}
	}
	return t
}

// read adds the target of a record, as extras.read does.
func (t *targets) read(values *tfrecord.Values, data []byte) (labeled bool, name, reason string) {
	t.mask = t.mask[:0]
	name, v, list, reason := t.ids.fields.Find(values)
	switch {
	case reason != "":
		return false, name, reason
	case list != nil && list.Found:
		v = &list.Value
	}
	if v != nil && v.Kind != tfrecord.KindInt64 {
		return false, name, fmt.Sprintf("has %v values; expected int64", v.Kind)
	}
	padded := 0
	if v != nil {
		if padded = len(v.Int64s); padded > columns.MostOpen {
			return false, name, fmt.Sprintf("has %d values; expected at most %d", padded, columns.MostOpen)
		}
		t.tokens = padded
		for t.tokens > 0 && v.Int64s[t.tokens-1] == IgnoredLabel {
			t.tokens--
		}
		if i := slices.Index(v.Int64s[:t.tokens], IgnoredLabel); i >= 0 {
			return false, name, fmt.Sprintf("has %d at position %d, before a token; expected it at the end only, as padding; target_weights of 0 leave out tokens", IgnoredLabel, i)
		}
		if p := t.padding; p != nil && t.tokens > 0 && v.Int64s[t.tokens-1] == int64(*p) {
			return false, name, fmt.Sprintf("ends with token %d, which is the model's padding and would be learned; expected targets without padding, or %d in its place", *p, IgnoredLabel)
		}
		if v.Int64s == nil || t.tokens == 0 {
			return false, name, "has no tokens; expected at least one"
		}
	}
	var mask []int64
	if t.tokens < padded {
		t.mask = slices.Grow(t.mask, padded)[:padded]
		low, _ := t.ids.spec.Range()
		for i := range t.mask {
			t.mask[i] = 1
			if i >= t.tokens {
				t.mask[i], v.Int64s[i] = 0, low // any token: it is not selected
			}
		}
		mask = t.mask
	}
	labeled, other, reason := t.extras.read(values, data, padded, mask)
	if reason != "" {
		return false, other, reason
	}
	if t.shortened = t.tokens > t.limit; !t.shortened {
		return labeled, "", ""
	}
	if !t.truncate {
		return false, name, fmt.Sprintf("has %d tokens, more than the limit of targets of %d", t.tokens, t.limit)
	}
	t.cut(t.tokens, t.limit)
	t.tokens = t.limit
	return labeled, "", ""
}

// count sets the numbers of tokens of the targets, and of pairs with their sources, of given lengths.
func (t *targets) count(b *dataset.Batch, sources []int32) {
	if t == nil {
		return
	}
	for i, l := range t.lengths {
		b.TargetTokens += int(l)
		b.TargetPairs += int64(l) * int64(l+sources[i])
	}
}

// end finishes the target that was read.
func (t *targets) end() { t.lengths = append(t.lengths, int32(t.tokens)) }

// reset drops all targets.
func (t *targets) reset() {
	t.extras.reset()
	t.lengths = t.lengths[:0]
}

// keep drops all targets but the first n.
func (t *targets) keep(n int) {
	t.extras.keep(n)
	t.lengths = t.lengths[:min(n, len(t.lengths))]
}

// empty adds a target of a token that only fills up a batch.
func (t *targets) empty() {
	t.extras.empty()
	t.lengths = append(t.lengths, 1)
}

// packSides sets the places of the examples and of their targets, and the length of the rows of
// targets. It returns the shape of the rows of sources.
func (a *assembler) packSides() (rows, length int) {
	t, n := a.targets, len(a.lengths)
	s := sides{lengths: [2][]int32{a.lengths, t.lengths}, limits: [2]int{a.cfg.RowLength, a.cfg.Targets.RowLength}}
	in := s.pack(a.cfg.Packing)
	a.packer.places, t.places = resize(a.packer.places, n), resize(t.places, n)
	seqs := make([]int32, len(s.used))
	starts := make([][2]int32, len(s.used))
	for _, i := range in {
		row := s.rowOf[i]
		seqs[row]++
		a.packer.places[i] = place{row, starts[row][0], seqs[row]}
		t.places[i] = place{row, starts[row][1], seqs[row]}
		starts[row][0] += a.lengths[i]
		starts[row][1] += t.lengths[i]
	}
	lengths := s.longest()
	if a.cfg.FixedRowLength {
		lengths = s.limits
	}
	t.rowLength = lengths[1]
	return len(s.used), lengths[0]
}

// sides lays examples of two lengths into rows of two limits.
type sides struct {
	lengths [2][]int32
	limits  [2]int

	rowOf []int32    // row by example, the result
	used  [][2]int32 // tokens by row
}

// pack chooses the rows. It returns the order in which examples are put into them.
func (s *sides) pack(how Packing) (in []int32) {
	n := len(s.lengths[0])
	s.rowOf, s.used = make([]int32, n), nil
	for i := range int32(n) {
		in = append(in, i)
	}
	switch how {
	case PackNone:
		for _, i := range in {
			s.put(i, s.add())
		}
	case PackFirstFit:
		for _, i := range in {
			row := slices.IndexFunc(s.used, func(used [2]int32) bool { return s.fits(used, i) })
			if row < 0 {
				row = s.add()
			}
			s.put(i, row)
		}
	default:
		// Those that take the largest share of a row, on the side where they do, come first.
		slices.SortStableFunc(in, func(a, b int32) int {
			return cmp.Compare(s.share([2]int32{s.lengths[0][b], s.lengths[1][b]}), s.share([2]int32{s.lengths[0][a], s.lengths[1][a]}))
		})
		s.bestFit(in)
		s.even(in)
	}
	return in
}

func (s *sides) add() int {
	s.used = append(s.used, [2]int32{})
	return len(s.used) - 1
}

func (s *sides) put(i int32, row int) {
	s.rowOf[i] = int32(row)
	for side := range s.lengths {
		s.used[row][side] += s.lengths[side][i]
	}
}

func (s *sides) fits(used [2]int32, i int32) bool {
	return int(used[0]+s.lengths[0][i]) <= s.limits[0] && int(used[1]+s.lengths[1][i]) <= s.limits[1]
}

// share returns how much of a row tokens take on the side where they take more, as a multiple of the
// inverse of both limits' product.
func (s *sides) share(tokens [2]int32) int64 {
	return max(int64(tokens[0])*int64(s.limits[1]), int64(tokens[1])*int64(s.limits[0]))
}

// bestFit puts each example into the row with the least room left in which it fits.
func (s *sides) bestFit(in []int32) {
	for _, i := range in {
		best, most := -1, int64(-1)
		for row, used := range s.used {
			if !s.fits(used, i) {
				continue
			}
			if full := int64(used[0])*int64(s.limits[1]) + int64(used[1])*int64(s.limits[0]); full > most {
				best, most = row, full
			}
		}
		if best < 0 {
			best = s.add()
		}
		s.put(i, best)
	}
}

// even shares the examples evenly among as many rows, each to the row that is least full, if the rows
// then are shorter.
func (s *sides) even(in []int32) {
	other := sides{lengths: s.lengths, limits: s.limits, rowOf: make([]int32, len(in)), used: make([][2]int32, len(s.used))}
	for _, i := range in {
		best, least := -1, int64(0)
		for row, used := range other.used {
			if !s.fits(used, i) {
				continue
			}
			if full := s.share([2]int32{used[0] + s.lengths[0][i], used[1] + s.lengths[1][i]}); best < 0 || full < least {
				best, least = row, full
			}
		}
		if best < 0 {
			return
		}
		other.put(i, best)
	}
	now, then := s.longest(), other.longest()
	if then[0]+then[1] < now[0]+now[1] {
		s.rowOf, s.used = other.rowOf, other.used
	}
}

// longest returns the tokens of the fullest row of each side.
func (s *sides) longest() (out [2]int) {
	for _, used := range s.used {
		for side, n := range used {
			out[side] = max(out[side], int(n))
		}
	}
	return out
}
