package train

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
)

// Init is what a model's variables begin with.
type Init struct {
	// From is a checkpoint's prefix, a run folder, or a safetensors file; "" is what the
	// export holds. Variables that it lacks keep the export's values.
	From string
	// Strict makes a variable that From lacks, or has in another shape, an error.
	Strict bool
}

// Initialize gives variables their first values: those of the export, then what From holds.
// The report says what became of every tensor of From; it is nil where that is "".
func Initialize(ctx context.Context, variables Variables, export *graphs.Export, from Init) (*checkpoint.LoadReport, error) {
	var names []string
	for _, v := range export.Contract.Variables {
		names = append(names, v.Name)
	}
	bundle, err := checkpoint.OpenBundle(filepath.Join(export.Path, "variables", "variables"))
	if err != nil {
		return nil, fmt.Errorf("the export's initial variables: %w", err)
	}
	values, err := bundle.Read(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("the export's initial variables: %w", err)
	}
	var report *checkpoint.LoadReport
	if from.From != "" {
		loaded, r, err := from.load(ctx, wantedOf(export.Contract))
		if err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
		report = r
		for name, value := range loaded {
			values[name] = value
		}
	}
	return report, variables.Assign(ctx, values)
}

// load reads what From has of the wanted variables.
func (i Init) load(ctx context.Context, wanted []checkpoint.Wanted) (map[string]*tf.Tensor, *checkpoint.LoadReport, error) {
	source, closeSource, err := checkpoint.OpenSource(sourceOf(i.From))
	if err != nil {
		return nil, nil, err
	}
	defer closeSource()
	loaded, report, err := checkpoint.Load(ctx, source, wanted)
	if err == nil && i.Strict {
		err = report.Strict()
	}
	return loaded, report, err
}

// sourceOf returns where the weights of an init are: a run's are its checkpoints'.
func sourceOf(init string) string {
	if folder := filepath.Join(init, checkpointFolder); isDir(folder) {
		return folder
	}
	return init
}

// wantedOf lists what initial weights are looked through for.
func wantedOf(c *graphs.Contract) []checkpoint.Wanted {
	var wanted []checkpoint.Wanted
	for _, v := range c.Variables {
		w := checkpoint.Wanted{Name: v.Name, Shape: v.Shape, DType: tf.Float}
		for _, name := range v.Foreign {
			w.Foreign = append(w.Foreign, checkpoint.Candidate{Name: name, Transpose: v.Transpose})
		}
		wanted = append(wanted, w)
	}
	return wanted
}

// reportInit writes what initial weights filled to a file, and tells on out what they did
// not fill.
func reportInit(report *checkpoint.LoadReport, path string, out io.Writer) error {
	if err := replaceFile(path, []byte(report.String()+"\n")); err != nil {
		return err
	}
	fmt.Fprintf(out, "initial weights from %s; %s has them all\n", report.Summary(), path)
	for line := range strings.Lines(report.String() + "\n") {
		if strings.HasPrefix(line, "  missing ") || strings.HasPrefix(line, "  mismatched ") {
			fmt.Fprint(out, line)
		}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
