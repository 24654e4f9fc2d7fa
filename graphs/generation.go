package graphs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// Generation describes how a model makes tokens one after the other, by the function generate.
type Generation struct {
	// MaxLength is the most tokens of a sequence, and VocabSize the number of logits.
	MaxLength int `json:"max_length"`
	VocabSize int `json:"vocab_size"`
	// Caches are the variables that hold what the model keeps of each token.
	Caches []Cache `json:"caches"`
	// Source describes what an encoder-decoder model makes a text of; nil if it continues texts.
	Source *Source `json:"source,omitempty"`
	// DecoderStartTokenID is what the texts of a model with a source begin with.
	DecoderStartTokenID *int32 `json:"decoder_start_token_id,omitempty"`
	// EOSTokenIDs end a text, and PadTokenID fills up what others have more; nil if the model does not say it.
	EOSTokenIDs []int32 `json:"eos_token_ids,omitempty"`
	PadTokenID  *int32  `json:"pad_token_id,omitempty"`
	// ForcedBOSTokenID is the first token of a text, and ForcedEOSTokenID the last that its length leaves;
	// nil if they are free.
	ForcedBOSTokenID *int32 `json:"forced_bos_token_id,omitempty"`
	ForcedEOSTokenID *int32 `json:"forced_eos_token_id,omitempty"`
	// BadWordsIDs are rows of tokens that texts must not have.
	BadWordsIDs [][]int32 `json:"bad_words_ids,omitempty"`
}

// Source describes the sources of an encoder-decoder model, which the function encode reads.
type Source struct {
	// MaxLength is the most tokens of a source.
	MaxLength int `json:"max_length"`
	// Caches are the variables that hold what the decoder needs of each token of a source.
	Caches []Cache `json:"caches"`
	// Shared says that the function generate takes a source for several sequences in a row, not for one alone.
	Shared bool `json:"shared,omitempty"`
}

// Cache is a variable that a program makes for generation: an entry for each slot.
type Cache struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"` // float32, bfloat16 or float16
	Shape []int64 `json:"shape"` // of an entry
}

// Argument returns the argument of the functions generate and encode that takes the handle of the cache.
func (c Cache) Argument() string { return "cache_" + strings.ReplaceAll(c.Name, "/", "_") }

// SlotBytes returns the size in bytes of what the caches hold of a token.
func (g *Generation) SlotBytes() int64 { return slotBytes(g.Caches) }

// SlotBytes returns the size in bytes of what the caches hold of a token of a source.
func (s *Source) SlotBytes() int64 { return slotBytes(s.Caches) }

func slotBytes(caches []Cache) int64 {
	n := int64(0)
	for _, c := range caches {
		n += elements(c.Shape) * dtype.Of(c.DType).Size()
	}
	return n
}

// sources returns the caches of the source, if there is one.
func (g *Generation) sources() []Cache {
	if g.Source == nil {
		return nil
	}
	return g.Source.Caches
}

// maxCaches limits the caches, so that the size of a slot does not overflow.
const maxCaches = 1 << 10

// Arguments of the functions generate and encode that are no caches, and their outputs.
const (
	GenerateInputIDs    = "input_ids"
	GeneratePositionIDs = "position_ids"
	GenerateSlots       = "slots"
	GenerateContext     = "context"
	GenerateLast        = "last"
	GenerateSource      = "source"
	GenerateLogits      = "logits"
	EncodeEncoded       = "encoded"
)

