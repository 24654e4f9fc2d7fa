package runfolder

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/train/params"
)

// ReadParams reads the params of a run.
func ReadParams(folder string) (params.Params, error) {
	p, err := params.Read(filepath.Join(folder, Params))
	return p, NotRun(folder, err)
}

// ReadManifest returns the manifest of a run's data, or nil if the run has none.
func ReadManifest(folder string) (*convert.Manifest, error) {
	m, err := convert.ReadManifest(filepath.Join(folder, Data))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}
