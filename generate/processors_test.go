package generate

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// TestProcessors compares the logits processors with those of transformers.
func TestProcessors(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Processed []struct {
			IDs    []int32    `json:"ids"`
			Prompt int        `json:"prompt"`
			Logits []*float32 `json:"logits"`
			EOS    []int32    `json:"eos"`
			Config struct {
				MaxLength         int       `json:"max_length"`
				MinLength         int       `json:"min_length"`
				MinNewTokens      int       `json:"min_new_tokens"`
				RepetitionPenalty float64   `json:"repetition_penalty"`
				NoRepeatNgramSize int       `json:"no_repeat_ngram_size"`
				BadWordsIDs       [][]int32 `json:"bad_words_ids"`
				ForcedEOSTokenID  int32     `json:"forced_eos_token_id"`
				Temperature       float64   `json:"temperature"`
				TopK              int       `json:"top_k"`
				TopP              float64   `json:"top_p"`
				MinP              float64   `json:"min_p"`
				TypicalP          float64   `json:"typical_p"`
			} `json:"config"`
			Scores []*float32 `json:"scores"`
		} `json:"processed"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	given := file.Processed[0]
	for _, tt := range file.Processed[1:] {
		c := Default()
		c.EOSTokenIDs, c.DoSample, c.TopK = given.EOS, true, tt.Config.TopK
		c.MinLength, c.MinNewTokens, c.NoRepeatNgramSize = tt.Config.MinLength, tt.Config.MinNewTokens, tt.Config.NoRepeatNgramSize
		c.BadWordsIDs, c.MinP = tt.Config.BadWordsIDs, tt.Config.MinP
		for _, f := range []struct {
			to    *float64
			value float64
		}{{&c.RepetitionPenalty, tt.Config.RepetitionPenalty}, {&c.Temperature, tt.Config.Temperature}, {&c.TopP, tt.Config.TopP}, {&c.TypicalP, tt.Config.TypicalP}} {
			if f.value != 0 {
				*f.to = f.value
			}
		}
		if tt.Config.ForcedEOSTokenID != 0 {
			c.ForcedEOSTokenID = tt.Config.ForcedEOSTokenID
		}
		scores := numbers(given.Logits)
		for _, p := range processors(c, given.Prompt, tt.Config.MaxLength) {
			p(given.IDs, scores)
		}
		want := numbers(tt.Scores)
		if !slices.EqualFunc(scores, want, func(a, b float32) bool { return a == b || math.Abs(float64(a-b)) < 1e-6 }) {
			t.Errorf("%+v:\n got %v\nwant %v", tt.Config, scores, want)
		}
	}
}

// numbers returns numbers of a file in which null is minus infinity.
func numbers(in []*float32) []float32 {
	out := make([]float32, len(in))
	for i, x := range in {
		out[i] = forbidden
		if x != nil {
			out[i] = *x
		}
	}
	return out
}

func TestLargest(t *testing.T) {
	scores := []float32{3, forbidden, 5, 5, 1, 3, 7, 0}
	for k := range len(scores) + 2 {
		want := []int{6, 2, 3, 0, 5, 4, 7, 1}[:min(k, len(scores))]
		if got := largest(scores, k); !slices.Equal(got, want) {
			t.Errorf("largest %d = %v; expected %v", k, got, want)
		}
	}
}

// TestDrawBeyondFloat32 draws at a temperature at which scores overflow.
func TestDrawBeyondFloat32(t *testing.T) {
	c := Default()
	c.DoSample, c.Temperature, c.TopP, c.MinP = true, 1e-40, 0.9, 0.1
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	scores := []float32{1, -2, 3, 2}
	for _, p := range processors(c, 1, 9) {
		p([]int32{0}, scores)
	}
	if id := draw(scores, rand.New(rand.NewPCG(1, 2))); id != 2 {
		t.Errorf("token %d of scores %v; expected 2, the likeliest", id, scores)
	}
}

// TestTemperatureOfExtremes divides scores by temperatures next to 0.
func TestTemperatureOfExtremes(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, tt := range []struct{ scores, want []float32 }{
		{[]float32{-2, -1, -inf}, []float32{-inf, 0, -inf}},
		{[]float32{2, 1, -inf}, []float32{0, -inf, -inf}},
		{[]float32{inf, 1, inf}, []float32{0, -inf, 0}},
		{[]float32{-inf, -inf}, []float32{-inf, -inf}},
	} {
		got := slices.Clone(tt.scores)
		if temperature(1e-40)(nil, got); !slices.Equal(got, tt.want) {
			t.Errorf("%v become %v; expected %v", tt.scores, got, tt.want)
		}
	}
}

// TestExp compares exp with math.Exp, also next to the places where it changes the power of 2.
func TestExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		x := -math.Pow(10, 4*rng.Float64()-1.2)
		if i%2 == 0 {
			x = -float64(i%40_000) * math.Ln2 / 128
		}
		want := math.Exp(x)
		if x < -700 {
			want = 0
		}
		if got := exp(x); math.Abs(got-want) > 2e-15*want {
			t.Fatalf("exp(%v) is %v; expected %v", x, got, want)
		}
	}
	if exp(0) != 1 || exp(math.Inf(-1)) != 0 {
		t.Errorf("exp(0) is %v, and that of the least number %v", exp(0), exp(math.Inf(-1)))
	}
}
