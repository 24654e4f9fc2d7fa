package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// textModel answers with the ids and types of an example, so that a test sees what reached it.
type textModel struct {
	calls chan []text.Encoding // of every call; nil for none
	hold  chan struct{}        // what every call waits for; nil for nothing
}

func (m textModel) Predict(_ context.Context, all []text.Encoding) ([]predict.Result, error) {
	if m.calls != nil {
		m.calls <- all
	}
	if m.hold != nil {
		<-m.hold
	}
	out := make([]predict.Result, len(all))
	for i, e := range all {
		sum := 0
		for k, id := range e.IDs {
			if id == poison {
				return nil, errors.New("a bad token")
			}
			sum += int(id) + 100*int(e.TypeIDs[k])
		}
		p := 1 / float64(sum)
		out[i] = predict.Result{{Shape: []int{2}, Data: []float64{1 - p, p}}}
	}
	return out, nil
}

// Tokens of the vocabulary of tests: [PAD] [UNK] [CLS] [SEP] [MASK] a b c bad.
const poison = 8

func texts(t testing.TB, m predict.Model) Model {
	t.Helper()
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nbad\n"), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	renderer, err := predict.NewRenderer("classification", []predict.OutputSpec{{Name: "probabilities", Kind: predict.Probabilities, Classes: []string{"no", "yes"}}})
	if err != nil {
		t.Fatal(err)
	}
	return Model{Name: "words", Version: 7, Lanes: 1, Renderer: renderer,
		Outputs: []Tensor{{Name: "probabilities", DType: dataset.Float32, Shape: []int64{-1, 2}}},
		Inputs:  []Tensor{{Name: "input_ids", DType: dataset.Int32, Shape: []int64{-1, -1}}},
		Texts:   &Texts{Model: m, Tokenizer: tokenizer, MaxLength: 6}}
}

// numbers answers with the sum and the first value of an example of features.
type numbers struct{}

func (numbers) PredictBatch(_ context.Context, b *dataset.Batch) ([]predict.Result, error) {
	x, y := b.Feature("x"), b.Feature("y")
	out := make([]predict.Result, b.Examples)
	for i := range out {
		sum, each := 0.0, len(x.Float32)/b.Examples
		for _, v := range x.Float32[i*each : (i+1)*each] {
			sum += float64(v)
		}
		out[i] = predict.Result{{Data: []float64{sum}}, {Shape: []int{1, 1}, Data: []float64{float64(y.Int32[i])}}}
	}
	return out, nil
}

func features(t testing.TB) Model {
	t.Helper()
	below := int64(10)
	specs := []dataset.Spec{{Name: "x", DType: dataset.Float32, Shape: []int{-1, 2}}, {Name: "y", DType: dataset.Int32, Below: &below}}
	outputs := []predict.OutputSpec{{Name: "sum", Kind: predict.OneValue}, {Name: "first", Kind: predict.ManyValues}}
	renderer, err := predict.NewRenderer("generic", outputs)
	if err != nil {
		t.Fatal(err)
	}
	return Model{Name: "numbers", Lanes: 2, Renderer: renderer,
		Outputs:  []Tensor{{Name: "sum", DType: dataset.Float32, Shape: []int64{-1}}, {Name: "first", DType: dataset.Int32, Shape: []int64{-1, 1, 1}}},
		Inputs:   []Tensor{{Name: "x", DType: dataset.Float32, Shape: []int64{-1, -1, 2}}, {Name: "y", DType: dataset.Int32, Shape: []int64{-1}}},
		Features: &Features{Model: numbers{}, Layout: dense.Config{Features: specs, Labels: dataset.LabelsNone}, Specs: specs}}
}

// config is that of tests.
func config() Config {
	c := DefaultConfig()
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	return c
}

