package packed

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// targetFeatures are those of an encoder-decoder model.
func targetFeatures() []dataset.Spec {
	token := func(name string, dtype dataset.DType, role dataset.Role, made string) dataset.Spec {
		return dataset.Spec{Name: name, DType: dtype, Shape: []int{-1}, Role: role, Make: made}
	}
	ids := token(TargetIDs, dataset.Int32, dataset.Input, "")
	ids.Record, ids.Below = DefaultTargetIDs(), bound(testVocabulary)
	return []dataset.Spec{ids,
		token("target_sequence_ids", dataset.Int32, dataset.Input, MakeSequenceIDs),
		token("target_position_ids", dataset.Int32, dataset.Input, MakePositionIDs),
		token("target_example_ids", dataset.Int32, dataset.ID, MakeExampleIDs),
		token("target_weights", dataset.Float32, dataset.Weight, ""),
	}
}

func targetConfig(packing Packing) Config {
	return Config{Packing: packing, RowLength: 24, Standard: []string{InputIDs, SequenceIDs, PositionIDs, ExampleWeights},
		Targets: &Targets{RowLength: 16, Features: targetFeatures()}}
}

// pair is an example with a target.
type pair struct {
	source, target []int64
	weights        []float32
}

func pairOf(random *rand.Rand) (p pair) {
	for range 1 + random.IntN(24) {
		p.source = append(p.source, random.Int64N(testVocabulary))
	}
	for range 1 + random.IntN(16) {
		p.target = append(p.target, random.Int64N(testVocabulary))
		p.weights = append(p.weights, random.Float32())
	}
	return p
}

func (p pair) String() string { return fmt.Sprint(p.source, p.target, p.weights) }

func (p pair) record(t testing.TB, name string, padding int) []byte {
	target, weights := slices.Clone(p.target), slices.Clone(p.weights)
	for range padding {
		target, weights = append(target, IgnoredLabel), append(weights, 1)
	}
	return rowtest.Record(t, tfrecord.Int64Feature("input_ids", p.source...), tfrecord.Int64Feature(name, target...), tfrecord.FloatFeature("target_weights", weights...))
}

// pairsOf reads a batch as a model does: the example of a number in a row is its tokens on both sides.
func pairsOf(t testing.TB, cfg Config, b *dataset.Batch) []string {
	t.Helper()
	ints := func(name string) *dataset.Feature { return b.Feature(name) }
	seqs, targets := ints(SequenceIDs), ints("target_sequence_ids")
	if seqs.Shape[0] != targets.Shape[0] || seqs.Shape[1] > cfg.RowLength || targets.Shape[1] > cfg.Targets.RowLength {
		t.Fatalf("rows are %v and %v", seqs.Shape, targets.Shape)
	}
	out, seen := make([]string, b.Examples), 0
	length, targetLength := seqs.Shape[1], targets.Shape[1]
	for row := range seqs.Shape[0] {
		for number := int32(1); ; number++ {
			var p pair
			example := int32(-1)
			for at := row * length; at < (row+1)*length; at++ {
				if seqs.Int32[at] == number {
					if got := ints(PositionIDs).Int32[at]; int(got) != len(p.source) {
						t.Fatalf("position %d; expected %d", got, len(p.source))
					}
					p.source = append(p.source, int64(ints(InputIDs).Int32[at]))
				}
			}
			for at := row * targetLength; at < (row+1)*targetLength; at++ {
				switch targets.Int32[at] {
				case number:
					if got := ints("target_position_ids").Int32[at]; int(got) != len(p.target) {
						t.Fatalf("position %d of a target; expected %d", got, len(p.target))
					}
					example = ints("target_example_ids").Int32[at]
					p.target = append(p.target, int64(ints(TargetIDs).Int32[at]))
					p.weights = append(p.weights, ints("target_weights").Float32[at])
				case 0:
					if w, e := ints("target_weights").Float32[at], ints("target_example_ids").Int32[at]; w != 0 || int(e) != len(b.Feature(ExampleWeights).Float32) {
						t.Fatalf("padding has weight %v and example %d", w, e)
					}
				}
			}
			if (p.source == nil) != (p.target == nil) {
				t.Fatalf("row %d has the example %d on one side only", row, number)
			}
			if p.source == nil {
				break
			}
			if b.Examples > 0 {
				out[example] = p.String()
				seen++
			}
		}
	}
	if seen != b.Examples {
		t.Fatalf("%d examples in the rows; expected %d", seen, b.Examples)
	}
	return out
}

