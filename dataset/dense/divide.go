package dense

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Divide implements dataset.Layout. Every example is in exactly one micro-batch. If there are fewer
// examples than micro-batches, the remaining ones have one example of weight 0; Examples and Tokens of
// such a batch are 0. Without an open axis, micro-batches share the memory of the batch. longRows means
// nothing here.
//
// With a fixed number of Examples, all micro-batches have the same number of them (PartExamples), and
// consecutive examples are together.
func (c Config) Divide(b *dataset.Batch, n, _ int) ([]*dataset.Batch, error) {
	c = c.withDefaults()
	own, ok := b.Lease.(*lease)
	switch {
	case n < 1:
		return nil, fmt.Errorf("number of parts of a batch is %d; expected 1 or more", n)
	case b.Features == nil:
		return nil, errors.New("the batch has been released")
	case !ok:
		return nil, errors.New("the batch was made by another layout")
	case n == 1:
		return []*dataset.Batch{b}, nil
	}
	p := newPlan(c)
	if len(p.specs) != len(b.Features) {
		return nil, fmt.Errorf("the batch has %d features; expected the %d of its layout", len(b.Features), len(p.specs))
	}
	each := c.PartExamples(n)
	var groups [][]int
	switch {
	case each > 0:
		groups = blocks(b.Examples, n, each)
	case p.open && !c.EvenParts:
		groups = byCost(own.lengths, n)
	default:
		groups = even(b.Examples, n)
	}
	out := make([]*dataset.Batch, n)
	var a *assembler
	for i, group := range groups {
		if !p.open && len(group) > 0 && (each == 0 || len(group) == each) {
			out[i] = slice(b, group[0], group[0]+len(group))
			continue
		}
		if a == nil {
			a = newAssembler(p)
		}
		a.Reset()
		a.bucket = own.bucket
		for _, e := range group {
			for j := range a.columns {
				a.columns[j].Copy(&b.Features[j], e, own.lengths[e])
			}
			a.lengths, a.records = append(a.lengths, own.lengths[e]), append(a.records, b.Records[e])
		}
		out[i] = a.lay(each)
		out[i].PartOf(b)
	}
	return out, nil
}

// PartExamples returns the number of examples of each of n micro-batches of a batch with a fixed number
// of them, and 0 if the number is not fixed.
func (c Config) PartExamples(n int) int { return (c.Examples + n - 1) / n }

// slice returns the examples from one up to another, in the memory of the batch.
func slice(b *dataset.Batch, from, to int) *dataset.Batch {
	p := &dataset.Batch{Examples: to - from, Rows: to - from, Records: b.Records[from:to:to]}
	for i := range b.Features {
		p.Features = append(p.Features, b.Features[i].Part(from, to))
	}
	p.PartOf(b)
	return p
}

// blocks divides n examples among parts of the given number of examples.
func blocks(n, parts, each int) [][]int {
	out := make([][]int, parts)
	for i := range n {
		out[i/each] = append(out[i/each], i)
	}
	return out
}

// even divides n consecutive examples among parts, as evenly as possible.
func even(n, parts int) [][]int {
	out := make([][]int, parts)
	for p := range out {
		for i := n * p / parts; i < n*(p+1)/parts; i++ {
			out[p] = append(out[p], i)
		}
	}
	return out
}

// byCost divides examples among parts whose costs, the number of examples times the longest, are as
// little as possible at most. Examples of similar lengths are together, in their order in the batch. Of
// as many parts as examples or fewer, each has an example.
func byCost(lengths []int, parts int) [][]int {
	order := make([]int, len(lengths))
	sum := 0
	for i := range order {
		order[i] = i
		sum += lengths[i]
	}
	if len(order) == 0 {
		return make([][]int, parts)
	}
	slices.SortStableFunc(order, func(i, j int) int { return lengths[j] - lengths[i] })
	longest := lengths[order[0]]
	// The least cost with which that many parts are enough.
	low, high := max(longest, (sum+parts-1)/parts), longest*len(order)
	for low < high {
		if middle := low + (high-low)/2; len(cutBy(order, lengths, middle)) <= parts {
			high = middle
		} else {
			low = middle + 1
		}
	}
	groups := cutBy(order, lengths, high)
	for len(groups) < min(parts, len(order)) {
		most, cost := -1, 0
		for i, g := range groups {
			if own := len(g) * lengths[g[0]]; len(g) > 1 && own > cost {
				most, cost = i, own
			}
		}
		g := groups[most]
		groups = slices.Insert(groups, most+1, g[len(g)/2:])
		groups[most] = g[:len(g)/2]
	}
	out := make([][]int, parts)
	for i, g := range groups {
		out[i] = slices.Clone(g)
		slices.Sort(out[i])
	}
	return out
}

// cutBy cuts examples, the longest first, into groups of at most a cost each.
func cutBy(order, lengths []int, cost int) (groups [][]int) {
	for len(order) > 0 {
		n := min(len(order), cost/lengths[order[0]])
		groups = append(groups, order[:n])
		order = order[n:]
	}
	return groups
}
