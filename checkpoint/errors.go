package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/fault"
)

// ErrNoCheckpoint is returned where a folder holds no checkpoint at all. A
// folder whose checkpoints are all damaged gives an [AllDamagedError] instead,
// so that a caller who starts from scratch on this error loses nothing.
var ErrNoCheckpoint = errors.New("no checkpoint")

// CorruptError says that a file's bytes are not what its format or its
// checksums promise.
type CorruptError struct {
	Path   string // the file
	Tensor string // the tensor at fault, "" where the damage is not in one
	Offset int64  // where in the file, -1 if that is not known
	Reason string
}

func (e *CorruptError) Error() string {
	var b strings.Builder
	b.WriteString(e.Path)
	if e.Tensor != "" {
		fmt.Fprintf(&b, ": tensor %s", quote(e.Tensor))
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, ": offset %d", e.Offset)
	}
	b.WriteString(": ")
	b.WriteString(e.Reason)
	return b.String()
}

// Is reports whether the target is the error's class, fault.Damaged.
func (e *CorruptError) Is(target error) bool { return target == fault.Damaged }

// MismatchError says that a whole checkpoint is not the one that was asked
// for: variables are not in it, or have another shape or type. It usually is
// the checkpoint of another model.
type MismatchError struct {
	Path    string   // prefix of the checkpoint
	Missing []string // wanted names that are not in it
	Wrong   []WrongTensor
}

// WrongTensor is a variable whose stored shape or type is not the wanted one.
type WrongTensor struct {
	Name      string
	Want, Got Entry
}

func (e *MismatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: not a checkpoint of this model: ", e.Path)
	var parts []string
	if n := len(e.Missing); n > 0 {
		parts = append(parts, fmt.Sprintf("%d variables are missing (%s)", n, abbreviate(plains(e.Missing))))
	}
	if n := len(e.Wrong); n > 0 {
		list := make([]string, n)
		for i, w := range e.Wrong {
			list[i] = fmt.Sprintf("%s is %s, wanted %s", plain(w.Name), w.Got.typeString(), w.Want.typeString())
		}
		parts = append(parts, fmt.Sprintf("%d variables do not fit (%s)", n, abbreviate(list)))
	}
	b.WriteString(strings.Join(parts, "; "))
	return b.String()
}

// quote quotes a name that comes from a file, and cuts it where it is longer than any
// variable's.
func quote(name string) string {
	const most = 200
	if len(name) <= most {
		return strconv.Quote(name)
	}
	return fmt.Sprintf("%q... of %d bytes", name[:most], len(name))
}

// plain returns a name that comes from a file as it is where it can be read, else quoted.
func plain(name string) string {
	if q := quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}

func plains(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = plain(name)
	}
	return out
}

// abbreviate joins a list for an error message, which stays one readable line.
func abbreviate(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// AllDamagedError says that a folder holds checkpoints and none of them can be
// used.
type AllDamagedError struct {
	Dir     string
	Skipped []Skipped
}

func (e *AllDamagedError) Error() string {
	list := make([]string, len(e.Skipped))
	for i, s := range e.Skipped {
		list[i] = s.Err.Error()
	}
	return fmt.Sprintf("%s: none of %d checkpoints is whole: %s", e.Dir, len(list), abbreviate(list))
}

// Is reports whether the target is the error's class, fault.Damaged.
func (e *AllDamagedError) Is(target error) bool { return target == fault.Damaged }

// Unwrap gives the reasons, so that errors.As finds a [CorruptError].
func (e *AllDamagedError) Unwrap() []error {
	list := make([]error, len(e.Skipped))
	for i, s := range e.Skipped {
		list[i] = s.Err
	}
	return list
}

// SaveError is the failure of a save. Checkpoints saved before it are as good
// as they were. A full disk is recognised by errors.Is(err, syscall.ENOSPC).
type SaveError struct {
	Step int64
	Path string // prefix that the checkpoint would have had
	Err  error
}

func (e *SaveError) Error() string {
	return fmt.Sprintf("save checkpoint %s: %v", e.Path, e.Err)
}

// Unwrap gives the cause.
func (e *SaveError) Unwrap() error { return e.Err }

// fromTensorFlow takes what concerns the file out of an error of TensorFlow, whose
// further lines tell of the graph, and gives it the error number that its text
// names, so that callers can ask for it.
func fromTensorFlow(err error) error {
	if err == nil {
		return nil
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	err = errors.New(strings.TrimSpace(line))
	for _, errno := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.EIO,
	} {
		if strings.Contains(strings.ToLower(err.Error()), errno.Error()) {
			return &errnoError{err, errno}
		}
	}
	return err
}

// errnoError keeps the words, which name the file, and adds the number.
type errnoError struct {
	err   error
	errno syscall.Errno
}

func (e *errnoError) Error() string   { return e.err.Error() }
func (e *errnoError) Unwrap() []error { return []error{e.err, e.errno} }
