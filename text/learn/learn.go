// Package learn trains tokenizers: Unigram models, byte pair encodings and WordPiece vocabularies.
//
// It takes words with their counts, as [Counter] counts them: memory grows with the number of different
// words, not with the text. The trainers follow those of the tokenizers library, and the same words give
// the same result for any number of threads.
package learn

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Word is a word of a corpus, and how often it occurs.
type Word struct {
	Text  string
	Count int64
}

// Config says what to train.
type Config struct {
	// Size is the number of tokens, with the special ones.
	Size int
	// Specials are the special tokens. They get the first ids.
	Specials []string
	// Alphabet are characters that get tokens even if no word has them.
	Alphabet []rune
	// Threads is how many goroutines work: 0 means one per core. It does not change the result.
	Threads int
	// Progress, if it is not nil, is called from time to time with how much is done.
	Progress func(done, total int64)
}

func (c *Config) threads() int {
	if c.Threads > 0 {
		return c.Threads
	}
	return runtime.GOMAXPROCS(0)
}

func (c *Config) report(done, total int64) {
	if c.Progress != nil {
		c.Progress(done, total)
	}
}

// SizeError reports a vocabulary that a corpus cannot give.
type SizeError struct {
	Size int // as asked for
	// Least and Most are the sizes that the corpus gives; Least is 0 if it is not known.
	Least, Most int
}

func (e *SizeError) Error() string {
	if e.Size < e.Least {
		return fmt.Sprintf("a vocabulary of %d tokens cannot hold the special tokens and every character of the corpus; expected %d or more", e.Size, e.Least)
	}
	return fmt.Sprintf("the corpus gives only %d tokens; expected a vocabulary of at most that many, not of %d, or more text", e.Most, e.Size)
}

// Is reports that the user chose the size.
func (e *SizeError) Is(target error) bool { return target == fault.Usage }

// Counter counts words. It is safe for concurrent use.
type Counter struct {
	shards [64]shard
}

type shard struct {
	mu     sync.Mutex
	counts map[string]int64
}

// Add adds the words of counts.
func (c *Counter) Add(counts map[string]int64) {
	var parts [len(c.shards)][]Word
	for text, n := range counts {
		at := shardOf(text)
		parts[at] = append(parts[at], Word{text, n})
	}
	for i, words := range parts {
		s := &c.shards[i]
		s.mu.Lock()
		if s.counts == nil {
			s.counts = map[string]int64{}
		}
		for _, w := range words {
			s.counts[w.Text] += w.Count
		}
		s.mu.Unlock()
	}
}

// shardOf spreads words over the shards (FNV-1a).
func shardOf(text string) int {
	h := uint32(2166136261)
	for i := range len(text) {
		h = (h ^ uint32(text[i])) * 16777619
	}
	return int(h % uint32(len(Counter{}.shards)))
}

// Words returns the words in order of their texts.
func (c *Counter) Words() []Word {
	var words []Word
	for i := range c.shards {
		for text, n := range c.shards[i].counts {
			words = append(words, Word{text, n})
		}
	}
	slices.SortFunc(words, func(a, b Word) int { return cmp.Compare(a.Text, b.Text) })
	return words
}

// characters returns the different characters of words and of an alphabet with their counts in words.
func characters(words []Word, alphabet []rune) map[rune]int64 {
	counts := map[rune]int64{}
	for _, r := range alphabet {
		counts[r] = 0
	}
	for _, w := range words {
		for _, r := range w.Text {
			counts[r] += w.Count
		}
	}
	return counts
}

// check returns an error for words that cannot be trained on.
func check(words []Word) error {
	for _, w := range words {
		if !utf8.ValidString(w.Text) {
			return fault.Usagef("the word %q is not valid UTF-8", w.Text)
		}
	}
	return nil
}

// chunks is how many parts work is divided into at most. It does not depend on the number of threads, so
// that sums have the same order for any.
const chunks = 64

// parallel calls do for the parts of n things, on so many threads, and then take for each part in order.
// Both get the number of the worker, below threads.
func parallel(ctx context.Context, n, least, threads int, do func(worker, from, to int), take func(worker int)) error {
	parts := min(chunks, (n+least-1)/least)
	var next, taken atomic.Int64
	var mu sync.Mutex
	turn := sync.NewCond(&mu)
	var wg sync.WaitGroup
	for worker := range min(threads, parts) {
		wg.Go(func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= parts {
					return
				}
				if ctx.Err() == nil {
					do(worker, i*n/parts, (i+1)*n/parts)
				}
				mu.Lock()
				for int(taken.Load()) != i {
					turn.Wait()
				}
				if take != nil && ctx.Err() == nil {
					take(worker)
				}
				taken.Add(1)
				turn.Broadcast()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
