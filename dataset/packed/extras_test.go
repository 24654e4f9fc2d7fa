package packed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/rowtest"
	recordfiles "github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// The special tokens of the made-up vocabulary of 2000 tokens.
const (
	testPad, testCLS, testSEP, testMask = 0, 1, 2, 3
	testVocabulary                      = 2000
)

func bound(x int64) *int64 { return &x }

// kinds are extra features of every kind.
var kinds = []dataset.Spec{
	{Name: "number", DType: dataset.Int64, Role: dataset.ID},
	{Name: "tags", DType: dataset.Int32, Shape: []int{-1}, Role: dataset.Label, Minimum: bound(-1), Below: bound(7), Pad: -1},
	{Name: "points", Record: []string{"absent", "places"}, DType: dataset.Float32, Shape: []int{-1, 2}},
	{Name: "score", DType: dataset.Float32, Role: dataset.Label},
	{Name: "three", DType: dataset.Uint8, Shape: []int{3}, Pad: 9},
	{Name: "many", DType: dataset.Float32, Shape: []int{5}, Make: MakeMultiHot, Role: dataset.Label},
	{Name: "answer", DType: dataset.Int32, Make: MakeOffset, Role: dataset.Label},
	{Name: "whose", DType: dataset.Int32, Shape: []int{-1}, Make: MakeExampleIDs},
	{Name: "firsts", DType: dataset.Int32, Make: MakeStarts},
	{Name: "sequences", DType: dataset.Int32, Shape: []int{-1}, Make: MakeSequenceIDs},
	{Name: "positions", DType: dataset.Int32, Shape: []int{-1}, Make: MakePositionIDs},
}

// masked are the features of masked tokens.
var masked = []dataset.Spec{
	{Name: "masked_positions", DType: dataset.Int32, Make: MakeMaskedPositions},
	{Name: "masked_labels", DType: dataset.Int32, Make: MakeMaskedLabels},
	{Name: "masked_weights", DType: dataset.Float32, Make: MakeMaskedWeights},
}

var masking = Masking{MaskToken: testMask, VocabSize: testVocabulary, Special: []int{testPad, testCLS, testSEP, testMask}, Seed: 11}

// tokensOf returns the tokens of example n.
func tokensOf(n int) []int64 {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	ids := []int64{testCLS}
	for range 1 + r.IntN(28) {
		ids = append(ids, int64(10+r.IntN(testVocabulary-10)))
	}
	return append(ids, testSEP)
}

// extraRecord returns the record of example n.
func extraRecord(t testing.TB, n int) []byte {
	ids := tokensOf(n)
	tags, starts, types := make([]int64, len(ids)), make([]int64, len(ids)), make([]int64, len(ids))
	points := make([]float32, 2*len(ids))
	for i := range ids {
		tags[i], types[i] = int64((n+i)%8-1), int64(2*i/len(ids))
		points[2*i], points[2*i+1] = float32(n), float32(i)
		if (n+i)%3 > 0 {
			starts[i] = 1
		}
	}
	var many []int64
	for c := range 5 {
		if n>>c&1 == 1 {
			many = append(many, int64(c))
		}
	}
	return rowtest.Record(t, tfrecord.Int64Feature("input_ids", ids...), tfrecord.Int64Feature("segment_ids", types...), tfrecord.Int64Feature("label_ids", int64(n%3)),
		tfrecord.Int64Feature("number", int64(n)), tfrecord.Int64Feature("tags", tags...), tfrecord.FloatFeature("places", points...),
		tfrecord.FloatFeature("score", float32(n)/4), tfrecord.Int64Feature("three", int64(n%256), 1, 2), tfrecord.Int64Feature("many", many...),
		tfrecord.Int64Feature("answer", int64(n%len(ids))), tfrecord.Int64Feature("word_starts", starts...), tfrecord.FloatFeature("weight", weightOf(n)))
}

func weightOf(n int) float32 { return float32(1+n%4) / 2 }

func writeExtras(t testing.TB, n int) []string {
	t.Helper()
	var paths []string
	dir := t.TempDir()
	for s := range 2 {
		path := tfrecord.ShardName(filepath.Join(dir, "train"), s, 2)
		from, to := s*n/2, (s+1)*n/2
		recordfiles.WriteFile(t, path, to-from, func(i int) []byte { return extraRecord(t, from+i) })
		paths = append(paths, path)
	}
	return paths
}

