package task

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Embed is the name in contracts of the task of making a vector of a text.
const Embed = string(convert.Embed)

// Names of the outputs of evaluations of Embed that are collected.
const (
	EachQuery    = runner.EachPrefix + "query"    // the vector of the first text of an example
	EachDocument = runner.EachPrefix + "document" // those of its other texts, the one that is like it first
	// EachTexts are what Reduce adds: a number for each text of an example, equal for equal texts.
	EachTexts = runner.EachPrefix + "texts"
)

var embed = Kind{
	Name: Embed,
	Better: map[string]runner.Better{
		"recall_1":  runner.HigherIsBetter,
		"recall_10": runner.HigherIsBetter,
		"mrr_10":    runner.HigherIsBetter,
		"ndcg_10":   runner.HigherIsBetter,
		"mse":       runner.LowerIsBetter,
		"mae":       runner.LowerIsBetter,
		"r2":        runner.HigherIsBetter,
		"pearson":   runner.HigherIsBetter,
		"spearman":  runner.HigherIsBetter,
	},
	Measure:   measureEmbeddings,
	Reduce:    numberTexts,
	CheckData: checkTexts,
	CheckSplit: func(name string, s *convert.Split) string {
		if s.Answered == 0 {
			return "" // checkTexts says whether there should be scores
		}
		return CheckAnswered(name, s, "score")
	},
	OnlyAnswer: onlyNumber,
}

// checkTexts returns why data do not have the texts and scores of a graph, or "".
func checkTexts(c *graphs.Contract, m *convert.Manifest) string {
	if reason := CheckKind(m, convert.Embed); reason != "" {
		return reason
	}
	if m.Kind() != convert.Embed {
		return checkWords(c, m)
	}
	kind := func(texts int, scored bool) string {
		switch {
		case scored:
			return "pairs with scores"
		case texts > 2:
			return "three texts in an example"
		}
		return "pairs"
	}
	texts := 2
	if m.Columns.Negative != "" {
		texts = 3
	}
	got, want := kind(texts, m.Columns.Label != ""), kind(c.Texts(), c.Label() != nil)
	if got != want {
		return fmt.Sprintf("has %s; expected %s, as in the graph; export with --data", got, want)
	}
	return checkWords(c, m)
}

// numberTexts adds EachTexts of a batch.
func numberTexts(features []dataset.Feature, out runner.Sums) error {
	if out[EachQuery] == nil {
		return nil
	}
	values := make(map[string]*dataset.Feature)
	for _, name := range []string{packed.InputIDs, packed.TypeIDs, packed.SequenceIDs, packed.ClsPositions} {
		f := Feature(features, name)
		if f == nil || f.Int32 == nil {
			return fmt.Errorf("the batch has no feature %s; expected it, to tell texts apart; export the graph again", name)
		}
		values[name] = f
	}
	starts, rows := values[packed.ClsPositions].Int32, values[packed.InputIDs].Shape
	if len(starts) == 0 || len(rows) != 2 || len(out[EachQuery])%len(starts) != 0 || len(out[EachDocument])%len(out[EachQuery]) != 0 {
		return fmt.Errorf("outputs %q and %q have %d and %d elements; expected as many vectors of one width for each of %d examples", EachQuery, EachDocument, len(out[EachQuery]), len(out[EachDocument]), len(starts))
	}
	texts := 1 + len(out[EachDocument])/len(out[EachQuery])
	ids, types, sequences := values[packed.InputIDs].Int32, values[packed.TypeIDs].Int32, values[packed.SequenceIDs].Int32
	for _, first := range starts {
		numbers, hash := make([]float64, texts), fnv.New64a()
		from := int(first)
		for at, end := from, (from/rows[1]+1)*rows[1]; at < end && sequences[at] == sequences[from]; at++ {
			var token [4]byte
			binary.LittleEndian.PutUint32(token[:], uint32(ids[at]))
			hash.Write(token[:])
			if last := at+1 == end || sequences[at+1] != sequences[from]; last || types[at+1] != types[at] {
				if t := int(types[at]); t < texts {
					numbers[t] = float64(hash.Sum64() >> 11) // exact in a float64
				}
				hash.Reset()
			}
		}
		out[EachTexts] = append(out[EachTexts], numbers...)
	}
	return nil
}

// measureEmbeddings adds the metrics of measureNumbers, of cosines and scores, if there are Moments, or else
// those of a search: each first text looks for its second one among all other texts of the split.
func measureEmbeddings(c *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
	if sums[Moments] != nil {
		return measureNumbers(c, sums, out)
	}
	queries, documents := sums[EachQuery], sums[EachDocument]
	if queries == nil {
		return nil
	}
	if sums[EachTexts] == nil { // to name the metrics
		for _, name := range []string{"recall_1", "recall_10", "mrr_10", "ndcg_10"} {
			out[name] = 1
		}
		return nil
	}
	s, err := newSearch(queries, documents, sums[EachTexts], sums[EachWeight])
	if err != nil {
		return err
	}
	for name, value := range s.measure() {
		out[name] = value
	}
	return nil
}

