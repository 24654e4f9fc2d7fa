package generate_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/generate"
)

// hashModel is the model of testdata/golden.py: its logits are a hash of the sequence. It knows a sequence
// by its cache alone, which holds the token and the place of each slot, and checks the batches it is given.
type hashModel struct {
	vocab  int
	tokens []int32 // by slot
	places []int32
	calls  int
	widest int // the most rows of a call
}

func newHashModel(vocab, slots int) *hashModel {
	return &hashModel{vocab: vocab, tokens: make([]int32, slots+1), places: make([]int32, slots+1)}
}

// Compute implements generate.Model.
func (m *hashModel) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	m.calls++
	m.widest = max(m.widest, b.Rows)
	written := make(map[int32]bool)
	for i, slot := range b.Slots {
		if slot == 0 {
			if b.InputIDs[i] != 0 || b.PositionIDs[i] != 0 {
				return nil, fmt.Errorf("token %d has the slot of padding", i)
			}
			continue
		}
		if written[slot] {
			return nil, fmt.Errorf("slot %d is written twice", slot)
		}
		written[slot] = true
		m.tokens[slot], m.places[slot] = b.InputIDs[i], b.PositionIDs[i]
	}
	var out []float32
	for r := range b.Rows {
		news := b.Slots[r*b.Tokens:][:b.Tokens]
		last := b.PositionIDs[r*b.Tokens+int(b.Last[r])]
		context := b.ContextSlots[r*b.Context:][:b.Context]
		var ids []int32
		for place, slot := range context[:last+1] {
			if slot == 0 || m.places[slot] != int32(place) {
				return nil, fmt.Errorf("row %d has slot %d at place %d, which holds place %d", r, slot, place, m.places[slot])
			}
			ids = append(ids, m.tokens[slot])
		}
		if first := int(last - b.Last[r]); !slices.Equal(context[first:last+1], news[:b.Last[r]+1]) {
			return nil, fmt.Errorf("row %d ends with slots %v; expected its new ones, %v", r, context[first:last+1], news)
		}
		out = append(out, hashLogits(ids, m.vocab)...)
	}
	return out, nil
}

func hashLogits(ids []int32, vocab int) []float32 {
	h := uint32(2166136261)
	for _, id := range ids {
		h = (h ^ uint32(id)) * 16777619
		h ^= h >> 15
	}
	out := make([]float32, vocab)
	for j := range out {
		x := h + uint32(j+1)*0x9E3779B9
		x ^= x >> 16
		x *= 0x7FEB352D
		x ^= x >> 15
		x *= 0x846CA68B
		x ^= x >> 16
		out[j] = float32(x>>8)/(1<<21) - 4
	}
	return out
}
