package learn

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text/unigram"
)

const (
	// shrinking is the share of the pieces that a round of training keeps.
	shrinking = 0.75
	// rounds of expectation and maximization are between two prunings.
	rounds = 2
	// rare pieces are expected less often, and are dropped.
	rare = 0.5
)

// Unigram trains a Unigram model: its special tokens, which have the score 0, and then its pieces, those
// with the highest score first.
//
// It begins with the characters and the repeated strings of the words (see Kudo, "Subword Regularization",
// 2018). Then, in turn, it estimates the pieces' probabilities, by expectation and maximization with a
// prior for few pieces, and drops those whose loss the likelihood of the words feels least. Every
// character of the words is a piece at the end.
func Unigram(ctx context.Context, words []Word, cfg Config) ([]unigram.Piece, error) {
	t := &unigramTraining{cfg: cfg, threads: cfg.threads(), words: slices.DeleteFunc(slices.Clone(words), func(w Word) bool { return w.Text == "" })}
	if err := check(t.words); err != nil {
		return nil, err
	}
	if len(t.words) == 0 {
		return nil, fault.Usagef("there are no words to train on")
	}
	required := slices.Sorted(maps.Keys(characters(t.words, cfg.Alphabet)))
	if least := len(required) + len(cfg.Specials); least > cfg.Size {
		return nil, &SizeError{Size: cfg.Size, Least: least}
	}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	desired := cfg.Size * 11 / 10
	for {
		for range rounds {
			if err := t.estimate(ctx); err != nil {
				return nil, err
			}
		}
		before := len(t.pieces.texts)
		if before <= desired {
			break
		}
		if err := t.prune(ctx, max(desired, int(float64(before)*shrinking))); err != nil {
			return nil, err
		}
		if len(t.pieces.texts) == before { // all that is left is needed
			break
		}
	}
	return t.finish(required)
}

// unigramTraining is a training of a Unigram model.
type unigramTraining struct {
	cfg     Config
	threads int
	words   []Word
	pieces  *pieces
	done    int64 // steps, for the progress
}

// begin finds the first pieces.
func (t *unigramTraining) begin(ctx context.Context) error {
	texts, scores, err := seed(ctx, t.words, t.threads)
	if err != nil {
		return err
	}
	texts, scores = append([]string{""}, texts...), append([]float64{0}, scores...)
	sum := 0.0
	for _, s := range scores {
		sum += s
	}
	for i := range scores {
		scores[i] = math.Log(scores[i]) - math.Log(sum)
	}
	t.pieces = newPieces(texts, scores)
	t.step()
	return nil
}

// step reports that another part of the work is done.
func (t *unigramTraining) step() {
	t.done++
	left, desired := 0.0, float64(t.cfg.Size*11/10)
	if n := float64(len(t.pieces.texts)); n > desired {
		left = math.Ceil(math.Log(desired/n) / math.Log(shrinking))
	}
	t.cfg.report(t.done, t.done+int64(left)*(rounds+1))
}

// worker has the room of one goroutine.
type worker struct {
	lattice lattice
	counts  []float64 // of the pieces
	ids     []int32
}

// workers returns the room of all goroutines.
func (t *unigramTraining) workers() []worker {
	all := make([]worker, t.threads)
	for i := range all {
		all[i].counts = make([]float64, len(t.pieces.texts))
	}
	return all
}

// leastWords is how many words a part of the work has at least.
const leastWords = 512

// total adds up counts that each gives for the words of a part.
func (t *unigramTraining) total(ctx context.Context, each func(w *worker, word Word)) ([]float64, error) {
	workers := t.workers()
	total := make([]float64, len(t.pieces.texts))
	err := parallel(ctx, len(t.words), leastWords, t.threads, func(i, from, to int) {
		for n, word := range t.words[from:to] {
			if n%leastWords == 0 && ctx.Err() != nil {
				return
			}
			workers[i].lattice.fill(t.pieces, word.Text, -1)
			each(&workers[i], word)
		}
	}, func(i int) {
		for id, n := range workers[i].counts {
			total[id] += n
		}
		clear(workers[i].counts)
	})
	return total, err
}

// estimate sets the scores to those that are the most likely after how often pieces are expected, and
// drops rare ones.
func (t *unigramTraining) estimate(ctx context.Context) error {
	expected, err := t.total(ctx, func(w *worker, word Word) {
		w.lattice.expect(t.pieces, float64(word.Count), w.counts)
	})
	if err != nil {
		return err
	}
	keep := []int32{0}
	sum := 0.0
	for id := 1; id < len(expected); id++ {
		if expected[id] >= rare {
			keep = append(keep, int32(id))
			sum += expected[id]
		}
	}
	all := digamma(sum)
	for _, id := range keep[1:] {
		t.pieces.scores[id] = digamma(expected[id]) - all
	}
	t.keep(keep)
	t.step()
	return nil
}