// extraLayouts are configurations with extras of every kind.
func extraLayouts() map[string]Config {
	words := masking
	words.WholeWords = true
	all := slices.Concat(kinds, masked)
	few := []string{InputIDs, ExampleWeights}
	weights := FeatureNames{Weight: []string{"weight"}}
	return map[string]Config{
		"best-fit":           {RowLength: 64, Extras: all, Masking: &masking},
		"first-fit, words":   {RowLength: 64, Packing: PackFirstFit, Extras: all, Masking: &words, Features: weights},
		"none, few":          {RowLength: 64, Packing: PackNone, Extras: all, Standard: few, Masking: &masking},
		"fixed rows":         {RowLength: 64, Rows: 4, RowExamples: 4, Extras: all, Masking: &masking, Features: weights},
		"fixed rows, few":    {RowLength: 64, Rows: 4, RowExamples: 4, Extras: all, Standard: few, Masking: &words},
		"buckets":            {RowLength: 64, Buckets: []int{16, 24}, Rows: 4, RowExamples: 4, Extras: all, Masking: &masking, Features: weights},
		"fixed length":       {RowLength: 64, FixedRowLength: true, Extras: all, Standard: few, Masking: &masking, Features: weights},
		"cut":                {RowLength: 12, Truncate: true, Extras: all, Masking: &masking},
		"cut, words":         {RowLength: 12, Truncate: true, Extras: all, Masking: &words, Standard: few},
		"without labels":     {RowLength: 64, Extras: all, Standard: few, Masking: &masking, Labels: LabelsNone},
		"without masking":    {RowLength: 64, Extras: kinds, Standard: few},
		"only tokens' words": {RowLength: 64, Extras: append(slices.Clone(kinds), dataset.Spec{Name: "words", Record: []string{"input_ids"}, DType: dataset.Int64, Shape: []int{-1}}), Standard: []string{ExampleWeights}},
	}
}

// checker checks a batch of n's examples.
type checker struct {
	testing.TB
	cfg         Config
	b           *dataset.Batch
	predictions int // those of the examples so far
}

// get returns a feature, whose size it checks.
func (c *checker) get(name string) *dataset.Feature {
	f := c.b.Feature(name)
	if f == nil {
		c.Fatalf("feature %s is missing", name)
	}
	if f.Len() != f.Size() {
		c.Fatalf("feature %s has %d values of shape %v", name, f.Len(), f.Shape)
	}
	return f
}

// checkExtras checks all features of a batch, and returns the tokens of each example as they were
// masked.
func checkExtras(t testing.TB, cfg Config, b *dataset.Batch) map[int]string {
	t.Helper()
	c := &checker{TB: t, cfg: cfg.withDefaults(), b: b}
	number, whose, weights := c.get("number").Int64, c.get("whose").Int32, c.get(ExampleWeights).Float32
	places := len(number)
	if len(whose) != b.Rows*b.RowLength || cfg.Rows == 0 && places != max(1, b.Examples) {
		t.Fatalf("%d cells, %d rows of %d; %d places", len(whose), b.Rows, b.RowLength, places)
	}
	for _, name := range standard {
		if (b.Feature(name) != nil) != cfg.wants(name) {
			t.Fatalf("feature %s: %v", name, b.Feature(name))
		}
	}
	if f := b.Feature(SequenceIDs); f != nil && !slices.Equal(f.Int32, c.get("sequences").Int32) {
		t.Fatal("sequence ids differ from the standard ones")
	}
	cells := map[int][]int{}
	for cell, e := range whose {
		cells[int(e)] = append(cells[int(e)], cell)
	}
	out := map[int]string{}
	for e := range places {
		if e < b.Examples {
			out[int(number[e])] = c.example(e, int(number[e]), cells[e])
		} else if weights[e] != 0 || cfg.Rows > 0 && c.get("three").Uint8[3*e] != 9 {
			t.Fatalf("an empty place weighs %v and has %v", weights[e], c.get("three").Uint8[3*e])
		}
	}
	for _, cell := range cells[places] {
		if tag := b.Feature("tags"); tag != nil && tag.Int32[cell] != -1 || c.get("positions").Int32[cell] != 0 || c.get("sequences").Int32[cell] != 0 {
			t.Fatalf("cell %d of the padding: %v", cell, tag)
		}
	}
	if cfg.Masking == nil {
		return out
	}
	w := c.get("masked_weights").Float32
	if c.predictions < len(w) && slices.Max(w[c.predictions:]) != 0 {
		t.Fatalf("predictions of no example weigh %v", w[c.predictions:])
	}
	if want := cfg.Predictions((cfg.Rows + b.Rows - 1) / max(1, b.Rows)); cfg.Rows > 0 && len(w) != want {
		t.Fatalf("%d predictions, want %d", len(w), want)
	}
	return out
}

