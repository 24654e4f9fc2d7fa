package generate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// EarlyStopping says when a beam search ends.
type EarlyStopping string

// The values of EarlyStopping.
const (
	// StopNever ends a search when no beam can become better than the finished ones.
	StopNever EarlyStopping = "never"
	// StopFalse ends it when no beam is likely to become better: a beam's score is taken as if it
	// ended at once.
	StopFalse EarlyStopping = "false"
	// StopTrue ends it when there are as many finished sequences as beams.
	StopTrue EarlyStopping = "true"
)

// UnmarshalJSON reads true, false or "never".
func (e *EarlyStopping) UnmarshalJSON(data []byte) error {
	*e = EarlyStopping(strings.Trim(string(data), `"`))
	return nil
}

// None is the id of a token that there is not.
const None int32 = -1

// Config says how tokens are chosen. Its fields, and those of its JSON, have the names and meanings of
// generate in transformers.
type Config struct {
	// MaxLength is the most tokens of a sequence with its prompt, and MaxNewTokens without it. One of
	// them may be set. 0 in both means as many as the model has room for.
	MaxLength    int `json:"max_length,omitempty"`
	MaxNewTokens int `json:"max_new_tokens,omitempty"`
	// MinLength and MinNewTokens keep end tokens from being chosen before that many tokens.
	MinLength    int `json:"min_length,omitempty"`
	MinNewTokens int `json:"min_new_tokens,omitempty"`
	// EOSTokenIDs are the tokens that end a sequence.
	EOSTokenIDs []int32 `json:"eos_token_id,omitempty"`
	// StopStrings end a sequence when its new text has one of them. They need Request.Text, and one
	// beam.
	StopStrings []string `json:"stop_strings,omitempty"`

	// NumBeams is the number of beams of a beam search; 1 is none.
	NumBeams int `json:"num_beams"`
	// NumReturnSequences is the number of results: the best of a beam search, or so many samples. A
	// search that finds fewer gives fewer.
	NumReturnSequences int `json:"num_return_sequences"`
	// LengthPenalty is the power of the number of new tokens by which the score of a beam is divided.
	LengthPenalty float64 `json:"length_penalty"`
	// EarlyStopping says when a beam search ends.
	EarlyStopping EarlyStopping `json:"early_stopping"`

	// DoSample draws tokens by their probability. Otherwise the most likely one is taken.
	DoSample bool `json:"do_sample"`
	// Temperature divides the logits. TopK keeps the likeliest tokens, 0 all; TopP those that have
	// this much of the probability; MinP those that have this part of the likeliest one's; TypicalP
	// those that have this much of the probability and tell about as much as is expected (Meister et
	// al. 2022), 1 all. They are for samples.
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	TypicalP    float64 `json:"typical_p"`
	// Seed is that of the random numbers.
	Seed uint64 `json:"seed"`

	// RepetitionPenalty makes tokens less likely that the sequence or its prompt has; 1 is none.
	RepetitionPenalty float64 `json:"repetition_penalty"`
	// NoRepeatNgramSize forbids to repeat so many tokens in a row; 0 does not.
	NoRepeatNgramSize int `json:"no_repeat_ngram_size,omitempty"`
	// BadWordsIDs are rows of tokens that must not be generated.
	BadWordsIDs [][]int32 `json:"bad_words_ids,omitempty"`
	// ForcedBOSTokenID is the first new token after a prompt of one token, such as that of a decoder, and
	// ForcedEOSTokenID the last one of a sequence that reaches its greatest length; None is none.
	ForcedBOSTokenID int32 `json:"forced_bos_token_id"`
	ForcedEOSTokenID int32 `json:"forced_eos_token_id"`
}

// Default returns the defaults of transformers, but for the length.
func Default() Config {
	return Config{
		NumBeams: 1, NumReturnSequences: 1, LengthPenalty: 1, EarlyStopping: StopFalse,
		Temperature: 1, TopK: 50, TopP: 1, TypicalP: 1, RepetitionPenalty: 1,
		ForcedBOSTokenID: None, ForcedEOSTokenID: None,
	}
}

