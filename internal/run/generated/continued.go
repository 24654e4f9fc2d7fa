package generated

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Continuations is the Model of a causal language model: the reference of an example are the last tokens that
// are learned one after the other, such as the last answer of a conversation, and the prompt those before them.
// Of an encoder-decoder model they are the target and the source.
type Continuations struct {
	predict.Generation
	// Open makes the caches of the model, and Close frees them.
	Open  func(context.Context) (generate.Model, error)
	Close func(context.Context) error
}

// Examples implements Model.
func (c Continuations) Examples(b *dataset.Batch) ([]Example, error) {
	if c.Limits.SourceLength > 0 {
		return c.sources(b), nil
	}
	ids, sequences, weights := b.Feature(packed.InputIDs), b.Feature(packed.SequenceIDs), b.Feature(convert.TokenWeights)
	out := make([]Example, b.Examples)
	for i := range out {
		from, to := i*b.RowLength, (i+1)*b.RowLength
		if n := slices.Index(sequences.Int32[from:to], 0); n >= 0 {
			to = from + n
		}
		end := from
		if weights != nil {
			for end = to; end > from && weights.Float32[end-1] == 0; end-- {
			}
		}
		begin := end
		for begin > from && weights.Float32[begin-1] > 0 {
			begin--
		}
		if begin == from {
			return nil, fmt.Errorf("%s has no prompt, which are tokens before those that are learned; expected data of prompts and answers, such as gorbit convert --task lm --text-column PROMPT --pair-column ANSWER makes", b.Describe(i))
		}
		// The batch's memory is used again.
		row := slices.Clone(ids.Int32[from:end])
		prompt := row[: begin-from : begin-from]
		out[i] = Example{Prompt: prompt, Source: c.Tokenizer.Decode(prompt, false), Reference: predict.Continued(c.Tokenizer, prompt)(row[begin-from:])}
	}
	return out, nil
}

// sources returns examples of sources and targets.
func (c Continuations) sources(b *dataset.Batch) []Example {
	row := func(i int, tokens, numbers string) []int32 {
		ids := b.Feature(tokens)
		n := ids.Shape[1]
		// The batch's memory is used again.
		out := slices.Clone(ids.Int32[i*n : (i+1)*n])
		if end := slices.Index(b.Feature(numbers).Int32[i*n:(i+1)*n], 0); end >= 0 {
			out = out[:end]
		}
		return out
	}
	out := make([]Example, b.Examples)
	for i := range out {
		source := row(i, packed.InputIDs, packed.SequenceIDs)
		out[i] = Example{Prompt: source, Source: c.Tokenizer.Decode(source, false), Reference: c.Tokenizer.Decode(row(i, packed.TargetIDs, packed.TargetSequenceIDs), false)}
	}
	return out
}

// Generate implements Model.
func (c Continuations) Generate(ctx context.Context, examples []Example, each func(i int, text string)) error {
	m, err := c.Open(ctx)
	if err != nil {
		return err
	}
	s, err := generate.New(c.Limits)
	if err != nil {
		return err
	}
	next := 0
	fill := func() error {
		for ; next < len(examples) && s.Waiting() < c.Limits.Rows; next++ {
			r := c.OfTokens(examples[next].Prompt)
			r.ID, r.Number, r.Config = uint64(next), uint64(next), c.Config
			r.Config.MaxNewTokens = min(r.Config.MaxNewTokens, c.Limits.MaxLength-len(r.Prompt))
			if err := s.Add(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill(); err != nil {
		return err
	}
	if err := generate.Run(ctx, s, m, func(u generate.Update) error {
		if u.Err != nil || u.Results == nil {
			return u.Err
		}
		i := int(u.ID)
		each(i, c.OfTokens(examples[i].Prompt).Text(u.Results[0].IDs))
		return fill()
	}); err != nil {
		return err
	}
	return c.Close(ctx)
}
