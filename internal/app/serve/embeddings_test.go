package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/train/predict"
)

// embeds is a model whose vectors are (1 - p, p), with p = 1 / (the sum of the tokens).
func embeds(t testing.TB) Model {
	m := texts(t, textModel{})
	renderer, err := predict.NewRenderer("embed", []predict.OutputSpec{{Name: "embedding", Kind: predict.ManyValues}})
	if err != nil {
		t.Fatal(err)
	}
	m.Name, m.Renderer, m.Outputs[0].Name = "vectors", renderer, "embedding"
	return m
}

// TestEmbeddings answers as OpenAI's API does. [CLS] a [SEP] are 2 + 5 + 3.
func TestEmbeddings(t *testing.T) {
	s := start(t, config(), embeds(t), texts(t, textModel{}))
	for _, test := range []struct {
		body, want string
		code       int
	}{
		{`{"input": "a"}`, `{"data":[{"object":"embedding","index":0,"embedding":[0.9,0.1]}],"model":"vectors","object":"list","usage":{"prompt_tokens":3,"total_tokens":3}}`, 200},
		{`{"model": "vectors", "input": ["a", "a b"], "user": "x"}`, `"index":1,"embedding":[0.9375,0.0625]}],"model":"vectors","object":"list","usage":{"prompt_tokens":7,"total_tokens":7}}`, 200},
		{`{"input": [2, 5, 3]}`, `"embedding":[0.9,0.1]`, 200},
		{`{"input": [[2, 5, 3], [2, 5, 6, 3]]}`, `"index":1,"embedding":[0.9375,0.0625]`, 200},
		{`{"input": "a b", "encoding_format": "base64"}`, `"embedding":"AABwPwAAgD0="`, 200},
		{`{"input": "a", "dimensions": 1}`, `"embedding":[1]`, 200},
		{`{"input": "a", "dimensions": 2}`, `"embedding":[0.9,0.1]`, 200},
		{`{"input": "a", "dimensions": 3}`, "dimensions is 3; expected at most 2", 400},
		{`{"input": "a", "dimensions": 0}`, "dimensions is 0; expected 1 or more", 400},
		{`{"input": ["a", ""]}`, "input 2: the text is empty", 400},
		{`{"input": "a a a a a"}`, "input 1 has more than 6 tokens", 400},
		{`{"input": [[]]}`, "input 1 has 0 tokens", 400},
		{`{"input": [9]}`, "one that is not below 9", 400},
		{`{"input": []}`, "input is []; expected a text", 400},
		{`{}`, "expected a text, a list of texts", 400},
		{`{"input": "a", "dimensions": "2"}`, `\"dimensions\" is a JSON string; expected a whole number`, 400},
		{`{"input": "a"`, "unexpected end of JSON input", 400},
		{`{"input": "a", "stream": true}`, "unknown field", 400},
		{`{"model": "words", "input": "a"}`, `model \"words\" is not served for embeddings; expected one of vectors`, 404},
		{`{"input": "bad"}`, "the model failed", 500},
	} {
		if code, body := ask(s, "POST", "/v1/embeddings", test.body); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s; expected %d %s", test.body, code, body, test.code, test.want)
		}
	}
	if code, body := ask(start(t, config(), texts(t, textModel{})), "POST", "/v1/embeddings", `{"input": "a"}`); code != 404 || !strings.Contains(body, "expected a run of task embed") {
		t.Errorf("without such a model: %d %s", code, body)
	}
	if code, body := ask(s, "POST", "/v1/models/vectors:answer", `{"text": "a", "text_pair": "b"}`); code != 400 || !strings.Contains(body, "a pair is given") {
		t.Errorf("a pair: %d %s", code, body)
	}
}

func FuzzEmbeddings(f *testing.F) {
	f.Add(`{"input": ["a", "b c"], "dimensions": 1, "encoding_format": "base64"}`)
	f.Add(`{"input": [[2, 5], [6]], "model": "vectors"}`)
	s := start(f, config(), embeds(f))
	f.Fuzz(func(t *testing.T, body string) {
		if code, answer := ask(s, "POST", "/v1/embeddings", body); !json.Valid([]byte(answer)) {
			t.Errorf("%q: %d %s", body, code, answer)
		}
	})
}
