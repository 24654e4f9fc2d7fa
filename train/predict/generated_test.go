package predict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// counting is a model whose next token is the one after the last, and [SEP] after e.
type counting struct{}

func (counting) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	const vocab = 10
	logits := make([]float32, b.Rows*vocab)
	for row := range b.Rows {
		next := b.InputIDs[row*b.Tokens+int(b.Last[row])] + 1
		if next == vocab {
			next = 3
		}
		logits[row*vocab+int(next)] = 5
	}
	return logits, nil
}

// generation continues texts of the letters a to e.
func generation(t *testing.T) Generation {
	t.Helper()
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\n"), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	c := generate.Default()
	c.EOSTokenIDs = []int32{3}
	return Generation{Config: c, Tokenizer: tokenizer, Limits: generate.Limits{VocabSize: 10, MaxLength: 9, Slots: 20, Rows: 2}}
}

// TestGenerationIsInOrder checks that answers come in the order of the texts, although short ones end first,
// and that texts which cannot be continued are left out where they are to be.
func TestGenerationIsInOrder(t *testing.T) {
	g := generation(t)
	for _, skips := range []bool{false, true} {
		var skipped []string
		if g.Skip = nil; skips {
			g.Skip = func(err error) { skipped = append(skipped, err.Error()) }
		}
		in := NewLines(strings.NewReader("a\nd\na b c d e a b c\nc\nb\ta\nb\n"), "in.txt", ParseTSV)
		var got []string
		err := g.Each(t.Context(), counting{}, in, func(a Answer) error {
			var line bytes.Buffer
			if err := TSV.Write(&line, a); err != nil {
				return err
			}
			letters, _, _ := strings.Cut(line.String(), "\t")
			got = append(got, letters)
			return nil
		})
		want, refused := "[ b c d e| e]", "in.txt:3: the prompt has 9 tokens; expected less than the 9 that the model takes"
		if skips {
			want = "[ b c d e| e| d e| c d e]"
			if err != nil || len(skipped) != 2 || skipped[0] != refused || skipped[1] != "in.txt:5: a second text is given; expected one, which is continued" {
				t.Errorf("with skips: %v, skipped %q", err, skipped)
			}
		} else if fault.Of(err) != fault.Damaged || err.Error() != refused {
			t.Errorf("without skips: %v; expected %s", err, refused)
		}
		if all := fmt.Sprintf("[%s]", strings.Join(got, "|")); all != want {
			t.Errorf("answers %s; expected %s", all, want)
		}
	}
}

// copying is a model whose texts are their sources.
type copying map[int32]int32 // the tokens of sources, by slot

func (m copying) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	if e := b.Encode; e != nil {
		for i, slot := range e.Slots {
			m[slot] = e.InputIDs[i]
		}
	}
	const vocab = 10
	logits := make([]float32, b.Rows*vocab)
	for row := range b.Rows {
		place := b.PositionIDs[row*b.Tokens+int(b.Last[row])]
		logits[row*vocab+int(m[b.SourceOf(row)[place+1]])] = 5
	}
	return logits, nil
}

// TestGenerationFromSources checks that sources have the prefix and the special tokens, and are cut and said to
// be.
func TestGenerationFromSources(t *testing.T) {
	g := generation(t)
	g.Limits.SourceLength, g.Limits.SourceSlots, g.Start, g.Prefix = 5, 10, 2, "c "
	for _, tt := range []struct{ text, want string }{
		{"a b", `{"generated":"c a b","ids":[7,5,6,3],"score":X,"finish":"eos"}`},
		{"a b d e", `{"generated":"c a b","ids":[7,5,6,3],"score":X,"finish":"eos","truncated":true}`},
		{"", `{"generated":"c","ids":[7,3],"score":X,"finish":"eos"}`},
		{" \t ", `{"generated":"c","ids":[7,3],"score":X,"finish":"eos"}`},
	} {
		var line bytes.Buffer
		if err := g.Each(t.Context(), make(copying), &List{Texts: []string{tt.text}}, func(a Answer) error { return JSON.Write(&line, a) }); err != nil {
			t.Fatal(err)
		}
		if got := regexp.MustCompile(`"score":[-.0-9e]+`).ReplaceAllString(strings.TrimSpace(line.String()), `"score":X`); got != tt.want {
			t.Errorf("%q: %s; expected %s", tt.text, got, tt.want)
		}
	}
	if got := fmt.Sprint(g.Renderer().Names()); got != "[generated score finish truncated]" {
		t.Errorf("the columns are %s", got)
	}
}

