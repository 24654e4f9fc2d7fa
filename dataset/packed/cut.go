package packed

import (
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
)

// CutRows cuts the examples of a batch of the layout into pieces of at most length tokens, which do not see
// each other: each is a sequence of its own, whose positions begin again. All tokens stay, and so do the
// numbers that are indices in the flattened rows. Where no piece is in two rows of that length, as of
// examples that fill their rows, the rows get that length, and there are more of them. The features share
// their memory with the given ones but for those that change.
//
// How examples are packed does not change what a token sees.
func (c Config) CutRows(features []dataset.Feature, length int) []dataset.Feature {
	find := func(name string) int {
		return slices.IndexFunc(features, func(f dataset.Feature) bool { return f.Name == name && len(f.Shape) == 2 })
	}
	s, p := find(SequenceIDs), find(PositionIDs)
	if s < 0 || p < 0 || length < 1 || features[s].Shape[1] <= length {
		return features
	}
	rows, row := features[s].Shape[0], features[s].Shape[1]
	sequences, positions, apart := pieces(features[s].Int32, features[p].Int32, row, length)
	out := slices.Clone(features)
	out[s].Int32, out[p].Int32 = sequences, positions
	if !apart {
		return out
	}
	for k := range out {
		if f := &out[k]; c.perToken(f.Name) {
			f.Shape = slices.Concat([]int{rows * row / length, length}, f.Shape[2:])
		}
	}
	for i, n := range sequences { // each row is numbered by itself
		if n > 0 {
			sequences[i] = (n-1)%int32(length) + 1
		}
	}
	return out
}

// Pairs returns the number of pairs of tokens that see each other in the rows of a batch, as a dataset.Batch
// counts them, by the numbers of the sequences. It is 0 without these.
func Pairs(features []dataset.Feature) (sum int64) {
	s := slices.IndexFunc(features, func(f dataset.Feature) bool { return f.Name == SequenceIDs && len(f.Shape) == 2 })
	if s < 0 {
		return 0
	}
	for row := range slices.Chunk(features[s].Int32, max(1, features[s].Shape[1])) {
		for from := 0; from < len(row); {
			to := from + 1
			for to < len(row) && row[to] == row[from] {
				to++
			}
			if n := int64(to - from); row[from] != 0 {
				sum += n * n
			}
			from = to
		}
	}
	return sum
}

// perToken reports whether a feature has a value for each token.
func (c Config) perToken(name string) bool {
	switch name {
	case InputIDs, TypeIDs, SequenceIDs, PositionIDs:
		return true
	}
	return slices.ContainsFunc(c.Extras, func(f dataset.Spec) bool { return f.Name == name && f.Open() == 0 })
}

// pieces returns the numbers of the sequences and the positions of examples that are cut after every
// length tokens, and whether no piece goes on at a multiple of the length in its row. The number of a
// piece is its place in the row, from 1.
func pieces(sequences, positions []int32, row, length int) (numbers, places []int32, apart bool) {
	numbers, places = make([]int32, len(sequences)), make([]int32, len(sequences))
	apart = row%length == 0
	for i, s := range sequences {
		if s == 0 {
			continue
		}
		if places[i] = positions[i] % int32(length); places[i] == 0 {
			numbers[i] = int32(i%row) + 1
			continue
		}
		numbers[i] = numbers[i-1]
		apart = apart && i%row%length != 0
	}
	return numbers, places, apart
}
