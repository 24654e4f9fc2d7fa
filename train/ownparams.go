package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// LoadParams returns the params of a training. They begin with the defaults of params.Defaults, in
// whose place the graph may have others, those of its optimizer in Keras. load then sets the others, as
// params.Params.Load does, the graph too. The run, if it has a name, may have its own copy of a graph
// that is gone.
//
// own are the names of the params that are the graph's.
func LoadParams(ctx context.Context, run string, load func(*params.Params) error) (p params.Params, own []string, err error) {
	p = params.Defaults()
	if err := load(&p); err != nil || p.Graph == "" {
		return p, nil, err
	}
	contract, err := contractOf(ctx, p, run)
	if err != nil {
		return p, nil, err
	}
	with, err := params.DefaultsOf(contract)
	if err != nil {
		return p, nil, fmt.Errorf("graph %s: %w", p.Graph, err)
	}
	if err := load(&with); err != nil {
		return p, nil, err
	}
	return with, with.Differing(p), nil
}

// contractOf reads the contract of the graph that Train will open.
func contractOf(ctx context.Context, p params.Params, run string) (*graphs.Contract, error) {
	graph := p.Graph
	if _, err := vfs.Stat(graph); errors.Is(err, fs.ErrNotExist) {
		run, err := vfs.Localize(ctx, run, ofGraph)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("run: %w", err)
		}
		if graph, err = runfolder.GraphToTrain(p, run, slog.New(slog.DiscardHandler)); err != nil {
			return nil, err
		}
	}
	local, err := vfs.Localize(ctx, graph, nil)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	if _, err := vfs.Stat(filepath.Join(local, graphs.ContractFile)); err != nil {
		_, err = graphs.Open(local) // which says what is missing
		return nil, err
	}
	return graphs.ReadContract(local)
}

// ofGraph returns the paths of a run that belong to its copy of the graph.
func ofGraph(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !strings.HasPrefix(path, runfolder.GraphFolder+"/") })
}
