package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OS is the file system of the operating system.
type OS struct{}

var _ WorkFS = OS{}

// Open implements ReadFS. The file is an *os.File.
func (f OS) Open(name string) (File, error) { return f.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile implements WorkFS. The file is an *os.File.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (WorkFile, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not a WorkFile that holds a nil pointer
	}
	return f, nil
}

// Rename implements WorkFS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Exchange implements WorkFS.
func (OS) Exchange(a, b string) error { return exchange(a, b) }

// Link implements WorkFS.
func (OS) Link(from, to string) error { return os.Link(from, to) }

// Remove implements WorkFS.
func (OS) Remove(name string) error { return os.Remove(name) }

// Mkdir implements WorkFS.
func (OS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

// ReadDir implements ReadFS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements ReadFS.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir implements WorkFS. Some file systems report a full disk only now.
func (OS) SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", name, err)
	}
	return nil
}
