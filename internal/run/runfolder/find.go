package runfolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Find returns the run folders in a folder and below it, the folder itself included, in the order of
// their names. It does not look into the folders of runs, into hidden folders and behind links.
// Folders that may not be read are left out, and their errors returned next to the rest.
func Find(dir string) ([]string, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: dir, Err: errors.New("is not a folder")}
	}
	var found []string
	var failed []error
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			failed = append(failed, err)
			return fs.SkipDir
		case !d.IsDir():
			return nil
		case path != dir && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case IsRun(path):
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found, errors.Join(append(failed, err)...)
}

// IsRun reports whether a folder is that of a run: it has params, and what a training leaves beside
// them.
func IsRun(dir string) bool {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	return has(Params) && (has(Metrics) || has(Checkpoints) || has(Journal))
}
