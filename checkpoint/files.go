package checkpoint

import (
	"errors"
	"fmt"
	"os"
)

// files are the operations on a folder whose order decides whether a checkpoint
// survives a crash. Tests put a fault between any two of them.
type files interface {
	rename(from, to string) error
	remove(name string) error
	syncDir(dir string) error
	// write makes a file with the given content and flushes it.
	write(name string, data []byte) error
}

type osFiles struct{}

func (osFiles) rename(from, to string) error { return os.Rename(from, to) }
func (osFiles) remove(name string) error     { return os.Remove(name) }
func (osFiles) syncDir(dir string) error     { return flush(dir) }

func (osFiles) write(name string, data []byte) error {
	if err := os.WriteFile(name, data, 0o644); err != nil {
		return err
	}
	return flush(name)
}

// flush brings a file's bytes, or the renames in a folder, to the disk. Some file
// systems report a full disk only now.
func flush(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", name, err)
	}
	return nil
}
