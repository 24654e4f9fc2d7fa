package predict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
)

// lengths is a Model that answers with the number of an example's tokens.
type lengths struct{ fail error }

func (l lengths) Predict(_ context.Context, examples []text.Encoding) ([]Result, error) {
	var out []Result
	for _, e := range examples {
		p := 1 / float64(1+len(e.IDs))
		out = append(out, Result{{[]int{2}, []float64{p, 1 - p}}, {[]int{2}, []float64{0, float64(len(e.IDs))}}})
	}
	return out, l.fail
}

func newPredictor(t testing.TB, m Model, c Config) *Predictor {
	t.Helper()
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n"), "vocab")
	if err != nil {
		t.Fatal(err)
	}
	if c.Tokenizer, err = text.NewTokenizer(vocab, text.Uncased()); err != nil {
		t.Fatal(err)
	}
	if c.MaxLength == 0 {
		c.MaxLength = 64
	}
	p, err := New(m, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func randomExamples(n int) []text.Encoding {
	r := rand.New(rand.NewPCG(5, 0))
	out := make([]text.Encoding, n)
	for i := range out {
		out[i].IDs = make([]int32, 1+r.IntN(64))
	}
	return out
}

// windowsOf gives examples in windows of the given sizes, and then an error if there is one.
func windowsOf(examples []text.Encoding, last error, sizes ...int) iter.Seq2[[]text.Encoding, error] {
	return func(yield func([]text.Encoding, error) bool) {
		for _, n := range sizes {
			if !yield(examples[:n], nil) {
				return
			}
			examples = examples[n:]
		}
		if last != nil {
			yield(nil, last)
		}
	}
}

func TestAnswersComeInOrder(t *testing.T) {
	for _, c := range []Config{{}, {CallTokens: 100, InFlight: 4}, {CallTokens: 256, RowLength: 64, InFlight: 2}} {
		p := newPredictor(t, lengths{}, c)
		examples := randomExamples(200)
		i := 0
		done, err := p.EachEncoded(t.Context(), windowsOf(examples, nil, 1, 120, 0, 7, 72), func(a Answer) error {
			if n := a.(Label).Logits[1]; n != float64(len(examples[i].IDs)) {
				t.Fatalf("answer %d is on %v tokens, expected %d", i, n, len(examples[i].IDs))
			}
			i++
			return nil
		})
		if err != nil || done != (Summary{Answers: 200}) {
			t.Errorf("%+v: %+v, error %v", c, done, err)
		}
	}
}

func TestCallsBoundPositions(t *testing.T) {
	p := newPredictor(t, lengths{}, Config{CallTokens: 1024})
	examples := randomExamples(3000)
	seen := make([]bool, len(examples))
	calls := p.calls(examples)
	for i, places := range calls {
		n := len(places) * len(examples[places[0]].IDs)
		if n > 1024 || n < 512 && i < len(calls)-1 {
			t.Errorf("call %d has %d positions, expected about 1024", i, n)
		}
		for _, place := range places {
			if seen[place] {
				t.Fatalf("example %d is answered on twice", place)
			}
			seen[place] = true
		}
	}
	if slices.Contains(seen, false) {
		t.Error("an example is not answered on")
	}
	// Those longer than a call come one by one, the longest first.
	if calls := p.calls([]text.Encoding{{IDs: make([]int32, 2048)}, {IDs: make([]int32, 3072)}}); fmt.Sprint(calls) != "[[1] [0]]" {
		t.Errorf("calls %v", calls)
	}
}

// Examples of a call of a fixed size fit into its rows, wherever they are put.
func TestCallsFillFixedRows(t *testing.T) {
	c := Config{Rows: 3, RowLength: 128, RowExamples: 5}
	p := newPredictor(t, lengths{}, c)
	examples := randomExamples(3000)
	answered := 0
	for i, places := range p.calls(examples) {
		longest := len(examples[places[0]].IDs)
		if most := min(c.RowLength/longest, c.RowExamples); len(places) > c.Rows*most || i == 0 && len(places) < c.Rows {
			t.Errorf("call %d has %d examples of up to %d tokens", i, len(places), longest)
		}
		answered += len(places)
	}
	if answered != len(examples) {
		t.Errorf("%d examples are answered on, expected %d", answered, len(examples))
	}
	if _, err := New(lengths{}, Config{Rows: 3, RowLength: 128}); err == nil || !strings.Contains(err.Error(), "at most 0 examples") {
		t.Errorf("error %v", err)
	}
}

// TestAnswersEndWithTheError hands over the answers on all that came before.
func TestAnswersEndWithTheError(t *testing.T) {
	p := newPredictor(t, lengths{}, Config{})
	examples := randomExamples(30)
	bad := errors.New("a bad line")
	done, err := p.EachEncoded(t.Context(), windowsOf(examples, bad, 10, 15), func(Answer) error { return nil })
	if !errors.Is(err, bad) || done.Answers != 25 {
		t.Errorf("%d answers and error %v, expected 25 and %v", done.Answers, err, bad)
	}
	full := errors.New("disk full")
	n := 0
	done, err = p.EachEncoded(t.Context(), windowsOf(examples, nil, 10, 10, 10), func(Answer) error {
		if n++; n == 12 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || done.Answers != 11 {
		t.Errorf("%d answers and error %v, expected 11 and %v", done.Answers, err, full)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hanging := func(yield func([]text.Encoding, error) bool) {
		yield(examples, nil)
		select {} // as standard input may
	}
	if _, err = p.EachEncoded(ctx, hanging, func(Answer) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected that of the context", err)
	}
	broken := errors.New("out of memory")
	if _, err := newPredictor(t, lengths{broken}, Config{}).Answer(t.Context(), text.Pair{A: "a"}); !errors.Is(err, broken) {
		t.Errorf("error %v, expected the model's", err)
	}
}

// TestServer has many goroutines ask one Predictor, texts that fit and others.
func TestServer(t *testing.T) {
	p := newPredictor(t, lengths{}, Config{MaxLength: 8, CallTokens: 32, InFlight: 2, Renderer: Classifier([]string{"no"})})
	var asking sync.WaitGroup
	for n := 1; n <= 20; n++ {
		asking.Go(func() {
			given, err := p.Answer(t.Context(), text.Pair{A: strings.Repeat("a ", n)}, text.Pair{A: "a", B: "a"})
			answers := make([]Label, len(given))
			for i, a := range given {
				answers[i] = a.(Label)
			}
			if err != nil || len(answers) != 2 || answers[0].Truncated != (n > 6) || answers[0].Logits[1] != float64(min(n+2, 8)) || answers[1].Logits[1] != 5 {
				t.Errorf("%d words: %+v, error %v", n, answers, err)
			} else if answers[0].Label != "1" || answers[0].Index != 1 {
				t.Errorf("%d words: %+v, expected label 1, which has no name", n, answers[0])
			}
		})
	}
	asking.Wait()
}

func TestEachCountsTruncated(t *testing.T) {
	p := newPredictor(t, lengths{}, Config{MaxLength: 4, Window: 2})
	in := NewLines(strings.NewReader("a\na a a\na\ta\na a"), "in", ParseTSV)
	done, err := p.Each(t.Context(), in, func(Answer) error { return nil })
	if err != nil || done != (Summary{Answers: 4, Truncated: 2}) {
		t.Errorf("%+v, error %v", done, err)
	}
	if _, err := in.Next(); err != io.EOF {
		t.Errorf("the source is not at its end: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Config{{Window: -1}, {InFlight: -1}, {Tokenizer: new(text.Tokenizer), MaxLength: 2}} {
		if _, err := New(lengths{}, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if err := Format("xml").Validate(); err == nil {
		t.Error("the format xml is accepted")
	}
}
