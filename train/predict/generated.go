package predict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// Generation says how texts are continued or, by a model with sources, what texts are made of others.
type Generation struct {
	generate.Config
	// Limits are those of the model and of its caches.
	Limits generate.Limits
	// Tokenizer makes tokens of texts, and texts of tokens.
	Tokenizer *text.Tokenizer
	// Chat, if it is not nil, makes the text a message of a user, which is answered.
	Chat *Chat
	// Start is the token that the decoder of a model with sources begins with, and Prefix what stands before
	// the text of each source.
	Start  int32
	Prefix string
	// Skip is that of Config.
	Skip func(error)
}

// sourced reports whether the model makes texts of sources.
func (g Generation) sourced() bool { return g.Limits.SourceLength > 0 }

// OfText returns the request of a text, without id and config. A source that the model has no room for is
// cut, as it is in training; the prompt of a text that is to be continued is not, and an error.
func (g Generation) OfText(s string) (r generate.Request, cut bool, err error) {
	if g.sourced() {
		e := g.Tokenizer.Encode(g.Prefix+s, "", g.Limits.SourceLength)
		return g.OfTokens(e.IDs), e.Truncated, nil
	}
	ids, err := g.prompt(s)
	return g.OfTokens(ids), false, err
}

// OfTokens is OfText of tokens, special ones included.
func (g Generation) OfTokens(ids []int32) generate.Request {
	if g.sourced() {
		return generate.Request{Prompt: []int32{g.Start}, Source: ids, Text: Continued(g.Tokenizer, nil)}
	}
	return generate.Request{Prompt: ids, Text: Continued(g.Tokenizer, ids)}
}

// DefaultNewTokens is the most new tokens of a text, if neither MaxLength nor MaxNewTokens says it and the
// model has room for them.
const DefaultNewTokens = 128

// EndTokens returns the tokens that end texts in the data of a run: what a tokenizer puts after a text, or
// else its end of a text.
func EndTokens(t *text.Tokenizer) []int32 {
	if after := t.Template().Single.After; len(after) > 0 {
		return []int32{after[0].ID}
	}
	if end := t.Roles().Sep; end >= 0 {
		return []int32{end}
	}
	return nil
}

// mostAhead limits the texts that are read before the answer to an earlier one is there.
const mostAhead = 1 << 10

// Prompt returns the tokens of a text that is to be continued: with the special tokens that begin a text,
// and without those that end it. It returns an error unless they are less than most, which a model takes.
func Prompt(t *text.Tokenizer, s string, most int) ([]int32, error) {
	var ids []int32
	for _, special := range t.Template().Single.Before {
		ids = append(ids, special.ID)
	}
	ids, more := t.AppendFirst(ids, s, most)
	if n := len(ids) + more; n >= most {
		return nil, fmt.Errorf("the prompt has %d tokens; expected less than the %d that the model takes", n, most)
	}
	return ids, nil
}

// mostBefore limits the tokens of a prompt that are decoded with those that follow.
const mostBefore = 8

// Continued returns the function that returns the text of new tokens, as it follows the text of a prompt.
// Tokens are decoded after the last ones of the prompt, because decoders treat the first token of a text in
// another way: most leave out the space before it.
func Continued(t *text.Tokenizer, prompt []int32) func(ids []int32) string {
	var context []int32
	before := ""
	for n := 1; n <= min(mostBefore, len(prompt)); n++ {
		context = prompt[len(prompt)-n:]
		before = t.Decode(context, false)
		if before != "" && !strings.Contains(before, "\ufffd") { // whole characters
			break
		}
	}
	return func(ids []int32) string {
		if after, ok := strings.CutPrefix(t.Decode(slices.Concat(context, ids), false), before); ok {
			return after
		}
		return t.Decode(ids, false)
	}
}

// Each continues all texts of a source by a model, and calls each with the answers, in their order. A text
// enters as soon as there is room for it. The number of a text from 0 is that of its random numbers.
func (g Generation) Each(ctx context.Context, m generate.Model, in Source, each func(Answer) error) error {
	if err := g.Validate(); err != nil {
		return fault.Usagef("%w", err)
	}
	s, err := generate.New(g.Limits)
	if err != nil {
		return err
	}
	q := queue{Generation: g, scheduler: s, in: in, answers: make(map[uint64]Answer), texts: make(map[uint64]queued)}
	if err := q.fill(); err != nil {
		return err
	}
	err = generate.Run(ctx, s, m, func(u generate.Update) error {
		from := q.texts[u.ID]
		switch {
		case errors.Is(u.Err, generate.ErrForbidden) && skip(q.Skip, from.forbidden):
			q.answers[u.ID] = nil
		case errors.Is(u.Err, generate.ErrForbidden):
			return from.forbidden
		case u.Err != nil:
			return u.Err
		case u.Results == nil:
			return nil
		default:
			q.answers[u.ID] = g.answer(u.Results, from)
		}
		delete(q.texts, u.ID)
		for {
			a, ok := q.answers[q.given]
			if !ok {
				break
			}
			if a != nil {
				if err := each(a); err != nil {
					return err
				}
			}
			delete(q.answers, q.given)
			q.given++
		}
		return q.fill()
	})
	if err == nil {
		err = q.ended
	}
	return err
}

