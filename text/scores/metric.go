package scores

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counts are what pairs of texts have in common, as one metric counts it.
type Counts []float64

// Add adds the counts of more pairs, of the same metric.
func (c *Counts) Add(more Counts) {
	if *c == nil {
		*c = make(Counts, len(more))
	}
	for i, n := range more {
		(*c)[i] += n
	}
}

// Metric compares texts with references.
type Metric struct {
	// Name is that in the list of the package.
	Name string
	// LowerIsBetter says in which direction the score gets better.
	LowerIsBetter bool

	count            func(text, reference string) Counts
	sentence, corpus func(Counts) float64
}

// Count counts what a text has in common with its reference.
func (m Metric) Count(text, reference string) Counts { return m.count(text, reference) }

// Corpus returns the score of the sum of the counts of pairs; 0 of none.
func (m Metric) Corpus(sum Counts) float64 {
	if sum == nil {
		return 0
	}
	return m.corpus(sum)
}

// Sentence returns the score of a single pair. That of BLEU leaves out the lengths of n-grams that the text
// is too short for, as sacrebleu's sentence_bleu does.
func (m Metric) Sentence(counts Counts) float64 { return m.sentence(counts) }

// Named returns a metric by its name.
func Named(name string) (Metric, error) {
	if m, ok := metrics[name]; ok {
		return m, nil
	}
	return Metric{}, fmt.Errorf("there is no score %q; expected one of %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all metrics, in their order.
func Names() []string { return slices.Sorted(maps.Keys(metrics)) }

var metrics = all()

func all() map[string]Metric {
	out := make(map[string]Metric)
	add := func(m Metric) { out[m.Name] = m }
	for name, tokenize := range map[string]func(string) []string{"": tokens13a, "_intl": tokensIntl, "_char": characters, "_none": fields} {
		add(Metric{Name: "bleu" + name, count: bleuOf(tokenize), sentence: bleu(true), corpus: bleu(false)})
	}
	add(Metric{Name: "chrf", count: chrfOf(0), sentence: chrf, corpus: chrf})
	add(Metric{Name: "chrf++", count: chrfOf(2), sentence: chrf, corpus: chrf})
	for name, f := range map[string]func(want, got [][]string) float64{"1": rougeN(1), "2": rougeN(2), "L": rougeL, "Lsum": rougeLsum} {
		add(Metric{Name: "rouge" + name, count: rougeOf(name == "Lsum", nil, f), sentence: ratio, corpus: ratio})
		add(Metric{Name: "rouge" + name + "_stem", count: rougeOf(name == "Lsum", stem, f), sentence: ratio, corpus: ratio})
	}
	add(Metric{Name: "exact_match", count: exact, sentence: ratio, corpus: ratio})
	add(Metric{Name: "wer", LowerIsBetter: true, count: errorsOf(fields), sentence: ratio, corpus: ratio})
	add(Metric{Name: "cer", LowerIsBetter: true, count: errorsOf(spaced), sentence: ratio, corpus: ratio})
	return out
}

// ratio is the score of two counts, a part and its whole. Of an empty whole it is the part.
func ratio(c Counts) float64 { return c[0] / max(c[1], 1) }

func exact(text, reference string) Counts {
	if strings.TrimFunc(text, isSpace) == strings.TrimFunc(reference, isSpace) {
		return Counts{1, 1}
	}
	return Counts{0, 1}
}
