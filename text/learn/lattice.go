package learn

import (
	"math"
	"slices"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// unknownPenalty is what an unknown character costs more than the piece with the lowest score.
const unknownPenalty = 10

// pieces are the pieces of a model in training. Piece 0 stands for unknown characters: it has no text.
type pieces struct {
	texts  []string
	scores []float64 // logarithms of probabilities
	trie   trie.Trie
	// weights are the probabilities.
	weights []float64
}

// newPieces returns pieces that have texts. That of the first is for unknown characters.
func newPieces(texts []string, scores []float64) *pieces {
	p := &pieces{texts: texts, scores: scores, trie: trie.New(texts)}
	p.scores[0] = p.lowest() - unknownPenalty
	p.weigh()
	return p
}

// weigh sets the weights after the scores.
func (p *pieces) weigh() {
	p.weights = slices.Grow(p.weights[:0], len(p.scores))[:len(p.scores)]
	for i, s := range p.scores {
		p.weights[i] = math.Exp(s)
	}
}

// lowest is the lowest score of a piece with a text.
func (p *pieces) lowest() float64 {
	lowest := math.Inf(1)
	for _, s := range p.scores[1:] {
		lowest = min(lowest, s)
	}
	return lowest
}

// edge is a piece in a word.
type edge struct{ start, end, id int32 }

// lattice has all pieces of a word, and room for working with them.
type lattice struct {
	size  int32  // of the word, in bytes
	edges []edge // in the order of their starts, those with the same start in that of their ends
	// For each position in the word:
	alpha, beta []float64
	last        []int32 // the edge that ends the best way to it
}

// fill finds the pieces of a word, but for whole, if it is the word itself.
func (l *lattice) fill(p *pieces, word string, whole int32) {
	l.edges, l.size = l.edges[:0], int32(len(word))
	cells := p.trie.Cells
	for start := 0; start < len(word); {
		size := 1
		if word[start] >= utf8.RuneSelf {
			_, size = utf8.DecodeRuneInString(word[start:])
		}
		known := false
		node := int32(trie.Root)
		for end := start; end < len(word); {
			n := cells[node].Base + int32(word[end])
			cell := &cells[n]
			if cell.Parent != node {
				break
			}
			end++
			node = n
			if cell.ID >= 0 && (cell.ID != whole || end-start < len(word)) {
				l.edges = append(l.edges, edge{int32(start), int32(end), cell.ID})
				known = known || end == start+size
			}
		}
		if !known {
			l.edges = append(l.edges, edge{int32(start), int32(start + size), 0})
		}
		start += size
	}
}

// room sets the positions of a slice to a value.
func (l *lattice) room(of []float64, value float64) []float64 {
	of = slices.Grow(of[:0], int(l.size)+1)[:l.size+1]
	for i := range of {
		of[i] = value
	}
	return of
}

// expect adds to expected how often each piece is expected in the word, times count.
func (l *lattice) expect(p *pieces, count float64, expected []float64) {
	l.alpha, l.beta = l.room(l.alpha, 0), l.room(l.beta, 0)
	l.alpha[0], l.beta[l.size] = 1, 1
	for _, e := range l.edges {
		l.alpha[e.end] += l.alpha[e.start] * p.weights[e.id]
	}
	all := l.alpha[l.size]
	// A product of probabilities loses nothing that counts as long as it is not too small.
	if !(all > 1e-100) {
		l.expectLogs(p, count, expected)
		return
	}
	for i := len(l.edges) - 1; i >= 0; i-- {
		e := l.edges[i]
		after := p.weights[e.id] * l.beta[e.end]
		l.beta[e.start] += after
		expected[e.id] += count * l.alpha[e.start] * after / all
	}
}

// expectLogs is expect with logarithms of probabilities, for long and rare words.
func (l *lattice) expectLogs(p *pieces, count float64, expected []float64) {
	l.alpha, l.beta = l.room(l.alpha, math.Inf(-1)), l.room(l.beta, math.Inf(-1))
	l.alpha[0], l.beta[l.size] = 0, 0
	for _, e := range l.edges {
		l.alpha[e.end] = logAdd(l.alpha[e.end], l.alpha[e.start]+p.scores[e.id])
	}
	all := l.alpha[l.size]
	for i := len(l.edges) - 1; i >= 0; i-- {
		e := l.edges[i]
		after := p.scores[e.id] + l.beta[e.end]
		l.beta[e.start] = logAdd(l.beta[e.start], after)
		expected[e.id] += count * math.Exp(l.alpha[e.start]+after-all)
	}
}

// logAdd returns log(exp(a) + exp(b)).
func logAdd(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	if math.IsInf(b, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// best finds the way with the highest score, which it returns, and appends its pieces to ids, the last
// one first.
func (l *lattice) best(p *pieces, ids []int32) ([]int32, float64) {
	l.alpha = l.room(l.alpha, 0)
	l.last = slices.Grow(l.last[:0], int(l.size)+1)[:l.size+1]
	for i := range l.last {
		l.last[i] = -1
	}
	for i, e := range l.edges {
		if score := l.alpha[e.start] + p.scores[e.id]; l.last[e.end] < 0 || score > l.alpha[e.end] {
			l.alpha[e.end], l.last[e.end] = score, int32(i)
		}
	}
	for end := l.size; end > 0; {
		e := l.edges[l.last[end]]
		ids = append(ids, e.id)
		end = e.start
	}
	return ids, l.alpha[l.size]
}

// digamma is the derivative of the logarithm of the gamma function.
func digamma(x float64) float64 {
	result := 0.0
	for x < 7 {
		result -= 1 / x
		x++
	}
	x -= 0.5
	xx := 1 / x
	xx2 := xx * xx
	xx4 := xx2 * xx2
	return result + math.Log(x) + 1.0/24*xx2 - 7.0/960*xx4 + 31.0/8064*xx4*xx2 - 127.0/30720*xx4*xx4
}
