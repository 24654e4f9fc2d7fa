package predict

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// Maker is what there is to know of a model that makes texts, token by token, besides its graph and its
// tokenizer: it continues them or, if it has sources, makes them of others.
type Maker struct {
	// MaxLength is the most tokens of a sequence, VocabSize the number of logits, and SlotBytes the size of what
	// the caches hold of a token.
	MaxLength int   `json:"max_length"`
	VocabSize int   `json:"vocab_size"`
	SlotBytes int64 `json:"slot_bytes"`
	// SourceLength is the most tokens of a source, and SourceSlotBytes the size of what the caches hold of one;
	// 0 of a model without sources. SourceShared is Limits.SharesSources.
	SourceLength    int   `json:"source_length,omitempty"`
	SourceSlotBytes int64 `json:"source_slot_bytes,omitempty"`
	SourceShared    bool  `json:"source_shared,omitempty"`
	// Start is the token that the decoder of a model with sources begins with.
	Start int32 `json:"decoder_start_token_id"`
	// EOSTokenIDs end a text; those of the tokenizer do, if there are none. The others are as in
	// generate.Config, and nil if there are none.
	EOSTokenIDs      []int32   `json:"eos_token_ids,omitempty"`
	ForcedBOSTokenID *int32    `json:"forced_bos_token_id,omitempty"`
	ForcedEOSTokenID *int32    `json:"forced_eos_token_id,omitempty"`
	BadWordsIDs      [][]int32 `json:"bad_words_ids,omitempty"`
	// Prefix stands before each source, and Chat is the chat template of the data; nil if they have none.
	Prefix string       `json:"prefix,omitempty"`
	Chat   *chat.Format `json:"chat,omitempty"`
}

// maxSlotBytes limits the size of what caches hold of a token.
const maxSlotBytes = 1 << 40

// Validate returns an error that names the first field that is invalid.
func (m Maker) Validate() error {
	if err := m.Limits(1, 0).Validate(); err != nil {
		return err
	}
	switch {
	case m.VocabSize > math.MaxInt32 || m.MaxLength > math.MaxInt32 || m.SourceLength > math.MaxInt32:
		return fmt.Errorf("vocab_size is %d, max_length %d and source_length %d; expected at most %d", m.VocabSize, m.MaxLength, m.SourceLength, math.MaxInt32)
	case m.SlotBytes < 1 || m.SlotBytes > maxSlotBytes || m.SourceSlotBytes < 0 || m.SourceSlotBytes > maxSlotBytes:
		return fmt.Errorf("slot_bytes is %d and source_slot_bytes %d; expected up to %d", m.SlotBytes, m.SourceSlotBytes, maxSlotBytes)
	case (m.SourceLength > 0) != (m.SourceSlotBytes > 0):
		return fmt.Errorf("source_length is %d and source_slot_bytes %d; expected both or neither", m.SourceLength, m.SourceSlotBytes)
	}
	ids := map[string][]int32{"decoder_start_token_id": {m.Start}, "eos_token_ids": m.EOSTokenIDs, "bad_words_ids": slices.Concat(m.BadWordsIDs...)}
	for name, id := range map[string]*int32{"forced_bos_token_id": m.ForcedBOSTokenID, "forced_eos_token_id": m.ForcedEOSTokenID} {
		if id != nil {
			ids[name] = []int32{*id}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		for _, id := range ids[name] {
			if id < 0 || int(id) >= m.VocabSize {
				return fmt.Errorf("%s has %d; expected 0 to %d, as vocab_size says", name, id, m.VocabSize-1)
			}
		}
	}
	if slices.ContainsFunc(m.BadWordsIDs, func(word []int32) bool { return len(word) == 0 }) {
		return errors.New("bad_words_ids has an empty word; expected one token or more")
	}
	return nil
}

const (
	// mostCacheBytes limits the caches, unless a user sets their tokens.
	mostCacheBytes = 1 << 30
	// promptTokens limits the tokens of a call that computes prompts, and so the memory of its attention.
	promptTokens = 1024
)

// Limits returns the limits of a generation of at most so many sequences at once, with caches of so many
// tokens. 0 tokens are as many as the sequences may have, up to a GiB, but as many as one may have. Those of
// sources, if the model has any, are as many as the others, or are as large by 0.
func (m Maker) Limits(sequences, tokens int) generate.Limits {
	slots := func(length int, bytes int64) int {
		if tokens > 0 {
			return tokens
		}
		return max(length, int(min(int64(sequences)*int64(length), mostCacheBytes/max(bytes, 1))))
	}
	l := generate.Limits{VocabSize: m.VocabSize, MaxLength: m.MaxLength, Slots: slots(m.MaxLength, m.SlotBytes), Rows: sequences, PromptTokens: promptTokens}
	if m.SourceLength > 0 {
		l.SourceLength, l.SourceSlots, l.SharesSources = m.SourceLength, slots(m.SourceLength, m.SourceSlotBytes), m.SourceShared
	}
	return l
}

// LimitsFor is Limits for requests that all have a configuration: the caches of a model with sources, whose
// prompts are one token, are no larger than these need.
func (m Maker) LimitsFor(c generate.Config, sequences, tokens int) generate.Limits {
	l := m.Limits(sequences, tokens)
	if m.SourceLength == 0 || tokens > 0 {
		return l
	}
	if c.MaxLength > 0 || c.MaxNewTokens > 0 {
		longest := cmp.Or(c.MaxLength, 1+c.MaxNewTokens)
		l.Slots = min(l.Slots, sequences*min(longest, m.MaxLength))
	}
	together := max(1, sequences/max(c.NumBeams, c.NumReturnSequences, 1))
	l.SourceSlots = min(l.SourceSlots, together*m.SourceLength)
	return l
}

// Generation returns how texts are made, with caches of the limits: greedily. It says so in the log if the
// model and the tokenizer do not agree which token ends a text.
func (m Maker) Generation(t *text.Tokenizer, l generate.Limits, log *slog.Logger) Generation {
	g := Generation{Config: generate.Default(), Limits: l, Tokenizer: t, Start: m.Start, Prefix: m.Prefix}
	if kernels.Register() == nil {
		g.Limits.LogSumExp = kernels.LogSumExp
	}
	own := EndTokens(t)
	if g.EOSTokenIDs = m.EOSTokenIDs; len(g.EOSTokenIDs) == 0 {
		g.EOSTokenIDs = own
	}
	if m.ForcedBOSTokenID != nil {
		g.ForcedBOSTokenID = *m.ForcedBOSTokenID
	}
	if m.ForcedEOSTokenID != nil {
		g.ForcedEOSTokenID = *m.ForcedEOSTokenID
	}
	g.BadWordsIDs = m.BadWordsIDs
	if len(own) > 0 && !slices.Contains(g.EOSTokenIDs, own[0]) {
		log.Warn("the tokenizer ends texts with another token than the model, whose tokens end those that are generated", "tokenizer", own, "model", g.EOSTokenIDs)
	}
	return g
}

// NewChat returns how conversations are continued, by the chat template of the data; nil if they have none, or
// the model makes texts of sources.
func (m Maker) NewChat(t *text.Tokenizer) (*Chat, error) {
	if m.Chat == nil || m.SourceLength > 0 {
		return nil, nil
	}
	return NewChat(t, *m.Chat)
}
