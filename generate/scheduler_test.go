package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
)

var limits = generate.Limits{VocabSize: 29, MaxLength: 40, Slots: 300, Rows: 8}

// sampled returns a config that draws tokens.
func sampled() generate.Config {
	c := generate.Default()
	c.DoSample, c.MaxNewTokens, c.EOSTokenIDs, c.Seed = true, 12, []int32{2}, 5
	return c
}

// letters is a tokenizer whose tokens are letters.
func letters(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteByte('a' + byte(id))
	}
	return b.String()
}

// TestSamplesOfASequence checks that the samples of a prompt depend on the seed and on the sequence's number
// alone, and not on what else is computed.
func TestSamplesOfASequence(t *testing.T) {
	c := sampled()
	c.NumReturnSequences = 3
	var requests []generate.Request
	for i := range uint64(30) {
		requests = append(requests, generate.Request{ID: i, Number: i, Prompt: []int32{1, 2, int32(i % 3)}, Config: c})
	}
	together := run(t, limits, requests...)
	distinct := make(map[string]bool)
	for _, r := range requests {
		alone := run(t, generate.Limits{VocabSize: 29, MaxLength: 40, Slots: 90, Rows: 3}, r)
		for k, result := range alone[r.ID] {
			if !slices.Equal(result.IDs, together[r.ID][k].IDs) || result.Score != together[r.ID][k].Score {
				t.Errorf("sample %d of request %d is %v alone and %v with others", k, r.ID, result, together[r.ID][k])
			}
			distinct[fmt.Sprint(result.IDs)] = true
		}
	}
	if len(distinct) < 80 {
		t.Errorf("90 samples have %d distinct ids; expected about 90", len(distinct))
	}
	requests[0].Config.Seed++
	if other := run(t, limits, requests[0]); slices.Equal(other[0][0].IDs, together[0][0].IDs) {
		t.Errorf("another seed draws the same: %v", other[0][0].IDs)
	}
}

