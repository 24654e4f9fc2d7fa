package stream

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"

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
