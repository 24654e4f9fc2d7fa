package predict

import "fmt"

// embedding is the output of a model that makes a vector of a text.
const embedding = "embedding"

// embedder is the Renderer of models that make a vector of a text.
type embedder struct{ byKind }

func newEmbedder(outputs []OutputSpec) (Renderer, error) {
	if len(outputs) != 1 || outputs[0].Name != embedding || outputs[0].Kind != ManyValues {
		return nil, fmt.Errorf("the model has the outputs %v; expected %s alone, a vector", outputs, embedding)
	}
	return embedder{newByKind(outputs)}, nil
}

// Embeds reports whether a Renderer is that of a model that makes a vector of a text, its only output.
func Embeds(r Renderer) bool {
	_, ok := r.(embedder)
	return ok
}
