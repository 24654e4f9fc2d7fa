package asked

import (
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Generation are the flags that say how a model makes texts. Their names are those of transformers.
type Generation struct {
	config       generate.Config
	early        string
	end          []string
	sequences    int
	cacheTokens  int
	chat         bool
	flags        *pflag.FlagSet
	own, samples []string // the names of all flags, and of those that mean to sample
}

// DefaultSequences is the default of --sequences.
const DefaultSequences = 16

// Add adds the flags.
func (g *Generation) Add(f *pflag.FlagSet) {
	g.flags, g.config = f, generate.Default()
	c := &g.config
	before := make(map[string]bool)
	f.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	f.IntVar(&c.MaxNewTokens, "max-new-tokens", 0, "most tokens that a text is continued with (default: 128, or fewer if the model has no room for them)")
	f.IntVar(&c.MaxLength, "max-length", 0, "most tokens of a text and its continuation, instead of --max-new-tokens")
	f.IntVar(&c.MinNewTokens, "min-new-tokens", 0, "tokens before which no end token is chosen")
	f.IntVar(&c.MinLength, "min-length", 0, "tokens of a text and its continuation before which no end token is chosen")
	f.StringArrayVar(&c.StopStrings, "stop", nil, "`TEXT` before which a continuation ends; may be repeated")
	f.StringArrayVar(&g.end, "eos-token", nil, "`TOKEN` that ends a continuation; may be repeated (default: the tokenizer's end of a text)")
	f.BoolVar(&c.DoSample, "do-sample", false, "draw tokens by their probability (default: whether --temperature, --top-k, --top-p, --min-p, --typical-p or --seed is given)")
	f.Lookup("do-sample").DefValue = "" // the help text states the default
	f.Float64Var(&c.Temperature, "temperature", c.Temperature, "divisor of the logits: below 1 likely tokens get likelier")
	if f.Lookup("top-k") == nil { // which a program may have for other tasks, too
		f.IntVar(&c.TopK, "top-k", c.TopK, "sample of so many of the likeliest tokens; 0 is all")
	}
	f.Float64Var(&c.TopP, "top-p", c.TopP, "sample of the likeliest tokens that have this much of the probability")
	f.Float64Var(&c.MinP, "min-p", c.MinP, "sample of the tokens that have this part of the likeliest one's probability")
	f.Float64Var(&c.TypicalP, "typical-p", c.TypicalP, "sample of the tokens that tell about as much as is expected and have this much of the probability")
	f.Uint64Var(&c.Seed, "seed", 0, "seed of samples; equal ones give equal texts")
	f.IntVar(&c.NumBeams, "num-beams", c.NumBeams, "beams of a beam search")
	f.IntVar(&c.NumReturnSequences, "num-return-sequences", c.NumReturnSequences, "continuations of each text: the best beams, or so many samples")
	f.Float64Var(&c.LengthPenalty, "length-penalty", c.LengthPenalty, "power of the number of tokens by which a score is divided: above 0 long continuations are preferred")
	f.StringVar(&g.early, "early-stopping", string(c.EarlyStopping), "when a beam search ends: true (as many continuations as beams), false (better ones are unlikely) or never (impossible)")
	f.Float64Var(&c.RepetitionPenalty, "repetition-penalty", c.RepetitionPenalty, "above 1, makes tokens less likely that the text has")
	f.IntVar(&c.NoRepeatNgramSize, "no-repeat-ngram-size", 0, "tokens in a row that are not repeated; 0 allows all")
	f.BoolVar(&g.chat, "chat", false, "each text is a message of a user, which the model answers: the chat template of the run's data goes around it")
	f.IntVar(&g.sequences, "sequences", DefaultSequences, "most continuations, beams included, that are computed together")
	f.IntVar(&g.cacheTokens, "cache-tokens", 0, "tokens that the model's caches hold (default: those of all --sequences, up to a GiB)")
	f.VisitAll(func(flag *pflag.Flag) {
		if !before[flag.Name] {
			g.own = append(g.own, flag.Name)
		}
	})
	g.samples = []string{"temperature", "top-k", "top-p", "min-p", "typical-p", "seed"}
	help.Group(f, "Tasks lm and seq2seq: how a text is made", g.own...)
}

// Given returns the first of these flags that is given, or "".
func (g *Generation) Given() string {
	for _, name := range g.own {
		if g.flags.Changed(name) {
			return name
		}
	}
	return ""
}

// Of returns how texts are made by a model with its tokenizer. Wrong values of flags are errors of class
// fault.Usage.
func (g *Generation) Of(m predict.Maker, tokenizer *text.Tokenizer, log *slog.Logger) (predict.Generation, error) {
	c := g.config
	c.EarlyStopping = generate.EarlyStopping(g.early)
	if g.flags.Changed("top-k") {
		var err error
		if c.TopK, err = g.flags.GetInt("top-k"); err != nil {
			return predict.Generation{}, err
		}
	}
	for _, name := range g.samples {
		if !g.flags.Changed(name) {
			continue
		}
		if g.flags.Changed("do-sample") && !c.DoSample {
			return predict.Generation{}, fault.Usagef("--%s is given and --do-sample is false; expected one of them: it is for samples", name)
		}
		c.DoSample = true
	}
	for _, name := range g.end {
		id, ok := tokenizer.Vocab().ID(name)
		if !ok {
			return predict.Generation{}, fault.Usagef("--eos-token is %q, which is no token of the model's tokenizer", name)
		}
		c.EOSTokenIDs = append(c.EOSTokenIDs, id)
	}
	talk, err := g.talk(m, tokenizer)
	if err != nil {
		return predict.Generation{}, err
	}
	sequences := g.sequences
	if !g.flags.Changed("sequences") {
		sequences = max(sequences, c.NumBeams, c.NumReturnSequences)
	}
	limits := m.LimitsFor(c, sequences, g.cacheTokens)
	if err := limits.Validate(); err != nil {
		return predict.Generation{}, fault.Usagef("%w", err)
	}
	out := m.Generation(tokenizer, limits, log)
	switch {
	case len(g.end) > 0:
	case talk != nil:
		c.EOSTokenIDs = talk.EndTokens
	default:
		c.EOSTokenIDs = out.EOSTokenIDs
	}
	c.ForcedBOSTokenID, c.ForcedEOSTokenID, c.BadWordsIDs = out.ForcedBOSTokenID, out.ForcedEOSTokenID, out.BadWordsIDs
	if len(c.EOSTokenIDs) == 0 {
		log.Warn("the tokenizer has no end token; texts end at their greatest length; --eos-token names one")
	}
	if err := c.Validate(); err != nil {
		return predict.Generation{}, fault.Usagef("%w", err)
	}
	how := "greedy"
	switch {
	case c.DoSample:
		how = "samples"
	case c.NumBeams > 1:
		how = words.Count(int64(c.NumBeams), "beam")
	}
	log.Info("continuing texts", "by", how, "end_tokens", c.EOSTokenIDs)
	out.Config, out.Chat = c, talk
	return out, nil
}

// talk returns how conversations are continued; nil without --chat.
func (g *Generation) talk(m predict.Maker, tokenizer *text.Tokenizer) (*predict.Chat, error) {
	if !g.chat {
		return nil, nil
	}
	if m.SourceLength > 0 {
		return nil, fault.Usagef("--chat is given, and the model makes texts of sources; leave it out: it is for task lm")
	}
	c, err := m.NewChat(tokenizer)
	if err == nil && c == nil {
		err = fault.Usagef("--chat is given, and the model's data have no chat template; expected data that were made with a tokenizer that has one")
	}
	return c, err
}
