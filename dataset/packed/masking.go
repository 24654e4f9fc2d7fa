package packed

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// DefaultMaskProbability is the share of tokens that a Masking without a probability chooses, that of
// BERT.
const DefaultMaskProbability = 0.15

// Masking chooses tokens of input_ids that a model is to predict, and replaces most of them, as BERT
// does (Devlin et al., 2019, section 3.1). Of the n tokens of an example that are not Special,
// max(1, round(Probability n)) are chosen. Of these, 80 % become MaskToken, 10 % another token that is
// not special, and 10 % stay. What is chosen follows from the seed, the epoch and the record, and from
// nothing else. The features that are made as masked_positions, masked_labels and masked_weights say
// what was chosen.
type Masking struct {
	// Probability is the share of tokens that are chosen; 0 means DefaultMaskProbability.
	Probability float64
	// MaskToken replaces tokens. VocabSize is the number of tokens, and Special are never chosen and
	// never put in.
	MaskToken, VocabSize int
	Special              []int
	// WholeWords chooses all tokens of a word or none. A word that has more tokens than are still to be
	// chosen is passed over. WordStarts are the names of a feature of records that is 1 for the first
	// token of a word and 0 for the others.
	WholeWords bool
	WordStarts []string
	// SpanLength chooses spans of tokens next to each other, or of words, as SpanBERT does (Joshi et
	// al., 2020, section 3.1): the number of tokens or words of a span is geometric with about this
	// mean, and at most MaxSpan, and what happens to its tokens is the same for all of them. 0
	// chooses each by itself.
	SpanLength float64
	// Seed is that of the choice.
	Seed uint64
	// Given chooses nothing: the predictions are the tokens that are MaskToken, and their labels are 0.
	Given bool
	// Labels are the names of a feature of records whose masked tokens were chosen before: for each
	// token, what it was, or NotPredicted. Nothing is chosen in such records. By default, it is
	// DefaultMaskedLabels if the records have it.
	Labels []string
}

// NotPredicted is the label of a token that is not to be predicted, as Hugging Face writes it.
const NotPredicted = -100

// DefaultMaskedLabels is the name of the feature of Labels, if Masking gives none.
const DefaultMaskedLabels = "labels"

// DefaultWordStarts is the name of the feature that marks words, if Masking gives none.
const DefaultWordStarts = "word_starts"

// MaxSpan is the most tokens, or words, of a span.
const MaxSpan = 10

// maxVocabulary bounds the memory for the tokens that may be put in.
const maxVocabulary = 1 << 24

func (m Masking) validate() error {
	switch {
	case !(m.Probability > 0 && m.Probability < 1):
		return fmt.Errorf("probability of masking is %v; expected more than 0 and less than 1", m.Probability)
	case m.SpanLength != 0 && !(m.SpanLength >= 1 && m.SpanLength <= MaxSpan):
		return fmt.Errorf("length of masked spans is %v; expected 0 (none) or 1 to %d", m.SpanLength, MaxSpan)
	case m.VocabSize < 1 || m.VocabSize > maxVocabulary:
		return fmt.Errorf("masking has a vocabulary of %d tokens; expected 1 to %d", m.VocabSize, maxVocabulary)
	case m.MaskToken < 0 || m.MaskToken >= m.VocabSize:
		return fmt.Errorf("mask token is %d; expected 0 to %d, because the size of the vocabulary is %d", m.MaskToken, m.VocabSize-1, m.VocabSize)
	case m.Given:
		return nil
	}
	kept := m.VocabSize
	for i, s := range m.Special {
		if s < 0 || s >= m.VocabSize {
			return fmt.Errorf("special token is %d; expected 0 to %d, because the size of the vocabulary is %d", s, m.VocabSize-1, m.VocabSize)
		}
		if !slices.Contains(m.Special[:i], s) {
			kept--
		}
	}
	if kept == 0 {
		return errors.New("all tokens of the vocabulary are special; expected some to mask")
	}
	return nil
}

// String describes what the choice depends on.
func (m Masking) String() string {
	if m.Given {
		return fmt.Sprintf("token %d as it is given", m.MaskToken)
	}
	words := "tokens"
	if m.WholeWords {
		words = "words by " + fmt.Sprint(m.WordStarts)
	}
	if m.SpanLength > 0 {
		words += fmt.Sprintf(" in spans of %v", m.SpanLength)
	}
	return fmt.Sprintf("%v of the %s by %d of %d without %v, seed %d", m.Probability, words, m.MaskToken, m.VocabSize, m.Special, m.Seed)
}

// count returns how many of n tokens are chosen.
func (m *Masking) count(n int) int {
	if n == 0 {
		return 0
	}
	return max(1, int(math.Floor(m.Probability*float64(n)+0.5)))
}

