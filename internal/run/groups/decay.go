package groups

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Layers says how layer-wise decay divides the trained variables. With n layers, the head's learning
// rate is that of the run, that of the top layer is decay times as large, and so on down to the
// embeddings, decay to the power of n + 1. If there is no head, the top layer is it.
type Layers struct {
	// Decay is the factor from one layer to that below it.
	Decay float64
	// Layers is the number of layers.
	Layers int
	// Embeddings, Within and Head are the numbers of variables below, in and above the layers.
	Embeddings, Within, Head int
	// Lowest is the smallest factor, that of the embeddings or else of the lowest layer.
	Lowest float64
}

// layerName finds the number of a layer, and what its stack's name begins with.
var layerName = regexp.MustCompile(`^(.*?)(?:^|/)layers/([0-9]+)(?:/|$)`)

// layersOf returns the factor of every variable's learning rate.
func layersOf(c *graphs.Contract, decay float64) (*Layers, map[string]float64, error) {
	if err := params.CheckLayerDecay(decay); err != nil {
		return nil, nil, err
	}
	const embeddings, head = -1, -2
	at := make(map[string]int) // number of the layer
	stacks, numbers := make(map[string]bool), make(map[int]bool)
	l := &Layers{Decay: decay, Lowest: 1}
	for _, v := range c.Variables {
		found := layerName.FindStringSubmatch(v.Name)
		n := 0
		if found != nil {
			var err error
			if n, err = strconv.Atoi(found[2]); err != nil {
				return nil, nil, params.Errorf("optimizer.layer_decay", ": variable %s: number of the layer: %w", v.Name, err)
			}
			stacks[found[1]], numbers[n] = true, true
			l.Within++
		} else if strings.Contains(strings.ToLower(v.Name), "embed") {
			n = embeddings
			l.Embeddings++
		} else {
			n = head
			l.Head++
		}
		at[v.Name] = n
	}
	switch {
	case len(numbers) == 0:
		return nil, nil, params.Errorf("optimizer.layer_decay", "is %v, and no trained variable has layers/NUMBER/ in its name; expected such names, as model/encoder/layers/0/attention/query/kernel; give the layers factors of their own with optimizer.groups", decay)
	case len(stacks) > 1:
		return nil, nil, params.Errorf("optimizer.layer_decay", "is %v, and the variables have several stacks of layers, in %s; expected one; give the layers factors of their own with optimizer.groups",
			decay, strings.Join(slices.Sorted(maps.Keys(stacks)), ", "))
	}
	order := slices.Sorted(maps.Keys(numbers))
	l.Layers = len(order)
	above := l.Layers // the depth of what has a factor of 1
	if l.Head == 0 {
		above--
	}
	factors := make(map[string]float64, len(at))
	for name, n := range at {
		depth := -1
		switch n {
		case head:
			depth = above
		case embeddings:
		default:
			depth = slices.Index(order, n)
		}
		factors[name] = math.Pow(decay, float64(above-depth))
		l.Lowest = min(l.Lowest, factors[name])
	}
	return l, factors, nil
}