// TestTargets holds that every example is whole on both sides, in a row of its own numbers, however it is
// packed, and in whichever part of the batch.
func TestTargets(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, packing := range packings {
		for round := range 40 {
			cfg := targetConfig(packing)
			cfg.FixedRowLength = round%4 == 0
			if err := cfg.Validate(40); err != nil {
				t.Fatal(err)
			}
			a := cfg.Assemblers()()
			a.Reset()
			var want []string
			for i := range 1 + random.IntN(40) {
				p := pairOf(random)
				want = append(want, p.String())
				if bad := a.Add(dataset.RecordID{Record: int64(i)}, p.record(t, DefaultTargetIDs()[i%3], i%4)); bad != nil {
					t.Fatal(bad)
				}
			}
			b := a.Batch()
			if got := pairsOf(t, cfg, b); !slices.Equal(got, want) || b.Labeled != len(want) || b.Truncated != 0 {
				t.Fatalf("%s: got  %v\nwant %v", packing, got, want)
			}
			parts, err := cfg.Divide(b, 1+random.IntN(5), 0)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, p := range parts {
				for i, one := range pairsOf(t, cfg, p) {
					if one != want[p.Records[i].Record] {
						t.Fatalf("%s: a part has %s", packing, one)
					}
					all = append(all, one)
				}
			}
			slices.Sort(all)
			if slices.Sort(want); !slices.Equal(all, want) {
				t.Fatalf("%s: parts have %d examples; expected %d", packing, len(all), len(want))
			}
			b.Release()
		}
	}
}

func TestTargetsOfRecords(t *testing.T) {
	ids := tfrecord.Int64Feature("input_ids", 1, 2, 3)
	for _, test := range []struct {
		features []tfrecord.Feature
		want     string
	}{
		{nil, "target_ids is missing (also tried labels, decoder_target_ids)"},
		{[]tfrecord.Feature{tfrecord.Int64Feature("labels", -100, -100)}, "labels has no tokens; expected at least one"},
		{[]tfrecord.Feature{tfrecord.Int64Feature("labels", 4, -100, 5)}, "labels has -100 at position 1, before a token"},
		{[]tfrecord.Feature{tfrecord.Int64Feature("labels", 4, -1, 5)}, "labels has -1 at position 1; expected 0 to 1999"},
		{[]tfrecord.Feature{tfrecord.FloatFeature("labels", 4)}, "labels has float values; expected int64"},
		{[]tfrecord.Feature{tfrecord.Int64Feature("target_ids", make([]int64, 17)...)}, "target_ids has 17 tokens, more than the limit of targets of 16"},
		{[]tfrecord.Feature{tfrecord.Int64Feature("target_ids", 4, 5), tfrecord.FloatFeature("target_weights", 1)}, "target_weights has 1 values; expected 2"},
		{[]tfrecord.Feature{tfrecord.Int64Feature("target_ids", 4, 5), tfrecord.FloatFeature("target_weights", 1, -1)}, "target_weights has weight -1"},
	} {
		a := targetConfig(PackBestFit).Assemblers()()
		a.Reset()
		bad := a.Add(dataset.RecordID{}, rowtest.Record(t, append(test.features, ids)...))
		if bad == nil || !strings.HasPrefix(bad.Feature+" "+bad.Reason, test.want) {
			t.Errorf("got %v; expected %s", bad, test.want)
		}
		// What is refused leaves nothing behind.
		if bad := a.Add(dataset.RecordID{}, rowtest.Record(t, ids, tfrecord.Int64Feature("target_ids", 7, 8))); bad != nil {
			t.Fatal(bad)
		}
		if got := pairsOf(t, targetConfig(PackBestFit), a.Batch()); !slices.Equal(got, []string{"[1 2 3] [7 8] [1 1]"}) {
			t.Errorf("got %v", got)
		}
	}
	cut := targetConfig(PackBestFit)
	cut.Truncate, cut.Targets.MaxTokens = true, 3
	a := cut.Assemblers()()
	a.Reset()
	if bad := a.Add(dataset.RecordID{}, rowtest.Record(t, ids, tfrecord.Int64Feature("target_ids", 4, 5, 6, 7, 9))); bad != nil {
		t.Fatal(bad)
	}
	if b := a.Batch(); !slices.Equal(pairsOf(t, cut, b), []string{"[1 2 3] [4 5 9] [1 1 1]"}) || b.Truncated != 1 {
		t.Errorf("got %v, %d truncated", pairsOf(t, cut, b), b.Truncated)
	}
}

