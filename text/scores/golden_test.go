package scores

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

type scored struct {
	Text, Reference string
	First, Last     int
	Scores          map[string]float64
}

type goldenFile struct {
	Examples, Corpora []scored
	Stems             map[string]string
}

func readGoldens(t *testing.T) (g goldenFile) {
	t.Helper()
	content, err := os.ReadFile("testdata/goldens.json")
	if err == nil {
		err = json.Unmarshal(content, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Examples) < 400 || len(g.Corpora) < 5 || len(g.Stems) < 2000 {
		t.Fatalf("the goldens have %d examples, %d corpora and %d stems; expected more", len(g.Examples), len(g.Corpora), len(g.Stems))
	}
	return g
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }

// TestScoresAreThoseOfTheReferences compares with sacrebleu, rouge-score and jiwer.
func TestScoresAreThoseOfTheReferences(t *testing.T) {
	g := readGoldens(t)
	tested := make(map[string]int)
	for i, e := range g.Examples {
		for name, want := range e.Scores {
			m, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Sentence(m.Count(e.Text, e.Reference)); !near(got, want) {
				t.Errorf("%d: %s of %q for %q is %v; expected %v", i, name, e.Text, e.Reference, got, want)
			}
			tested[name]++
		}
	}
	for _, name := range Names() {
		if tested[name] < 400 && name != "exact_match" {
			t.Errorf("%s was compared %d times", name, tested[name])
		}
	}
	for _, c := range g.Corpora {
		for name, want := range c.Scores {
			m, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			var sum Counts
			for _, e := range g.Examples[c.First:c.Last] {
				sum.Add(m.Count(e.Text, e.Reference))
			}
			if got := m.Corpus(sum); !near(got, want) {
				t.Errorf("%s of the examples %d to %d is %v; expected %v", name, c.First, c.Last, got, want)
			}
		}
	}
}

func TestStemsAreThoseOfNLTK(t *testing.T) {
	for word, want := range readGoldens(t).Stems {
		if got := stem(word); got != want {
			t.Errorf("the stem of %s is %s; expected %s", word, got, want)
		}
	}
}

func TestExactMatch(t *testing.T) {
	m, err := Named("exact_match")
	if err != nil {
		t.Fatal(err)
	}
	var sum Counts
	for _, p := range [][2]string{{" yes\n", "yes"}, {"Yes", "yes"}, {"", " "}, {"a  b", "a b"}} {
		sum.Add(m.Count(p[0], p[1]))
	}
	if got := m.Corpus(sum); got != 0.5 {
		t.Errorf("%v of the texts match; expected 0.5", got)
	}
}

// FuzzOwnTextIsBest checks that no text scores better than the reference itself, and that scores are in
// their range.
func FuzzOwnTextIsBest(f *testing.F) {
	f.Add("the cat sat on the mat", "a cat\nsat \u4f60 there.")
	f.Add("\xff\xfe", "ies \u0130")
	f.Fuzz(func(t *testing.T, text, reference string) {
		for _, name := range Names() {
			m, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			got, own := m.Sentence(m.Count(text, reference)), m.Sentence(m.Count(reference, reference))
			if m.LowerIsBetter {
				got, own = -got, -own
			}
			if math.IsNaN(got) || got > own+1e-9 || own > 100+1e-9 {
				t.Errorf("%s: %q for %q has %v; the reference itself has %v", name, text, reference, got, own)
			}
		}
	})
}

func TestUnknownScore(t *testing.T) {
	if _, err := Named("meteor"); err == nil {
		t.Error("meteor is taken")
	}
}
