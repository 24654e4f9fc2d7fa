package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/text/chat"
)

// sampling are the fields of all kinds of completions, as OpenAI's API has them. The last ones are those of
// transformers.
type sampling struct {
	Model       string          `json:"model"`
	MaxTokens   *int            `json:"max_tokens"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	N           *int            `json:"n"`
	Stream      bool            `json:"stream"`
	Stop        json.RawMessage `json:"stop"`
	Seed        *int64          `json:"seed"`
	User        string          `json:"user"` // of no meaning here

	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	// These are refused unless they ask for nothing.
	FrequencyPenalty float64            `json:"frequency_penalty"`
	PresencePenalty  float64            `json:"presence_penalty"`
	LogitBias        map[string]float64 `json:"logit_bias"`

	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	NoRepeatNgramSize *int     `json:"no_repeat_ngram_size"`
	MinTokens         *int     `json:"min_tokens"`
	NumBeams          *int     `json:"num_beams"`
	LengthPenalty     *float64 `json:"length_penalty"`

	EarlyStopping *generate.EarlyStopping `json:"early_stopping"`
}

// completion is the body of POST /v1/completions.
type completion struct {
	sampling
	Prompt json.RawMessage `json:"prompt"`

	// These are refused unless they ask for nothing.
	BestOf   *int   `json:"best_of"`
	Echo     bool   `json:"echo"`
	Logprobs *int   `json:"logprobs"`
	Suffix   string `json:"suffix"`
}

// body is that of a request for completions.
type body interface {
	// common returns the fields that all bodies have.
	common() *sampling
	// prompts returns the tokens of the prompts, at most so many, and the tokens that end a text.
	prompts(m *served, most int) (prompts []generate.Request, ends []int32, err error)
	// extras returns the fields that are refused if they are asked for.
	extras() []extra
}

// endpoint is a kind of completions.
type endpoint struct {
	verb string // in metrics
	body func() body
	id   string
	// whole and chunk are the names of an answer and of an event.
	whole, chunk string
	maxTokens    int // of a request that does not say it; 0 for all that the model has room for
	// choice is that of an answer, and piece that of an event: the first of its index, or a later one.
	choice func(text string, index int, finish *string) any
	piece  func(text string, index int, finish *string, first bool) any
}

var completions = endpoint{
	verb: "completions", body: func() body { return &completion{} }, id: "cmpl-",
	whole: "text_completion", chunk: "text_completion", maxTokens: defaultMaxTokens,
	choice: func(text string, index int, finish *string) any {
		return choice{Text: text, Index: index, FinishReason: finish}
	},
	piece: func(text string, index int, finish *string, _ bool) any {
		return choice{Text: text, Index: index, FinishReason: finish}
	},
}

// defaultMaxTokens is the most new tokens of a completion that does not say it, as in OpenAI's API.
const defaultMaxTokens = 16

// Limits of stop, which is looked for after every token.
const (
	mostStops     = 16
	mostStopBytes = 1 << 10
)

// choice is a completion of a prompt.
type choice struct {
	Text         string  `json:"text"`
	Index        int     `json:"index"`
	Logprobs     any     `json:"logprobs"` // null
	FinishReason *string `json:"finish_reason"`
}

// completed is the body of a response, or an event of one that is streamed.
type completed[C any] struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []C            `json:"choices"`
	Usage   map[string]int `json:"usage,omitempty"`
}

// complete returns what answers requests for completions.
func (s *Server) complete(f endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.completed(w, r, f) }
}

func (s *Server) completed(w http.ResponseWriter, r *http.Request, f endpoint) {
	start := time.Now()
	held := int64(0)
	defer func() { s.bodies.give(held) }()
	data, err := s.body(w, r, &held)
	var c *completing
	if err == nil {
		c, err = s.parseCompletion(r.Context(), data, f)
	}
	if err != nil {
		unread := errors.Is(err, errBusy) || errors.As(err, new(*http.MaxBytesError))
		if unread {
			w.Header().Set("Connection", "close")
		}
		s.failed(w, &served{}, err)
		if unread {
			discard(w, r)
		}
		return
	}
	if l, ok := w.(*logged); ok {
		l.examples = len(c.requests)
	}
	if c.stream {
		err = s.streamed(w, r, c)
	} else {
		err = s.whole(w, r, c)
	}
	if err != nil {
		c.code = s.failed(w, c.model, err)
	} else if c.code == http.StatusOK {
		s.metrics.examples.WithLabelValues(c.model.Name).Add(float64(len(c.requests)))
	}
	s.metrics.answered(c.model.Name, f.verb, c.code, time.Since(start))
}

// completing is a request for completions.
type completing struct {
	endpoint
	model    *served
	stream   bool
	counted  bool // at the end of the stream
	code     int  // the status of the answer, or what it would be of a stream that ended early
	stops    []string
	n        int            // of each prompt
	tools    *chat.Template // which says how answers ask for calls of tools; nil if they do not
	requests []generate.Request
	answer   completed[any]
}

// badBody returns an error of the decoder of a body as that of a request.
func badBody(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		expected := "a text in quotes"
		switch wrong.Type.Kind() {
		case reflect.Bool:
			expected = "true or false"
		case reflect.Int, reflect.Int64:
			expected = "a whole number"
		case reflect.Float64:
			expected = "a number"
		case reflect.Slice:
			expected = "a list"
		case reflect.Struct, reflect.Map:
			expected = "an object"
		}
		if wrong.Field == "" {
			return badf("the body is a JSON %s; expected %s", wrong.Value, expected)
		}
		field := strings.TrimPrefix(wrong.Field, "sampling.") // the struct that all bodies embed
		return badf("%q is a JSON %s; expected %s", words.Clip(field, 60), wrong.Value, expected)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end of JSON input")
	}
	return badf("the body is not what is expected: %s; see the documentation of gorbit serve for its fields", strings.TrimPrefix(err.Error(), "json: "))
}

// parseCompletion checks a body. A field that is not known is refused: it would change the answer.
func (s *Server) parseCompletion(ctx context.Context, data []byte, f endpoint) (*completing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	done, err := s.turn(ctx, data)
	if err != nil {
		return nil, err
	}
	defer done()
	in := f.body()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return nil, badBody(err)
	}
	m, err := s.generating(in.common().Model)
	if err != nil {
		return nil, err
	}
	for _, e := range in.extras() {
		if e.asked {
			return nil, badf("%s asks for what is not served here; leave it out", e.name)
		}
	}
	config, err := in.common().config(m.Generates)
	if err != nil {
		return nil, err
	}
	prompts, ends, err := in.prompts(m, s.MaxExamples)
	if err != nil {
		return nil, err
	}
	config.EOSTokenIDs = ends
	var id [16]byte
	rand.Read(id[:])
	if in.common().Seed == nil {
		config.Seed = binary.LittleEndian.Uint64(id[:])
	}
	c := &completing{endpoint: f, model: m, code: http.StatusOK, stream: in.common().Stream, counted: in.common().StreamOptions.IncludeUsage, stops: config.StopStrings, n: config.NumReturnSequences}
	c.answer = completed[any]{ID: f.id + hex.EncodeToString(id[:]), Object: f.whole, Created: time.Now().Unix(), Model: m.Name}
	if talk, ok := in.(*conversation); ok && talk.usesTools() {
		c.tools = m.Generates.Chat.Template
	}
	for i, r := range prompts {
		most := m.Generates.Limits.MaxLength
		r.Number, r.Config = uint64(i), config.WithDefaultLength(len(r.Prompt), most, cmp.Or(f.maxTokens, most))
		c.requests = append(c.requests, r)
	}
	return c, nil
}

// generating returns the model that a request names.
func (s *Server) generating(name string) (*served, error) {
	var all []string
	for _, n := range s.names() {
		if s.models[n].Generates != nil {
			all = append(all, n)
		}
	}
	switch {
	case len(all) == 0:
		return nil, &statusError{http.StatusNotFound, "no model that is served continues texts; expected a run of a causal language model"}
	case name == "" && len(all) == 1:
		name = all[0]
	case !slices.Contains(all, name):
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("model %q is not served for completions; expected one of %s", words.Clip(name, 60), strings.Join(all, ", "))}
	}
	return s.models[name], nil
}

// config returns how tokens are chosen. As in OpenAI's API they are drawn, unless the temperature is 0.
func (in *sampling) config(g *Generates) (generate.Config, error) {
	c := g.Config
	c.TopK, c.DoSample = 0, true
	given(&c.MaxNewTokens, in.MaxTokens)
	given(&c.Temperature, in.Temperature)
	given(&c.TopP, in.TopP)
	given(&c.NumReturnSequences, in.N)
	if in.Seed != nil {
		c.Seed = uint64(*in.Seed)
	}
	given(&c.TopK, in.TopK)
	given(&c.MinP, in.MinP)
	given(&c.RepetitionPenalty, in.RepetitionPenalty)
	given(&c.NoRepeatNgramSize, in.NoRepeatNgramSize)
	given(&c.MinNewTokens, in.MinTokens)
	given(&c.NumBeams, in.NumBeams)
	given(&c.LengthPenalty, in.LengthPenalty)
	given(&c.EarlyStopping, in.EarlyStopping)
	if c.NumBeams > 1 && in.Temperature == nil || c.Temperature == 0 {
		c.DoSample, c.Temperature = false, 1
	}
	stops, err := textsOf(in.Stop)
	if err != nil {
		return c, badf("stop is %.60s; expected a string or a list of strings", in.Stop)
	}
	c.StopStrings = stops
	switch {
	case len(stops) > mostStops:
		return c, badf("stop has %d texts; expected at most %d", len(stops), mostStops)
	case slices.ContainsFunc(stops, func(s string) bool { return len(s) > mostStopBytes }):
		return c, badf("stop has a text of more than %d bytes; expected shorter ones", mostStopBytes)
	case in.MaxTokens != nil && *in.MaxTokens < 1:
		return c, badf("max_tokens is %d; expected 1 or more", *in.MaxTokens)
	case in.Stream && c.NumBeams > 1:
		return c, badf("stream is true and num_beams is %d; expected one of them: the beams of a search may change until it ends", c.NumBeams)
	}
	if err := c.Validate(); err != nil {
		return c, badf("%s", named(err))
	}
	return c, nil
}

// named returns the message of an error with the names that fields have in requests.
func named(err error) string {
	return strings.NewReplacer("max_new_tokens", "max_tokens", "min_new_tokens", "min_tokens", "num_return_sequences", "n").Replace(err.Error())
}

// extra is a field of OpenAI's API that would change the answer, if it is asked for.
type extra struct {
	name  string
	asked bool
}

// common implements body.
func (in *sampling) common() *sampling { return in }

func (in *sampling) extras() []extra {
	return []extra{
		{"frequency_penalty", in.FrequencyPenalty != 0},
		{"presence_penalty", in.PresencePenalty != 0},
		{"logit_bias", len(in.LogitBias) > 0},
	}
}

// extras implements body.
func (in *completion) extras() []extra {
	n := 1
	given(&n, in.N)
	return append(in.sampling.extras(),
		extra{"best_of", in.BestOf != nil && *in.BestOf != n}, extra{"echo", in.Echo},
		extra{"logprobs", in.Logprobs != nil}, extra{"suffix", in.Suffix != ""})
}

// given sets a field that is given.
func given[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// textsOf reads a string or a list of strings.
func textsOf(data json.RawMessage) ([]string, error) {
	var one *string
	if len(data) == 0 {
		return nil, nil
	}
	if json.Unmarshal(data, &one) == nil {
		if one == nil {
			return nil, nil
		}
		return []string{*one}, nil
	}
	var all []string
	return all, json.Unmarshal(data, &all)
}

// prompts implements body: a text, a list of texts, tokens, or lists of tokens.
func (in *completion) prompts(m *served, most int) ([]generate.Request, []int32, error) {
	g := m.Generates
	texts, lists, err := textsOrTokens(in.Prompt, "prompt", most)
	if err != nil {
		return nil, nil, err
	}
	var out []generate.Request
	for _, t := range texts {
		r, cut, err := g.OfText(t)
		switch {
		case err != nil:
			return nil, nil, badf("%v", err)
		case cut:
			return nil, nil, badf("the prompt has more than %d tokens; expected at most as many as the model takes", g.Limits.SourceLength)
		}
		out = append(out, r)
	}
	for _, ids := range lists {
		out = append(out, g.OfTokens(ids))
	}
	return out, g.EOSTokenIDs, nil
}

// textsOrTokens reads a field that is a text, a list of texts, a list of tokens, or a list of these, and has
// at most so many.
func textsOrTokens(data json.RawMessage, field string, most int) (texts []string, lists [][]int32, err error) {
	if texts, err = textsOf(data); err != nil {
		texts = nil // some of a list whose others are no texts
		var ids []int32
		if err = json.Unmarshal(data, &ids); err == nil && len(ids) > 0 {
			lists = [][]int32{ids}
		} else {
			lists = nil
			err = json.Unmarshal(data, &lists)
		}
	}
	switch n := len(texts) + len(lists); {
	case err != nil || n == 0:
		return nil, nil, badf("%s is %.60s; expected a text, a list of texts, a list of tokens, or a list of these", field, data)
	case n > most:
		return nil, nil, badf("the request has %d %ss; expected at most %d", n, field, most)
	}
	return texts, lists, nil
}

// each starts the prompts and calls take with every update, until all are finished or the context ends.
func (c *completing) each(ctx context.Context, take func(prompt int, u generate.Update) error) error {
	g := c.model.generator
	asked, err := g.start(c.requests)
	if err != nil {
		return err
	}
	defer g.cancel(asked)
	for left := len(c.requests); left > 0; {
		updates, err := g.wait(ctx, asked)
		if err != nil {
			return err
		}
		for _, u := range updates {
			switch {
			case errors.Is(u.Err, generate.ErrForbidden):
				return fault.Usagef("%s", named(u.Err))
			case u.Err != nil:
				return u.Err
			}
			if err := take(int(u.ID-asked.first), u); err != nil {
				return err
			}
			if u.Results != nil {
				left--
			}
		}
	}
	return nil
}

// reason returns the finish_reason of OpenAI's API.
func reason(f generate.Finish) *string {
	out := "stop"
	if f == generate.FinishLength {
		out = "length"
	}
	return &out
}

// usage counts the tokens of a request.
func (c *completing) usage(new int) map[string]int {
	prompts := 0
	for _, r := range c.requests {
		ids := r.Prompt
		if r.Source != nil {
			ids = r.Source
		}
		prompts += len(ids)
	}
	return map[string]int{"prompt_tokens": prompts, "completion_tokens": new, "total_tokens": prompts + new}
}

// chosen returns the choice of an answer.
func (c *completing) chosen(text string, index int, finish *string) any {
	if c.tools != nil {
		if before, calls := c.tools.Calls(text); len(calls) > 0 {
			return asks(before, calls, index, c.answer.ID, false, true)
		}
	}
	return c.choice(text, index, finish)
}

// pieced returns the choice of an event of a stream.
func (c *completing) pieced(text string, calls []chat.Call, index int, finish *string, first bool) any {
	if len(calls) > 0 {
		return asks(text, calls, index, c.answer.ID, true, first)
	}
	return c.piece(text, index, finish, first)
}

// whole answers with all completions.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, c *completing) error {
	ctx, cancel := s.until(w, r)
	defer cancel()
	results := make([][]generate.Result, len(c.requests))
	if err := c.each(ctx, func(prompt int, u generate.Update) error {
		results[prompt] = u.Results
		return nil
	}); err != nil {
		return err
	}
	tokens := 0
	for i, of := range results {
		for k, result := range of {
			text, _ := generate.CutStop(c.requests[i].Text(result.IDs), c.stops)
			c.answer.Choices = append(c.answer.Choices, c.chosen(text, i*c.n+k, reason(result.Finish)))
			tokens += len(result.IDs)
		}
	}
	c.answer.Usage = c.usage(tokens)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(c.answer) // the client may be gone
	return nil
}

// streamed answers with server-sent events, one for each piece of text. A client that is gone cannot be
// told of, so that the end of its connection ends the request.
func (s *Server) streamed(w http.ResponseWriter, r *http.Request, c *completing) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
	defer cancel()
	began := false
	send := func(data []byte) error {
		if !began {
			began = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return context.Canceled
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return context.Canceled
		}
		return nil
	}
	pieces := make([]pieces, len(c.requests)*c.n)
	piece := func(index int, text string, calls []chat.Call, finish *string) error {
		if text == "" && finish == nil {
			return nil
		}
		event, first := c.answer, !pieces[index].begun
		event.Choices, pieces[index].begun = []any{c.pieced(text, calls, index, finish, first)}, true
		data, err := json.Marshal(event)
		if err != nil {
			return err
		}
		return send(data)
	}
	c.answer.Object = c.chunk
	tokens := 0
	err := c.each(ctx, func(prompt int, u generate.Update) error {
		for _, t := range u.Tokens {
			at := prompt*c.n + t.Sequence
			if err := piece(at, pieces[at].add(t.ID, c.requests[prompt].Text, c.stops, c.tools), nil, nil); err != nil {
				return err
			}
		}
		for k, result := range u.Results {
			tokens += len(result.IDs)
			at := prompt*c.n + k
			text, calls := pieces[at].end(c.requests[prompt].Text, c.stops, c.tools)
			if err := piece(at, text, calls, reason(result.Finish)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && c.counted {
		event := c.answer
		event.Choices, event.Usage = []any{}, c.usage(tokens)
		data, _ := json.Marshal(event)
		err = send(data)
	}
	if err == nil {
		err = send([]byte("[DONE]"))
	}
	if err == nil || !began {
		return err
	}
	// The status is sent; what is left is to say what happened.
	if errors.Is(err, context.Canceled) {
		c.code = statusClientGone
		return nil
	}
	c.code = http.StatusInternalServerError
	s.Log.Warn("a stream ended early", "model", c.model.Name, "error", err)
	message := "the model failed; see the log of the server"
	switch {
	case fault.Of(err) == fault.Usage:
		c.code, message = http.StatusBadRequest, err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		c.code, message = http.StatusGatewayTimeout, fmt.Sprintf("the answer took more than %v", s.Timeout)
	}
	data, _ := json.Marshal(map[string]string{"error": message})
	_ = send(data) // the client may be gone
	return nil
}

// pieces are the tokens of a sequence, whose text is sent piece by piece.
type pieces struct {
	ids   []int32
	text  *generate.Growing
	sent  string
	begun bool // an event was sent
}

// add adds a token and returns the text that is certain with it: without a character that has more bytes to
// come, without what may be the beginning of a stop string, and without what may ask for a call of a tool.
func (p *pieces) add(id int32, decode func([]int32) string, stops []string, tools *chat.Template) string {
	p.ids = append(p.ids, id)
	if p.text == nil {
		p.text = generate.NewGrowing(decode)
	}
	p.text.Add(id)
	text, stop := generate.CutStop(p.text.Text(), stops)
	if stop == "" {
		text = strings.TrimRight(text, "\ufffd")
		hold := 0
		for _, s := range stops {
			for n := min(len(s)-1, len(text)); n > hold; n-- {
				if strings.HasSuffix(text, s[:n]) {
					hold = n
				}
			}
		}
		text = text[:len(text)-hold]
	}
	if tools != nil {
		text = tools.Certain(text)
	}
	return p.send(text)
}

// end returns the rest of the text, and the calls of tools that follow it.
func (p *pieces) end(decode func([]int32) string, stops []string, tools *chat.Template) (string, []chat.Call) {
	text, _ := generate.CutStop(decode(p.ids), stops)
	var calls []chat.Call
	if tools != nil {
		text, calls = tools.Calls(text)
	}
	return p.send(text), calls
}

// send returns what a text has after what was sent. A tokenizer may read the tokens before in another way
// once others follow; then nothing is sent until the text goes on from what was.
func (p *pieces) send(text string) string {
	rest, ok := strings.CutPrefix(text, p.sent)
	if !ok {
		return ""
	}
	p.sent = text
	return rest
}