// example checks example e of the batch, which is n and has the given cells, and returns its tokens.
func (c *checker) example(e, n int, own []int) string {
	ids := tokensOf(n)
	kept := min(len(ids), c.cfg.RowLength)
	if first := int(c.get("firsts").Int32[e]); len(own) != kept || own[0] != first || own[kept-1] != own[0]+kept-1 || own[0]/c.b.RowLength != own[kept-1]/c.b.RowLength {
		c.Fatalf("example %d has cells %v, first %d; expected %d in a row", n, own, first, kept)
	}
	was := make([]int, kept) // which tokens of the record are kept
	for k := range was {
		was[k] = k
	}
	was[kept-1] = len(ids) - 1
	for k, cell := range own {
		c.token(n, k, was[k], cell)
	}
	c.values(e, n, own, was)
	if !c.cfg.wants(InputIDs) {
		return ""
	}
	tokens, restored := make([]int64, kept), make([]int64, kept)
	for k, cell := range own {
		tokens[k] = int64(c.get(InputIDs).Int32[cell])
	}
	copy(restored, tokens)
	text := fmt.Sprint(tokens)
	for ; c.cfg.Masking != nil && c.predictions < c.get("masked_positions").Len(); c.predictions++ {
		at, weight := int(c.get("masked_positions").Int32[c.predictions]), c.get("masked_weights").Float32[c.predictions]
		if at < own[0] || at > own[kept-1] || weight == 0 {
			break
		}
		if weight != c.get(ExampleWeights).Float32[e] {
			c.Fatalf("example %d: a prediction weighs %v", n, weight)
		}
		restored[at-own[0]] = int64(c.get("masked_labels").Int32[c.predictions])
		text += fmt.Sprintf(" %d:%d", at-own[0], restored[at-own[0]])
	}
	for k, id := range restored {
		if id != ids[was[k]] || id < 10 && tokens[k] != id {
			c.Fatalf("example %d: token %d is %d, with the labels %d, and was %d", n, k, tokens[k], id, ids[was[k]])
		}
	}
	return text
}

// token checks what belongs to token k of example n, which was another one before the example was cut.
func (c *checker) token(n, k, was, cell int) {
	if p := c.get("positions").Int32[cell]; int(p) != k {
		c.Fatalf("position is %d, want %d", p, k)
	}
	if p := c.get("points").Float32[2*cell : 2*cell+2]; p[0] != float32(n) || p[1] != float32(was) {
		c.Fatalf("example %d: point %v at %d", n, p, k)
	}
	if f := c.b.Feature("tags"); f != nil && f.Int32[cell] != int32((n+was)%8-1) {
		c.Fatalf("example %d: tag %d at %d", n, f.Int32[cell], k)
	}
	if f := c.b.Feature("words"); f != nil && f.Int64[cell] != tokensOf(n)[was] {
		c.Fatalf("example %d: word %d at %d", n, f.Int64[cell], k)
	}
}

// values checks what belongs to example n as a whole.
func (c *checker) values(e, n int, own, was []int) {
	want := float32(1)
	if c.cfg.Features.Weight != nil {
		want = weightOf(n)
	}
	if w := c.get(ExampleWeights).Float32[e]; w != want {
		c.Fatalf("example %d weighs %v, want %v", n, w, want)
	}
	if f := c.b.Feature("score"); f != nil && f.Float32[e] != float32(n)/4 {
		c.Fatalf("example %d: score %v", n, f.Float32[e])
	}
	if f := c.get("three"); f.Uint8[3*e] != uint8(n) || f.Uint8[3*e+2] != 2 {
		c.Fatalf("example %d: three %v", n, f.Uint8[3*e:3*e+3])
	}
	if f := c.b.Feature("many"); f != nil {
		for k, x := range f.Float32[5*e : 5*e+5] {
			if x != float32(n>>k&1) {
				c.Fatalf("example %d: many %v", n, f.Float32[5*e:5*e+5])
			}
		}
	}
	// The number of a token that was cut off is 0.
	at := max(0, slices.Index(was, n%len(tokensOf(n))))
	if f := c.b.Feature("answer"); f != nil && int(f.Int32[e]) != own[0]+at {
		c.Fatalf("example %d: answer %d, want %d", n, f.Int32[e], own[0]+at)
	}
}

