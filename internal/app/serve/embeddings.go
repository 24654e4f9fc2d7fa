package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// embedding is the body of POST /v1/embeddings, as OpenAI's API has it.
type embedding struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format"`
	Dimensions     *int            `json:"dimensions"`
	User           string          `json:"user"` // of no meaning here
}

// embedded is the vector of a text in a response: a list of numbers, or text of their bytes.
type embedded struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

// embed answers POST /v1/embeddings.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	start, held := time.Now(), int64(0)
	defer func() { s.bodies.give(held) }()
	data, err := s.body(w, r, &held)
	m := &served{}
	var body []byte
	if err == nil {
		ctx, cancel := s.until(w, r)
		defer cancel()
		body, err = s.embeddings(ctx, w, &m, data)
	}
	code := http.StatusOK
	if err != nil {
		unread := errors.Is(err, errBusy) || errors.As(err, new(*http.MaxBytesError))
		if unread {
			w.Header().Set("Connection", "close")
		}
		if code = s.failed(w, m, err); unread {
			discard(w, r)
		}
	} else {
		w.Header().Set("Content-Type", "application/json")
		w.Write(body) // the client may be gone
	}
	if m.Name != "" {
		s.metrics.answered(m.Name, "embeddings", code, time.Since(start))
	}
}

// embeddings returns the body of a response. It sets the model that the request names.
func (s *Server) embeddings(ctx context.Context, w http.ResponseWriter, of **served, data []byte) ([]byte, error) {
	done, err := s.turn(ctx, data)
	if err != nil {
		return nil, err
	}
	in, examples, err := s.parseEmbedding(of, data)
	done()
	if err != nil {
		return nil, err
	}
	m := *of
	if l, ok := w.(*logged); ok {
		l.examples = len(examples)
	}
	results, err := m.batcher.answer(ctx, examples)
	if err != nil {
		return nil, err
	}
	all, tokens := make([]embedded, len(examples)), 0
	for i, r := range results {
		v, err := in.vector(r)
		if err != nil {
			return nil, err
		}
		all[i], tokens = embedded{"embedding", i, v}, tokens+len(examples[i].encoding.IDs)
	}
	s.metrics.examples.WithLabelValues(m.Name).Add(float64(len(examples)))
	return json.Marshal(map[string]any{"object": "list", "data": all, "model": m.Name, "usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
}

// parseEmbedding checks a body. A field that is not known is refused: it would change the answer.
func (s *Server) parseEmbedding(of **served, data []byte) (in embedding, examples []example, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, nil, badBody(err)
	}
	m, err := s.embedding(in.Model)
	if err != nil {
		return in, nil, err
	}
	*of = m
	switch {
	case in.EncodingFormat != "" && in.EncodingFormat != "float" && in.EncodingFormat != "base64":
		return in, nil, badf("encoding_format is %.60q; expected float or base64", in.EncodingFormat)
	case in.Dimensions != nil && *in.Dimensions < 1:
		return in, nil, badf("dimensions is %d; expected 1 or more", *in.Dimensions)
	}
	texts, lists, err := textsOrTokens(in.Input, "input", s.MaxExamples)
	if err != nil {
		return in, nil, err
	}
	t, pairs := m.Texts, make([]text.Pair, len(texts))
	for i, one := range texts {
		pairs[i].A = one
		if reason := predict.Refused(m.Renderer, t.Tokenizer, pairs[i]); reason != "" {
			return in, nil, badf("input %d: %s", i+1, reason)
		}
	}
	all := predict.Encode(m.Renderer, t.Tokenizer, pairs, t.MaxLength)
	for i, ids := range lists {
		if wrong := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= t.Tokenizer.Vocab().Size() }); wrong >= 0 || len(ids) == 0 {
			return in, nil, badf("input %d has %d tokens, or one that is not below %d; expected tokens of the vocabulary, the special ones included", i+1, len(ids), t.Tokenizer.Vocab().Size())
		}
		all = append(all, text.Encoding{IDs: ids, TypeIDs: make([]int32, len(ids)), Truncated: len(ids) > t.MaxLength})
	}
	for i, e := range all {
		if e.Truncated {
			return in, nil, badf("input %d has more than %d tokens; expected at most as many as the model takes", i+1, t.MaxLength)
		}
		examples = append(examples, t.example(e, nil))
	}
	return in, examples, nil
}

// embedding returns the model that a request names.
func (s *Server) embedding(name string) (*served, error) {
	all := slices.DeleteFunc(s.names(), func(n string) bool { return s.models[n].Texts == nil || !predict.Embeds(s.models[n].Renderer) })
	switch {
	case len(all) == 0:
		return nil, &statusError{http.StatusNotFound, "no model that is served makes vectors of texts; expected a run of task embed"}
	case name == "" && len(all) == 1:
		name = all[0]
	case !slices.Contains(all, name):
		return nil, &statusError{http.StatusNotFound, fmt.Sprintf("model %q is not served for embeddings; expected one of %s", words.Clip(name, 60), strings.Join(all, ", "))}
	}
	return s.models[name], nil
}

// vector returns the vector of a text as the request asks for it. The first numbers of a longer one get the
// length 1.
func (in *embedding) vector(r predict.Result) (any, error) {
	if len(r) != 1 || len(r[0].Data) == 0 {
		return nil, fmt.Errorf("the model returned %d outputs; expected a vector", len(r))
	}
	v := r[0].Data
	if n := in.Dimensions; n != nil && *n != len(v) {
		if *n > len(v) {
			return nil, badf("dimensions is %d; expected at most %d, those of the model", *n, len(v))
		}
		squares := 0.0
		for _, x := range v[:*n] {
			squares += x * x
		}
		length := math.Max(math.Sqrt(squares), 1e-12)
		v = slices.Clone(v[:*n])
		for i := range v {
			v[i] /= length
		}
	}
	numbers := make([]float32, len(v)) // as models compute them
	for i, x := range v {
		if numbers[i] = float32(x); math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("the model returned %v as number %d of a vector; expected finite numbers", x, i)
		}
	}
	if in.EncodingFormat != "base64" {
		return numbers, nil
	}
	raw, err := binary.Append(nil, binary.LittleEndian, numbers)
	return base64.StdEncoding.EncodeToString(raw), err
}
