package generate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
)

type goldenCase struct {
	Config json.RawMessage `json:"config"`
	Prompt []int32         `json:"prompt"`
	IDs    [][]int32       `json:"ids"`
	Scores []float64       `json:"scores"`
}

func readGolden(t *testing.T) (vocab int, cases []goldenCase) {
	t.Helper()
	data, err := os.ReadFile(cmp.Or(os.Getenv("GORBIT_GENERATE_GOLDENS"), "testdata/golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vocab     int          `json:"vocab"`
		Generated []goldenCase `json:"generated"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vocab, file.Generated
}

// configOf reads the arguments of transformers.
func configOf(t *testing.T, data []byte) generate.Config {
	t.Helper()
	c := generate.Default()
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// run generates for all requests, and returns the results by id.
func run(t *testing.T, l generate.Limits, requests ...generate.Request) map[uint64][]generate.Result {
	t.Helper()
	s, err := generate.New(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	out := make(map[uint64][]generate.Result)
	err = generate.Run(context.Background(), s, newHashModel(l.VocabSize, l.Slots), func(u generate.Update) error {
		if u.Results != nil {
			out[u.ID] = u.Results
		}
		return u.Err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGenerate compares ids and scores with transformers: every prompt alone, all of them in one scheduler
// with room for few, and with room for all. GORBIT_GENERATE_GOLDENS names other goldens than those of testdata.
func TestGenerate(t *testing.T) {
	vocab, cases := readGolden(t)
	if len(cases) < 250 {
		t.Fatalf("the golden file has %d cases; expected 250 or more", len(cases))
	}
	if testing.Short() {
		cases = cases[:60] // the race detector takes minutes for all, and nothing here runs beside them
	}
	requests := make([]generate.Request, len(cases))
	for i, c := range cases {
		requests[i] = generate.Request{ID: uint64(i), Prompt: c.Prompt, Config: configOf(t, c.Config)}
	}
	check := func(t *testing.T, got map[uint64][]generate.Result, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			c, results := cases[i], got[uint64(i)]
			var ids [][]int32
			for k, r := range results {
				ids = append(ids, r.IDs)
				if c.Scores != nil && math.Abs(r.Score-c.Scores[k]) > 2e-5+2e-7*math.Abs(c.Scores[k]) { // float32
					t.Errorf("case %d %s of %v: score %d is %v; expected %v", i, c.Config, c.Prompt, k, r.Score, c.Scores[k])
				}
			}
			if !slices.EqualFunc(ids, c.IDs, slices.Equal) {
				t.Errorf("case %d %s of %v:\n got %v\nwant %v", i, c.Config, c.Prompt, ids, c.IDs)
			}
		}
	}
	t.Run("alone", func(t *testing.T) {
		for i, r := range requests {
			check(t, run(t, generate.Limits{VocabSize: vocab, MaxLength: 64, Slots: 150, Rows: 12}, r), i, i+1)
		}
	})
	for _, l := range []generate.Limits{
		{VocabSize: vocab, MaxLength: 64, Slots: 150, Rows: 12},
		{VocabSize: vocab, MaxLength: 64, Slots: 400, Rows: 40, PromptTokens: 20},
		{VocabSize: vocab, MaxLength: 64, Slots: 300, Rows: 16, PromptTokens: 2}, // longer prompts in parts
		{VocabSize: vocab, MaxLength: 64, Slots: 100_000, Rows: 10_000},
	} {
		t.Run(fmt.Sprint(l.Slots), func(t *testing.T) {
			check(t, run(t, l, requests...), 0, len(cases))
		})
	}
}
