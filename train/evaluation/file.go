package evaluation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Folder is the folder of a run that has the files of its evaluations.
const Folder = "evaluations"

// maxFile limits the size of a file that is read.
const maxFile = 64 << 20

// FileError says that a file is not one of an evaluation. It is of class fault.Damaged.
type FileError struct{ Path, Reason string }

func (e *FileError) Error() string { return fmt.Sprintf("evaluation %s %s", e.Path, e.Reason) }

// Is reports whether target is fault.Damaged.
func (e *FileError) Is(target error) bool { return target == fault.Damaged }

// Path returns the path of the file of an evaluation of a split at a step in a run.
func Path(run, split string, step int64) string {
	return vfs.Join(run, Folder, fmt.Sprintf("%s-%d.json", strings.NewReplacer("/", "-", "\\", "-").Replace(split), step))
}

// Write writes an evaluation into a run, in one step: a reader finds the file of before or the new
// one. It sets Format and Version, and returns the path.
func Write(run string, e *Evaluation) (path string, err error) {
	e.Format, e.Version = Format, Version
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return "", fmt.Errorf("evaluation: %w", err)
	}
	path = Path(run, e.Split, e.Step)
	if err := vfs.MkdirAll(vfs.Join(run, Folder), 0o777); err != nil {
		return "", fmt.Errorf("evaluation: %w", err)
	}
	if err := vfs.ReplaceFile(path, b.Bytes()); err != nil {
		return "", fmt.Errorf("evaluation: %w", err)
	}
	return path, nil
}

// Remove removes the evaluation of a split at a step from a run, if it is there.
func Remove(run, split string, step int64) error {
	path := Path(run, split, step)
	if err := vfs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("evaluation: %w", err)
	}
	return nil
}

// Read reads the file of an evaluation. The error is a *FileError or one of the file system.
func Read(path string) (*Evaluation, error) {
	data, err := vfs.ReadBounded(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	e, reason := parse(data)
	if reason != "" {
		return nil, &FileError{path, reason}
	}
	return e, nil
}

// parse returns an evaluation, or the reason why data is none.
func parse(data []byte) (*Evaluation, string) {
	// The version first, because another one may have other types.
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, "is not one: " + err.Error()
	}
	if head.Format != Format || head.Version != Version {
		return nil, fmt.Sprintf("has format %.40q and version %d; expected %q and %d", head.Format, head.Version, Format, Version)
	}
	e := new(Evaluation)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, "is not one: " + err.Error()
	}
	return e, e.fault()
}

// fault returns what is wrong with an evaluation, or "".
func (e *Evaluation) fault() string {
	if e.Split == "" || e.Step < 0 || e.Examples < 0 {
		return fmt.Sprintf("is of split %.40q, step %d and %d examples; expected a split, and 0 or more", e.Split, e.Step, e.Examples)
	}
	c := e.Confusion
	if c == nil || c.Counts == nil {
		return ""
	}
	n := len(c.Labels)
	if len(c.Counts) != n || slices.ContainsFunc(c.Counts, func(row []float64) bool { return len(row) != n }) {
		return fmt.Sprintf("has a confusion matrix that is not square; expected %d rows and columns, one for each label", n)
	}
	return ""
}

// List reads the evaluations of a run, sorted by split and step. A run without any has none. A file
// that is not an evaluation gives no evaluation but an error, together with the others.
func List(run string) ([]*Evaluation, error) {
	folder := vfs.Join(run, Folder)
	entries, err := vfs.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("evaluations: %w", err)
	}
	var all []*Evaluation
	var errs []error
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		e, err := Read(vfs.Join(folder, entry.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *Evaluation) int {
		return cmp.Or(strings.Compare(a.Split, b.Split), cmp.Compare(a.Step, b.Step))
	})
	return all, errors.Join(errs...)
}
