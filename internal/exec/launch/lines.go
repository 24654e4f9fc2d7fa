package launch

import (
	"bytes"
	"io"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/shown"
)

// maxLine is the number of bytes after which a line is passed on even if it has not ended.
const maxLine = 1 << 20

// lines passes on whole lines, each with a prefix and in one Write, so that the lines of several
// processes do not mix.
type lines struct {
	prefix string

	mu      sync.Mutex
	out     io.Writer
	partial []byte
	last    string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.partial = append(l.partial, p...)
			if len(l.partial) < maxLine {
				return n, nil
			}
			p = nil
		} else {
			l.partial = append(l.partial, p[:i]...)
			p = p[i+1:]
		}
		l.emit()
	}
	return n, nil
}

// emit passes on the collected bytes as a line. It ignores write errors: a reader that went away
// must not end the processes.
func (l *lines) emit() {
	if len(bytes.TrimSpace(l.partial)) > 0 {
		l.last = string(bytes.TrimSpace(l.partial))
	}
	line := append([]byte(l.prefix), shown.Text(string(l.partial))...)
	_, _ = l.out.Write(append(line, '\n'))
	l.partial = l.partial[:0]
}

// flush passes on a last line that has no newline, and returns the last line that was not empty.
func (l *lines) flush() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.emit()
	}
	return l.last
}
