package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/convert"
)

// ownFolder refuses a dataset and an export as the folder of a run, which would mix its
// files with theirs.
func ownFolder(folder string) error {
	for _, other := range []struct{ file, what string }{
		{convert.ManifestName, "a dataset"},
		{"saved_model.pb", "an export"},
	} {
		if _, err := os.Lstat(filepath.Join(folder, other.file)); err == nil {
			return &ParamsError{fmt.Errorf("run folder %s is %s (it has %s); expected a folder of its own; give another one with --run", folder, other.what, other.file)}
		}
	}
	return nil
}
