package train

import (
	"context"

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

// Maker returns what there is to know of the run's model, which Generates.
func (r *Run) Maker() predict.Maker { return maker(r.Export.Contract.Generation, r.Manifest) }

// maker returns what Run.Maker does; m is nil if the data have no manifest.
func maker(g *graphs.Generation, m *convert.Manifest) predict.Maker {
	out := predict.Maker{MaxLength: g.MaxLength, VocabSize: g.VocabSize, SlotBytes: g.SlotBytes(),
		EOSTokenIDs: g.EOSTokenIDs, ForcedBOSTokenID: g.ForcedBOSTokenID, ForcedEOSTokenID: g.ForcedEOSTokenID, BadWordsIDs: g.BadWordsIDs}
	if g.Source != nil {
		out.SourceLength, out.SourceSlotBytes, out.Start = g.Source.MaxLength, g.Source.SlotBytes(), *g.DecoderStartTokenID
		out.SourceShared = g.Source.Shared
	}
	if m != nil {
		out.Prefix, out.Chat = m.Prefix, m.Chat
	}
	return out
}

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

const (
	// leastSequences and mostSequences are how many sequences evaluations generate together.
	leastSequences, mostSequences = 16, 64
	// evalCacheBytes is what the caches of more than leastSequences may have.
	evalCacheBytes = 256 << 20
)

// limitsOf returns the limits of evaluations' texts: of as many sequences as have small caches.
func limitsOf(m predict.Maker, g generate.Config) generate.Limits {
	l := m.LimitsFor(g, max(mostSequences, g.NumBeams), 0)
	bytes := int64(l.Slots)*m.SlotBytes + int64(l.SourceSlots)*m.SourceSlotBytes
	if bytes <= evalCacheBytes {
		return l
	}
	return m.LimitsFor(g, max(leastSequences, g.NumBeams, int(mostSequences*evalCacheBytes/bytes)), 0)
}

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
	model := maker(s.Export.Contract.Generation, s.Data.Manifest)
	l := limitsOf(model, generate.Config{MaxNewTokens: g.MaxNewTokens, NumBeams: g.NumBeams})
	texts := model.Generation(tokenizer, l, s.Env.Log)
	texts.MaxNewTokens, texts.NumBeams = g.MaxNewTokens, g.NumBeams
	if s.Data.Manifest.Columns.Chat != "" {
		c, err := model.NewChat(tokenizer)
		if err != nil {
			return nil, err
		}
		if c != nil {
			texts.EOSTokenIDs = c.EndTokens
		}
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
		ContextSlots: b.ContextSlots, Last: b.Last, Sources: b.Sources, Source: b.Source, SourceSlots: b.SourceSlots,
	})
	if err != nil {
		return nil, lostInRead(err)
	}
	return logits, nil
}
