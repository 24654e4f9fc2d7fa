package packed

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
)

// TestCutRowsLaws compares which tokens see each other, and their positions, with those of examples that
// are cut before they are packed.
func TestCutRowsLaws(t *testing.T) {
	cfg := Config{RowLength: 12, Labels: LabelsNone, Extras: []dataset.Spec{{Name: "whose", DType: dataset.Int32, Shape: []int{-1}, Make: MakeExampleIDs}}}
	r := rand.New(rand.NewPCG(3, 4))
	shorter := 0
	for range 300 {
		var examples []Example
		next := int32(1)
		whole := r.IntN(2) == 0 // all fill their rows
		for range 1 + r.IntN(6) {
			e := Example{IDs: make([]int32, 1+r.IntN(12))}
			if whole {
				e.IDs = make([]int32, 12)
			}
			for i := range e.IDs {
				e.IDs[i], next = next, next+1
			}
			examples = append(examples, e)
		}
		cfg.Packing = []Packing{PackBestFit, PackFirstFit, PackNone}[r.IntN(3)]
		b, err := FromExamples(cfg, examples)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(b.Feature(PositionIDs).Int32)
		length := 1 + r.IntN(12)
		cut := &dataset.Batch{Features: cfg.CutRows(b.Features, length)}
		if !slices.Equal(b.Feature(PositionIDs).Int32, before) || !slices.Equal(b.Feature(InputIDs).Shape, []int{b.Rows, b.RowLength}) {
			t.Fatal("the batch itself has changed")
		}
		ids, seqs, positions := cut.Feature(InputIDs), cut.Feature(SequenceIDs).Int32, cut.Feature(PositionIDs).Int32
		row := ids.Shape[1]
		if row < b.RowLength {
			shorter++
			if row != length {
				t.Fatalf("rows have %d tokens, want %d", row, length)
			}
		} else if whole && b.RowLength%length == 0 && b.RowLength > length {
			t.Fatalf("rows of %d tokens are not cut into those of %d", row, length)
		}
		for _, name := range []string{InputIDs, TypeIDs, SequenceIDs, PositionIDs, "whose"} {
			f := cut.Feature(name)
			if !slices.Equal(f.Shape, ids.Shape) || len(f.Int32) != ids.Shape[0]*ids.Shape[1] {
				t.Fatalf("%s has shape %v and %d values; input ids have shape %v", name, f.Shape, len(f.Int32), ids.Shape)
			}
		}
		if !slices.Equal(cut.Feature(ClsPositions).Int32, b.Feature(ClsPositions).Int32) {
			t.Fatal("examples begin elsewhere")
		}
		countPairs(t, b, cut, examples, length)
		// The piece of each token, by its id.
		piece, place := map[int32]int32{}, map[int32]int32{}
		for _, e := range examples {
			for i, id := range e.IDs {
				piece[id], place[id] = e.IDs[i/length*length], int32(i%length)
			}
		}
		for i, id := range ids.Int32 {
			if seqs[i] < 0 || int(seqs[i]) > row || (seqs[i] == 0) != (id == 0) {
				t.Fatalf("cell %d of token %d has sequence %d in a row of %d", i, id, seqs[i], row)
			}
			if id != 0 && positions[i] != place[id] {
				t.Fatalf("token %d has position %d, want %d", id, positions[i], place[id])
			}
			for j := i / row * row; j < i/row*row+row; j++ {
				if other := ids.Int32[j]; id != 0 && other != 0 && (seqs[i] == seqs[j]) != (piece[id] == piece[other]) {
					t.Fatalf("tokens %d and %d of pieces %d and %d have sequences %d and %d", id, other, piece[id], piece[other], seqs[i], seqs[j])
				}
			}
		}
		inOneRow(t, ids.Int32, row, piece)
	}
	if shorter == 0 {
		t.Error("no rows were cut; the test compares nothing")
	}
}

// countPairs checks the pairs of tokens of a batch, and of its pieces of at most length tokens.
func countPairs(t *testing.T, b, cut *dataset.Batch, examples []Example, length int) {
	t.Helper()
	if got := Pairs(b.Features); got != b.Pairs {
		t.Fatalf("%d pairs of tokens; the batch has %d", got, b.Pairs)
	}
	pairs := int64(0)
	for _, e := range examples {
		for piece := range slices.Chunk(e.IDs, length) {
			pairs += int64(len(piece) * len(piece))
		}
	}
	if got := Pairs(cut.Features); got != pairs {
		t.Fatalf("%d pairs of tokens in pieces of %d, expected %d", got, length, pairs)
	}
}

// inOneRow checks that the tokens of a piece are in one row.
func inOneRow(t *testing.T, ids []int32, row int, piece map[int32]int32) {
	t.Helper()
	rowOf := map[int32]int{}
	for i, id := range ids {
		if at, ok := rowOf[piece[id]]; id != 0 && ok && at != i/row {
			t.Fatalf("piece %d is in rows %d and %d", piece[id], at, i/row)
		}
		rowOf[piece[id]] = i / row
	}
}