func start(t testing.TB, c Config, models ...Model) *Server {
	t.Helper()
	s, err := New(models, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ask sends a request and returns the response's status and body.
func ask(h http.Handler, method, path, body string, headers ...string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestResponses has a request of each form, and what is wrong with requests.
func TestResponses(t *testing.T) {
	s := start(t, config(), texts(t, textModel{}), features(t))
	// [CLS] a [SEP] is 2+5+3 = 10, and a pair a, b has 10 + 106 + 103.
	const a, pair = `"label":"no","index":0,"score":0.9,"probabilities":[0.9,0.1]`, `[0.995433789954338,0.0045662100456621]`
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"words:answer", `{"text": "a"}`, 200, `{"model":"words","version":7,"answers":[{` + a + `}]}`},
		{"words/versions/7:answer", `{"texts": ["a", {"text": "A"}]}`, 200, `{"model":"words","version":7,"answers":[{` + a + `},{` + a + `}]}`},
		{"words:predict", `{"instances": ["a"], "signature_name": "serving_default"}`, 200, `{"predictions":[{` + a + `}]}`},
		{"words:predict", `{"instances": [{"text": "a", "pair": "b"}]}`, 200, pair},
		{"words:predict", `{"instances": [{"text": "a", "text_pair": "b"}]}`, 200, pair},
		{"words:predict", `{"inputs": {"text": ["a", "a"], "text_pair": ["b", null]}}`, 200, `"probabilities":[` + pair + `,[0.9,0.1]]`},
		{"words:predict", `{"inputs": ["a", "a a a a a a"]}`, 200, `"truncated":[null,true]`},
		{"words:classify", `{"examples": [{"text": "a"}]}`, 200, `{"results":[[["no",0.9],["yes",0.1]]]}`},
		{"words:predict", `{"instances": [{"input_ids": [2,5,3,0], "attention_mask": [1,1,1,0], "token_type_ids": [0,0,0,0]}]}`, 200, `{"predictions":[[0.9,0.1]]}`},
		{"words:predict", `{"inputs": {"input_ids": [[2,5,3]], "attention_mask": [[1,1,1]], "token_type_ids": [[0,0,0]]}}`, 200, `{"outputs":[[0.9,0.1]]}`},
		{"numbers:answer", `{"examples": [{"x": [[1,2],[3,4.5]], "y": 3}]}`, 200, `{"model":"numbers","version":0,"answers":[{"sum":10.5,"first":[[3]]}]}`},
		{"numbers:predict", `{"instances": [{"x": [[1,2]], "y": 3}, {"x": [[1,2],[3,4]], "y": 9}]}`, 200, `{"predictions":[{"sum":3,"first":[[3]]},{"sum":10,"first":[[9]]}]}`},
		{"numbers:predict", `{"inputs": {"x": [[[1,2]],[[0.25,0]]], "y": [3,4]}}`, 200, `{"outputs":{"sum":[3,0.25],"first":[[[3]],[[4]]]}}`},
		{"numbers:predict", `{"instances": [{"x": {"b64": "AACAPwAAAEA="}, "y": 1}]}`, 200, `{"predictions":[{"sum":3,"first":[[1]]}]}`},
		{"words:classify", `{"examples": [{"input_ids": [2,5,3], "attention_mask": [1,1,1], "token_type_ids": [0,0,0]}]}`, 200, `{"results":[[["no",0.9],["yes",0.1]]]}`},
		{"words:answer", `{"examples": [{"input_ids": [2,5,3], "attention_mask": [1,1,1], "token_type_ids": [0,0,0]}]}`, 200, `"answers":[{` + a + `}]}`},

		{"nothing:predict", `{}`, 404, "model nothing is not served; expected one of numbers, words"},
		{"words/versions/8:predict", `{}`, 404, "version 8 of model words is not served; expected 7"},
		{"words:train", `{}`, 404, `the path ends in \":train\"`},
		{"words:predict", ``, 400, "not a JSON object as expected"},
		{"words:predict", `[]`, 400, `not a JSON object as expected: it is a JSON array"}`},
		{"words:predict", `{"signature_name": 5}`, 400, `expected: \"signature_name\" is a JSON number"}`},
		{"words:predict", `{"signature_name": {}}`, 400, `expected: \"signature_name\" is a JSON object"}`},
		{"words:answer", `{"Text": "a"}`, 200, `"answers":[{` + a + `}]`},
		{"words:answer", `{"Instances": ["a"]}`, 400, `unknown field \"Instances\"`},
		{"words:answer", `"text"`, 400, `or \"examples\": it is a JSON string"}`},
		{"words:predict", `null`, 400, `\"instances\" is missing`},
		{"words:predict", `{"instances": "a"}`, 400, `\"instances\" is \"a\"; expected a list`},
		{"words:predict", `{"instances": []}`, 400, "0 examples given; expected 1 to 1024"},
		{"words:predict", `{"instances": ["a"], "inputs": ["a"]}`, 400, "expected one of them"},
		{"words:predict", `{"instances": ["a"], "signature_name": "other"}`, 400, `signature_name is \"other\"`},
		{"words:predict", `{"instances": [1]}`, 400, "example 1 is 1; expected an object"},
		{"words:predict", `{"instances": [null]}`, 400, "example 1 is null; expected an object"},
		{"words:predict", `{"instances": [{"txt": "a"}]}`, 400, `example 1 has the field \"txt\"; expected \"text\"`},
		{"words:predict", `{"instances": [{"text": null}]}`, 400, `\"text\" is null; expected a text in quotes`},
		{"words:predict", `{"instances": [{"pair": "a"}]}`, 400, `example 1 has no field \"text\"`},
		{"words:predict", "{\"instances\": [\"\xff\"]}", 400, "not valid UTF-8"},
		{"words:predict", `{"inputs": {"text": ["a"], "text_pair": ["a", "b"]}}`, 400, "expected the same number of each"},
		{"words:predict", `{"instances": ["a", {"input_ids": [2], "attention_mask": [1], "token_type_ids": [0]}]}`, 400, "a text and tokens"},
		{"words:predict", `{"instances": [{"input_ids": [9], "attention_mask": [1], "token_type_ids": [0]}]}`, 400, "expected whole numbers from 0 to 8"},
		{"words:predict", `{"instances": [{"input_ids": [2,3], "attention_mask": [1], "token_type_ids": [0]}]}`, 400, "expected the same number of each"},
		{"words:predict", `{"instances": [{"input_ids": [2], "attention_mask": [0], "token_type_ids": [0]}]}`, 400, "has 0 tokens; expected 1 to 6"},
		{"words:regress", `{"examples": [{"text": "a"}]}`, 400, "more than one number; use :predict"},
		{"words:answer", `{"texts": ["a", " \n"]}`, 400, "example 2: the text is empty"},
		{"words:predict", `{"instances": ["", "a"]}`, 400, "example 1: the text is empty"},
		{"words:answer", `{"text": "a", "text_pair": " "}`, 400, "example 1: the second text is empty"},
		{"words:answer", `{"text": "a", "texts": ["a"]}`, 400, "expected one of them"},
		{"words:answer", `{"text": "a", "pear": "b"}`, 400, `unknown field \"pear\"`},
		{"words:answer", `{"text": "a"} {}`, 400, "something after its object"},
		{"words:answer", `{"texts": ["a"]}]`, 400, "something after its object"},
		{"words:predict", `{"instances": [{"text": "a", "pair": "b", "text_pair": "c"}]}`, 400, `example 1 has both \"text_pair\" and \"pair\"; expected one of them`},
		{"words:predict", `{"instances": [{"input_ids": "x", "attention_mask": [1], "token_type_ids": [0]}]}`, 400, `example 1: input_ids has the value \"x\"; expected numbers`},
		{"words:regress", `{"examples": [{"input_ids": [2], "attention_mask": [1], "token_type_ids": [0]}]}`, 400, "more than one number; use :predict"},
		{"numbers:predict", `{"instances": [{"x": [[1,2]]}]}`, 400, `example 1 has no field \"y\"`},
		{"numbers:predict", `{"instances": [{"x": [[1,2],[3]], "y": 1}]}`, 400, "different lengths"},
		{"numbers:predict", `{"instances": [{"x": [1,2], "y": 1}]}`, 400, "has the shape [2]; expected [-1 2]"},
		{"numbers:predict", `{"instances": [{"x": [[1,2,3]], "y": 1}]}`, 400, "has the shape [1 3]; expected [-1 2]"},
		{"numbers:predict", `{"instances": [{"x": [], "y": 1}]}`, 400, "has the shape [0]; expected [-1 2]"},
		{"numbers:predict", `{"instances": [{"x": [[1,"a"]], "y": 1}]}`, 400, `has the value \"a\"]]; expected numbers`},
		{"numbers:predict", `{"instances": [{"x": [[1,1e99]], "y": 1}]}`, 400, "has the value 1e99; expected numbers of float32"},
		{"numbers:predict", `{"instances": [{"x": [[1,2]], "y": 1.5}]}`, 400, "has the value 1.5; expected values of int32"},
		{"numbers:predict", `{"instances": [{"x": [[1,2]], "y": 10}]}`, 400, "example 1: y "},
		{"numbers:predict", `{"instances": [{"x": {"b64": "!"}, "y": 1}]}`, 400, "is not base64"},
		{"numbers:predict", `{"instances": [{"x": {"b64": "AAAA"}, "y": 1}]}`, 400, "example 1: x "},
	} {
		code, body := ask(s, "POST", "/v1/models/"+tt.path, tt.body)
		if code != tt.status || !strings.Contains(body, tt.want) || code != 200 && !strings.HasPrefix(body, `{"error":`) {
			t.Errorf("%s %s: status %d, %s; expected %d, %s", tt.path, tt.body, code, body, tt.status, tt.want)
		}
		if !json.Valid([]byte(body)) {
			t.Errorf("%s %s: the response is not JSON: %s", tt.path, tt.body, body)
		}
	}
}

// TestAbout reads what a server says of itself.
func TestAbout(t *testing.T) {
	c := config()
	c.Tokens = []string{"0123456789abcdef"}
	s := start(t, c, texts(t, textModel{}))
	if err := s.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, want string
		status     int
		headers    []string
	}{
		{"/healthz", "ok", 200, nil},
		{"/readyz", "ok", 200, nil},
		{"/metrics", "Bearer", 401, nil},
		{"/v1/models/words", "Bearer", 401, []string{"Authorization", "Bearer 0123456789abcdeF"}},
		{"/v1/models/words", "Bearer", 401, []string{"Authorization", "Basic 0123456789abcdef"}},
		{"/v1/models", "Bearer", 401, nil},
		{"/v1/models", `"name": "words",
   "state": "AVAILABLE",
   "version": "7"`, 200, []string{"Authorization", "Bearer 0123456789abcdef"}},
		{"/v1/models/words", `"state": "AVAILABLE"`, 200, []string{"Authorization", "Bearer 0123456789abcdef"}},
		{"/v1/models/words/versions/7/metadata", `"dtype": "DT_FLOAT"`, 200, []string{"Authorization", "bearer 0123456789abcdef"}},
		{"/metrics", `gorbit_queue_examples{model="words"} 0`, 200, []string{"Authorization", "Bearer 0123456789abcdef"}},
		{"/nothing", "is not served", 404, nil},
		{"/v1/models/words:predict", "GET /v1/models/words:predict is given; expected POST", 405, []string{"Authorization", "Bearer 0123456789abcdef"}},
	} {
		if code, body := ask(s, "GET", tt.path, "", tt.headers...); code != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: status %d, %s; expected %d, %s", tt.path, code, body, tt.status, tt.want)
		}
	}
	s.Drain()
	if code, _ := ask(s, "GET", "/readyz", ""); code != 503 {
		t.Errorf("a server that stops is ready: status %d", code)
	}
}