// validateMasking checks the masking together with the features that show it.
func (c *Config) validateMasking() error {
	if c.Masking == nil {
		return nil
	}
	if err := c.Masking.validate(); err != nil {
		return err
	}
	switch {
	case !c.wants(InputIDs):
		return fmt.Errorf("masking is set, but batches have no %s, which it changes", InputIDs)
	case !c.hasExtra(MakeMaskedPositions):
		return fmt.Errorf("masking is set, but no feature is made as %s; expected one", MakeMaskedPositions)
	}
	return nil
}

// masks chooses the tokens of examples, and holds those of a batch.
type masks struct {
	*Masking
	fields  columns.Fields // of WordStarts
	special []bool         // by token
	plain   []int32        // the tokens that are not special
	epoch   int64

	at, labels []int32        // of all predictions: the token's number in its example, and what it was
	ends       []int32        // of the examples among them
	starts     []int64        // of words, of the example that is being added; empty without whole words
	before     columns.Fields // of Labels
	labelled   presence       // whether records have labels
	optional   bool           // these may be missing
	given      []int64        // labels of the example that is being added; nil if it has none

	units  []span // to choose from, of an example
	chosen []span
}

func newMasks(m *Masking) *masks {
	s := &masks{Masking: m, special: make([]bool, m.VocabSize), optional: slices.Equal(m.Labels, []string{DefaultMaskedLabels})}
	for _, token := range m.Special {
		s.special[token] = true
	}
	for token, special := range s.special {
		if !special {
			s.plain = append(s.plain, int32(token))
		}
	}
	return s
}

func (s *masks) wholeWords() bool { return s.WholeWords && !s.Given }

// keep drops the predictions of all examples but the first n.
func (s *masks) keep(n int) {
	s.ends = s.ends[:min(n, len(s.ends))]
	end := int32(0)
	if len(s.ends) > 0 {
		end = s.ends[len(s.ends)-1]
	}
	s.at, s.labels = s.at[:end], s.labels[:end]
}

// add adds a prediction to the example that is being added, and end ends it.
func (s *masks) add(at, label int32) { s.at, s.labels = append(s.at, at), append(s.labels, label) }
func (s *masks) end()                { s.ends = append(s.ends, int32(len(s.at))) }

// places returns the number of places for predictions, at least one. In fixed rows it does not depend
// on how many there are: no row has more, unless they are given.
func (s *masks) places(cfg *Config, rows int) int {
	if cfg.Rows == 0 {
		return max(1, len(s.at))
	}
	return rows * (int(s.Probability*float64(cfg.RowLength)) + cfg.RowExamples)
}

// Predictions returns the number of places for masked tokens in each of n micro-batches of a batch with
// fixed rows, whatever their length, and 0 without fixed rows or masking.
func (c Config) Predictions(n int) int {
	if c.Rows == 0 || c.Masking == nil {
		return 0
	}
	c = c.withDefaults()
	return (&masks{Masking: c.Masking}).places(&c, c.Shape(n).Rows)
}

// checkPlaces returns what is wrong if more masked tokens are given than fixed rows have places for.
func (s *masks) checkPlaces(cfg *Config) string {
	if most := s.places(cfg, cfg.Rows); len(s.at) > most {
		return fmt.Sprintf("%d tokens are masked; expected at most %d in %d fixed rows of %d tokens; give fewer texts, or fewer masked tokens, at a time", len(s.at), most, cfg.Rows, cfg.RowLength)
	}
	return ""
}

// readStarts reads where the words of a record's tokens begin.
func (s *masks) readStarts(v *tfrecord.Value, tokens int, mask []int64) string {
	switch {
	case v.Kind != tfrecord.KindInt64:
		return fmt.Sprintf("has %v values; expected int64", v.Kind)
	case len(v.Int64s) != tokens:
		return reasonLength(len(v.Int64s), tokens, "token ids")
	}
	s.starts = s.starts[:0]
	for i, x := range v.Int64s {
		if x != 0 && x != 1 {
			return fmt.Sprintf("has %d at position %d; expected 1 for the first token of a word or 0", x, i)
		}
		if mask == nil || mask[i] != 0 {
			s.starts = append(s.starts, x)
		}
	}
	return ""
}

// readLabels reads what the tokens of a record were that were masked before, if it says so.
func (s *masks) readLabels(values *tfrecord.Values, tokens int, mask []int64) (name, reason string) {
	name, v, _, reason := s.before.Find(values)
	s.given = nil
	switch {
	case reason != "":
	case !s.labelled.agrees(v != nil):
		reason = disagrees(v != nil)
	case v == nil && s.optional:
		return name, ""
	case v == nil:
		reason = "is missing; expected what the masked tokens were"
	case v.Kind != tfrecord.KindInt64:
		reason = fmt.Sprintf("has %v values; expected int64", v.Kind)
	case len(v.Int64s) != tokens:
		reason = reasonLength(len(v.Int64s), tokens, "token ids")
	}
	if reason != "" {
		return name, reason
	}
	s.given = make([]int64, 0, tokens)
	for i, x := range v.Int64s {
		if x != NotPredicted && (x < 0 || x >= int64(s.VocabSize)) {
			return name, fmt.Sprintf("has %d at position %d; expected 0 to %d, because the size of the vocabulary is %d, or %d for a token that is not predicted", x, i, s.VocabSize-1, s.VocabSize, NotPredicted)
		}
		if mask == nil || mask[i] != 0 {
			s.given = append(s.given, x)
		}
	}
	return name, ""
}

