package graphs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// Generation describes how a model makes tokens one after the other, by the function generate.
type Generation struct {
	// MaxLength is the most tokens of a sequence, and VocabSize the number of logits.
	MaxLength int `json:"max_length"`
	VocabSize int `json:"vocab_size"`
	// Caches are the variables that hold what the model keeps of each token.
	Caches []Cache `json:"caches"`
}

// Cache is a variable that a program makes for generation: an entry for each slot.
type Cache struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"` // float32, bfloat16 or float16
	Shape []int64 `json:"shape"` // of an entry
}

// Argument returns the argument of the function generate that takes the handle of the cache.
func (c Cache) Argument() string { return "cache_" + strings.ReplaceAll(c.Name, "/", "_") }

// SlotBytes returns the size in bytes of what the caches hold of a token.
func (g *Generation) SlotBytes() int64 {
	n := int64(0)
	for _, c := range g.Caches {
		n += elements(c.Shape) * dtype.Of(c.DType).Size()
	}
	return n
}

// maxCaches limits the caches, so that the size of a slot does not overflow.
const maxCaches = 1 << 10

// Arguments of the function generate that are no caches, and its output.
const (
	GenerateInputIDs    = "input_ids"
	GeneratePositionIDs = "position_ids"
	GenerateSlots       = "slots"
	GenerateContext     = "context"
	GenerateLast        = "last"
	GenerateLogits      = "logits"
)

func (c *Contract) checkGeneration() error {
	g := c.Generation
	if g == nil {
		return nil
	}
	switch {
	case g.MaxLength < 2 || g.MaxLength > math.MaxInt32:
		return fmt.Errorf("generation has max_length %d; expected 2 to %d", g.MaxLength, math.MaxInt32)
	case g.VocabSize < 1 || g.VocabSize > math.MaxInt32:
		return fmt.Errorf("generation has vocab_size %d; expected 1 to %d", g.VocabSize, math.MaxInt32)
	case len(g.Caches) == 0:
		return errors.New("generation has no caches; expected one or more")
	case len(g.Caches) > maxCaches:
		return fmt.Errorf("generation has %d caches; expected at most %d", len(g.Caches), maxCaches)
	}
	seen := make(map[string]bool)
	for _, cache := range g.Caches {
		if len(cache.Name) > maxName || !argName.MatchString(cache.Argument()) || cache.Name == "" || seen[cache.Argument()] {
			return fmt.Errorf("cache %.64q has no valid name or is declared twice; expected letters, digits, _ and /", cache.Name)
		}
		seen[cache.Argument()] = true
		switch dtype.Of(cache.DType) {
		case dtype.Float32, dtype.Bfloat16, dtype.Float16:
		default:
			return fmt.Errorf("cache %s has dtype %.32q; expected float32, bfloat16 or float16", cache.Name, cache.DType)
		}
		if err := checkShape("cache "+cache.Name, cache.Shape); err != nil {
			return err
		}
	}
	return nil
}

// wantGenerate returns what the function generate must take and give, if there is one.
func (c *Contract) wantGenerate() []want {
	if c.Generation == nil {
		return nil
	}
	w := want{name: "generate"}
	for _, name := range []string{GenerateInputIDs, GeneratePositionIDs, GenerateSlots, GenerateContext} {
		w.inputs = append(w.inputs, Arg{Name: name, DType: dtpb.DataType_DT_INT32, Shape: []int64{open, open}, Ranked: true})
	}
	w.inputs = append(w.inputs, Arg{Name: GenerateLast, DType: dtpb.DataType_DT_INT32, Shape: []int64{open}, Ranked: true})
	for _, cache := range c.Generation.Caches {
		w.inputs = append(w.inputs, scalar(cache.Argument(), dtpb.DataType_DT_RESOURCE))
	}
	logits := Arg{Name: GenerateLogits, DType: dtpb.DataType_DT_FLOAT, Shape: []int64{open, int64(c.Generation.VocabSize)}, Ranked: true}
	w.outputs = []Arg{logits}
	return []want{w}
}

// checkGenerate checks that the axes of the arguments of the function generate are open.
func (e *Export) checkGenerate() error {
	f := e.Functions["generate"]
	if f == nil {
		return nil
	}
	for _, a := range f.Inputs {
		if slices.ContainsFunc(a.Shape, func(d int64) bool { return d != open }) {
			return fmt.Errorf("function generate: input %s: the graph has %s; expected open axes", a.Name, a)
		}
	}
	return nil
}
