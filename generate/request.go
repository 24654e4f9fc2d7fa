package generate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Request asks for the continuation of a prompt.
type Request struct {
	// ID names the request in updates. No two requests that are not finished have the same.
	ID uint64
	// Prompt has one token or more. Of a model with a source it is what the decoder begins with.
	Prompt []int32
	// Source are the tokens that a model with a source makes a text of; nil of others.
	Source []int32
	Config Config
	// Number tells the random numbers of requests apart that have the same seed.
	Number uint64
	// Text returns the text of new tokens. It is needed for stop strings only.
	Text func(ids []int32) string
}

// Finish says why a sequence ended.
type Finish string

// Why a sequence ended.
const (
	// FinishEOS is an end token, and FinishStop a stop string.
	FinishEOS  Finish = "eos"
	FinishStop Finish = "stop"
	// FinishLength is the greatest length.
	FinishLength Finish = "length"
)

// Result is a finished sequence.
type Result struct {
	// IDs are the new tokens, with the end token if there is one. Of beams that is the first of
	// Config.EOSTokenIDs, as in transformers.
	IDs []int32
	// Score is the sum of the logarithms of the tokens' probabilities, divided by the number of tokens
	// to the power of Config.LengthPenalty. Of beams it is what transformers calls sequences_scores, for
	// which processors change the probabilities; otherwise the probabilities are the model's.
	Score  float64
	Finish Finish
	// Stop is the stop string that ended the sequence.
	Stop string
}

// Update is what happened to a request.
type Update struct {
	ID uint64
	// Tokens are the new tokens of its sequences. A beam search has none: its beams may change.
	Tokens []Token
	// Results are those of a request that is finished, and nil otherwise.
	Results []Result
	// Err says why a request was given up.
	Err error
}

// Token is a new token of a sequence.
type Token struct {
	Sequence int // of the request
	ID       int32
}

// active is a request in the scheduler.
type active struct {
	Request
	most       int // the greatest length of a sequence, with the prompt
	need       int // the slots that it may have at once
	processors []processor
	beams      *hypotheses // nil unless it is a beam search
	live       []*sequence
	results    []Result // of the sequences that are finished, by their number; not of beams
	computed   bool     // the model has computed its prompt, or is about to
	source     []int32  // the slots of its source, which all sequences share
	encoded    bool     // the model has encoded its source, or is about to
	logSumExp  func(scores []float32) float64
}

// sequence is one of a request that is not finished.
type sequence struct {
	end    *token
	number int     // of the request's sequences
	score  float32 // of a beam
	sum    float64 // of the logarithms of the model's probabilities of its tokens; not of a beam
	random *rand.Rand
	text   *Growing // nil without stop strings
}

// newActive checks a request.
func newActive(r Request, l Limits) (*active, error) {
	if err := r.Config.Validate(); err != nil {
		return nil, err
	}
	if err := r.Config.fits(l.VocabSize); err != nil {
		return nil, err
	}
	if len(r.Prompt) == 0 {
		return nil, errors.New("the prompt has no tokens; expected one or more")
	}
	if err := cmp.Or(l.has("prompt", r.Prompt), l.has("source", r.Source), l.takesSource(len(r.Source))); err != nil {
		return nil, err
	}
	if len(r.Config.StopStrings) > 0 && r.Text == nil {
		return nil, errors.New("stop strings are given without a tokenizer; expected the text of tokens")
	}
	most, err := r.Config.longest(len(r.Prompt), l.MaxLength)
	if err != nil {
		return nil, err
	}
	a := &active{Request: r, most: most, processors: processors(r.Config, len(r.Prompt), most), logSumExp: l.LogSumExp}
	if a.logSumExp == nil {
		a.logSumExp = checkedLogSumExp
	}
	// The last token of a sequence is never computed.
	a.need = len(r.Prompt) + a.width()*(most-len(r.Prompt)-1)
	switch {
	case a.width() > l.Rows:
		return nil, fmt.Errorf("the request has %d sequences at once; expected at most %d, as many as a call takes", a.width(), l.Rows)
	case a.need > l.Slots:
		return nil, fmt.Errorf("the request may need %d tokens of the cache (a prompt of %d, and %d sequences of up to %d more); expected at most %d; give it fewer new tokens or sequences, or make the cache larger", a.need, len(r.Prompt), a.width(), most-len(r.Prompt), l.Slots)
	}
	if r.Config.NumBeams > 1 {
		a.beams = newHypotheses(r.Config, len(r.Prompt), most)
	}
	return a, nil
}

