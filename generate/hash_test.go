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
	news   int // tokens that it computed
	widest int // the most rows of a call

	sources         map[int32]int32 // the tokens of sources by slot
	encodes, encode int             // calls that encode sources, and the most that one does
}

func newHashModel(vocab, slots int) *hashModel {
	return &hashModel{vocab: vocab, tokens: make([]int32, slots+1), places: make([]int32, slots+1), sources: make(map[int32]int32)}
}

// read takes the sources that are to be encoded.
func (m *hashModel) read(e *generate.Sources) error {
	if e == nil {
		return nil
	}
	m.encodes, m.encode = m.encodes+1, max(m.encode, e.Rows)
	written := make(map[int32]bool)
	for i, slot := range e.Slots {
		switch {
		case slot == 0 && (e.InputIDs[i] != 0 || e.PositionIDs[i] != 0):
			return fmt.Errorf("token %d of the sources has the slot of padding", i)
		case slot != 0 && (written[slot] || e.PositionIDs[i] != int32(i%e.Tokens)):
			return fmt.Errorf("slot %d of sources is written twice, or place %d has number %d", slot, i%e.Tokens, e.PositionIDs[i])
		case slot != 0:
			written[slot] = true
			m.sources[slot] = e.InputIDs[i]
		}
	}
	return nil
}

// Compute implements generate.Model.
func (m *hashModel) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	m.calls++
	m.widest = max(m.widest, b.Rows)
	if err := m.read(b.Encode); err != nil {
		return nil, err
	}
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
		m.news++
		m.tokens[slot], m.places[slot] = b.InputIDs[i], b.PositionIDs[i]
	}
	var out []float32
	for r := range b.Rows {
		news := b.Slots[r*b.Tokens:][:b.Tokens]
		last := b.PositionIDs[r*b.Tokens+int(b.Last[r])]
		context := b.ContextSlots[r*b.Context:][:b.Context]
		var ids []int32 // those of the source first
		for _, slot := range b.SourceOf(r) {
			if slot != 0 {
				ids = append(ids, m.sources[slot])
			}
		}
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
