package train

import (
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Layout returns how the records of a split become the batches that a graph trains on, whatever
// its features: tokens are packed into rows, and everything else is stacked or padded. All of it but
// the params of Data comes from the contract, so that Defaults().Layout fits any graph. Names of
// features in the records that differ from the graph's are in Data.Features.
func Layout(p params.Params, c *graphs.Contract) dataset.Layout {
	return prepare.LayoutFor(p, c, prepare.ToTrain)
}