// TestExtrasLaws draws epochs and divides their batches in any way: every example comes once, with all
// that belongs to it, and the same tokens are masked whatever the readers, the packing and the division.
func TestExtrasLaws(t *testing.T) {
	const n = 60
	paths := writeExtras(t, n)
	chosen := map[string]string{}
	for name, layout := range extraLayouts() {
		t.Run(name, func(t *testing.T) {
			for _, readers := range []int{1, 3} {
				d := open(t, dataset.Config{Files: paths, BatchSize: 13, Epochs: 2, Seed: 4, Layout: layout, Readers: readers})
				seen := map[int64]map[int]string{0: {}, 1: {}}
				for b := next(t, d); b != nil; b = next(t, d) {
					whole := checkExtras(t, layout, b)
					if layout.Labels != LabelsNone && b.Labeled != b.Examples {
						t.Fatalf("%d of %d are labeled", b.Labeled, b.Examples)
					}
					for id, tokens := range whole {
						if _, twice := seen[b.Epoch][id]; twice {
							t.Fatalf("example %d comes twice", id)
						}
						seen[b.Epoch][id] = tokens
					}
					for _, parts := range []int{2, 3, 17} {
						divided, err := layout.Divide(b, parts, 128)
						if err != nil {
							t.Fatal(err)
						}
						wider := layout
						if layout.Packing == "" && !layout.FixedRowLength && layout.Rows == 0 {
							wider.RowLength = max(layout.RowLength, 12)
						}
						again := map[int]string{}
						for _, p := range divided {
							maps.Copy(again, checkExtras(t, wider, p))
						}
						if !reflect.DeepEqual(again, whole) {
							t.Fatalf("%d parts have %v, want %v", parts, again, whole)
						}
					}
					if readers == 3 {
						b.Release() // later batches use the memory
					}
				}
				for epoch, all := range seen {
					if len(all) != n {
						t.Fatalf("epoch %d has %d examples", epoch, len(all))
					}
					for id, tokens := range all {
						if layout.Masking == nil {
							continue
						}
						key := fmt.Sprint(epoch, id, layout.Masking.WholeWords, layout.RowLength)
						if was, ok := chosen[key]; ok && was != tokens {
							t.Fatalf("example %d of epoch %d is masked as %s, and elsewhere as %s", id, epoch, tokens, was)
						}
						chosen[key] = tokens
					}
				}
				if layout.Masking != nil && reflect.DeepEqual(seen[0], seen[1]) {
					t.Error("both epochs are masked alike")
				}
			}
		})
	}
}

// TestExtrasResume continues from every position with the same batches.
func TestExtrasResume(t *testing.T) {
	paths := writeExtras(t, 40)
	for name, layout := range extraLayouts() {
		t.Run(name, func(t *testing.T) {
			c := dataset.Config{Files: paths, BatchSize: 9, Epochs: 2, Layout: layout}
			var want []*dataset.Batch
			for d := open(t, c); ; {
				b, err := d.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				want = append(want, b)
			}
			for i := 0; i+1 < len(want); i += 3 {
				d := open(t, c)
				if err := d.Restore(want[i].State); err != nil {
					t.Fatal(err)
				}
				if b := next(t, d); !reflect.DeepEqual(b.Features, want[i+1].Features) {
					t.Fatalf("batch %d differs after a resume", i+1)
				}
			}
			if layout.Masking == nil {
				return
			}
			m := *layout.Masking
			m.Probability = 0.3
			c.Layout = func() Config { l := layout; l.Masking = &m; return l }()
			if err := open(t, c).Restore(want[0].State); err == nil || !strings.Contains(err.Error(), "the masking was") {
				t.Errorf("a position of another masking is accepted: %v", err)
			}
		})
	}
}