// width returns the number of sequences that the request has at once.
func (a *active) width() int { return max(a.Config.NumBeams, a.Config.NumReturnSequences) }

// begin makes the first sequence of the prompt, after a token that ends a beginning of it, or nil.
func (a *active) begin(known *token) {
	end, have := known, 0
	if known != nil {
		known.uses++
		have = known.place + 1
	}
	for _, id := range a.Prompt[have:] {
		next := after(end, id)
		if end != nil {
			end.uses-- // the sequence goes on
		}
		end = next
	}
	a.live = []*sequence{{end: end}}
}

// newSequence returns a sample's sequence.
func (a *active) newSequence(number int) *sequence {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[0:], a.Config.Seed)
	binary.LittleEndian.PutUint64(seed[8:], a.Number)
	binary.LittleEndian.PutUint64(seed[16:], uint64(number))
	return &sequence{number: number, random: rand.New(rand.NewChaCha8(seed))}
}

// process applies the processors to the scores of a sequence.
func (a *active) process(ids []int32, scores []float32) {
	for _, p := range a.processors {
		p(ids, scores)
	}
}

// ErrForbidden says that a request cannot go on, because of its config.
var ErrForbidden = errors.New("no token may follow: all are forbidden; expected looser min_length, no_repeat_ngram_size or bad_words_ids")

// choice is what may follow a live sequence: the token that it takes and the logarithm of its probability, or
// what a search chooses from.
type choice struct {
	id    int32
	score float64
	from  []candidate
	err   error
}

// start makes the sequences of a request's samples, or the one of a greedy search, at its first logits.
func (a *active) start() {
	if a.beams != nil || a.results != nil {
		return
	}
	a.results = make([]Result, a.Config.NumReturnSequences)
	prompt := a.live[0].end
	a.live = nil
	for i := range a.results {
		q := a.newSequence(i)
		q.end = prompt
		a.live = append(a.live, q)
	}
	prompt.uses += len(a.live) - 1
}

// weigh returns what may follow a live sequence, of its logits, which it may overwrite if they are its own. It
// changes nothing that other sequences have.
func (a *active) weigh(number int, logits []float32) choice {
	norm := a.logSumExp(logits)
	if norm != norm {
		return choice{err: cmp.Or(checkLogits(logits), errors.New("the sum of the exponentials of the logits is not a number"))}
	}
	q := a.live[number]
	if a.beams == nil {
		return a.choose(q, logits, norm)
	}
	// They become logarithms of probabilities.
	for i, s := range logits {
		logits[i] = float32(float64(s) - norm)
	}
	a.process(q.end.ids(), logits)
	return choice{from: a.candidates(number, q.score, logits)}
}

// take lets every sequence take its next token.
func (a *active) take(choices []choice, s *slots) Update {
	u := Update{ID: a.ID}
	for _, c := range choices {
		u.Err = cmp.Or(u.Err, c.err)
	}
	switch {
	case u.Err != nil:
	case a.beams != nil:
		u.Err = a.takeBeams(choices, s)
	default:
		u.Tokens = a.takeTokens(choices, s)
	}
	switch {
	case u.Err != nil:
		a.leave(s)
	case len(a.live) == 0:
		u.Results = a.results
	}
	return u
}

// checkLogits returns an error if logits are not numbers.
func checkLogits(row []float32) error {
	for id, x := range row {
		if x != x || x > math.MaxFloat32 {
			return fmt.Errorf("the model gives %v for token %d; expected a finite number: its weights may be no good", x, id)
		}
	}
	return nil
}

// leave gives up all sequences.
func (a *active) leave(s *slots) {
	for _, q := range a.live {
		s.drop(q.end)
	}
	a.live = nil
}

// takeTokens lets the sequences of samples, or the one of a greedy search, take a token.
func (a *active) takeTokens(choices []choice, s *slots) []Token {
	live := a.live
	a.live = nil
	var out []Token
	for i, q := range live {
		id := choices[i].id
		q.sum += choices[i].score
		out = append(out, Token{q.number, id})
		before := q.end
		q.end = after(before, id)
		s.drop(before) // the sequence no longer ends there
		if finish, stop := a.finished(q, id); finish != "" {
			ids := q.end.ids()[len(a.Prompt):]
			a.results[q.number] = Result{ids, q.sum / math.Pow(float64(len(ids)), a.Config.LengthPenalty), finish, stop}
			s.drop(q.end)
			continue
		}
		a.live = append(a.live, q)
	}
	return out
}

