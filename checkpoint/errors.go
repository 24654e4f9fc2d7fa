package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// ErrNoCheckpoint is returned if a folder has no checkpoint at all. For a folder whose
// checkpoints are all damaged the error is an [AllDamagedError] instead, so that a caller
// that starts from scratch on this error loses nothing.
var ErrNoCheckpoint = errors.New("no checkpoint")

// CorruptError reports a file whose bytes violate its format or its checksums.
type CorruptError struct {
	Path   string // the file
	Tensor string // the damaged tensor, "" if the damage is not in a tensor
	Offset int64  // position in the file, -1 if unknown
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

// MismatchError reports an intact checkpoint that does not have the requested variables,
// or has them with another shape or type. It usually is a checkpoint of another model.
type MismatchError struct {
	Path    string   // prefix of the checkpoint
	Missing []string // requested names that are not in it
	Wrong   []WrongTensor
}

// WrongTensor is a variable whose stored shape or type is not the expected one.
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
			list[i] = fmt.Sprintf("%s is %s; expected %s", plain(w.Name), w.Got.typeString(), w.Want.typeString())
		}
		parts = append(parts, fmt.Sprintf("%d variables do not fit (%s)", n, abbreviate(list)))
	}
	b.WriteString(strings.Join(parts, "; "))
	return b.String()
}

// quote quotes a name from a file, and truncates it if it is longer than the name of any
// variable.
func quote(name string) string {
	const most = 200
	if len(name) <= most {
		return strconv.Quote(name)
	}
	return fmt.Sprintf("%q... of %d bytes", name[:most], len(name))
}

// plain returns a name from a file as it is if it is printable, and quoted otherwise.
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

// abbreviate joins a list for an error message of one readable line.
func abbreviate(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// AllDamagedError reports a folder in which no checkpoint can be used.
type AllDamagedError struct {
	Dir     string
	Skipped []Skipped
}

func (e *AllDamagedError) Error() string {
	list := make([]string, len(e.Skipped))
	for i, s := range e.Skipped {
		list[i] = s.Err.Error()
	}
	return fmt.Sprintf("%s: all %d checkpoints are damaged: %s", e.Dir, len(list), abbreviate(list))
}

// Is reports whether the target is the error's class, fault.Damaged.
func (e *AllDamagedError) Is(target error) bool { return target == fault.Damaged }

// Unwrap returns the reasons, so that errors.As finds a [CorruptError].
func (e *AllDamagedError) Unwrap() []error {
	list := make([]error, len(e.Skipped))
	for i, s := range e.Skipped {
		list[i] = s.Err
	}
	return list
}

// SaveError reports a failed save. Earlier checkpoints are not affected. If the disk is
// full, errors.Is(err, syscall.ENOSPC) is true.
type SaveError struct {
	Step int64
	Path string // prefix that the checkpoint would have had
	Err  error
}

func (e *SaveError) Error() string {
	return fmt.Sprintf("save checkpoint %s: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *SaveError) Unwrap() error { return e.Err }

// fromTensorFlow keeps the first line of an error of TensorFlow, which is about the file,
// and drops the lines about the graph. It adds the error number named in the text, so
// that callers can test for it.
func fromTensorFlow(err error) error {
	if err == nil {
		return nil
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return fault.Numbered(errors.New(strings.TrimSpace(line)))
}