// TestMaskingShares holds the choice to BERT's shares.
func TestMaskingShares(t *testing.T) {
	for _, words := range []bool{false, true} {
		m := masking
		m.WholeWords = words
		m.Probability = DefaultMaskProbability
		s := newMasks(&m)
		var candidates, chosen, put, other, same, outside int
		counts := make([]int, 40)
		for n := range 4000 {
			length := 20 + n%20
			tokens, original := make([]int32, length), make([]int32, length)
			s.starts = s.starts[:0]
			for i := range tokens {
				tokens[i] = int32(100 + i)
				if i == 0 || i == length-1 {
					tokens[i] = testCLS
				}
				s.starts = append(s.starts, int64((i+1)%2))
			}
			copy(original, tokens)
			s.keep(0)
			s.choose(tokens, dataset.RecordID{Record: int64(n)})
			candidates += length - 2
			chosen += len(s.at)
			if !words && len(s.at) != m.count(length-2) || len(s.at) > m.count(length-2) {
				t.Fatalf("%d of %d tokens are chosen, want %d", len(s.at), length-2, m.count(length-2))
			}
			for i := range tokens {
				if !slices.Contains(s.at, int32(i)) && tokens[i] != original[i] {
					t.Fatalf("token %d changed and was not chosen", i)
				}
			}
			for k, at := range s.at {
				counts[at]++
				if s.labels[k] != original[at] {
					t.Fatalf("label %d, want %d", s.labels[k], original[at])
				}
				switch {
				case tokens[at] == testMask:
					put++
				case tokens[at] == original[at]:
					same++
				default:
					other++
				}
				if tokens[at] < testMask || original[at] == testCLS {
					outside++
				}
				// Words are pairs of tokens, but for the first, which follows a special one.
				if mate := (at-2)/2*2 + 2 + (at+1)%2; words && at > 1 && int(mate) < length-1 && !slices.Contains(s.at, mate) {
					t.Fatalf("token %d is chosen without %d, of the same word: %v", at, mate, s.at)
				}
			}
		}
		share := func(n int) float64 { return float64(n) / float64(chosen) }
		if p := float64(chosen) / float64(candidates); p < 0.13 || p > 0.16 || outside > 0 {
			t.Errorf("words %v: %.3f of the tokens are chosen, %d are special", words, p, outside)
		}
		if share(put) < 0.78 || share(put) > 0.82 || share(other) < 0.085 || share(other) > 0.115 || share(same) < 0.085 || share(same) > 0.115 {
			t.Errorf("words %v: %.3f, %.3f and %.3f are masked, replaced and left", words, share(put), share(other), share(same))
		}
		if few := slices.Min(counts[1:18]); few < chosen/60 {
			t.Errorf("words %v: a token is chosen %d times of %d: %v", words, few, chosen, counts)
		}
	}
}

// TestMaskingGolden compares the choice with what testdata/generate.py computes.
func TestMaskingGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/masking.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Seed                       uint64
		Epoch, File, Record        int64
		Probability, SpanLength    float64
		Mask, Vocabulary           int
		Special                    []int
		Tokens, Masked, At, Labels []int32
		Starts                     []int64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 20 {
		t.Fatalf("%d cases", len(cases))
	}
	for i, c := range cases {
		s := newMasks(&Masking{Probability: c.Probability, MaskToken: c.Mask, VocabSize: c.Vocabulary, Special: c.Special, Seed: c.Seed, SpanLength: c.SpanLength, WholeWords: c.Starts != nil})
		s.epoch, s.starts = c.Epoch, c.Starts
		s.choose(c.Tokens, dataset.RecordID{File: int(c.File), Record: c.Record})
		if !slices.Equal(c.Tokens, c.Masked) || !slices.Equal(s.at, c.At) || !slices.Equal(s.labels, c.Labels) {
			t.Errorf("case %d: %v, %v of %v; want %v, %v of %v", i, s.at, s.labels, c.Tokens, c.At, c.Labels, c.Masked)
		}
	}
}