// search is a corpus of texts, each once, and queries, each once.
type search struct {
	width     int
	queries   []query
	documents [][]float32
}

// query is a text that looks for others, which are numbers of documents.
type query struct {
	vector   []float32
	relevant []int
}

// newSearch makes a search of the vectors of examples, without those of weight 0.
func newSearch(queries, documents, texts, weights []float64) (*search, error) {
	n := len(weights)
	if n == 0 || len(queries)%n != 0 || len(texts)%n != 0 || len(texts) < 2*n || len(documents) != len(queries)*(len(texts)/n-1) {
		return nil, fmt.Errorf("outputs %q, %q, %q and %q have %d, %d, %d and %d elements; expected as many vectors of one width for each weight", EachQuery, EachDocument, EachTexts, EachWeight, len(queries), len(documents), len(texts), n)
	}
	s := &search{width: len(queries) / n}
	k, seen, known := len(texts)/n, make(map[float64]int), make(map[float64]int)
	vector := func(flat []float64, i int) []float32 {
		out := make([]float32, s.width)
		for j, v := range flat[i*s.width : (i+1)*s.width] {
			out[j] = float32(v)
		}
		return out
	}
	for i, w := range weights {
		if w == 0 {
			continue
		}
		own := texts[i*k : (i+1)*k]
		q, ok := seen[own[0]]
		if !ok {
			q, seen[own[0]] = len(s.queries), len(s.queries)
			s.queries = append(s.queries, query{vector: vector(queries, i)})
		}
		for j, text := range own[1:] {
			d, ok := known[text]
			if !ok {
				d, known[text] = len(s.documents), len(s.documents)
				s.documents = append(s.documents, vector(documents, i*(k-1)+j))
			}
			if of := &s.queries[q]; j == 0 && !slices.Contains(of.relevant, d) {
				of.relevant = append(of.relevant, d)
			}
		}
	}
	if len(s.queries) == 0 {
		return nil, errors.New("all examples have weight 0; expected some that count")
	}
	return s, nil
}

// cutoff is how many of the nearest documents are looked at.
const cutoff = 10

// measure returns the means over the queries of recall_1 and recall_10, the share of the relevant documents
// among the 1 and 10 nearest, mrr_10, 1 / the rank of the first relevant one or 0, and ndcg_10, as those of
// sentence-transformers. Of documents that are equally near, the earlier comes first.
func (s *search) measure() map[string]float64 {
	each := make([][4]float64, len(s.queries)) // so that sums have one order
	var g errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		g.Go(func() error {
			scores := make([]float32, len(s.documents))
			for i := w; i < len(s.queries); i += workers {
				each[i] = s.one(s.queries[i], scores)
			}
			return nil
		})
	}
	g.Wait() // no worker fails
	var sums [4]float64
	for _, of := range each {
		for k, v := range of {
			sums[k] += v
		}
	}
	n := float64(len(each))
	return map[string]float64{"recall_1": sums[0] / n, "recall_10": sums[1] / n, "mrr_10": sums[2] / n, "ndcg_10": sums[3] / n}
}

// one returns the metrics of a query in the order recall_1, recall_10, mrr_10, ndcg_10.
func (s *search) one(q query, scores []float32) (out [4]float64) {
	for d, v := range s.documents {
		if scores[d] = dot(q.vector, v); scores[d] != scores[d] {
			return [4]float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
		}
	}
	ranks := make([]int, len(q.relevant)) // from 1
	for i, r := range q.relevant {
		ranks[i] = 1
		for d, score := range scores {
			if score > scores[r] || score == scores[r] && d < r {
				ranks[i]++
			}
		}
	}
	slices.Sort(ranks)
	share, ideal := 1/float64(len(ranks)), 0.0
	for i, rank := range ranks {
		if i < cutoff {
			ideal += 1 / math.Log2(float64(i+2))
		}
		if rank == 1 {
			out[0] += share
		}
		if rank <= cutoff {
			out[1] += share
			out[2] = max(out[2], 1/float64(rank))
			out[3] += 1 / math.Log2(float64(rank+1))
		}
	}
	out[3] /= ideal
	return out
}

// dot returns the product of two vectors.
func dot(a, b []float32) float32 {
	var sums [4]float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		sums[0] += a[i] * b[i]
		sums[1] += a[i+1] * b[i+1]
		sums[2] += a[i+2] * b[i+2]
		sums[3] += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		sums[0] += a[i] * b[i]
	}
	return (sums[0] + sums[1]) + (sums[2] + sums[3])
}
