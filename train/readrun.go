package train

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// readRunParams reads the params of a run.
func readRunParams(folder string) (params.Params, error) {
	p, err := params.Read(filepath.Join(folder, runfolder.Params))
	return p, runfolder.NotRun(folder, err)
}

// readRunManifest returns the manifest of a run's data, or nil if the run has none.
func readRunManifest(folder string) (*convert.Manifest, error) {
	m, err := convert.ReadManifest(filepath.Join(folder, runfolder.Data))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}