// TestLimits sends requests beyond each limit.
func TestLimits(t *testing.T) {
	c := config()
	c.MaxBodyBytes, c.MaxExamples, c.QueueExamples, c.RefuseLong = 100, 2, 2, true
	s := start(t, c, texts(t, textModel{}))
	for body, want := range map[string]int{
		`{"texts": ["a", "b"]}`:                          200,
		`{"texts": ["a", "b", "c"]}`:                     400,
		`{"texts": ["a a a a a"]}`:                       400,
		`{"texts": ["` + strings.Repeat("a", 99) + `"]}`: 413,
		`{"texts": ["bad"]}`:                             500,
	} {
		if code, got := ask(s, "POST", "/v1/models/words:answer", body); code != want {
			t.Errorf("%s: status %d, %s; expected %d", body, code, got, want)
		}
	}
}

// A client that writes a request which is too large, and reads when it has written all, gets the answer.
func TestTooLargeIsAnswered(t *testing.T) {
	c := config()
	c.MaxBodyBytes = 100
	on := httptest.NewServer(start(t, c, texts(t, textModel{})))
	defer on.Close()
	const length = 16 << 20 // more than sockets hold
	for _, head := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n", length), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", length)} {
		client, err := net.Dial("tcp", on.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_, err = client.Write([]byte("POST /v1/models/words:answer HTTP/1.1\r\nHost: x\r\n" + head + strings.Repeat("a", length)))
		if err == nil && strings.Contains(head, "chunked") {
			_, err = client.Write([]byte("\r\n0\r\n\r\n"))
		}
		if err != nil {
			t.Fatalf("the request is not taken: %v", err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || answer.StatusCode != 413 {
			t.Errorf("%v, %v; expected status 413", answer, err)
		}
	}
}

// TestBrokenBodies holds that what is wrong with a body is not taken for a failure of the model.
func TestBrokenBodies(t *testing.T) {
	s := start(t, config(), texts(t, textModel{}))
	for _, tt := range []struct {
		err  error
		want int
	}{{os.ErrDeadlineExceeded, 408}, {errors.New("invalid byte in chunk length"), 400}, {io.ErrUnexpectedEOF, statusClientGone}} {
		r := httptest.NewRequest("POST", "/v1/models/words:predict", iotest.ErrReader(tt.err))
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("%v: status %d, %s; expected %d", tt.err, w.Code, w.Body, tt.want)
		}
	}
	r := httptest.NewRequest("POST", "/v1/models/words:predict", iotest.ErrReader(errors.New("the body is read")))
	r.ContentLength = s.MaxBodyBytes + 1
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too long: status %d, %s", w.Code, w.Body)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"--max-examples is 0":                      func(c *Config) { c.MaxExamples = 0 },
		"--max-bodies is 5; expected 16777216":     func(c *Config) { c.MaxBodiesBytes = 5 },
		"--max-connections is 0; expected 1":       func(c *Config) { c.MaxConnections = 0 },
		"--queue is 1; expected 1024":              func(c *Config) { c.QueueExamples = 1 },
		"a token of --token-file has 3 characters": func(c *Config) { c.Tokens = []string{"abc"} },
		"--batch-delay is -1ns; expected":          func(c *Config) { c.BatchDelay = -1 },
		"--timeout is 0s; expected more than 0":    func(c *Config) { c.Timeout = 0 },
	} {
		c := config()
		change(&c)
		if _, err := New(nil, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	m := texts(t, textModel{})
	if _, err := New([]Model{m, m}, config()); err == nil || !strings.Contains(err.Error(), "two models have the name words") {
		t.Error(err)
	}
	m.Name = "a/b"
	if _, err := New([]Model{m}, config()); err == nil || !strings.Contains(err.Error(), `name is "a/b"`) {
		t.Error(err)
	}
}

// FuzzParse holds that no request makes the parser fail in another way than with an error of the
// client's, and that all examples it accepts can be computed.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a","text_pair":"b"}`, `{"texts":["a",{"text":"b"}]}`, `{"instances":["a"]}`, `{"inputs":{"text":["a"]}}`,
		`{"instances":[{"x":[[1,2]],"y":3}]}`, `{"inputs":{"x":[[[1,2]]],"y":[1]}}`, `{"examples":[{"x":{"b64":"AACAPwAAAEA="},"y":1}]}`,
		`{"instances":[{"input_ids":[2],"attention_mask":[1],"token_type_ids":[0]}]}`, `{"instances":[[[]],[]]}`,
	} {
		for verb := range int(regress) + 1 {
			f.Add([]byte(seed), verb)
		}
	}
	models := []Model{texts(f, textModel{}), features(f)}
	f.Fuzz(func(t *testing.T, body []byte, verb int) {
		for i := range models {
			m := &models[i]
			r, err := m.parse(form(max(0, verb))%(regress+1), body, limits{examples: 16, images: newRoom(1 << 20)})
			if err != nil {
				if known := (*statusError)(nil); !errors.As(err, &known) || known.status != 400 {
					t.Errorf("%q: %v is not an error of the client's", body, err)
				}
				continue
			}
			var batch []item
			for _, e := range r.examples {
				if e.cost < 1 || len(e.encoding.IDs) > 6 {
					t.Errorf("%q: example %+v", body, e)
				}
				if m.Features != nil {
					batch = append(batch[:0], item{example: e})
					if _, err := m.Features.compute(t.Context(), batch); err != nil {
						t.Errorf("%q is accepted but not computed: %v", body, err)
					}
				}
			}
		}
	})
}