// mostSequences limits the beams, and the results, of a request.
const mostSequences = 1 << 10

// Validate returns an error that names the first field that makes no sense.
func (c Config) Validate() error {
	for _, check := range []func() error{c.checkLengths, c.checkSearch, c.checkSampling, c.checkProcessors} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkLengths() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"max_length", c.MaxLength}, {"max_new_tokens", c.MaxNewTokens}, {"min_length", c.MinLength}, {"min_new_tokens", c.MinNewTokens}, {"top_k", c.TopK}, {"no_repeat_ngram_size", c.NoRepeatNgramSize}} {
		if f.value < 0 || f.value > math.MaxInt32 {
			return fmt.Errorf("%s is %d; expected 0 (none) to %d", f.name, f.value, math.MaxInt32)
		}
	}
	switch {
	case c.MaxLength > 0 && c.MaxNewTokens > 0:
		return fmt.Errorf("max_length is %d and max_new_tokens is %d; expected one of them", c.MaxLength, c.MaxNewTokens)
	case c.MinLength > 0 && c.MinNewTokens > 0:
		return fmt.Errorf("min_length is %d and min_new_tokens is %d; expected one of them", c.MinLength, c.MinNewTokens)
	case c.MaxLength > 0 && c.MinLength > c.MaxLength:
		return fmt.Errorf("min_length is %d; expected at most max_length, which is %d", c.MinLength, c.MaxLength)
	case c.MaxNewTokens > 0 && c.MinNewTokens > c.MaxNewTokens:
		return fmt.Errorf("min_new_tokens is %d; expected at most max_new_tokens, which is %d", c.MinNewTokens, c.MaxNewTokens)
	case slices.Contains(c.StopStrings, ""):
		return errors.New("a stop string is empty; expected one character or more")
	case len(c.StopStrings) > 0 && c.NumBeams > 1:
		return fmt.Errorf("stop strings are given and num_beams is %d; expected 1 beam: a search compares sequences by their end tokens", c.NumBeams)
	}
	return nil
}

func (c Config) checkSearch() error {
	switch {
	case c.NumBeams < 1 || c.NumBeams > mostSequences:
		return fmt.Errorf("num_beams is %d; expected 1 (no search) to %d", c.NumBeams, mostSequences)
	case c.NumReturnSequences < 1 || c.NumReturnSequences > mostSequences:
		return fmt.Errorf("num_return_sequences is %d; expected 1 to %d", c.NumReturnSequences, mostSequences)
	case c.NumBeams > 1 && c.NumReturnSequences > c.NumBeams:
		return fmt.Errorf("num_return_sequences is %d; expected at most num_beams, which is %d", c.NumReturnSequences, c.NumBeams)
	case c.NumBeams == 1 && !c.DoSample && c.NumReturnSequences > 1:
		return fmt.Errorf("num_return_sequences is %d without sampling and beams; expected 1: all would be the same", c.NumReturnSequences)
	case c.NumBeams > 1 && c.DoSample:
		return fmt.Errorf("num_beams is %d with sampling; expected a search without sampling, or samples with one beam", c.NumBeams)
	case math.IsNaN(c.LengthPenalty) || math.IsInf(c.LengthPenalty, 0):
		return fmt.Errorf("length_penalty is %v; expected a finite number", c.LengthPenalty)
	}
	switch c.EarlyStopping {
	case StopNever, StopFalse, StopTrue:
		return nil
	}
	return fmt.Errorf("early_stopping is %q; expected %s, %s or %s", c.EarlyStopping, StopTrue, StopFalse, StopNever)
}

