package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// data is a folder of records.
type data struct {
	dir      string
	manifest *convert.Manifest // nil if the folder has none
}

// openData opens a data folder. If it has no manifest, splits are found by file name.
func openData(dir string) (*data, error) {
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
	d := &data{dir: dir}
	m, err := convert.ReadManifest(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		d.manifest = m
	}
	return d, nil
}

// peek reads the first batch of a split that has no manifest, so that missing features such as
// labels are reported before training and not at the first evaluation.
func (d *data) peek(ctx context.Context, set *dataset.Dataset) error {
	if d.manifest != nil {
		return nil
	}
	_, err := set.Next(ctx)
	return err
}

// files returns the files of a split: those in the manifest, or else the split's name as a file,
// pattern or base name.
func (d *data) files(split string) []string {
	if d.manifest != nil {
		if s, ok := d.manifest.Splits[split]; ok {
			var out []string
			for _, f := range s.Files {
				out = append(out, vfs.Join(d.dir, f.Name))
			}
			return out
		}
	}
	if vfs.IsAbs(split) {
		return []string{split}
	}
	return []string{vfs.Join(d.dir, split)}
}

// open opens a split.
func (d *data) open(ctx context.Context, p params.Params, c *graphs.Contract, split string, use use, log *slog.Logger) (*dataset.Dataset, error) {
	config := p.Dataset(d.files(split), use == toTrain, layoutFor(p, c, use))
	config.Logger = log
	if use == toTrain {
		var err error
		if config.ClassWeights, err = classWeightsOf(p, c, d.manifest); err != nil {
			return nil, err
		}
		if config.Sampling, err = samplingOf(p, c, d.manifest); err != nil {
			return nil, err
		}
	}
	set, err := dataset.Open(ctx, config)
	if err != nil {
		return nil, ofSplit(p, c, split, err)
	}
	if err := d.complete(split, set); err != nil {
		set.Close()
		return nil, err
	}
	return set, nil
}

// ofSplit names the split of an error, and says how a feature of a dense graph that a record lacks is
// found under another name.
func ofSplit(p params.Params, c *graphs.Contract, split string, err error) error {
	err = fmt.Errorf("split %s: %w", split, err)
	var lacks *dataset.RecordError
	if takesTokens(c) || !errors.As(err, &lacks) || !strings.HasPrefix(lacks.Reason, "is missing") {
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
func (d *data) complete(split string, set *dataset.Dataset) error {
	if d.manifest == nil || d.manifest.Splits[split] == nil {
		return nil
	}
	got, want := set.NumExamples(), d.manifest.Splits[split].Records
	if got == want || got < want && set.Damaged().Records > 0 {
		return nil
	}
	return &convert.ManifestError{Path: vfs.Join(d.dir, convert.ManifestName),
		Reason: fmt.Sprintf("split %s has %d records in its files; expected %d; convert the data again", split, got, want)}
}
