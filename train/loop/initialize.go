package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Init describes the initial values of a model's variables.
type Init struct {
	// From is a checkpoint's prefix, a run folder, or a file of safetensors or GGUF, each also in a bucket; "" keeps the values of
	// the export, as do variables that From lacks.
	From string
	// Seed draws the variables that From does not fill and whose initializer the export tells. It is
	// an error if one of them is unknown. nil keeps the export's values.
	Seed *int64
	// Strict makes it an error if From lacks a variable or has it in another shape.
	Strict bool
	// Partial accepts weights with another number of positions, which are then those of the export.
	Partial bool
}

// InitialOf says what the variables of a new run begin with.
func InitialOf(p params.Params) Init {
	init := Init{From: p.Init, Strict: p.Strict, Partial: p.InitPartial}
	if p.InitValues == params.ValuesOfSeed {
		init.Seed = &p.Seed
	}
	return init
}

// Initialize sets the variables to the values of the export and then to those in From. The report
// lists what happened to every tensor of From; it is nil if From is empty.
func Initialize(ctx context.Context, variables Variables, export *graphs.Export, from Init) (*checkpoint.LoadReport, error) {
	var names []string
	for _, v := range export.Contract.Variables {
		names = append(names, v.Name)
	}
	for _, s := range export.Contract.States {
		names = append(names, s.Name)
	}
	bundle, err := checkpoint.OpenBundle(filepath.Join(export.Path, runfolder.ValuesFolder, "variables"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("graph %s has no initial values, as a run's copy of a graph of another file system; expected the export itself, or a run with a checkpoint: %w", export.Path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("initial variables of the export: %w", err)
	}
	v := values{bundle: bundle, contract: export.Contract, seed: from.Seed, report: new(checkpoint.LoadReport)}
	var report *checkpoint.LoadReport
	if from.From != "" {
		source, closeSource, found, err := from.open(ctx, export.Contract)
		if err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
		defer closeSource()
		v.source, v.report, report = source, found, found
	}
	if from.Seed != nil {
		if err := checkDrawn(export.Contract, v.report.Has); err != nil {
			return nil, err
		}
	}
	return report, inParts(variables.Variables(), names, func(part []string) error {
		read, err := v.read(ctx, part)
		if err != nil {
			return err
		}
		setAverages(read, variables)
		return variables.Assign(ctx, read)
	})
}

// values are those that a new run begins with.
type values struct {
	bundle   *checkpoint.Bundle // of the export
	contract *graphs.Contract
	source   checkpoint.Source // nil if there is none
	report   *checkpoint.LoadReport
	seed     *int64 // nil if no values are drawn
}

// read returns the values of variables and states. Those of the export are read only where there are no
// others: they may be most of what memory holds.
func (v values) read(ctx context.Context, names []string) (map[string]*tf.Tensor, error) {
	var loaded map[string]*tf.Tensor
	if v.source != nil {
		wanted := slices.DeleteFunc(WantedOf(v.contract), func(w checkpoint.Wanted) bool { return !slices.Contains(names, w.Name) })
		var err error
		if loaded, err = v.report.Read(ctx, v.source, wanted); err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
	}
	out := make(map[string]*tf.Tensor, len(names))
	rest := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return loaded[name] != nil })
	if len(rest) > 0 {
		var err error
		if out, err = v.bundle.Read(ctx, rest...); err != nil {
			return nil, fmt.Errorf("initial variables of the export: %w", err)
		}
	}
	if v.seed != nil {
		if err := draw(v.contract, *v.seed, names, out, loaded); err != nil {
			return nil, err
		}
	}
	maps.Copy(out, loaded)
	return out, nil
}

// setAverages adds the averages of variables to values, where there are averages: they begin at the
// values of the variables.
func setAverages(values map[string]*tf.Tensor, variables Variables) {
	for _, v := range variables.Variables() {
		if name, ok := strings.CutPrefix(v.Name, graphs.AveragePrefix); ok && values[name] != nil {
			values[v.Name] = values[name]
		}
	}
}

