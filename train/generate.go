package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Generates reports whether the run's graph continues texts.
func (r *Run) Generates() bool { return r.Export.Contract.Generation != nil && r.TakesTexts() }

// mostCacheBytes limits the caches, unless a user sets their tokens.
const mostCacheBytes = 1 << 30

// Limits returns the limits of a generation of at most so many sequences at once, with caches of so many
// tokens. 0 tokens are as many as the sequences may have, up to a GiB, but as many as one may have.
func (r *Run) Limits(sequences, tokens int) (generate.Limits, error) {
	g := r.Export.Contract.Generation
	if g == nil {
		return generate.Limits{}, fault.Usagef("the graph of run %s does not generate; expected a causal language model, such as gorbit_export lm makes", r.Folder)
	}
	if tokens == 0 {
		tokens = max(g.MaxLength, int(min(int64(sequences)*int64(g.MaxLength), mostCacheBytes/g.SlotBytes())))
	}
	l := generate.Limits{VocabSize: g.VocabSize, MaxLength: g.MaxLength, Slots: tokens, Rows: sequences, PromptTokens: promptTokens}
	if err := l.Validate(); err != nil {
		return l, fault.Usagef("%w", err)
	}
	return l, nil
}

// promptTokens limits the tokens of a call that computes prompts, and so the memory of its attention.
const promptTokens = 1024

// Generator returns what computes next tokens with the checkpoint that Load restored. It logs how much memory
// the caches take, before it makes them. There is one generation at a time.
func (r *Run) Generator(ctx context.Context, l generate.Limits) (generate.Model, error) {
	m, ok := r.on.Strategy.(strategy.Generator)
	if !ok {
		return nil, fault.Usagef("texts are not continued on a TPU; leave out --tpu")
	}
	slots := l.Slots + 1
	r.env.Log.Info("caches of generation", "tokens", l.Slots, "memory", words.Bytes(int64(slots)*r.Export.Contract.Generation.SlotBytes()), "sequences", l.Rows)
	if err := m.MakeCaches(ctx, slots); err != nil {
		return nil, lostInRead(err)
	}
	return nextTokens{m}, nil
}

// Generate continues texts with the checkpoint that Load restored, and calls each with the answers, in
// order.
func (r *Run) Generate(ctx context.Context, g predict.Generation, in predict.Source, each func(predict.Answer) error) error {
	m, err := r.Generator(ctx, g.Limits)
	if err != nil {
		return err
	}
	g.Skip = r.Skip
	return g.Each(ctx, m, in, each)
}

// nextTokens implements generate.Model.
type nextTokens struct{ strategy.Generator }

// Compute implements generate.Model.
func (m nextTokens) Compute(ctx context.Context, b *generate.Batch) ([]float32, error) {
	logits, err := m.NextLogits(ctx, strategy.NewTokens(*b))
	if err != nil {
		return nil, lostInRead(err)
	}
	return logits, nil
}
