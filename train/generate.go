package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/generated"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Generates reports whether the run's graph continues texts.
func (r *Run) Generates() bool { return r.Export.Contract.Generation != nil && r.TakesTexts() }

// Chat returns how conversations are continued, by the chat template of the run's data; nil if they have none.
func (r *Run) Chat(t *text.Tokenizer) (*predict.Chat, error) {
	if r.Manifest == nil || r.Manifest.Chat == nil {
		return nil, nil
	}
	return predict.NewChat(t, *r.Manifest.Chat)
}

// mostCacheBytes limits the caches, unless a user sets their tokens.
const mostCacheBytes = 1 << 30

// Limits returns the limits of a generation of at most so many sequences at once, with caches of so many
// tokens. 0 tokens are as many as the sequences may have, up to a GiB, but as many as one may have.
func (r *Run) Limits(sequences, tokens int) (generate.Limits, error) {
	g := r.Export.Contract.Generation
	if g == nil {
		return generate.Limits{}, fault.Usagef("the graph of run %s does not generate; expected a causal language model, such as gorbit_export causal makes", r.Folder)
	}
	l := limits(g, sequences, tokens)
	if err := l.Validate(); err != nil {
		return l, fault.Usagef("%w", err)
	}
	return l, nil
}

// limits returns what Run.Limits does.
func limits(g *graphs.Generation, sequences, tokens int) generate.Limits {
	if tokens == 0 {
		tokens = max(g.MaxLength, int(min(int64(sequences)*int64(g.MaxLength), mostCacheBytes/g.SlotBytes())))
	}
	return generate.Limits{VocabSize: g.VocabSize, MaxLength: g.MaxLength, Slots: tokens, Rows: sequences, PromptTokens: promptTokens}
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
	r.env.Log.Info("caches of generation", "tokens", l.Slots, "memory", words.Bytes(int64(l.Slots+1)*r.Export.Contract.Generation.SlotBytes()), "sequences", l.Rows)
	return openGenerator(ctx, m, l)
}

// openGenerator makes the caches of a generation.
func openGenerator(ctx context.Context, m strategy.Generator, l generate.Limits) (generate.Model, error) {
	if err := m.MakeCaches(ctx, l.Slots+1); err != nil {
		return nil, lostInRead(err)
	}
	return nextTokens{m}, nil
}

// evalSequences is the number of sequences that evaluations generate together.
const evalSequences = 16

// textsOf returns what scores generated texts in the evaluations of a split by another evaluator, as
// eval.generate says, or nil if that has no metrics.
func textsOf(s *prepare.Setup, on prepare.Placed, split string, tokenizer *text.Tokenizer) (*generated.Evaluator, error) {
	g := s.Params.Eval.Generate
	metrics, err := g.Scores()
	if err != nil || len(metrics) == 0 {
		return nil, err
	}
	m, ok := on.Strategy.(strategy.Generator)
	if !ok {
		return nil, fault.Usagef("texts are not generated on a TPU; leave out eval.generate.metrics")
	}
	config := generate.Default()
	config.MaxNewTokens, config.NumBeams, config.EOSTokenIDs = g.MaxNewTokens, g.NumBeams, predict.EndTokens(tokenizer)
	if d := s.Data.Manifest; d.Columns.Chat != "" && d.Chat != nil {
		c, err := predict.NewChat(tokenizer, *d.Chat)
		if err != nil {
			return nil, err
		}
		config.EOSTokenIDs = c.EndTokens
	}
	if len(config.EOSTokenIDs) == 0 {
		s.Env.Log.Warn("the tokenizer has no end token; generated texts end at eval.generate.max_new_tokens")
	}
	if err := config.Validate(); err != nil {
		return nil, fault.Usagef("eval.generate: %w", err)
	}
	l := limits(s.Export.Contract.Generation, max(evalSequences, g.NumBeams), 0)
	return &generated.Evaluator{Config: generated.Config{
		Metrics: metrics, Examples: g.Examples, Budget: g.Budget, Seed: s.Params.Seed, Log: s.Env.Log,
		Open: func(ctx context.Context) (generated.Batches, error) {
			return s.OpenSingle(ctx, split, window(s), prepare.ToEvaluate)
		},
		Model: generated.Continuations{
			Generation: predict.Generation{Config: config, Limits: l, Tokenizer: tokenizer},
			Open:       func(ctx context.Context) (generate.Model, error) { return openGenerator(ctx, m, l) },
			// The least that caches can have.
			Close: func(ctx context.Context) error { return lostInRead(m.MakeCaches(ctx, 2)) },
		},
	}}, nil
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
