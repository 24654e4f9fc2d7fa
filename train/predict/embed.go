package predict

import (
	"encoding/json"
	"fmt"
)

// embedding is the output of a model that makes a vector of a text.
const embedding = "embedding"

// embedder is the Renderer of models that make a vector of a text.
type embedder struct{ byKind }

func newEmbedder(outputs []OutputSpec) (Renderer, error) {
	if len(outputs) != 1 || outputs[0].Name != embedding || outputs[0].Kind != ManyValues {
		return nil, fmt.Errorf("the model has the outputs %v; expected %s alone, a vector", outputs, embedding)
	}
	return embedder{byKind{outputs, -1, -1}}, nil
}

// Render implements Renderer. The vector is a list in JSON, also after the columns of a table.
func (embedder) Render(e Example, r Result) (Answer, error) {
	if len(r) != 1 || len(r[0].Data) == 0 {
		return nil, fmt.Errorf("the model returned %d outputs; expected a vector", len(r))
	}
	vector := make([]float32, len(r[0].Data)) // as models compute them, in fewer digits
	for i, v := range r[0].Data {
		vector[i] = float32(v)
	}
	text, err := json.Marshal(vector)
	if err != nil {
		return nil, fmt.Errorf("the model returned a vector that is not finite: %w", err)
	}
	return &Fields{
		fields:    []Field{{Name: embedding, Value: vector}},
		columns:   []Field{{Name: embedding, Value: listed{vector, string(text)}}},
		truncated: e.Encoding.Truncated, text: e.Text != nil,
	}, nil
}

// Embeds reports whether a Renderer is that of a model that makes a vector of a text, its only output.
func Embeds(r Renderer) bool {
	_, ok := r.(embedder)
	return ok
}
