package vfs

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// part is a new file that is written next to its place, under a name of its own that nobody knows
// before: .NAME.part-RANDOM. So programs that write the same file at once do not meet. Its process has
// it locked; one that is not locked was left by a process that was killed.
type part struct {
	WorkFile
	temp, name string
	lock       *os.File // nil where there are no locks
}

// partForm is the form of the names of parts, and partDigits is how many random letters and digits end
// them.
var partForm = regexp.MustCompile(`^\..*\.part-[A-Z2-7]{16}$`)

const (
	partDigits = 16
	// partBase is how many bytes of a long name are in that of the part.
	partBase = 200
	// abandoned is the age of a leftover on a file system without locks.
	abandoned = 24 * time.Hour
)

// newPart begins a file that is to have a name. It removes the leftovers of that folder first.
func newPart(name string) (*part, error) {
	dir, base := filepath.Dir(name), filepath.Base(name)
	RemoveLeftovers(dir)
	for {
		p := &part{name: name}
		p.temp = filepath.Join(dir, "."+strings.ToValidUTF8(base[:min(len(base), partBase)], "")+".part-"+rand.Text()[:partDigits])
		var err error
		// O_EXCL refuses a symbolic link with this name, too.
		if p.WorkFile, err = OpenFile(p.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
			return nil, p.named(err)
		}
		if p.lock, err = openLock(p.temp); err == nil {
			_ = flock(p.lock, unix.LOCK_EX) // waits only for a process that removes it as a leftover
		}
		_, err = Stat(p.temp)
		if err == nil {
			return p, nil
		}
		p.discard()
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, p.named(err)
		}
	}
}

// RemoveLeftovers removes what killed processes have left in a folder of the files that they wrote
// with [ReplaceFile] and [CreateWhole]. What cannot be removed stays for the next time.
func RemoveLeftovers(dir string) {
	entries, err := ReadDir(dir)
	if err != nil {
		return // a folder may be one to write to, but not to list
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !partForm.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		lock, err := openLock(path)
		if errors.Is(err, fs.ErrNotExist) {
			_ = Remove(path) // it is in the memory of a test, or just got its name
		}
		if err != nil {
			continue // of another user
		}
		err = flock(lock, unix.LOCK_EX|unix.LOCK_NB)
		if info, statErr := lock.Stat(); err == nil || !errors.Is(err, unix.EWOULDBLOCK) && statErr == nil && time.Since(info.ModTime()) > abandoned {
			_ = Remove(path) // before it is unlocked, so that its process, which just made it, sees it gone
		}
		lock.Close()
	}
}

// openLock opens a part to lock it. The lock is one of the operating system's file, past file systems
// that are mounted for tests.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// named returns an error with the name that the file is to have.
func (p *part) named(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) && of.Path == p.temp {
		return &fs.PathError{Op: of.Op, Path: p.name, Err: of.Err}
	}
	return err
}

// Write implements io.Writer.
func (p *part) Write(data []byte) (int, error) {
	n, err := p.WorkFile.Write(data)
	return n, p.named(err)
}

// end makes the file durable and gives it its name. Unless overwrite is set, no file is replaced that
// another program has made meanwhile: the error is of class fault.Usage. After an error, the caller
// calls discard.
func (p *part) end(overwrite bool) error {
	err := errors.Join(p.named(p.Sync()), p.named(p.Close()))
	switch {
	case err != nil:
	case overwrite:
		err = Rename(p.temp, p.name)
	default:
		err = p.link()
	}
	if err != nil {
		return err
	}
	if p.lock != nil {
		p.lock.Close()
	}
	return SyncDir(filepath.Dir(p.name))
}

// link gives the file its name if no other has it.
func (p *part) link() error {
	err := Link(p.temp, p.name)
	if err != nil && CannotLink(err) {
		if _, err = Stat(p.name); errors.Is(err, fs.ErrNotExist) {
			return Rename(p.temp, p.name)
		} else if err == nil {
			err = fs.ErrExist
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return fault.Usagef("%s was made by another program meanwhile; choose another name, or add --overwrite to replace it", p.name)
	}
	if err != nil {
		return err
	}
	_ = Remove(p.temp) // otherwise it is a leftover
	return nil
}

// discard removes the file.
func (p *part) discard() {
	_ = p.Close() // may be closed already
	_ = Remove(p.temp)
	if p.lock != nil {
		p.lock.Close()
	}
}
