package train

import (
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
)

// use is the purpose for which a split is opened.
type use int

const (
	toTrain use = iota
	toEvaluate
	toPredict // labels are not read
)

// layoutFor returns how examples become batches of a graph, within the graph's limits on records.
func (p Params) layoutFor(c *graphs.Contract, use use) dataset.Layout {
	return p.packedFor(c, use)
}

// packedFor returns how tokens are packed into rows for a graph.
func (p Params) packedFor(c *graphs.Contract, use use) packed.Config {
	l := p.layout()
	l.VocabSize = bound(c, packed.InputIDs)
	l.NumTypes = bound(c, packed.TypeIDs)
	l.MaxTokens = positions(c)
	l.NumLabels = bound(c, packed.LabelIDs)
	// XLA compiles the graph again for every new shape.
	l.FixedRowLength = c.XLA
	if use == toPredict {
		l.Labels = packed.LabelsNone
	}
	return l
}

// bound returns the limit of a graph's feature of integers from 0, or 0 if there is none.
func bound(c *graphs.Contract, feature string) int {
	if f := c.Feature(feature); f != nil {
		return f.Classes()
	}
	return 0
}

// positions returns the number of positions of a graph, or 0 if unknown.
func positions(c *graphs.Contract) int { return bound(c, packed.PositionIDs) }

// vocabSizeOf returns the number of tokens that a graph knows, or 0 if it takes no tokens.
func vocabSizeOf(c *graphs.Contract) int { return bound(c, packed.InputIDs) }