func TestGenerationEnds(t *testing.T) {
	g := generation(t)
	g.StopStrings = []string{"d"}
	answer := func(g Generation) string {
		var line bytes.Buffer
		if err := g.Each(t.Context(), counting{}, &List{Texts: []string{"a"}}, func(a Answer) error { return JSON.Write(&line, a) }); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line.String())
	}
	if got := answer(g); !strings.HasPrefix(got, `{"generated":" b c ","ids":[6,7,8],"score":-0.`) || !strings.HasSuffix(got, `"finish":"stop"}`) {
		t.Errorf("with a stop string: %s", got)
	}
	g = generation(t)
	g.MaxNewTokens = 2
	if got := answer(g); !strings.HasPrefix(got, `{"generated":" b c","ids":[6,7],`) || !strings.HasSuffix(got, `"finish":"length"}`) {
		t.Errorf("with two tokens: %s", got)
	}
	g.NumBeams, g.NumReturnSequences = 2, 2
	if got := answer(g); !strings.HasPrefix(got, `{"sequences":[{"generated":" b c","ids":[6,7],`) || strings.Count(got, "generated") != 2 {
		t.Errorf("with two beams: %s", got)
	}
	lost := errors.New("lost")
	if err := generation(t).Each(t.Context(), counting{}, &List{Texts: []string{"a", "b"}}, func(Answer) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("an answer that cannot be written: %v", err)
	}
	g.NumBeams = 0
	if err := g.Each(t.Context(), counting{}, &List{}, nil); fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "num_beams is 0") {
		t.Errorf("no beams: %v", err)
	}
	if _, err := g.Renderer().Render(Example{}, nil); err == nil {
		t.Error("the renderer renders")
	}
	if err := generation(t).Each(t.Context(), counting{}, &List{}, nil); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("no texts: %v", err)
	}
}

// TestGenerationForbidsAll checks that a text after which no token may follow is named, and can be left out.
func TestGenerationForbidsAll(t *testing.T) {
	g := generation(t)
	g.MinLength = 4
	for id := range int32(10) {
		if id != 3 {
			g.BadWordsIDs = append(g.BadWordsIDs, []int32{id})
		}
	}
	const want = "in.txt:2: no token may follow"
	in := func() Source { return NewLines(strings.NewReader("a b c\nd\ne a b\n"), "in.txt", ParseTSV) }
	answers := 0
	each := func(Answer) error { answers++; return nil }
	if err := g.Each(t.Context(), counting{}, in(), each); fault.Of(err) != fault.Damaged || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without skips: %v; expected %s", err, want)
	}
	answers = 0
	var skipped []string
	g.Skip = func(err error) { skipped = append(skipped, err.Error()) }
	if err := g.Each(t.Context(), counting{}, in(), each); err != nil || answers != 2 || len(skipped) != 1 || !strings.HasPrefix(skipped[0], want) {
		t.Errorf("with skips: %v, %d answers, skipped %q; expected %s", err, answers, skipped, want)
	}
}

func TestPrompt(t *testing.T) {
	g := generation(t)
	if got := fmt.Sprint(Prompt(g.Tokenizer, "b a", 4)); got != "[2 6 5] <nil>" {
		t.Errorf("the prompt is %s; expected [CLS] b a, without [SEP]", got)
	}
}

// TestContinued has texts that follow those of prompts.
func TestContinued(t *testing.T) {
	llama, err := tokenizerjson.Load("../../text/tokenizerjson/testdata/llama2.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"the cat sat", "cats, dogs and \u00e9 or \u6f22\u5b57 more"} {
		ids := llama.AppendIDs(nil, s)
		for n := 1; n < len(ids); n++ {
			before := llama.Decode(ids[:n], false)
			if before == "" || strings.Contains(before, "\ufffd") {
				continue
			}
			if got := before + Continued(llama, ids[:n])(ids[n:]); got != llama.Decode(ids, false) {
				t.Errorf("%d tokens of %q and those after them are %q", n, s, got)
			}
		}
	}
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nrun\n##ing\n"), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	bert, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		prompt, next []int32
		want         string
	}{
		{[]int32{2, 5}, []int32{6}, "ing"},
		{[]int32{2, 5, 3}, []int32{5, 6}, " runing"},
		{[]int32{2}, []int32{5, 6}, "runing"},
	} {
		if got := Continued(bert, tt.prompt)(tt.next); got != tt.want {
			t.Errorf("%v after %v is %q; expected %q", tt.next, tt.prompt, got, tt.want)
		}
	}
}