// keep drops the other pieces.
func (t *unigramTraining) keep(ids []int32) {
	p := t.pieces
	texts, scores := make([]string, len(ids)), make([]float64, len(ids))
	for i, id := range ids {
		texts[i], scores[i] = p.texts[id], p.scores[id]
	}
	t.pieces = newPieces(texts, scores)
}

// prune drops pieces until there are size of them: first those that no word is split into, then those
// whose loss makes the words the least unlikely. Pieces that cannot be split stay.
func (t *unigramTraining) prune(ctx context.Context, size int) error {
	others, err := t.alternatives(ctx)
	if err != nil {
		return err
	}
	counts, err := t.total(ctx, func(w *worker, word Word) {
		w.ids, _ = w.lattice.best(t.pieces, w.ids[:0])
		for _, id := range w.ids {
			w.counts[id] += float64(word.Count)
		}
	})
	if err != nil {
		return err
	}
	sum, all := 0.0, 0.0
	for _, n := range counts {
		sum += n
	}
	for _, w := range t.words {
		all += float64(w.Count)
	}
	type candidate struct {
		id   int32
		loss float64
	}
	keep, candidates := []int32{0}, []candidate(nil)
	for id := int32(1); int(id) < len(counts); id++ {
		n, other := counts[id], others[id]
		switch {
		case n == 0 && (len(other.ids) > 0 || !other.single):
		case len(other.ids) == 0:
			keep = append(keep, id)
		default:
			// Each occurrence becomes the pieces of the next best way. The number of all pieces is here in
			// place of those of this way, as in SentencePiece and the tokenizers library: the losses order
			// the pieces as there.
			after := math.Log(sum + n*float64(len(counts)-1))
			loss := math.Log(n) - math.Log(sum)
			for _, o := range other.ids {
				loss -= math.Log(counts[o]+n) - after
			}
			candidates = append(candidates, candidate{id, n / all * loss})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(b.loss, a.loss) })
	for _, c := range candidates[:min(len(candidates), max(0, size-len(keep)))] {
		keep = append(keep, c.id)
	}
	t.keep(keep)
	t.step()
	return nil
}

// alternative is how a piece is split if it is not a piece.
type alternative struct {
	ids []int32 // none if there is no other way, or if another way is better anyway
	// single is set if the best way of a piece is the piece.
	single bool
}

// alternatives returns the alternative of each piece.
func (t *unigramTraining) alternatives(ctx context.Context) ([]alternative, error) {
	found := make([]alternative, len(t.pieces.texts))
	workers := make([]worker, t.threads)
	err := parallel(ctx, len(found), leastWords, t.threads, func(i, from, to int) {
		w := &workers[i]
		for id := max(1, from); id < to; id++ {
			text := t.pieces.texts[id]
			w.lattice.fill(t.pieces, text, int32(id))
			ids, score := w.lattice.best(t.pieces, w.ids[:0])
			w.ids = ids
			if len(ids) == 1 { // an unknown character: there is no other way
				found[id].single = true
				continue
			}
			if found[id].single = t.pieces.scores[id] >= score; found[id].single {
				found[id].ids = slices.Clone(ids)
				slices.Reverse(found[id].ids)
			}
		}
	}, nil)
	return found, err
}

// finish returns the model: the required characters, and the first of the other pieces.
func (t *unigramTraining) finish(required []rune) ([]unigram.Piece, error) {
	p := t.pieces
	room := t.cfg.Size - len(t.cfg.Specials)
	known := map[string]float64{}
	for id := 1; id < len(p.texts); id++ {
		known[p.texts[id]] = p.scores[id]
	}
	inserted := map[string]bool{}
	for _, s := range t.cfg.Specials {
		inserted[s] = true
	}
	lowest := p.lowest()
	var pieces []unigram.Piece
	for _, r := range required {
		text := string(r)
		score, ok := known[text]
		if !ok {
			score = lowest
			lowest += 0.0001
		}
		if !inserted[text] {
			inserted[text] = true
			pieces = append(pieces, unigram.Piece{Text: text, Score: score})
		}
	}
	for id := 1; id < len(p.texts) && len(pieces) < room; id++ {
		if text := p.texts[id]; !inserted[text] {
			inserted[text] = true
			pieces = append(pieces, unigram.Piece{Text: text, Score: p.scores[id]})
		}
	}
	if len(pieces) < room {
		return nil, &SizeError{Size: t.cfg.Size, Most: len(pieces) + len(t.cfg.Specials)}
	}
	slices.SortStableFunc(pieces, func(a, b unigram.Piece) int { return cmp.Compare(b.Score, a.Score) })
	var all []unigram.Piece
	for _, s := range t.cfg.Specials {
		all = append(all, unigram.Piece{Text: s})
	}
	return append(all, pieces...), nil
}
