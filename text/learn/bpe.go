package learn

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// continuation is what the tokens of a WordPiece vocabulary begin with that continue a word.
const continuation = "##"

// Merges is a byte pair encoding: its tokens by id, and the pairs of tokens that are joined, the first
// ones first.
type Merges struct {
	Tokens []string
	Pairs  [][2]string
}

// BPE trains a byte pair encoding: the special tokens, the characters in the order of their code points,
// and a token for each pair that is joined. The pair that occurs most often is joined first, or of several
// that whose tokens have the lowest ids.
func BPE(ctx context.Context, words []Word, cfg Config) (*Merges, error) {
	t, err := trainPairs(ctx, words, cfg, "")
	if err != nil {
		return nil, err
	}
	m := &Merges{Tokens: t.tokens}
	// A pair may have been joined twice: then its last place counts, as in the tokenizers library.
	last := map[pair]int{}
	for i, p := range t.joined {
		last[p] = i
	}
	for i, p := range t.joined {
		if last[p] == i {
			m.Pairs = append(m.Pairs, [2]string{t.tokens[p.a], t.tokens[p.b]})
		}
	}
	return m, nil
}

// WordPiece trains a WordPiece vocabulary and returns its tokens by id. It is a byte pair encoding whose
// tokens begin with ## where they continue a word.
func WordPiece(ctx context.Context, words []Word, cfg Config) ([]string, error) {
	t, err := trainPairs(ctx, words, cfg, continuation)
	if err != nil {
		return nil, err
	}
	return t.tokens, nil
}

// pair is two tokens next to each other.
type pair struct{ a, b int32 }

// waiting is a pair that may be joined: how often it occurred when it was last looked at, and some of
// the words that have it.
type waiting struct {
	pair  pair
	count int64
	words []int32
}

// before reports whether a pair is joined before another one.
func (w *waiting) before(o *waiting) bool {
	if c := cmp.Or(cmp.Compare(o.count, w.count), cmp.Compare(w.pair.a, o.pair.a), cmp.Compare(w.pair.b, o.pair.b)); c != 0 {
		return c < 0
	}
	return slices.Compare(w.words, o.words) < 0
}

// pairs is a training of a byte pair encoding.
type pairs struct {
	prefix string // of tokens that continue a word
	tokens []string
	ids    map[string]int32
	words  [][]int32 // as tokens
	counts []int64   // of the words
	occurs map[pair]int64
	found  map[pair][]int32 // the words in which a pair is new
	queue  []*waiting       // a heap
	joined []pair
}

// trainPairs trains a byte pair encoding.
func trainPairs(ctx context.Context, words []Word, cfg Config, prefix string) (*pairs, error) {
	if err := check(words); err != nil {
		return nil, err
	}
	t := &pairs{prefix: prefix, ids: map[string]int32{}, occurs: map[pair]int64{}, found: map[pair][]int32{}}
	for _, s := range cfg.Specials {
		t.token(s)
	}
	for _, r := range slices.Sorted(maps.Keys(characters(words, cfg.Alphabet))) {
		t.token(string(r))
	}
	t.divide(words)
	if len(t.words) == 0 {
		return nil, fault.Usagef("there are no words to train on")
	}
	if len(t.tokens) > cfg.Size {
		return nil, &SizeError{Size: cfg.Size, Least: len(t.tokens)}
	}
	for i, w := range t.words {
		for k := 1; k < len(w); k++ {
			t.change(pair{w[k-1], w[k]}, int32(i), 1)
		}
	}
	t.wait()
	first := len(t.tokens)
	for len(t.tokens) < cfg.Size && t.join() {
		if n := len(t.joined); n%256 == 0 {
			cfg.report(int64(len(t.tokens)-first), int64(cfg.Size-first))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	if len(t.tokens) < cfg.Size {
		return nil, &SizeError{Size: cfg.Size, Most: len(t.tokens)}
	}
	return t, nil
}

// token returns the id of a token, which it makes if there is none.
func (t *pairs) token(text string) int32 {
	id, ok := t.ids[text]
	if !ok {
		id = int32(len(t.tokens))
		t.tokens = append(t.tokens, text)
		t.ids[text] = id
	}
	return id
}

// divide divides words into the tokens of their characters.
func (t *pairs) divide(words []Word) {
	for _, w := range words {
		var ids []int32
		for i, r := range w.Text {
			text := string(r)
			if i > 0 {
				text = t.prefix + text
			}
			ids = append(ids, t.token(text))
		}
		if len(ids) > 0 {
			t.words, t.counts = append(t.words, ids), append(t.counts, w.Count)
		}
	}
}

// change counts that a pair occurs in a word once more, or once less.
func (t *pairs) change(p pair, word int32, by int64) {
	t.occurs[p] += by * t.counts[word]
	if by > 0 {
		in := t.found[p]
		if len(in) == 0 || in[len(in)-1] != word {
			t.found[p] = append(in, word)
		}
	}
}

// wait puts the pairs that are new in words into the queue.
func (t *pairs) wait() {
	for p, in := range t.found {
		if n := t.occurs[p]; n > 0 {
			t.push(&waiting{p, n, in})
		}
	}
	clear(t.found)
}

// join joins the next pair in all words, and returns whether there was one.
func (t *pairs) join() bool {
	for len(t.queue) > 0 {
		top := t.pop()
		if n := t.occurs[top.pair]; n != top.count {
			if top.count = n; n > 0 {
				t.push(top)
			}
			continue
		}
		p := top.pair
		id := t.token(t.tokens[p.a] + strings.TrimPrefix(t.tokens[p.b], t.prefix))
		t.joined = append(t.joined, p)
		for _, word := range top.words {
			t.replace(word, p, id)
		}
		t.wait()
		return true
	}
	return false
}

// replace joins a pair in a word.
func (t *pairs) replace(word int32, p pair, id int32) {
	w := t.words[word]
	to := 0
	for i := 0; i < len(w); i++ {
		if w[i] != p.a || i+1 == len(w) || w[i+1] != p.b {
			w[to] = w[i]
			to++
			continue
		}
		if to > 0 {
			t.change(pair{w[to-1], p.a}, word, -1)
			t.change(pair{w[to-1], id}, word, 1)
		}
		w[to] = id
		to++
		i++
		if i+1 < len(w) {
			t.change(pair{p.b, w[i+1]}, word, -1)
			t.change(pair{id, w[i+1]}, word, 1)
		}
	}
	t.words[word] = w[:to]
}

// push adds to the heap.
func (t *pairs) push(w *waiting) {
	t.queue = append(t.queue, w)
	for i := len(t.queue) - 1; i > 0; {
		above := (i - 1) / 4
		if !t.queue[i].before(t.queue[above]) {
			break
		}
		t.queue[i], t.queue[above] = t.queue[above], t.queue[i]
		i = above
	}
}

// pop takes the pair that is joined first from the heap.
func (t *pairs) pop() *waiting {
	q := t.queue
	top, last := q[0], len(q)-1
	q[0], q[last] = q[last], nil
	q = q[:last]
	for i := 0; ; {
		first := i
		for k := 4*i + 1; k < min(4*i+5, len(q)); k++ {
			if q[k].before(q[first]) {
				first = k
			}
		}
		if first == i {
			break
		}
		q[i], q[first] = q[first], q[i]
		i = first
	}
	t.queue = q
	return top
}
