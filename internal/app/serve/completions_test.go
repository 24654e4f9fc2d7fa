package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// counts is a model whose next token is the one after the last, and [SEP] after c.
type counts struct {
	hold chan struct{} // what every call waits for; nil for nothing
	rows chan int      // of every call; nil for none
}

func (m counts) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	if m.rows != nil {
		m.rows <- b.Rows
	}
	if m.hold != nil {
		<-m.hold
	}
	const vocab = 9
	logits := make([]float32, b.Rows*vocab)
	for row := range b.Rows {
		next := b.InputIDs[row*b.Tokens+int(b.Last[row])] + 1
		switch next {
		case poison:
			next = 3 // [SEP]
		case poison + 1:
			return nil, errors.New("a bad token")
		}
		logits[row*vocab+int(next)] = 100
	}
	return logits, nil
}

// continues returns a model that continues texts.
func continues(t testing.TB, m generate.Model) Model {
	out := texts(t, textModel{})
	g := predict.Generation{Config: generate.Default(), Limits: generate.Limits{VocabSize: 9, MaxLength: 12, Slots: 60, Rows: 4}, Tokenizer: out.Texts.Tokenizer}
	g.EOSTokenIDs = []int32{3}
	out.Generates = &Generates{g, m}
	return out
}

// TestCompletions asks for completions, whole and as streams.
func TestCompletions(t *testing.T) {
	s := start(t, config(), continues(t, counts{}), features(t))
	for _, tt := range []struct{ body, want string }{
		{`{"model": "words", "prompt": "a"}`, "0  b c stop | 2 3 5"},
		{`{"prompt": "a", "temperature": 0, "user": "me"}`, "0  b c stop | 2 3 5"},
		{`{"prompt": [2, 6]}`, "0  c stop | 2 2 4"},
		{`{"prompt": [[2, 6], [2, 5]], "seed": 4}`, "0  c stop, 1  b c stop | 4 5 9"},
		{`{"prompt": ["a", "b"], "n": 2}`, "0  b c stop, 1  b c stop, 2  c stop, 3  c stop | 4 10 14"},
		{`{"prompt": "a", "max_tokens": 1}`, "0  b length | 2 1 3"},
		{`{"prompt": "a", "stop": "c"}`, "0  b  stop | 2 2 4"},
		{`{"prompt": "a", "stop": ["x", "b c"]}`, "0   stop | 2 2 4"},
		{`{"prompt": "a", "seed": -1, "frequency_penalty": 0, "presence_penalty": 0.0, "best_of": 1, "echo": false, "logprobs": null, "suffix": null, "logit_bias": {}, "stream_options": null}`, "0  b c stop | 2 3 5"},
		{`{"prompt": "a", "num_beams": 2}`, "0  b c stop | 2 3 5"},
		{`{"prompt": "a", "num_beams": 2, "early_stopping": true}`, "0  b c stop | 2 3 5"},
		{`{"prompt": "a", "num_beams": 2, "early_stopping": "never"}`, "0  b c stop | 2 3 5"},
	} {
		code, body := ask(s, "POST", "/v1/completions", tt.body)
		var c completed[choice]
		if err := json.Unmarshal([]byte(body), &c); err != nil || code != http.StatusOK || c.Model != "words" || c.Object != "text_completion" || !strings.HasPrefix(c.ID, "cmpl-") {
			t.Fatalf("%s: %d %s", tt.body, code, body)
		}
		var parts []string
		for _, o := range c.Choices {
			parts = append(parts, fmt.Sprint(o.Index, " ", o.Text, " ", *o.FinishReason))
		}
		got := fmt.Sprint(strings.Join(parts, ", "), " | ", c.Usage["prompt_tokens"], " ", c.Usage["completion_tokens"], " ", c.Usage["total_tokens"])
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.body, got, tt.want)
		}
		if strings.Contains(tt.body, "beams") {
			continue
		}
		streamed := make([]choice, len(c.Choices))
		code, body = ask(s, "POST", "/v1/completions", strings.Replace(tt.body, "{", `{"stream": true, `, 1))
		if code != http.StatusOK || !strings.HasSuffix(body, "data: [DONE]") {
			t.Fatalf("%s as a stream: %d %s", tt.body, code, body)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(body, "data: [DONE]"), "\n") {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var event completed[choice]
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatalf("%s as a stream: %q: %v", tt.body, data, err)
			}
			for _, o := range event.Choices {
				streamed[o.Index].Text += o.Text
				streamed[o.Index].FinishReason = o.FinishReason
			}
		}
		for i, o := range c.Choices {
			if streamed[i].Text != o.Text || streamed[i].FinishReason == nil || *streamed[i].FinishReason != *o.FinishReason {
				t.Errorf("%s: choice %d is %+v as a stream; expected %q, %s", tt.body, i, streamed[i], o.Text, *o.FinishReason)
			}
		}
	}
}