func (c Config) checkSampling() error {
	switch {
	case !(c.Temperature > 0) || math.IsInf(float64(float32(c.Temperature)), 0) || float32(c.Temperature) == 0:
		return fmt.Errorf("temperature is %v; expected more than 0; for the likeliest tokens leave out sampling", c.Temperature)
	case !(c.TopP >= 0 && c.TopP <= 1):
		return fmt.Errorf("top_p is %v; expected 0 to 1", c.TopP)
	case !(c.MinP >= 0 && c.MinP <= 1):
		return fmt.Errorf("min_p is %v; expected 0 to 1", c.MinP)
	case !(c.TypicalP > 0 && c.TypicalP <= 1):
		return fmt.Errorf("typical_p is %v; expected more than 0, up to 1 for all tokens", c.TypicalP)
	}
	return nil
}

func (c Config) checkProcessors() error {
	if !(c.RepetitionPenalty > 0) || math.IsInf(float64(float32(c.RepetitionPenalty)), 0) || float32(c.RepetitionPenalty) == 0 {
		return fmt.Errorf("repetition_penalty is %v; expected more than 0, and 1 for none", c.RepetitionPenalty)
	}
	for _, word := range c.BadWordsIDs {
		if len(word) == 0 {
			return errors.New("bad_words_ids has an empty word; expected one token or more")
		}
		if len(word) == 1 && slices.Contains(c.EOSTokenIDs, word[0]) {
			return fmt.Errorf("bad_words_ids has the end token %d; expected other tokens", word[0])
		}
	}
	return nil
}

// fits checks the tokens of the config against a vocabulary.
func (c Config) fits(vocab int) error {
	check := func(name string, ids ...int32) error {
		for _, id := range ids {
			if id < 0 || int(id) >= vocab {
				return fmt.Errorf("%s has token %d; expected 0 to %d, as the model's vocabulary", name, id, vocab-1)
			}
		}
		return nil
	}
	if err := check("eos_token_id", c.EOSTokenIDs...); err != nil {
		return err
	}
	for _, word := range c.BadWordsIDs {
		if err := check("bad_words_ids", word...); err != nil {
			return err
		}
	}
	for _, forced := range []struct {
		name string
		id   int32
	}{{"forced_bos_token_id", c.ForcedBOSTokenID}, {"forced_eos_token_id", c.ForcedEOSTokenID}} {
		if forced.id == None {
			continue
		}
		if err := check(forced.name, forced.id); err != nil {
			return err
		}
	}
	return nil
}

// WithDefaultLength returns the config with a number of new tokens, if it has no length: most, or more if it
// asks for more, as far as a model that takes so many has room for them.
func (c Config) WithDefaultLength(prompt, model, most int) Config {
	if c.MaxLength == 0 && c.MaxNewTokens == 0 {
		c.MaxNewTokens = max(1, min(model-prompt, max(most, c.MinNewTokens, c.MinLength-prompt)))
	}
	return c
}

// longest returns the most tokens of a sequence after a prompt, in a model that takes so many.
func (c Config) longest(prompt, model int) (int, error) {
	most := model
	switch {
	case c.MaxLength > 0:
		most = c.MaxLength
	case c.MaxNewTokens > 0:
		most = prompt + c.MaxNewTokens
	}
	switch {
	case most > model && c.MaxLength > 0:
		return 0, fmt.Errorf("max_length is %d; expected at most %d, the tokens that the model takes", c.MaxLength, model)
	case prompt >= most && c.MaxLength > 0:
		return 0, fmt.Errorf("the prompt has %d tokens; expected less than max_length, which is %d", prompt, most)
	case prompt >= model:
		return 0, fmt.Errorf("the prompt has %d tokens; expected less than the %d that the model takes", prompt, model)
	case most > model:
		return 0, fmt.Errorf("max_new_tokens is %d after a prompt of %d tokens; expected at most %d, because the model takes %d", c.MaxNewTokens, prompt, model-prompt, model)
	case c.MinLength > most:
		return 0, fmt.Errorf("min_length is %d; expected at most %d, the greatest length", c.MinLength, most)
	case prompt+c.MinNewTokens > most:
		return 0, fmt.Errorf("min_new_tokens is %d after a prompt of %d tokens; expected at most %d", c.MinNewTokens, prompt, most-prompt)
	}
	return most, nil
}
