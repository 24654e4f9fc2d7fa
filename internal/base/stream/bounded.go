package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// FileError reports a path that is not a file of the expected kind or size.
type FileError struct {
	Path   string
	Reason string
	// Class is the error's class: fault.Usage if a user chose the path, fault.Damaged if the file is
	// one that Gorbit writes.
	Class fault.Class
}

func (e *FileError) Error() string { return e.Path + " " + e.Reason }

// Is reports whether the target is the error's class.
func (e *FileError) Is(target error) bool { return target == e.Class }

// ReadFile returns the content of a regular file of at most limit bytes. For anything else
// it reads nothing and returns a *FileError of class fault.Usage. Other errors are those of the
// file system.
func ReadFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // before opening, which would wait for the writer of a pipe
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: failed.Err}
	}
	if err != nil {
		return nil, err
	}
	if err := Check(path, info, limit, fault.Usage); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := Check(path, info, limit, fault.Usage); err != nil {
		return nil, err
	}
	return ReadAll(f, path, info.Size(), limit, fault.Usage)
}

// ReadAll returns what is left of a file. The file should have size bytes; if it has grown beyond
// limit, the error is a *FileError of the given class.
func ReadAll(r io.Reader, path string, size, limit int64, class fault.Class) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(int(size) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(data.Len()) > limit { // it has grown
		return nil, tooLong(path, int64(data.Len()), limit, class)
	}
	return data.Bytes(), nil
}

// Check returns a *FileError of the given class for anything but a regular file of at most limit
// bytes.
func Check(path string, info fs.FileInfo, limit int64, class fault.Class) error {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return &FileError{path, "is a folder; expected a file", class}
	case !mode.IsRegular():
		return &FileError{path, fmt.Sprintf("is %s; expected a regular file", kind(mode)), class}
	case info.Size() > limit:
		return tooLong(path, info.Size(), limit, class)
	}
	return nil
}

func tooLong(path string, size, limit int64, class fault.Class) error {
	return &FileError{path, fmt.Sprintf("has %d bytes; expected at most %d", size, limit), class}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no file"
}