// checkGiven returns what is wrong with the labels of an example of n tokens in fixed rows, which have
// places for the share of tokens that is masked.
func (s *masks) checkGiven(cfg *Config, n int) string {
	if cfg.Rows == 0 || s.given == nil {
		return ""
	}
	has, most := 0, int(s.Probability*float64(n))+1
	for _, x := range s.given {
		if x != NotPredicted {
			has++
		}
	}
	if has > most {
		return fmt.Sprintf("has %d masked tokens of %d; expected at most %d in fixed rows, by a probability of masking of %v", has, n, most, s.Probability)
	}
	return ""
}

// presence is whether the records so far have a feature.
type presence int8

const (
	unknown presence = iota
	without
	with
)

// agrees reports whether a record has the feature as those before it.
func (p *presence) agrees(has bool) bool {
	now := without
	if has {
		now = with
	}
	if *p == unknown {
		*p = now
	}
	return *p == now
}

func disagrees(has bool) string {
	if has {
		return "is in the record, and not in those before it; expected it in all records or in none"
	}
	return "is missing, and records before it have it; expected it in all records or in none"
}

// maskUse is what the key of a record's Random is used for; dataset uses 0 to 2 and 4.
const maskUse = 3

// choose chooses tokens of an example and replaces them.
func (s *masks) choose(tokens []int32, id dataset.RecordID) {
	defer s.end()
	if s.Given {
		for i, t := range tokens {
			if int(t) == s.MaskToken {
				s.add(int32(i), 0)
			}
		}
		return
	}
	if s.given != nil {
		for i, x := range s.given {
			if x != NotPredicted {
				s.add(int32(i), int32(x))
			}
		}
		s.given = nil
		return
	}
	candidates := s.split(tokens)
	random := dataset.NewRandom(s.Seed, maskUse, uint64(s.epoch), uint64(id.File), uint64(id.Record))
	s.chosen = s.chosen[:0]
	if left := s.count(candidates); s.SpanLength > 0 {
		s.chooseSpans(&random, left)
	} else {
		s.chooseUnits(&random, left)
	}
	slices.SortFunc(s.chosen, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, c := range s.chosen {
		how := 0
		for at := c.from; at < c.to; at++ {
			if at == c.from || s.SpanLength == 0 {
				how = random.Below(10)
			}
			s.add(int32(at), tokens[at])
			switch how {
			default:
				tokens[at] = int32(s.MaskToken)
			case 8:
				tokens[at] = s.plain[random.Below(len(s.plain))]
			case 9: // stays as it is
			}
		}
	}
}

// chooseUnits chooses units until as many tokens as are left are chosen.
func (s *masks) chooseUnits(random *dataset.Random, left int) {
	for i := 0; i < len(s.units) && left > 0; i++ {
		k := i + random.Below(len(s.units)-i)
		s.units[i], s.units[k] = s.units[k], s.units[i]
		if u := s.units[i]; u.to-u.from <= left {
			left -= u.to - u.from
			s.chosen = append(s.chosen, u)
		}
	}
}

// chooseSpans chooses spans of units until as many tokens as are left are chosen, or none was found for
// long. A span ends where another one or a special token is.
func (s *masks) chooseSpans(random *dataset.Random, left int) {
	longer := int(float64(1<<32) * (1 - 1/s.SpanLength)) // of 2^32, the chance of one unit more
	taken := make([]bool, len(s.units))
	for tries := 10 * len(s.units); tries > 0 && left > 0; tries-- {
		n := 1
		for n < MaxSpan && random.Below(1<<32) < longer {
			n++
		}
		at := random.Below(len(s.units))
		c := span{s.units[at].from, s.units[at].from}
		for ; n > 0 && at < len(s.units) && !taken[at] && s.units[at].from == c.to && s.units[at].to-c.from <= left; at, n = at+1, n-1 {
			c.to, taken[at] = s.units[at].to, true
		}
		if c.to > c.from {
			left -= c.to - c.from
			s.chosen = append(s.chosen, c)
		}
	}
}

// split sets the units to the tokens that may be chosen, or to the words of them, and returns the
// number of these tokens.
func (s *masks) split(tokens []int32) (candidates int) {
	s.units = s.units[:0]
	within := false // the token before is one of the same word, if this one starts none
	for i, t := range tokens {
		if int(t) < len(s.special) && s.special[t] {
			within = false
			continue
		}
		candidates++
		if s.WholeWords && within && s.starts[i] == 0 {
			s.units[len(s.units)-1].to = i + 1
			continue
		}
		s.units = append(s.units, span{i, i + 1})
		within = true
	}
	return candidates
}
