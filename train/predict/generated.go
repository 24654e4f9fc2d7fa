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

// Generation says how texts are continued.
type Generation struct {
	generate.Config
	// Limits are those of the model and of its caches.
	Limits generate.Limits
	// Tokenizer makes tokens of texts, and texts of tokens.
	Tokenizer *text.Tokenizer
	// Chat, if it is not nil, makes the text a message of a user, which is answered.
	Chat *Chat
	// Skip is that of Config.
	Skip func(error)
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
			q.answers[u.ID] = g.answer(u.Results, from.text)
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
	forbidden error                    // for generate.ErrForbidden
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
	ids, err := q.prompt(p.A)
	if err != nil {
		return q.in.Refuse(err.Error())
	}
	r := generate.Request{ID: q.next, Number: q.next, Prompt: ids, Config: q.WithDefaultLength(len(ids), q.Limits.MaxLength, DefaultNewTokens), Text: Continued(q.Tokenizer, ids)}
	if err := q.scheduler.Add(r); err != nil {
		return q.in.Refuse(err.Error())
	}
	q.texts[q.next] = queued{r.Text, q.in.Refuse(generate.ErrForbidden.Error())}
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
func (g Generation) answer(results []generate.Result, text func([]int32) string) Answer {
	a := Generated{several: g.NumReturnSequences > 1}
	for _, r := range results {
		before, _ := generate.CutStop(text(r.IDs), g.StopStrings)
		a.Sequences = append(a.Sequences, Continuation{before, r.IDs, r.Score, string(r.Finish)})
	}
	return a
}

// Renderer returns the names of the columns of the answers, for Answers. It renders nothing.
func (g Generation) Renderer() Renderer { return generatedNames{g.NumReturnSequences > 1} }

type generatedNames struct{ several bool }

// Render implements Renderer.
func (generatedNames) Render(Example, Result) (Answer, error) {
	return nil, errors.New("texts are continued token by token, not by the outputs of predict")
}

// Names implements Renderer.
func (n generatedNames) Names() []string {
	if n.several {
		return []string{"sequences"}
	}
	return []string{"generated", "score", "finish"}
}

// Generated is the Answer of a model that continues a text.
type Generated struct {
	// Sequences are the continuations, the best first, or in the order of samples.
	Sequences []Continuation
	several   bool
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
	if a.several {
		return []Field{{Name: "sequences", Value: a.Sequences}}
	}
	c := a.Sequences[0]
	return []Field{{Name: "generated", Value: c.Text}, {Name: "ids", Value: c.IDs}, {Name: "score", Value: c.Score}, {Name: "finish", Value: c.Finish}}
}

// MarshalJSON implements json.Marshaler.
func (a Generated) MarshalJSON() ([]byte, error) { return Object(a.Fields()).MarshalJSON() }

// Columns implements Answer.
func (a Generated) Columns() []Field {
	if a.several {
		return []Field{{Name: "sequences", Value: listed{a.Sequences, a.Text()}}}
	}
	c := a.Sequences[0]
	return []Field{{Name: "generated", Value: c.Text}, {Name: "score", Value: c.Score}, {Name: "finish", Value: c.Finish}}
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

// Cut implements Answer: prompts are never cut.
func (a Generated) Cut() bool { return false }
