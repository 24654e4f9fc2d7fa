package generate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
)

// withSources are limits of a model with sources.
var withSources = generate.Limits{VocabSize: 29, MaxLength: 40, Slots: 300, Rows: 8, PromptTokens: 24, SourceLength: 12, SourceSlots: 30}

// TestSourceLaws gives random requests sources, takes some out at any call, and checks that the others have
// the results that they have of a prompt that begins with the source, which is the same to the hash, and
// that all slots are free at the end. Requests have beams, samples or neither, and prompts of several parts.
func TestSourceLaws(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	tokens := func(most int) []int32 {
		out := make([]int32, 1+random.IntN(most))
		for i := range out {
			out[i] = random.Int32N(29)
		}
		return out
	}
	for round := range 20 {
		taken := withSources
		taken.SharesSources = round%2 == 0
		s, err := generate.New(taken)
		if err != nil {
			t.Fatal(err)
		}
		requests := make(map[uint64]generate.Request)
		for id := range uint64(20) {
			c := sampled()
			kind := id % 3
			if round%4 == 0 {
				kind = 0 // all share their sources
			}
			switch kind {
			case 0:
				c.DoSample, c.NumBeams, c.NumReturnSequences = false, 3, 2
			case 1:
				c.NumReturnSequences = 4
			}
			requests[id] = generate.Request{ID: id, Number: id, Prompt: tokens(4), Source: tokens(12), Config: c}
			if err := s.Add(requests[id]); err != nil {
				t.Fatal(err)
			}
		}
		m := newHashModel(withSources.VocabSize, withSources.Slots)
		cancelSome(t, s, m, random, 4, requests, func(r generate.Request, got []generate.Result) {
			same := r
			same.Prompt, same.Source = slices.Concat(r.Source, r.Prompt), nil
			if alone := run(t, limits, same)[r.ID]; fmt.Sprint(alone) != fmt.Sprint(got) {
				t.Errorf("round %d: request %d of source %v gives %v; expected %v", round, r.ID, r.Source, got, alone)
			}
		})
		tokens, sources := s.Free()
		if len(requests) > 0 || tokens != withSources.Slots || sources != withSources.SourceSlots {
			t.Fatalf("round %d: %v are not finished, %d and %d slots are free; expected none, %d and %d", round, requests, tokens, sources, withSources.Slots, withSources.SourceSlots)
		}
	}
}

// TestBeamsShareSources checks how many sequences in a row have a source together: of searches with 4 and 6
// beams, 2.
func TestBeamsShareSources(t *testing.T) {
	for _, tt := range []struct {
		beams  []int
		shares bool
		want   int
	}{{[]int{4, 4}, true, 4}, {[]int{4, 4}, false, 1}, {[]int{4, 6}, true, 2}, {[]int{4, 3}, true, 1}} {
		l := withSources
		l.Rows, l.SharesSources = 10, tt.shares
		s, err := generate.New(l)
		if err != nil {
			t.Fatal(err)
		}
		for id, beams := range tt.beams {
			c := generate.Default()
			c.NumBeams, c.MaxNewTokens = beams, 3
			if err := s.Add(generate.Request{ID: uint64(id), Prompt: []int32{0}, Source: []int32{1, 2}, Config: c}); err != nil {
				t.Fatal(err)
			}
		}
		prompts, _ := s.Next()
		if _, err := s.Take(make([]float32, 2*29)); err != nil {
			t.Fatal(err)
		}
		if b, _ := s.Next(); prompts.Sources != 2 || b.Rows/b.Sources != tt.want || len(b.SourceSlots) != 2*b.Sources {
			t.Errorf("%v: %d sources of prompts, then %d of %d rows; expected 2, and one of %d", tt, prompts.Sources, b.Sources, b.Rows, tt.want)
		}
	}
}

// TestSourcesAreEncodedTogether checks how many sources a call encodes: as many as have room, and as fit into
// the limit of a call.
func TestSourcesAreEncodedTogether(t *testing.T) {
	for _, tt := range []struct{ slots, tokens, calls, most int }{{60, 0, 1, 6}, {60, 30, 2, 3}, {60, 4, 6, 1}, {20, 0, 3, 2}} {
		l := withSources
		l.SourceSlots, l.PromptTokens = tt.slots, tt.tokens
		s, err := generate.New(l)
		if err != nil {
			t.Fatal(err)
		}
		c := generate.Default()
		c.MaxNewTokens = 3
		for id := range uint64(6) {
			if err := s.Add(generate.Request{ID: id, Prompt: []int32{0}, Source: make([]int32, 10), Config: c}); err != nil {
				t.Fatal(err)
			}
		}
		m := newHashModel(l.VocabSize, l.Slots)
		if err := generate.Run(context.Background(), s, m, func(u generate.Update) error { return u.Err }); err != nil {
			t.Fatal(err)
		}
		if m.encodes != tt.calls || m.encode != tt.most {
			t.Errorf("%+v: %d calls encode up to %d sources", tt, m.encodes, m.encode)
		}
	}
}

func TestRefusesSources(t *testing.T) {
	small := withSources
	small.SourceSlots = 5
	for _, tt := range []struct {
		limits generate.Limits
		source []int32
		want   string
	}{
		{limits, []int32{1}, "the source has 1 tokens; expected none: the model has no encoder"},
		{withSources, nil, "the source has no tokens; expected one or more"},
		{withSources, make([]int32, 13), "the source has 13 tokens; expected at most the 12 that the model takes"},
		{small, make([]int32, 6), "the source has 6 tokens; expected at most 5, as many as the cache of sources holds"},
		{withSources, []int32{29}, "the source has token 29; expected 0 to 28"},
	} {
		s, err := generate.New(tt.limits)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Add(generate.Request{Prompt: []int32{1}, Source: tt.source, Config: generate.Default()}); err == nil || !strings.Contains(err.Error(), tt.want) || s.Waiting() > 0 {
			t.Errorf("Add: %v; expected %q", err, tt.want)
		}
	}
}