// TestCompletionsRefuse has what is wrong with requests.
func TestCompletionsRefuse(t *testing.T) {
	limited := config()
	limited.MaxExamples = 256
	s := start(t, limited, continues(t, counts{}))
	for _, tt := range []struct {
		body, want string
		code       int
	}{
		{`{`, "unexpected end of JSON input", 400},
		{`{"prompt": "a", "logprobs": 3}`, "logprobs asks for what is not served here", 400},
		{`{"prompt": "a", "best_of": 2}`, "best_of asks for what is not served here", 400},
		{`{"prompt": "a", "logit_bias": {"5": 1}}`, "logit_bias asks for", 400},
		{`{"prompt": "a", "max_tokens": "two"}`, `{"error":"\"max_tokens\" is a JSON string; expected a whole number"}`, 400},
		{`{"prompt": "a", "max_tokens": 1.5}`, `\"max_tokens\" is a JSON number 1.5; expected a whole number`, 400},
		{`{"prompt": "a", "temperature": "hot"}`, `\"temperature\" is a JSON string; expected a number`, 400},
		{`{"prompt": "a", "stream": 1}`, `\"stream\" is a JSON number; expected true or false`, 400},
		{`{"prompt": "a", "stream_options": []}`, `\"stream_options\" is a JSON array; expected an object`, 400},
		{`["a"]`, `the body is a JSON array; expected an object`, 400},
		{`{"prompt": "a"`, `the body is not what is expected: unexpected end of JSON input;`, 400},
		{`{"prompt": "a", "tools": []}`, `unknown field \"tools\"`, 400},
		{`{"prompt": "a", "max_tokens": 2, "min_tokens": 3}`, "min_tokens is 3; expected at most max_tokens, which is 2", 400},
		{`{"prompt": [8, 2, 5, 6, 7], "temperature": 0, "no_repeat_ngram_size": 1, "min_tokens": 7}`, "no token may follow: all are forbidden", 400},
		{`{"prompt": 3}`, "prompt is 3; expected a text, a list of texts", 400},
		{`{}`, "prompt is ; expected", 400},
		{`{"prompt": [9]}`, "the prompt has token 9; expected 0 to 8", 400},
		{`{"prompt": [[]]}`, "the prompt has no tokens", 400},
		{`{"prompt": "a a a a a a a a a a a"}`, "the prompt has 12 tokens; expected less than the 12", 400},
		{`{"prompt": "a", "max_tokens": 0}`, "max_tokens is 0; expected 1 or more", 400},
		{`{"prompt": "a", "max_tokens": 11}`, "max_tokens is 11 after a prompt of 2 tokens; expected at most 10", 400},
		{`{"prompt": "a", "temperature": -1}`, "temperature is -1; expected more than 0", 400},
		{`{"prompt": "a", "top_p": 2}`, "top_p is 2; expected 0 to 1", 400},
		{`{"prompt": "a", "stop": 3}`, "stop is 3; expected a string", 400},
		{`{"prompt": "a", "stop": ["` + strings.Repeat(`x", "`, 16) + `"]}`, "stop has 17 texts; expected at most 16", 400},
		{`{"prompt": "a", "stop": "` + strings.Repeat("x", 1025) + `"}`, "stop has a text of more than 1024 bytes", 400},
		{`{"prompt": [` + strings.Repeat(`"a", `, 256) + `"a"]}`, "the request has 257 prompts; expected at most 256", 400},
		{`{"prompt": "` + strings.Repeat("a ", 10_000) + `"}`, "the prompt has 10001 tokens; expected less than the 12", 400},
		{`{"prompt": "a", "n": 5}`, "has 5 sequences at once; expected at most 4", 400},
		{`{"prompt": "a", "n": 2, "temperature": 0}`, "n is 2 without sampling", 400},
		{`{"prompt": "a", "num_beams": 2, "early_stopping": "soon"}`, `early_stopping is \"soon\"; expected true, false or never`, 400},
		{`{"prompt": "a", "num_beams": 2, "stream": true}`, "stream is true and num_beams is 2; expected one of them", 400},
		{`{"prompt": "a", "model": "numbers"}`, `model \"numbers\" is not served for completions; expected one of words`, 404},
		{`{"prompt": [8]}`, "the model failed; see the log of the server", 500},
		{`{"prompt": [8], "stream": true}`, "the model failed; see the log of the server", 500},
	} {
		if code, body := ask(s, "POST", "/v1/completions", tt.body); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s; expected %d %s", tt.body, code, body, tt.code, tt.want)
		}
	}
	if code, body := ask(start(t, config(), features(t)), "POST", "/v1/completions", `{"prompt": "a"}`); code != 404 || !strings.Contains(body, "no model that is served continues texts") {
		t.Errorf("without such a model: %d %s", code, body)
	}
}