// TestPaddingOfTargets refuses targets that end with the model's token of padding, wherever else it is.
func TestPaddingOfTargets(t *testing.T) {
	cfg := targetConfig(PackBestFit)
	pad := int32(0)
	cfg.Targets.Padding = &pad
	for _, tt := range []struct {
		target []int64
		want   string
	}{
		{[]int64{4, 0, 5}, ""},
		{[]int64{4, 5, 0}, "ends with token 0, which is the model's padding and would be learned"},
		{[]int64{4, 5, 0, 0, IgnoredLabel}, "ends with token 0"},
	} {
		a := cfg.Assemblers()()
		a.Reset()
		bad := a.Add(dataset.RecordID{}, rowtest.Record(t, tfrecord.Int64Feature("input_ids", 1, 2), tfrecord.Int64Feature("target_ids", tt.target...)))
		if (bad == nil) != (tt.want == "") || bad != nil && (bad.Feature != "target_ids" || !strings.HasPrefix(bad.Reason, tt.want)) {
			t.Errorf("%v: got %v; expected %q", tt.target, bad, tt.want)
		}
	}
}

// TestTargetsAreCounted counts the tokens of targets, and the pairs that their attention has.
func TestTargetsAreCounted(t *testing.T) {
	a := targetConfig(PackBestFit).Assemblers()()
	a.Reset()
	for i, lengths := range [][2]int{{3, 2}, {5, 4}} {
		p := pair{source: make([]int64, lengths[0]), target: make([]int64, lengths[1]), weights: make([]float32, lengths[1])}
		if bad := a.Add(dataset.RecordID{Record: int64(i)}, p.record(t, TargetIDs, 1)); bad != nil {
			t.Fatal(bad)
		}
	}
	if b := a.Batch(); b.Tokens != 8 || b.Pairs != 9+25 || b.TargetTokens != 6 || b.TargetPairs != 2*(2+3)+4*(4+5) {
		t.Errorf("%d tokens with %d pairs, and %d of targets with %d", b.Tokens, b.Pairs, b.TargetTokens, b.TargetPairs)
	}
}

func TestValidateTargets(t *testing.T) {
	with := func(change func(c *Config)) Config {
		c := targetConfig(PackBestFit)
		change(&c)
		return c
	}
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{with(func(c *Config) { c.Targets.RowLength = -1 }), "row length of targets is -1 tokens"},
		{with(func(c *Config) { c.Targets.MaxTokens = -1 }), "maximum tokens of a target is -1"},
		{with(func(c *Config) { c.Targets.Features = c.Targets.Features[1:] }), "targets have no feature target_ids; expected one, their tokens"},
		{with(func(c *Config) { c.Targets.Features[0].DType = dataset.Int64 }), "feature target_ids is target_ids int64"},
		{with(func(c *Config) { c.Targets.Features[1].Name = InputIDs }), "feature input_ids is given twice"},
		{with(func(c *Config) { c.Targets.Features[4].Shape = nil }), "feature target_weights of targets has shape []; expected -1 first"},
		{with(func(c *Config) { c.Rows = 2 }), "there are targets, and the number of rows is fixed"},
		{with(func(c *Config) { m := masking; c.Masking = &m }), "there are targets, and masking is set"},
	} {
		if err := test.cfg.Validate(4); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got %v; expected %s", err, test.want)
		}
	}
	if _, err := FromExamples(targetConfig(PackNone), []Example{{IDs: []int32{1}}}); err == nil || asRecordError(t, err).Feature != TargetIDs {
		t.Errorf("examples without targets: %v", err)
	}
	var keys []string
	for _, s := range targetConfig(PackBestFit).Settings() {
		keys = append(keys, s.Key)
	}
	if !slices.Contains(keys, "target_row_length") || !slices.Contains(keys, "target_features") {
		t.Errorf("settings are %v", keys)
	}
}

// FuzzTargets holds that any record is refused, or packed on both sides.
func FuzzTargets(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 4 {
		f.Add(pairOf(random).record(f, DefaultTargetIDs()[i%3], i))
	}
	good := pairOf(random)
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := targetConfig(PackBestFit)
		cfg.Truncate = true
		a := cfg.Assemblers()()
		a.Reset()
		bad := a.Add(dataset.RecordID{}, data)
		if err := a.Add(dataset.RecordID{Record: 1}, good.record(t, TargetIDs, 2)); err != nil {
			t.Fatal(err)
		}
		b := a.Batch()
		got := pairsOf(t, cfg, b)
		if got[len(got)-1] != good.String() {
			t.Fatalf("got %v", got)
		}
		if bad != nil && !reflect.DeepEqual(got, []string{good.String()}) {
			t.Fatalf("a refused record leaves %v behind", got)
		}
	})
}