// TestPromptsShareTheirBeginning checks that the beginning that prompts have in common is computed once while
// one of them is there, whatever parts prompts are computed in, and that nothing else is different.
func TestPromptsShareTheirBeginning(t *testing.T) {
	begin := []int32{9, 4, 7, 4, 11, 3, 8, 8, 1, 5, 6, 2}
	var requests []generate.Request
	for i := range uint64(12) {
		c := sampled()
		c.EOSTokenIDs, c.MaxNewTokens = nil, 3+int(i)
		if i%3 == 2 {
			c.DoSample, c.NumBeams = false, 2
		}
		prompt := slices.Concat(begin[:12-i/4], []int32{int32(i % 5), 7})
		if i > 8 {
			prompt = begin // nothing but what others begin with
		}
		requests = append(requests, generate.Request{ID: i, Number: i, Prompt: prompt, Config: c})
	}
	for _, parts := range []int{0, 40, 5, 1} {
		l := generate.Limits{VocabSize: 29, MaxLength: 40, Slots: 300, Rows: 8, PromptTokens: parts}
		s, err := generate.New(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		m, prompts := newHashModel(l.VocabSize, l.Slots), 0
		err = generate.Run(t.Context(), s, m, func(u generate.Update) error {
			if u.Results == nil {
				return u.Err
			}
			prompts += len(requests[u.ID].Prompt)
			alone := run(t, l, requests[u.ID])
			if got, want := fmt.Sprint(u.Results), fmt.Sprint(alone[u.ID]); got != want {
				t.Errorf("parts of %d: request %d is %s with others and %s alone", parts, u.ID, got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if free, _ := s.Free(); free != l.Slots {
			t.Errorf("parts of %d: %d slots are free at the end; expected %d", parts, free, l.Slots)
		}
		counted := newHashModel(l.VocabSize, l.Slots)
		for _, r := range requests { // one after the other
			one, _ := generate.New(l)
			if err := one.Add(r); err != nil {
				t.Fatal(err)
			}
			if err := generate.Run(t.Context(), one, counted, func(u generate.Update) error { return u.Err }); err != nil {
				t.Fatal(err)
			}
		}
		if saved := counted.news - m.news; saved < prompts/2 {
			t.Errorf("parts of %d: %d tokens are computed, and %d one after the other; expected at least %d less, half of the prompts'", parts, m.news, counted.news, prompts/2)
		}
	}
}

// TestSamplesHaveTheProbabilities counts the first tokens of many samples: chi-squared of 28 degrees of
// freedom is below 56.9 with a probability of 0.999.
func TestSamplesHaveTheProbabilities(t *testing.T) {
	c := sampled()
	c.MaxNewTokens, c.TopK = 1, 0
	prompt := []int32{3, 1, 4}
	const n = 20_000
	l := generate.Limits{VocabSize: 29, MaxLength: 40, Slots: 1 << 20, Rows: n}
	var requests []generate.Request
	for i := range uint64(n) {
		requests = append(requests, generate.Request{ID: i, Number: i, Prompt: prompt, Config: c})
	}
	counts := make([]float64, l.VocabSize)
	for _, results := range run(t, l, requests...) {
		counts[results[0].IDs[0]]++
	}
	total, chi := 0.0, 0.0
	scores := hashLogits(prompt, l.VocabSize)
	for _, s := range scores {
		total += math.Exp(float64(s))
	}
	for i, s := range scores {
		want := n * math.Exp(float64(s)) / total
		chi += (counts[i] - want) * (counts[i] - want) / want
	}
	if chi > 56.9 {
		t.Errorf("chi-squared is %v; expected less than 56.9; counts %v", chi, counts)
	}
}

func TestStopStrings(t *testing.T) {
	c := generate.Default()
	c.MaxNewTokens = 16
	r := generate.Request{Prompt: []int32{10}, Config: c, Text: letters}
	whole := run(t, limits, r)[0][0]
	text := letters(whole.IDs)
	if whole.Finish != generate.FinishLength || len(whole.IDs) != 16 {
		t.Fatalf("without stop strings: %+v; expected 16 tokens", whole)
	}
	r.Config.StopStrings = []string{"nothing", text[5:8], text[6:8]}
	got := run(t, limits, r)[0][0]
	if got.Finish != generate.FinishStop || got.Stop != text[5:8] || !slices.Equal(got.IDs, whole.IDs[:8]) {
		t.Errorf("with stop strings %q of %q: %+v; expected the first 8 tokens", r.Config.StopStrings, text, got)
	}
	if before, stop := generate.CutStop(text, r.Config.StopStrings); before != text[:5] || stop != text[5:8] {
		t.Errorf("CutStop(%q) = %q, %q; expected %q, %q", text, before, stop, text[:5], text[5:8])
	}
}

// TestCancel takes requests out at every call, also between a batch and its logits, and checks that the rest
// has the results that it has alone, also those whose prompts begin as one that is taken out.
func TestCancel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		s, err := generate.New(limits)
		if err != nil {
			t.Fatal(err)
		}
		m := newHashModel(limits.VocabSize, limits.Slots)
		requests := make(map[uint64]generate.Request)
		for id := range uint64(12) {
			c := sampled()
			if id%3 == 0 {
				c.DoSample, c.NumBeams = false, 3
			}
			requests[id] = generate.Request{ID: id, Number: id, Prompt: []int32{4, 1, int32(id / 4), 1, int32(id)}, Config: c}
			if err := s.Add(requests[id]); err != nil {
				t.Fatal(err)
			}
		}
		cancelSome(t, s, m, random, 3, requests, func(r generate.Request, got []generate.Result) {
			if alone := run(t, limits, r)[r.ID]; fmt.Sprint(alone) != fmt.Sprint(got) {
				t.Errorf("round %d: request %d gives %v; alone %v", round, r.ID, got, alone)
			}
		})
		if len(requests) > 0 || s.Running() > 0 || s.Waiting() > 0 {
			t.Fatalf("round %d: requests %v are not finished", round, requests)
		}
		if free, _ := s.Free(); free != limits.Slots {
			t.Fatalf("round %d: %d slots are free at the end; expected %d", round, free, limits.Slots)
		}
	}
}

// cancelSome computes until the requests are finished. At a call of so many it takes one out, also one that is
// finished, and it calls check with the results of the others. What stays in requests was never finished.
func cancelSome(t *testing.T, s *generate.Scheduler, m generate.Model, random *rand.Rand, calls int, requests map[uint64]generate.Request, check func(generate.Request, []generate.Result)) {
	t.Helper()
	n := uint64(len(requests))
	for b, ok := s.Next(); ok; b, ok = s.Next() {
		logits, err := m.Compute(context.Background(), b)
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(calls) == 0 {
			id := random.Uint64N(n)
			s.Cancel(id)
			delete(requests, id)
		}
		updates, err := s.Take(logits)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range updates {
			r, ok := requests[u.ID]
			if !ok || u.Err != nil {
				t.Fatalf("update %+v of a request that was canceled, or an error", u)
			}
			if u.Results == nil {
				continue
			}
			check(r, u.Results)
			delete(requests, u.ID)
		}
	}
}

// TestBatches checks that sequences of all requests are computed together.
func TestBatches(t *testing.T) {
	s, err := generate.New(limits)
	if err != nil {
		t.Fatal(err)
	}
	c := generate.Default()
	c.MaxNewTokens = 10
	for id := range uint64(8) {
		if err := s.Add(generate.Request{ID: id, Prompt: []int32{int32(id)}, Config: c}); err != nil {
			t.Fatal(err)
		}
	}
	m := newHashModel(limits.VocabSize, limits.Slots)
	if err := generate.Run(context.Background(), s, m, func(u generate.Update) error { return u.Err }); err != nil {
		t.Fatal(err)
	}
	if m.calls != 10 || m.widest != 8 {
		t.Errorf("8 requests of 10 tokens took %d calls of up to %d rows; expected 10 of 8", m.calls, m.widest)
	}
}

func TestModelIsNoGood(t *testing.T) {
	s, err := generate.New(limits)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(2) {
		if err := s.Add(generate.Request{ID: id, Prompt: []int32{1}, Config: generate.Default()}); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := s.Next()
	if _, err := s.Take(make([]float32, 5)); err == nil || !strings.Contains(err.Error(), "5 logits; expected 58") {
		t.Errorf("Take of 5 logits: %v", err)
	}
	logits := make([]float32, b.Rows*limits.VocabSize)
	logits[3] = float32(math.NaN())
	updates, err := s.Take(logits)
	if err != nil || len(updates) != 2 {
		t.Fatalf("Take = %v, %v; expected two updates", updates, err)
	}
	if err := updates[0].Err; err == nil || !strings.Contains(err.Error(), "gives NaN for token 3") {
		t.Errorf("of logits that are not numbers: %v", err)
	}
	if updates[1].Err != nil || s.Running() != 1 {
		t.Errorf("the other request: %v, and %d go on; expected one", updates[1].Err, s.Running())
	}
	lost := errors.New("lost")
	if err := generate.Run(context.Background(), s, failing{lost}, nil); !errors.Is(err, lost) {
		t.Errorf("Run of a model that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Compute(context.Context, *generate.Batch) ([]float32, error) { return nil, f.err }

func TestNothingMayFollow(t *testing.T) {
	for _, beams := range []int{1, 2} {
		s, err := generate.New(limits)
		if err != nil {
			t.Fatal(err)
		}
		c := generate.Default()
		c.NumBeams = beams
		for id := range int32(29) {
			c.BadWordsIDs = append(c.BadWordsIDs, []int32{id})
		}
		if err := s.Add(generate.Request{Prompt: []int32{1}, Config: c}); err != nil {
			t.Fatal(err)
		}
		err = generate.Run(context.Background(), s, newHashModel(29, 300), func(u generate.Update) error { return u.Err })
		if err == nil || !strings.Contains(err.Error(), "all are forbidden") {
			t.Errorf("%d beams with all tokens forbidden: %v", beams, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		want   string
		prompt []int32
		change func(*generate.Config)
	}{
		{"num_beams is 0", nil, func(c *generate.Config) { c.NumBeams = 0 }},
		{"num_return_sequences is 3; expected at most num_beams", nil, func(c *generate.Config) { c.NumBeams, c.NumReturnSequences = 2, 3 }},
		{"num_return_sequences is 2 without sampling", nil, func(c *generate.Config) { c.NumReturnSequences = 2 }},
		{"num_beams is 2 with sampling", nil, func(c *generate.Config) { c.NumBeams, c.DoSample = 2, true }},
		{"stop strings are given and num_beams is 2", nil, func(c *generate.Config) { c.NumBeams, c.StopStrings = 2, []string{"x"} }},
		{"stop strings are given without a tokenizer", nil, func(c *generate.Config) { c.StopStrings = []string{"x"} }},
		{"a stop string is empty", nil, func(c *generate.Config) { c.StopStrings = []string{""} }},
		{"early_stopping is \"yes\"", nil, func(c *generate.Config) { c.EarlyStopping = "yes" }},
		{"length_penalty is NaN", nil, func(c *generate.Config) { c.LengthPenalty = math.NaN() }},
		{"temperature is 0", nil, func(c *generate.Config) { c.Temperature = 0 }},
		{"temperature is 1e-60", nil, func(c *generate.Config) { c.Temperature = 1e-60 }},
		{"top_p is 1.5", nil, func(c *generate.Config) { c.TopP = 1.5 }},
		{"min_p is NaN", nil, func(c *generate.Config) { c.MinP = math.NaN() }},
		{"typical_p is 0", nil, func(c *generate.Config) { c.TypicalP = 0 }},
		{"top_k is -1", nil, func(c *generate.Config) { c.TopK = -1 }},
		{"repetition_penalty is 0", nil, func(c *generate.Config) { c.RepetitionPenalty = 0 }},
		{"bad_words_ids has an empty word", nil, func(c *generate.Config) { c.BadWordsIDs = [][]int32{{}} }},
		{"bad_words_ids has the end token 2", nil, func(c *generate.Config) { c.BadWordsIDs, c.EOSTokenIDs = [][]int32{{2}}, []int32{2} }},
		{"bad_words_ids has token 29", nil, func(c *generate.Config) { c.BadWordsIDs = [][]int32{{29}} }},
		{"eos_token_id has token -1", nil, func(c *generate.Config) { c.EOSTokenIDs = []int32{-1} }},
		{"forced_eos_token_id has token 30", nil, func(c *generate.Config) { c.ForcedEOSTokenID = 30 }},
		{"max_length is 9 and max_new_tokens is 9", nil, func(c *generate.Config) { c.MaxLength, c.MaxNewTokens = 9, 9 }},
		{"min_length is 9 and min_new_tokens is 9", nil, func(c *generate.Config) { c.MinLength, c.MinNewTokens = 9, 9 }},
		{"min_length is 9; expected at most max_length", nil, func(c *generate.Config) { c.MinLength, c.MaxLength = 9, 8 }},
		{"min_new_tokens is 9; expected at most max_new_tokens", nil, func(c *generate.Config) { c.MinNewTokens, c.MaxNewTokens = 9, 8 }},
		{"max_length is 41; expected at most 40", nil, func(c *generate.Config) { c.MaxLength = 41 }},
		{"the prompt has 3 tokens; expected less than max_length, which is 3", []int32{1, 2, 3}, func(c *generate.Config) { c.MaxLength = 3 }},
		{"the prompt has 40 tokens; expected less than the 40", make([]int32, 40), func(*generate.Config) {}},
		{"max_new_tokens is 38 after a prompt of 3 tokens; expected at most 37", []int32{1, 2, 3}, func(c *generate.Config) { c.MaxNewTokens = 38 }},
		{"min_length is 60; expected at most 40", nil, func(c *generate.Config) { c.MinLength = 60 }},
		{"the prompt has no tokens", []int32{}, func(*generate.Config) {}},
		{"the prompt has token 29", []int32{29}, func(*generate.Config) {}},
		{"the request has 9 sequences at once; expected at most 8", nil, func(c *generate.Config) { c.NumBeams = 9 }},
		{"the request may need 305 tokens of the cache", nil, func(c *generate.Config) { c.NumBeams = 8 }},
	} {
		s, err := generate.New(limits)
		if err != nil {
			t.Fatal(err)
		}
		c := generate.Default()
		tt.change(&c)
		prompt := tt.prompt
		if prompt == nil {
			prompt = []int32{1}
		}
		if err := s.Add(generate.Request{Prompt: prompt, Config: c}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Add: %v; expected %q", err, tt.want)
		}
		if s.Waiting() > 0 {
			t.Errorf("%s: the request was taken", tt.want)
		}
	}
	for _, l := range []generate.Limits{{}, {VocabSize: 5, MaxLength: 1, Slots: 4, Rows: 1}, {VocabSize: 5, MaxLength: 4, Rows: 1}, {VocabSize: 5, MaxLength: 4, Slots: 4}, {VocabSize: 5, MaxLength: 4, Slots: 4, Rows: 1, PromptTokens: -1}, {VocabSize: 5, MaxLength: 4, Slots: 4, Rows: 1, SourceLength: -1}, {VocabSize: 5, MaxLength: 4, Slots: 4, Rows: 1, SourceLength: 3}} {
		if _, err := generate.New(l); err == nil {
			t.Errorf("New(%+v) takes it; expected an error", l)
		}
	}
}

// TestFail checks that the requests of a batch that failed are given up, with their slots, and no others.
func TestFail(t *testing.T) {
	l := limits
	l.PromptTokens, l.SourceLength, l.SourceSlots = 4, 6, 18
	s, err := generate.New(l)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(3) {
		if err := s.Add(generate.Request{ID: id, Prompt: []int32{1, 2, 3, 4, 5, 6}, Source: []int32{7, 8, 9}, Config: sampled()}); err != nil {
			t.Fatal(err)
		}
	}
	lost := errors.New("lost")
	for id := range uint64(3) {
		if _, ok := s.Next(); !ok {
			t.Fatal("there is no batch")
		}
		if id == 1 {
			s.Cancel(id)
		}
		got := s.Fail(lost)
		if id == 1 && got != nil || id != 1 && (len(got) != 1 || got[0].ID != id || got[0].Err != lost) {
			t.Errorf("call %d: %+v; expected an error of its prompt, unless it is canceled", id, got)
		}
	}
	_, ok := s.Next()
	if free, sources := s.Free(); ok || free != l.Slots || sources != l.SourceSlots || s.Running() != 0 {
		t.Errorf("%d and %d slots are free and %d requests run; expected %d, %d and none", free, sources, s.Running(), l.Slots, l.SourceSlots)
	}
}