// TestWarmGenerates checks that a model which cannot continue texts is found before the first request.
func TestWarmGenerates(t *testing.T) {
	calls := new(int)
	s := start(t, config(), continues(t, fails{calls: calls, err: errors.New("no memory")}))
	if err := s.Warm(t.Context()); err == nil || !strings.Contains(err.Error(), "model words: its first call failed: no memory") {
		t.Errorf("got %v", err)
	}
	if err := s.Warm(t.Context()); err != nil || *calls != 3 {
		t.Errorf("got %v after %d calls; expected 3", err, *calls)
	}
}

// TestStreamedUsage checks that the last event of a stream has the usage if it is asked for.
func TestStreamedUsage(t *testing.T) {
	s := start(t, config(), continues(t, counts{}))
	code, body := ask(s, "POST", "/v1/completions", `{"prompt": "a", "stream": true, "stream_options": {"include_usage": true}}`)
	if code != 200 || !strings.HasSuffix(body, `"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":2,"total_tokens":5}}`+"\n\ndata: [DONE]") {
		t.Errorf("%d %s", code, body)
	}
}

// TestCompletionsShareCalls checks that a request enters the calls of another that is in progress, and that
// the queue is bounded.
func TestCompletionsShareCalls(t *testing.T) {
	m := counts{hold: make(chan struct{}), rows: make(chan int)}
	c := config()
	c.MaxExamples, c.QueueExamples = 1, 2
	s := start(t, c, continues(t, m))
	answers := make(chan string, 2)
	asking := func() {
		code, body := ask(s, "POST", "/v1/completions", `{"prompt": "a"}`)
		answers <- fmt.Sprint(code, " ", body)
	}
	go asking()
	if n := <-m.rows; n != 1 {
		t.Errorf("the first call has %d rows; expected 1", n)
	}
	go asking()
	for s.models["words"].generator.waiting() == 0 { // until it has come
		time.Sleep(time.Millisecond)
	}
	if code, body := ask(s, "POST", "/v1/completions", `{"prompt": "a"}`); code != 503 || !strings.Contains(body, "the queue is full") {
		t.Errorf("a request too many: %d %s", code, body)
	}
	var rows []int
	m.hold <- struct{}{}
	for len(rows) < 3 {
		rows = append(rows, <-m.rows)
		m.hold <- struct{}{}
	}
	// The second prompt, and then both.
	if fmt.Sprint(rows) != "[1 2 2]" {
		t.Errorf("calls have %v rows; expected 1, 2 and 2", rows)
	}
	for range 2 {
		if a := <-answers; !strings.HasPrefix(a, "200 ") || !strings.Contains(a, `" b c"`) {
			t.Errorf("an answer is %s", a)
		}
	}
}

