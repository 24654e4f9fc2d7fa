package train

import (
	"context"
	"log/slog"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
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

// special sets the special tokens of a config: those of the model and, if it does not say what ends texts,
// predict.EndTokens of the tokenizer.
func special(c *generate.Config, g *graphs.Generation, t *text.Tokenizer) {
	if c.EOSTokenIDs = g.EOSTokenIDs; len(c.EOSTokenIDs) == 0 {
		c.EOSTokenIDs = predict.EndTokens(t)
	}
	if g.ForcedBOSTokenID != nil {
		c.ForcedBOSTokenID = *g.ForcedBOSTokenID
	}
	if g.ForcedEOSTokenID != nil {
		c.ForcedEOSTokenID = *g.ForcedEOSTokenID
	}
	c.BadWordsIDs = g.BadWordsIDs
}

// mostCacheBytes limits the caches, unless a user sets their tokens.
const mostCacheBytes = 1 << 30

// Limits returns the limits of a generation of at most so many sequences at once, with caches of so many
// tokens. 0 tokens are as many as the sequences may have, up to a GiB, but as many as one may have. Those of
// sources, if the model has any, are as many as the others, or are as large by 0.
func (r *Run) Limits(sequences, tokens int) (generate.Limits, error) {
	g := r.Export.Contract.Generation
	if g == nil {
		return generate.Limits{}, fault.Usagef("the graph of run %s does not generate; expected a causal language model or an encoder-decoder model, such as gorbit_export causal and seq2seq make", r.Folder)
	}
	l := limits(g, sequences, tokens)
	if err := l.Validate(); err != nil {
		return l, fault.Usagef("%w", err)
	}
	return l, nil
}

// limits returns what Run.Limits does.
func limits(g *graphs.Generation, sequences, tokens int) generate.Limits {
	slots := func(length int, bytes int64) int {
		if tokens > 0 {
			return tokens
		}
		return max(length, int(min(int64(sequences)*int64(length), mostCacheBytes/bytes)))
	}
	l := generate.Limits{VocabSize: g.VocabSize, MaxLength: g.MaxLength, Slots: slots(g.MaxLength, g.SlotBytes()), Rows: sequences, PromptTokens: promptTokens}
	if s := g.Source; s != nil {
		l.SourceLength, l.SourceSlots = s.MaxLength, slots(s.MaxLength, s.SlotBytes())
	}
	return l
}

// Generation returns how texts are made by the run, with caches of the limits: greedily.
func (r *Run) Generation(t *text.Tokenizer, l generate.Limits) predict.Generation {
	return generation(r.Export.Contract.Generation, r.Manifest, t, l, r.env.Log)
}

// generation returns what Run.Generation does.
func generation(g *graphs.Generation, m *convert.Manifest, t *text.Tokenizer, l generate.Limits, log *slog.Logger) predict.Generation {
	out := predict.Generation{Config: generate.Default(), Limits: l, Tokenizer: t}
	special(&out.Config, g, t)
	if own := predict.EndTokens(t); len(own) > 0 && !slices.Contains(out.EOSTokenIDs, own[0]) {
		log.Warn("the tokenizer ends texts with another token than the model, whose tokens end those that are generated", "tokenizer", own, "model", out.EOSTokenIDs)
	}
	if g.DecoderStartTokenID != nil {
		out.Start = *g.DecoderStartTokenID
	}
	if m != nil {
		out.Prefix = m.Prefix
	}
	return out
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
	g := r.Export.Contract.Generation
	about := []any{"tokens", l.Slots, "memory", words.Bytes(int64(l.Slots+1) * g.SlotBytes()), "sequences", l.Rows}
	if g.Source != nil {
		about = append(about, "source_tokens", l.SourceSlots, "source_memory", words.Bytes(int64(l.SourceSlots+1)*g.Source.SlotBytes()))
	}
	r.env.Log.Info("caches of generation", about...)
	return openGenerator(ctx, m, l)
}

// openGenerator makes the caches of a generation.
func openGenerator(ctx context.Context, m strategy.Generator, l generate.Limits) (generate.Model, error) {
	if err := m.MakeCaches(ctx, l.Slots+1, l.SourceSlots+1); err != nil {
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
	l := limits(s.Export.Contract.Generation, max(evalSequences, g.NumBeams), 0)
	texts := generation(s.Export.Contract.Generation, s.Data.Manifest, tokenizer, l, s.Env.Log)
	texts.MaxNewTokens, texts.NumBeams = g.MaxNewTokens, g.NumBeams
	if d := s.Data.Manifest; d.Columns.Chat != "" && d.Chat != nil {
		c, err := predict.NewChat(tokenizer, *d.Chat)
		if err != nil {
			return nil, err
		}
		texts.EOSTokenIDs = c.EndTokens
	}
	if len(texts.EOSTokenIDs) == 0 {
		s.Env.Log.Warn("the tokenizer has no end token; generated texts end at eval.generate.max_new_tokens")
	}
	if err := texts.Validate(); err != nil {
		return nil, fault.Usagef("eval.generate: %w", err)
	}
	return &generated.Evaluator{Config: generated.Config{
		Metrics: metrics, Examples: g.Examples, Budget: g.Budget, Seed: s.Params.Seed, Log: s.Env.Log,
		Open: func(ctx context.Context) (generated.Batches, error) {
			return s.OpenSingle(ctx, split, window(s), prepare.ToEvaluate)
		},
		Model: generated.Continuations{
			Generation: texts,
			Open:       func(ctx context.Context) (generate.Model, error) { return openGenerator(ctx, m, l) },
			// The least that caches can have.
			Close: func(ctx context.Context) error { return lostInRead(m.MakeCaches(ctx, 2, 2)) },
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
	cut := 0
	err = g.Each(ctx, m, in, func(a predict.Answer) error {
		if a.Cut() {
			cut++
		}
		return each(a)
	})
	if cut > 0 {
		r.env.Log.Warn("texts that were too long were cut; their answers use only their beginning", "texts", cut)
	}
	return err
}

// nextTokens implements generate.Model.
type nextTokens struct{ strategy.Generator }

// Compute implements generate.Model.
func (m nextTokens) Compute(ctx context.Context, b *generate.Batch) ([]float32, error) {
	if b.Encode != nil {
		if err := m.Encode(ctx, strategy.Sources(*b.Encode)); err != nil {
			return nil, lostInRead(err)
		}
	}
	logits, err := m.NextLogits(ctx, strategy.NewTokens{
		Rows: b.Rows, Tokens: b.Tokens, Context: b.Context, InputIDs: b.InputIDs, PositionIDs: b.PositionIDs, Slots: b.Slots,
		ContextSlots: b.ContextSlots, Last: b.Last, Source: b.Source, SourceSlots: b.SourceSlots,
	})
	if err != nil {
		return nil, lostInRead(err)
	}
	return logits, nil
}