// Load reads the variables and states of the contract that From has.
func (i Init) Load(ctx context.Context, c *graphs.Contract) (map[string]*tf.Tensor, *checkpoint.LoadReport, error) {
	source, closeSource, report, err := i.open(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer closeSource()
	loaded, err := report.Read(ctx, source, WantedOf(c))
	return loaded, report, err
}

// open opens From, and reports what it has of the variables and states of the contract. close is not nil if
// err is nil.
func (i Init) open(ctx context.Context, c *graphs.Contract) (source checkpoint.Source, closeSource func() error, report *checkpoint.LoadReport, err error) {
	local, err := vfs.Localize(ctx, i.From, runfolder.NewestOnly)
	if err != nil {
		return nil, nil, nil, err
	}
	source, closeSource, err = checkpoint.OpenSource(SourceOf(local))
	if err != nil {
		return nil, nil, nil, err
	}
	if report, err = checkpoint.Find(source, WantedOf(c)); err == nil {
		err = CheckForm(source, report, c, i.Partial)
	}
	if err == nil && i.Strict {
		err = report.Strict()
	}
	if err != nil {
		closeSource()
		return nil, nil, nil, err
	}
	return source, closeSource, report, nil
}

// SourceOf returns the source of initial weights: for a run folder, its checkpoints.
func SourceOf(init string) string {
	if folder := filepath.Join(init, runfolder.Checkpoints); IsDir(folder) {
		return folder
	}
	return init
}

// WantedOf returns the variables and states to look for in initial weights.
func WantedOf(c *graphs.Contract) []checkpoint.Wanted {
	var wanted []checkpoint.Wanted
	add := func(name, kind string, shape []int64, foreign []graphs.ForeignName, transposed bool) {
		w := checkpoint.Wanted{Name: name, Shape: shape, DType: tf.DataType(dtype.Of(kind))}
		for _, f := range foreign {
			transpose := transposed
			if f.Transpose != nil {
				transpose = *f.Transpose
			}
			w.Foreign = append(w.Foreign, checkpoint.Candidate{Name: f.Name, Transpose: transpose, Reshape: f.Reshape})
		}
		wanted = append(wanted, w)
	}
	for _, v := range c.Variables {
		add(v.Name, v.DType, v.Shape, v.Foreign, v.Transpose)
	}
	for _, s := range c.States {
		add(s.Name, s.DType, s.Shape, s.Foreign, s.Transpose)
	}
	return wanted
}

// TellUntaken prints what initial weights have learned that is not taken: moving averages, and adapters that the
// graph lacks.
func TellUntaken(report *checkpoint.LoadReport, out io.Writer) {
	averages := func(e checkpoint.Entry) bool { return strings.Contains(e.Name, graphs.AveragePrefix) }
	if slices.ContainsFunc(report.Unused, averages) {
		fmt.Fprintln(out, "  the source has moving averages (optimizer.ema or optimizer.swa), which are not taken; for these, give the folder that gorbit export makes of the run")
	}
	if slices.ContainsFunc(report.Unused, isAdapter) {
		fmt.Fprintln(out, "  the source has adapters (LoRA), which the graph lacks, so that what they learned is not taken; for it, give the folder that gorbit export makes of the run, which has them merged")
	}
}

// ReportInit writes the report of the initial weights to a file, and prints to out a summary and
// the variables that were not filled.
func ReportInit(report *checkpoint.LoadReport, path string, out io.Writer) error {
	if err := vfs.ReplaceFile(path, []byte(report.String()+"\n")); err != nil {
		return err
	}
	fmt.Fprintf(out, "initial weights from %s; see %s for all tensors\n", report.Summary(), path)
	TellUntaken(report, out)
	for line := range strings.Lines(report.String() + "\n") {
		if strings.HasPrefix(line, "  missing ") || strings.HasPrefix(line, "  mismatched ") || strings.HasPrefix(line, "  unverified ") {
			fmt.Fprint(out, line)
		}
	}
	return nil
}

// isAdapter reports whether a tensor is part of an adapter, of gorbit's or of Hugging Face's PEFT, and
// no slot of an optimizer for one.
func isAdapter(e checkpoint.Entry) bool {
	return !strings.HasPrefix(e.Name, "optimizer/") && (strings.Contains(e.Name, "/lora_down") || strings.Contains(e.Name, ".lora_A."))
}

// IsDir reports whether a path is a folder.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