// queue is what Each has of a source.
type queue struct {
	Generation
	scheduler *generate.Scheduler
	in        Source
	next      uint64            // the number of the next text
	given     uint64            // that of the next answer
	answers   map[uint64]Answer // nil of a text that is skipped
	texts     map[uint64]queued
	done      bool
	ended     error // the error that ended the texts; those before it are still answered
}

// queued is what a text needs until it is answered.
type queued struct {
	text      func(ids []int32) string // of new tokens
	cut       bool
	forbidden error // for generate.ErrForbidden
}

// fill adds texts until some wait for room.
func (q *queue) fill() error {
	for !q.done && q.scheduler.Waiting() < q.Limits.Rows && q.next-q.given < mostAhead {
		p, err := q.in.Next()
		if err == nil {
			err = q.add(p)
		}
		switch {
		case errors.Is(err, io.EOF):
			q.done = true
		case err == nil:
			q.next++
		case !skip(q.Skip, err):
			q.done, q.ended = true, err
		}
	}
	return nil
}

// add adds the next text.
func (q *queue) add(p text.Pair) error {
	if p.B != "" {
		return q.in.Refuse("a second text is given; expected one, which is continued")
	}
	r, cut, err := q.OfText(p.A)
	if err != nil {
		return q.in.Refuse(err.Error())
	}
	r.ID, r.Number, r.Config = q.next, q.next, q.WithDefaultLength(len(r.Prompt), q.Limits.MaxLength, DefaultNewTokens)
	if err := q.scheduler.Add(r); err != nil {
		return q.in.Refuse(err.Error())
	}
	q.texts[q.next] = queued{r.Text, cut, q.in.Refuse(generate.ErrForbidden.Error())}
	return nil
}

// prompt returns the tokens of a text.
func (g Generation) prompt(s string) ([]int32, error) {
	if g.Chat != nil {
		return g.Chat.Prompt(g.Tokenizer, []chat.Message{{Role: "user", Content: s}}, g.Limits.MaxLength)
	}
	return Prompt(g.Tokenizer, s, g.Limits.MaxLength)
}

// answer makes the answer of results.
func (g Generation) answer(results []generate.Result, from queued) Answer {
	a := Generated{generatedNames: g.names(), Truncated: from.cut}
	for _, r := range results {
		before, _ := generate.CutStop(from.text(r.IDs), g.StopStrings)
		a.Sequences = append(a.Sequences, Continuation{before, r.IDs, r.Score, string(r.Finish)})
	}
	return a
}

// Renderer returns the names of the columns of the answers, for Answers. It renders nothing.
func (g Generation) Renderer() Renderer { return g.names() }

func (g Generation) names() generatedNames {
	return generatedNames{g.NumReturnSequences > 1, g.sourced()}
}

// generatedNames says what answers have: several sequences, and whether a source was cut.
type generatedNames struct{ several, cuts bool }

// Render implements Renderer.
func (generatedNames) Render(Example, Result) (Answer, error) {
	return nil, errors.New("texts are continued token by token, not by the outputs of predict")
}

// Names implements Renderer.
func (n generatedNames) Names() []string {
	names := []string{"generated", "score", "finish"}
	if n.several {
		names = []string{"sequences"}
	}
	if n.cuts {
		names = append(names, "truncated")
	}
	return names
}

// Generated is the Answer of a model that continues a text, or makes one of it.
type Generated struct {
	// Sequences are the continuations, the best first, or in the order of samples.
	Sequences []Continuation
	// Truncated says that the source was cut.
	Truncated bool
	generatedNames
}

// Continuation is how a text goes on.
type Continuation struct {
	// Text ends before a stop string; IDs are all new tokens.
	Text   string  `json:"generated"`
	IDs    []int32 `json:"ids"`
	Score  float64 `json:"score"`
	Finish string  `json:"finish"`
}

var _ Answer = Generated{}

// Fields implements Answer.
func (a Generated) Fields() []Field {
	c := a.Sequences[0]
	f := []Field{{Name: "generated", Value: c.Text}, {Name: "ids", Value: c.IDs}, {Name: "score", Value: c.Score}, {Name: "finish", Value: c.Finish}}
	if a.several {
		f = []Field{{Name: "sequences", Value: a.Sequences}}
	}
	if a.Truncated {
		f = append(f, Field{Name: "truncated", Value: true})
	}
	return f
}

// MarshalJSON implements json.Marshaler.
func (a Generated) MarshalJSON() ([]byte, error) { return Object(a.Fields()).MarshalJSON() }

// Columns implements Answer.
func (a Generated) Columns() []Field {
	c := a.Sequences[0]
	columns := []Field{{Name: "generated", Value: c.Text}, {Name: "score", Value: c.Score}, {Name: "finish", Value: c.Finish}}
	if a.several {
		columns = []Field{{Name: "sequences", Value: listed{a.Sequences, a.Text()}}}
	}
	if a.cuts {
		columns = append(columns, Field{Name: "truncated", Value: a.Truncated})
	}
	return columns
}

// Text implements Answer: the continuations, with bars between them. Line breaks are written out.
func (a Generated) Text() string {
	texts := make([]string, len(a.Sequences))
	for i, c := range a.Sequences {
		texts[i] = oneLine.Replace(c.Text)
	}
	return strings.Join(texts, " | ")
}

var oneLine = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)

// Row implements Answer.
func (a Generated) Row() []string { return []string{a.Text(), number(a.Sequences[0].Score)} }

// Cut implements Answer: sources may be cut, and prompts are not.
func (a Generated) Cut() bool { return a.Truncated }
