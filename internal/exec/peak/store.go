package peak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Key is what a peak belongs to.
type Key struct {
	// Kind is CPU or GPU, and Model is the device's model.
	Kind  string `json:"kind"`
	Model string `json:"model"`
	// Cores is the number of cores of a CPU that the process may use; 0 for a GPU.
	Cores int `json:"cores,omitempty"`
	// Precision is float32, bf16 or fp16.
	Precision  string `json:"precision"`
	OneDNN     bool   `json:"onednn,omitempty"`
	TensorFlow string `json:"tensorflow"`
}

// Peak is the peak of a device.
type Peak struct {
	Key
	// FLOPS is in floating point operations per second, a multiplication and an addition as one
	// each.
	FLOPS    float64   `json:"flops"`
	Measured time.Time `json:"measured"`
}

// Store is a file of peaks.
type Store struct{ Path string }

// OfUser returns the store in the user's cache folder, such as ~/.cache/gorbit/peaks.json.
func OfUser() (Store, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return Store{}, fmt.Errorf("where to remember the machine's peak: %w", err)
	}
	return Store{filepath.Join(dir, "gorbit", "peaks.json")}, nil
}

// read returns all peaks. A damaged file has none: what it had can be measured again.
func (s Store) read() ([]Peak, error) {
	content, err := vfs.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Peak
	if json.Unmarshal(content, &all) != nil {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(p Peak) bool { return !(p.FLOPS > 0) }), nil
}

// Find returns the peak of a device; ok is false if it was not measured.
func (s Store) Find(k Key) (p Peak, ok bool) {
	all, err := s.read()
	if err != nil {
		return Peak{}, false
	}
	i := slices.IndexFunc(all, func(p Peak) bool { return p.Key == k })
	if i < 0 {
		return Peak{}, false
	}
	return all[i], true
}

// Keep remembers a peak in place of the one that the device had.
func (s Store) Keep(p Peak) error {
	all, err := s.read()
	if err != nil {
		return err
	}
	all = append(slices.DeleteFunc(all, func(o Peak) bool { return o.Key == p.Key }), p)
	content, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := vfs.MkdirAll(filepath.Dir(s.Path), 0o777); err != nil {
		return err
	}
	return vfs.ReplaceFile(s.Path, append(content, '\n'))
}