// TestCompletionsEndWithTheClient checks that nothing is computed for a client that has left a stream.
func TestCompletionsEndWithTheClient(t *testing.T) {
	m := counts{hold: make(chan struct{}), rows: make(chan int)}
	s := start(t, config(), continues(t, m))
	server := httptest.NewServer(s)
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/completions", strings.NewReader(`{"prompt": "a", "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-m.rows
		m.hold <- struct{}{}
		<-m.rows // the second call
	}()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"text":" b"`) {
		t.Fatalf("the first event is %q, %v", line, err)
	}
	leave()
	g := s.models["words"].generator
	for left := 1; left > 0; {
		g.mu.Lock()
		left = len(g.asked)
		g.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	m.hold <- struct{}{}
	g.close() // there is no third call, for which the model would wait
}

// fails is counts, but the first call ends with an error or with too few logits.
type fails struct {
	counts
	calls *int
	err   error
}

func (m fails) Compute(ctx context.Context, b *generate.Batch) ([]float32, error) {
	if *m.calls++; *m.calls == 1 {
		return nil, m.err
	}
	return m.counts.Compute(ctx, b)
}

// TestCompletionsFailInAPart checks that a prompt is given up if the model fails at a part of it, and that the
// next one is answered.
func TestCompletionsFailInAPart(t *testing.T) {
	for _, failure := range []error{errors.New("no memory"), nil} {
		m := continues(t, fails{calls: new(int), err: failure})
		m.Generates.Limits.PromptTokens = 2
		s := start(t, config(), m)
		if code, body := ask(s, "POST", "/v1/completions", `{"prompt": "a b a b a"}`); code != 500 {
			t.Errorf("the first part fails with %v: %d %s", failure, code, body)
		}
		if code, body := ask(s, "POST", "/v1/completions", `{"prompt": "a b a b a"}`); code != 200 || !strings.Contains(body, `" b c"`) {
			t.Errorf("after a failure: %d %s", code, body)
		}
	}
}

func FuzzCompletions(f *testing.F) {
	f.Add(`{"prompt": "a", "max_tokens": 3, "stop": ["b"], "n": 2, "seed": 1}`)
	f.Add(`{"prompt": [[2, 5], [6]], "temperature": 0, "num_beams": 2, "length_penalty": 2}`)
	f.Add(`{"prompt": null, "top_p": 0.5, "top_k": 3, "repetition_penalty": 1e-300}`)
	s := start(f, config(), continues(f, counts{}))
	f.Fuzz(func(t *testing.T, body string) {
		if code, answer := ask(s, "POST", "/v1/completions", body); !json.Valid([]byte(answer)) && code != http.StatusOK {
			t.Errorf("%q: %d %s", body, code, answer)
		}
	})
}

// TestPieces checks that text is sent once it is certain.
func TestPieces(t *testing.T) {
	decode := func(ids []int32) string { // bytes
		b := make([]byte, len(ids))
		for i, id := range ids {
			b[i] = byte(id)
		}
		return strings.ToValidUTF8(string(b), "\ufffd")
	}
	var p pieces
	var got []string
	end := func(stops ...string) string {
		text, _ := p.end(decode, stops, nil)
		return text
	}
	for _, b := range []byte("né <end>x") {
		got = append(got, p.add(int32(b), decode, []string{"<end>", "<x>"}, nil))
	}
	got = append(got, end("<end>", "<x>"))
	if want := `["n" "" "é" " " "" "" "" "" "" "" ""]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("pieces %q; expected %s", got, want)
	}
	p = pieces{}
	got = nil
	for _, b := range []byte("a<e") {
		got = append(got, p.add(int32(b), decode, []string{"<end>"}, nil))
	}
	if got = append(got, end("<end>")); fmt.Sprintf("%q", got) != `["a" "" "" "<e"]` {
		t.Errorf("pieces %q; expected a held beginning at the end", got)
	}
}

// copies is a model whose texts are their sources.
type copies map[int32]int32 // the tokens of sources, by slot

func (m copies) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	if e := b.Encode; e != nil {
		for i, slot := range e.Slots {
			m[slot] = e.InputIDs[i]
		}
	}
	const vocab = 9
	logits := make([]float32, b.Rows*vocab)
	for row := range b.Rows {
		place := int(b.PositionIDs[row*b.Tokens+int(b.Last[row])]) + 1
		if place < b.Source {
			logits[row*vocab+int(m[b.SourceOf(row)[place]])] = 100
		}
	}
	return logits, nil
}

// TestSources asks for texts of sources.
func TestSources(t *testing.T) {
	m := continues(t, make(copies))
	m.Generates.Limits.SourceLength, m.Generates.Limits.SourceSlots = 6, 24
	s := start(t, config(), m)
	if err := s.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, body, want string
		code             int
	}{
		{"/v1/completions", `{"prompt": ["b a", "c"], "n": 2}`, `"usage":{"completion_tokens":10,"prompt_tokens":7,"total_tokens":17}`, 200},
		{"/v1/completions", `{"prompt": "b a", "temperature": 0}`, `{"text":"b a","index":0,"logprobs":null,"finish_reason":"stop"}`, 200},
		{"/v1/completions", `{"prompt": [2, 5, 3], "temperature": 0}`, `{"text":"a","index":0,"logprobs":null,"finish_reason":"stop"}`, 200},
		{"/v1/completions", `{"prompt": "b a", "temperature": 0, "stream": true}`, "data: [DONE]", 200},
		{"/v1/completions", `{"prompt": "a a a a a a a"}`, "the prompt has more than 6 tokens; expected at most as many as the model takes", 400},
		{"/v1/completions", `{"prompt": [[]]}`, "the source has no tokens", 400},
		{"/v1/models/words:predict", `{"instances": [{"text": "a"}]}`, "model words makes texts of sources; expected POST /v1/completions", 400},
	} {
		if code, body := ask(s, "POST", tt.path, tt.body); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s; expected %d %s", tt.path, tt.body, code, body, tt.code, tt.want)
		}
	}
}
