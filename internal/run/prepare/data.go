package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Data is a folder of records.
type Data struct {
	// Dir is the folder.
	Dir string
	// Manifest is the folder's; nil if it has none.
	Manifest *convert.Manifest
}

// OpenData opens a data folder. If it has no manifest, splits are found by file name.
func OpenData(dir string) (*Data, error) {
	info, err := vfs.Stat(dir)
	if err != nil && vfs.Scheme(dir) != "" && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("data %s: no such folder", dir)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("data %s: not a folder", dir)
	}
	d := &Data{Dir: dir}
	m, err := convert.ReadManifest(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		d.Manifest = m
	}
	return d, nil
}

// peek reads the first batch of a split that has no manifest, so that missing features such as
// labels are reported before training and not at the first evaluation.
func (d *Data) peek(ctx context.Context, set *dataset.Dataset) error {
	if d.Manifest != nil {
		return nil
	}
	_, err := set.Next(ctx)
	return err
}

// files returns the files of a split: those in the manifest, or else the split's name as a file,
// pattern or base name.
func (d *Data) files(split string) []string {
	if d.Manifest != nil {
		if s, ok := d.Manifest.Splits[split]; ok {
			var out []string
			for _, f := range s.Files {
				out = append(out, vfs.Join(d.Dir, f.Name))
			}
			return out
		}
	}
	if vfs.IsAbs(split) {
		return []string{split}
	}
	return []string{vfs.Join(d.Dir, split)}
}

// Open opens a split.
func (d *Data) Open(ctx context.Context, p params.Params, c *graphs.Contract, split string, use use, log *slog.Logger) (*dataset.Dataset, error) {
	config := p.Dataset(d.files(split), use == ToTrain, LayoutFor(p, c, use))
	config.Logger = log
	if use == ToPredict { // an answer for each record
		config.Take = dataset.Take{}
	}
	if use == ToTrain {
		var err error
		if config.ClassWeights, err = ClassWeightsOf(p, c, d.Manifest); err != nil {
			return nil, err
		}
		if config.Sampling, err = samplingOf(p, c, d.Manifest); err != nil {
			return nil, err
		}
	}
	set, err := dataset.Open(ctx, config)
	if err != nil {
		return nil, OfSplit(p, c, split, err)
	}
	if err := d.complete(split, set); err != nil {
		set.Close()
		return nil, err
	}
	return set, nil
}

// UnlabelledError reports a record without the label that training and evaluation need.
type UnlabelledError struct {
	Err          error // what the record lacks
	Label, Split string
	// Model has the flags that name the model in a command.
	Model string
}

func (e *UnlabelledError) Error() string {
	return fmt.Sprintf("%v; expected a label in each record to train and to evaluate: if it has another name, --set data.features.%s=NAME; records without labels get answers alone: gorbit predict %s --split %s", e.Err, e.Label, e.Model, e.Split)
}

func (e *UnlabelledError) Unwrap() error { return e.Err }

// OfSplit names the split of an error, and says how a label, or a feature of a dense graph, that a record
// lacks is found under another name.
func OfSplit(p params.Params, c *graphs.Contract, split string, err error) error {
	err = fmt.Errorf("split %s: %w", split, err)
	var lacks *dataset.RecordError
	if !errors.As(err, &lacks) || !strings.HasPrefix(lacks.Reason, "is missing") {
		return err
	}
	if label := c.Label(); label != nil && slices.Contains([]string{label.Name, convert.LabelIDs, p.Data.Features[label.Name]}, lacks.Feature) {
		return &UnlabelledError{Err: err, Label: label.Name, Split: split, Model: "--run RUN"}
	}
	if TakesTokens(c) {
		return err
	}
	for _, f := range c.Features {
		if cmp.Or(p.Data.Features[f.Name], f.Name) == lacks.Feature {
			return fmt.Errorf("%w; choose one of them with --set data.features.%s=NAME", err, f.Name)
		}
	}
	return err
}

// complete checks the number of records of a split against the manifest. Damaged records that are
// skipped may be missing.
func (d *Data) complete(split string, set *dataset.Dataset) error {
	if d.Manifest == nil || d.Manifest.Splits[split] == nil {
		return nil
	}
	got, want := int64(0), d.Manifest.Splits[split].Records
	for _, f := range set.FileInfos() {
		got += f.Records
	}
	if got == want || got < want && set.Damaged().Records > 0 {
		return nil
	}
	return &convert.ManifestError{Path: vfs.Join(d.Dir, convert.ManifestName),
		Reason: fmt.Sprintf("split %s has %d records in its files; expected %d; convert the data again", split, got, want)}
}