// choose returns a sequence's next token, of its scores and the logarithm of the sum of their exponentials.
func (a *active) choose(q *sequence, scores []float32, norm float64) choice {
	raw := scores
	if len(a.processors) > 0 {
		scores = slices.Clone(scores)
		a.process(q.end.ids(), scores)
	}
	id := largest(scores, 1)[0]
	if scores[id] == forbidden {
		return choice{err: ErrForbidden}
	}
	if a.Config.DoSample {
		id = draw(scores, q.random)
	}
	return choice{id: int32(id), score: float64(raw[id]) - norm}
}

// draw returns a token by its probability. Scores beyond float32, as of a repetition penalty next to 0, are
// those of the likeliest token.
func draw(scores []float32, random *rand.Rand) int {
	norm := logSumExp(scores)
	if !(norm <= math.MaxFloat64) {
		return largest(scores, 1)[0]
	}
	left := random.Float64()
	last := 0
	for i, s := range scores {
		if s == forbidden {
			continue
		}
		last = i
		if left -= math.Exp(float64(s) - norm); left < 0 {
			break
		}
	}
	return last
}

// finished reports whether a token is the last of its sequence, and why.
func (a *active) finished(q *sequence, id int32) (Finish, string) {
	if slices.Contains(a.Config.EOSTokenIDs, id) {
		return FinishEOS, ""
	}
	if len(a.Config.StopStrings) > 0 {
		if q.text == nil {
			q.text = NewGrowing(a.Text)
		}
		q.text.Add(id)
		longest := 0
		for _, s := range a.Config.StopStrings {
			longest = max(longest, len(s))
		}
		if _, stop := CutStop(q.text.Last(longest), a.Config.StopStrings); stop != "" {
			// The whole text says which comes first in it.
			if _, stop = CutStop(a.Text(q.end.ids()[len(a.Prompt):]), a.Config.StopStrings); stop != "" {
				return FinishStop, stop
			}
		}
	}
	if q.end.place+1 == a.most {
		return FinishLength, ""
	}
	return "", ""
}

// CutStop returns what a text has before the first of the stop strings in it, and that stop string; all of
// it and "" if it has none.
func CutStop(text string, stops []string) (before, stop string) {
	at := len(text)
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (i < at || i == at && len(s) > len(stop)) {
			at, stop = i, s
		}
	}
	return text[:at], stop
}

// takeBeams takes the next tokens of a beam search.
func (a *active) takeBeams(choices []choice, s *slots) error {
	all := likeliest(choices, a.Config.wanted())
	length := a.live[0].end.place + 2 // with the next token
	var next []*sequence
	for rank, c := range all {
		from := a.live[c.beam].end
		if slices.Contains(a.Config.EOSTokenIDs, c.id) {
			// Those after the first NumBeams are no better than a beam.
			if rank < a.Config.NumBeams {
				ids := from.ids()[len(a.Prompt):]
				a.beams.add(float64(c.score), length-len(a.Prompt), append(ids, a.Config.EOSTokenIDs[0]), true)
			}
			continue
		}
		if next = append(next, &sequence{end: after(from, c.id), score: c.score}); len(next) == a.Config.NumBeams {
			break
		}
	}
	for _, q := range a.live {
		s.drop(q.end)
	}
	a.live = next
	done := len(all) > 0 && a.beams.done(float64(all[0].score), length)
	if !done && len(next) > 0 && length < a.most {
		return nil
	}
	if !done {
		for _, q := range next {
			a.beams.add(float64(q.score), length-len(a.Prompt), q.end.ids()[len(a.Prompt):], false)
		}
	}
	a.leave(s)
	for _, h := range a.beams.best(a.Config.NumReturnSequences) {
		finish := FinishLength
		if h.ended {
			finish = FinishEOS
		}
		a.results = append(a.results, Result{IDs: h.ids, Score: h.score, Finish: finish})
	}
	if len(a.results) == 0 {
		return ErrForbidden
	}
	return nil
}