func (c *Contract) checkGeneration() error {
	g := c.Generation
	if g == nil {
		return nil
	}
	switch {
	case g.MaxLength < 2 || g.MaxLength > math.MaxInt32:
		return fmt.Errorf("generation has max_length %d; expected 2 to %d", g.MaxLength, math.MaxInt32)
	case g.VocabSize < 1 || g.VocabSize > math.MaxInt32:
		return fmt.Errorf("generation has vocab_size %d; expected 1 to %d", g.VocabSize, math.MaxInt32)
	case len(g.Caches) == 0:
		return errors.New("generation has no caches; expected one or more")
	case g.Source != nil && (g.Source.MaxLength < 1 || g.Source.MaxLength > math.MaxInt32):
		return fmt.Errorf("generation has a source with max_length %d; expected 1 to %d", g.Source.MaxLength, math.MaxInt32)
	case g.Source != nil && len(g.Source.Caches) == 0:
		return errors.New("generation has a source without caches; expected one or more")
	case (g.Source != nil) != (g.DecoderStartTokenID != nil):
		return errors.New("generation has one of source and decoder_start_token_id; expected both or neither")
	}
	if err := g.checkTokens(); err != nil {
		return err
	}
	all := slices.Concat(g.Caches, g.sources())
	if len(all) > maxCaches {
		return fmt.Errorf("generation has %d caches; expected at most %d", len(all), maxCaches)
	}
	seen := make(map[string]bool)
	for _, cache := range all {
		if len(cache.Name) > maxName || !argName.MatchString(cache.Argument()) || cache.Name == "" || seen[cache.Argument()] {
			return fmt.Errorf("cache %.64q has no valid name or is declared twice; expected letters, digits, _ and /", cache.Name)
		}
		seen[cache.Argument()] = true
		switch dtype.Of(cache.DType) {
		case dtype.Float32, dtype.Bfloat16, dtype.Float16:
		default:
			return fmt.Errorf("cache %s has dtype %.32q; expected float32, bfloat16 or float16", cache.Name, cache.DType)
		}
		if err := checkShape("cache "+cache.Name, cache.Shape); err != nil {
			return err
		}
	}
	return nil
}

// checkTokens checks that the vocabulary has the special tokens.
func (g *Generation) checkTokens() error {
	named := map[string][]int32{"eos_token_ids": g.EOSTokenIDs, "bad_words_ids": slices.Concat(g.BadWordsIDs...)}
	for name, id := range map[string]*int32{
		"decoder_start_token_id": g.DecoderStartTokenID, "pad_token_id": g.PadTokenID,
		"forced_bos_token_id": g.ForcedBOSTokenID, "forced_eos_token_id": g.ForcedEOSTokenID,
	} {
		if id != nil {
			named[name] = []int32{*id}
		}
	}
	for _, name := range sortedKeys(named) {
		for _, id := range named[name] {
			if id < 0 || int(id) >= g.VocabSize {
				return fmt.Errorf("generation has %s %d; expected 0 to %d, as vocab_size says", name, id, g.VocabSize-1)
			}
		}
	}
	if slices.ContainsFunc(g.BadWordsIDs, func(word []int32) bool { return len(word) == 0 }) {
		return errors.New("generation has bad_words_ids with an empty word; expected one token or more")
	}
	return nil
}

// wantGenerate returns what the functions generate and encode must take and give, if there are any.
func (c *Contract) wantGenerate() []want {
	if c.Generation == nil {
		return nil
	}
	g := c.Generation
	number := func(name string, shape ...int64) Arg {
		return Arg{Name: name, DType: dtpb.DataType_DT_INT32, Shape: shape, Ranked: true}
	}
	handles := func(caches []Cache) (out []Arg) {
		for _, cache := range caches {
			out = append(out, scalar(cache.Argument(), dtpb.DataType_DT_RESOURCE))
		}
		return out
	}
	tokens := []Arg{number(GenerateInputIDs, open, open), number(GeneratePositionIDs, open, open), number(GenerateSlots, open, open)}
	next := want{
		name:    "generate",
		inputs:  slices.Concat(tokens, []Arg{number(GenerateContext, open, open), number(GenerateLast, open)}, handles(g.Caches)),
		outputs: []Arg{{Name: GenerateLogits, DType: dtpb.DataType_DT_FLOAT, Shape: []int64{open, int64(g.VocabSize)}, Ranked: true}},
	}
	if g.Source == nil {
		return []want{next}
	}
	next.inputs = slices.Concat(next.inputs, []Arg{number(GenerateSource, open, open)}, handles(g.Source.Caches))
	return []want{next, {name: "encode", inputs: slices.Concat(tokens, handles(g.Source.Caches)), outputs: []Arg{number(EncodeEncoded, open)}}}
}

// checkGenerate checks that the axes of the arguments of the functions generate and encode are open.
func (e *Export) checkGenerate() error {
	for _, name := range e.Contract.generating() {
		for _, a := range e.Functions[name].Inputs {
			if slices.ContainsFunc(a.Shape, func(d int64) bool { return d != open }) {
				return fmt.Errorf("function %s: input %s: the graph has %s; expected open axes", name, a.Name, a)
			}
		}
	}
	return nil
}

// generating returns the functions of generation.
func (c *Contract) generating() []string {
	switch {
	case c.Generation == nil:
		return nil
	case c.Generation.Source == nil:
		return []string{"generate"}
	}
	return []string{"generate", "encode"}
}