// TestGivenMasks predicts the mask tokens of texts that are not in files.
func TestGivenMasks(t *testing.T) {
	m := masking
	m.Given = true
	cfg := Config{RowLength: 8, Labels: LabelsNone, Standard: []string{InputIDs, ExampleWeights, PositionIDs}, Extras: append(slices.Clone(masked), kinds[7]), Masking: &m}
	b, err := FromExamples(cfg, []Example{{IDs: []int32{1, 50, testMask, 60, testMask, 2}}, {IDs: []int32{1, 70, 2}}, {IDs: []int32{testMask, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range b.Feature("masked_positions").Int32 {
		found = append(found, fmt.Sprintf("%d of %d", b.Feature(InputIDs).Int32[p], b.Feature("whose").Int32[p]))
	}
	if want := []string{"3 of 0", "3 of 0", "3 of 2"}; !slices.Equal(found, want) {
		t.Errorf("predictions %v, want %v", found, want)
	}
	parts, err := cfg.Split(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		for _, at := range p.Feature("masked_positions").Int32 {
			if p.Feature(InputIDs).Int32[at] != testMask {
				t.Errorf("part %+v", p.Features)
			}
		}
	}
	// In fixed rows there are places for as many as a batch that is masked by chance has at most.
	cfg.Rows, cfg.RowExamples, cfg.Packing = 2, 2, PackFirstFit
	most := cfg.Predictions(1)
	texts := []Example{{IDs: []int32{1, testMask, 2}}, {IDs: []int32{1, testMask, testMask, 2}}}
	b, err = FromExamples(cfg, texts)
	if err != nil {
		t.Fatal(err)
	}
	if at := b.Feature("masked_positions").Int32; len(at) != most || !slices.Equal(at[:3], []int32{1, 4, 5}) {
		t.Errorf("predictions at %v, expected %d places", at, most)
	}
	texts = append(texts, Example{IDs: []int32{testMask, testMask, testMask, testMask, testMask, testMask, testMask}})
	want := fmt.Sprintf("10 tokens are masked; expected at most %d in 2 fixed rows of 8 tokens; give fewer texts, or fewer masked tokens, at a time", most)
	if _, err := FromExamples(cfg, texts); err == nil || err.Error() != want {
		t.Errorf("error %v, expected %s", err, want)
	}
}

// TestMaskedBefore predicts the tokens that records say were masked, and chooses none.
func TestMaskedBefore(t *testing.T) {
	const no = NotPredicted
	m := masking
	layout := func(change func(*Config)) Config {
		c := Config{RowLength: 8, Labels: LabelsNone, Standard: []string{InputIDs, ExampleWeights}, Extras: masked, Masking: &m}
		if change != nil {
			change(&c)
		}
		return c
	}
	record := func(labels ...int64) []byte {
		ids := []int64{1, testMask, 60, 70, 2, 0}
		return rowtest.Record(t, ints("input_ids", ids...), ints("attention_mask", 1, 1, 1, 1, 1, 0), ints("labels", labels...))
	}
	plain := rowtest.Record(t, ints("input_ids", 1, 60, 2))
	good := record(no, 50, no, 70, no, no)
	for _, c := range []struct {
		name    string
		cfg     Config
		records [][]byte
		at      []int32 // of the predictions, and what was there
		was     []int32
		says    string
	}{
		{"masked and kept", layout(nil), [][]byte{good, record(no, no, 55, no, no, no)}, []int32{1, 3, 7}, []int32{50, 70, 55}, ""},
		{"none", layout(nil), [][]byte{record(no, no, no, no, no, no)}, []int32{0}, []int32{0}, ""},
		{"cut", layout(func(c *Config) { c.RowLength, c.Truncate = 3, true }), [][]byte{record(no, 50, no, 70, 2, no)}, []int32{1, 2}, []int32{50, 2}, ""},
		{"the user's name", layout(func(c *Config) { m := m; m.Labels = []string{"were"}; c.Masking = &m }), [][]byte{good}, nil, nil, "is missing"},
		{"some records", layout(nil), [][]byte{good, plain}, nil, nil, "is missing, and records before it have it"},
		{"another length", layout(nil), [][]byte{record(no, 50)}, nil, nil, "has 2 values; expected 6"},
		{"no token", layout(nil), [][]byte{record(no, testVocabulary, no, no, no, no)}, nil, nil, fmt.Sprintf("has %d at position 1", testVocabulary)},
		{"too many for fixed rows", layout(func(c *Config) { c.Rows = 1 }), [][]byte{record(1, 50, 60, 70, 2, no)}, nil, nil, "has 5 masked tokens of 5; expected at most 1"},
	} {
		a := c.cfg.Assemblers()()
		var refused error
		for i, r := range c.records {
			if err := a.Add(dataset.RecordID{Record: int64(i)}, r); err != nil {
				refused = err
			}
		}
		if c.says != "" {
			if refused == nil || !strings.Contains(refused.Error(), c.says) {
				t.Errorf("%s: error is %v, want %s", c.name, refused, c.says)
			}
			continue
		}
		if refused != nil {
			t.Errorf("%s: %v", c.name, refused)
			continue
		}
		b := a.Batch()
		if at, was := b.Feature("masked_positions").Int32, b.Feature("masked_labels").Int32; !slices.Equal(at, c.at) || !slices.Equal(was, c.was) {
			t.Errorf("%s: predictions at %v, which were %v; want %v and %v", c.name, at, was, c.at, c.was)
		}
		if ids := b.Feature(InputIDs).Int32; ids[1] != testMask || ids[2] != 60 && len(ids) > 3 {
			t.Errorf("%s: tokens %v are changed", c.name, ids)
		}
	}
}

// TestWrongExtras names the feature and what is wrong.
func TestWrongExtras(t *testing.T) {
	words := masking
	words.WholeWords = true
	layout := Config{RowLength: 64, Extras: slices.Concat(kinds, masked), Masking: &words, Features: FeatureNames{Weight: []string{"weight"}}}
	all, err := tfrecord.ParseExample(extraRecord(t, 3))
	if err != nil {
		t.Fatal(err)
	}
	tokens := len(tokensOf(3))
	with := func(f tfrecord.Feature) []byte {
		return rowtest.Record(t, append(slices.DeleteFunc(slices.Clone(all), func(o tfrecord.Feature) bool { return o.Name == f.Name }), f)...)
	}
	for _, c := range []struct {
		record  []byte
		feature string
		reason  string
	}{
		{with(tfrecord.Int64Feature("tags", 1)), "tags", fmt.Sprintf("has 1 values; expected %d, one for each of the token ids", tokens)},
		{with(tfrecord.Int64Feature("tags", slices.Repeat([]int64{7}, tokens)...)), "tags", "has 7 at position 0; expected -1 to 6"},
		{with(tfrecord.Feature{Name: "tags"}), "tags", "is missing; the record has "},
		{with(tfrecord.Feature{Name: "places"}), "absent", `is missing (also tried places); the record has `},
		{with(tfrecord.Int64Feature("many", 5)), "many", "has label 5; expected 0 to 4"},
		{with(tfrecord.FloatFeature("many", 5)), "many", "has float values; expected int64"},
		{with(tfrecord.Int64Feature("answer", int64(tokens))), "answer", fmt.Sprintf("is %d; expected the number of a token, 0 to %d", tokens, tokens-1)},
		{with(tfrecord.Int64Feature("answer", 1, 2)), "answer", "has 2 values; expected the number of one token"},
		{with(tfrecord.Int64Feature("three", 1, 2)), "three", "has 2 values; expected 3"},
		{with(tfrecord.Int64Feature("score", 1<<40)), "score", "has 1099511627776 at position 0; expected -16777216 to 16777216"},
		{with(tfrecord.Int64Feature("word_starts", 1)), "word_starts", fmt.Sprintf("has 1 values; expected %d", tokens)},
		{with(tfrecord.Int64Feature("word_starts", slices.Repeat([]int64{2}, tokens)...)), "word_starts", "has 2 at position 0; expected 1 for the first token of a word or 0"},
		{with(tfrecord.Feature{Name: "word_starts"}), "word_starts", "is missing; "},
		{with(tfrecord.FloatFeature("weight", -1)), "weight", "has weight -1; expected a finite number of 0 or more"},
		{with(tfrecord.Int64Feature("weight", 1)), "weight", "has 1 int64 values; expected one float, the weight of the example"},
	} {
		a := layout.Assemblers()()
		for range 2 { // what comes before and after is not disturbed
			if bad := a.Add(dataset.RecordID{}, c.record); bad == nil || bad.Feature != c.feature || !strings.HasPrefix(bad.Reason, c.reason) {
				t.Errorf("feature %s: %v, want %s", c.feature, bad, c.reason)
			}
			if bad := a.Add(dataset.RecordID{}, extraRecord(t, 8)); bad != nil {
				t.Fatal(bad)
			}
		}
		two := a.Batch()
		a = layout.Assemblers()()
		for range 2 {
			if bad := a.Add(dataset.RecordID{}, extraRecord(t, 8)); bad != nil {
				t.Fatal(bad)
			}
		}
		if want := a.Batch(); !reflect.DeepEqual(two.Features, want.Features) {
			t.Errorf("%s: a wrong record disturbs its batch", c.feature)
		}
	}
}

// TestExtrasOfPaddedRecords drops padding by the mask of the record.
func TestExtrasOfPaddedRecords(t *testing.T) {
	record := rowtest.Record(t, tfrecord.Int64Feature("input_ids", 1, 50, 0, 60, 2, 0), tfrecord.Int64Feature("input_mask", 1, 1, 0, 1, 1, 0),
		tfrecord.Int64Feature("tags", 10, 11, 12, 13, 14, 15), tfrecord.Int64Feature("at", 3), tfrecord.Int64Feature("word_starts", 1, 1, 1, 0, 1, 1))
	m := masking
	m.WholeWords, m.Probability = true, 0.9
	cfg := Config{Standard: []string{InputIDs, ExampleWeights}, Masking: &m, Extras: append([]dataset.Spec{
		{Name: "tags", DType: dataset.Uint8, Shape: []int{-1}}, {Name: "at", DType: dataset.Int32, Make: MakeOffset}}, masked...)}
	if err := cfg.Validate(1); err != nil {
		t.Fatal(err)
	}
	a := cfg.Assemblers()()
	if bad := a.Add(dataset.RecordID{}, record); bad != nil {
		t.Fatal(bad)
	}
	b := a.Batch()
	if got := b.Feature("tags").Uint8; !slices.Equal(got, []uint8{10, 11, 13, 14}) || b.Feature("at").Int32[0] != 2 {
		t.Errorf("tags %v, at %v", got, b.Feature("at").Int32)
	}
	if got := b.Feature("masked_labels").Int32; !slices.Equal(got, []int32{50, 60}) {
		t.Errorf("masked %v; expected the two pieces of the only word", got)
	}
}

func TestValidateExtras(t *testing.T) {
	with := func(f dataset.Spec) Config { return Config{Extras: []dataset.Spec{f}} }
	mask := func(change func(m *Masking)) Config {
		m := masking
		change(&m)
		return Config{Extras: masked, Masking: &m}
	}
	for _, c := range []struct {
		layout Config
		want   string
	}{
		{with(dataset.Spec{Name: "x", DType: "text"}), `feature x has dtype "text"`},
		{with(dataset.Spec{Name: "labels", DType: dataset.Int32}), "feature labels is given twice"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Shape: []int{2, -1}}), "feature x has shape [2 -1]; expected its first axis to be the open one"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Make: "mask"}), `feature x is made as "mask", which packed rows do not know`},
		{with(dataset.Spec{Name: "x", DType: dataset.Int64, Make: MakeStarts}), "feature x is made as starts and has dtype int64; expected int32"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Make: MakeMultiHot, Shape: []int{3}}), "feature x is made as multi_hot and has dtype int32; expected float32"},
		{with(dataset.Spec{Name: "x", DType: dataset.Float32, Make: MakeMultiHot}), "feature x is made as multi_hot and has shape []; expected 1 axes"},
		{with(dataset.Spec{Name: "x", DType: dataset.Int32, Make: MakeExampleIDs}), "feature x is made as example_ids and has shape []; expected [-1], a value for each token"},
		{with(masked[0]), "feature masked_positions is made as masked_positions, but no masking is set"},
		{Config{Standard: []string{"ids"}}, `standard feature is "ids"; expected some of [input_ids`},
		{Config{Standard: []string{InputIDs}}, "batches have no example_weights; expected them, so that an example can have weight 0"},
		{Config{Masking: &masking}, "masking is set, but no feature is made as masked_positions; expected one"},
		{Config{Masking: &masking, Extras: masked, Standard: []string{ExampleWeights}}, "masking is set, but batches have no input_ids, which it changes"},
		{mask(func(m *Masking) { m.Probability = 1 }), "probability of masking is 1; expected more than 0 and less than 1"},
		{mask(func(m *Masking) { m.VocabSize = 0 }), "masking has a vocabulary of 0 tokens; expected 1 to 16777216"},
		{mask(func(m *Masking) { m.MaskToken = testVocabulary }), "mask token is 2000; expected 0 to 1999, because the size of the vocabulary is 2000"},
		{mask(func(m *Masking) { m.Special = []int{-1} }), "special token is -1; expected 0 to 1999"},
		{mask(func(m *Masking) { m.VocabSize = 4 }), "all tokens of the vocabulary are special; expected some to mask"},
		{func() Config { c := mask(func(m *Masking) { m.Given = true }); c.Rows = 1; return c }(), "masked tokens are given, and the number of rows is fixed"},
	} {
		if err := c.layout.Validate(4); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for name, layout := range extraLayouts() {
		if err := layout.Validate(13); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzExtras holds that any record is refused, or makes features of the right size, and that what is
// refused leaves nothing behind.
func FuzzExtras(f *testing.F) {
	for n := range 4 {
		f.Add(extraRecord(f, n))
	}
	good := extraRecord(f, 9)
	all := extraLayouts()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"first-fit, words", "cut, words", "without labels", "only tokens' words"} {
			a := all[name].Assemblers()()
			bad := a.Add(dataset.RecordID{}, data)
			if err := a.Add(dataset.RecordID{Record: 1}, good); err != nil {
				t.Fatalf("%s: a good record behind it: %v", name, err)
			}
			b := a.Batch()
			for _, feature := range b.Features {
				if feature.Len() != feature.Size() {
					t.Fatalf("%s: feature %s has %d values of shape %v", name, feature.Name, feature.Len(), feature.Shape)
				}
			}
			if _, err := all[name].Divide(b, 2, 0); err != nil {
				t.Fatal(err)
			}
			if bad == nil {
				continue
			}
			a.Reset()
			if err := a.Add(dataset.RecordID{Record: 1}, good); err != nil {
				t.Fatal(err)
			}
			if again := a.Batch(); !reflect.DeepEqual(again.Features, b.Features) {
				t.Fatalf("%s: a refused record leaves something behind", name)
			}
		}
	})
}
