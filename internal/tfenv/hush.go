package tfenv

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// noise begins the lines that TensorFlow 2.18 writes once, at the first run of a
// session, whatever its log level: they come from a copy of Abseil's log inside
// the library that nothing outside it can set.
var noise = [][]byte{
	[]byte("WARNING: All log messages before absl::InitializeLog()"),
	[]byte("I0000 "),
}

// Hush calls f, which makes the first run of a session, and keeps from standard
// error the notes that TensorFlow writes then. Everything else that is written
// meanwhile comes out when f is done. Where the user asks for TensorFlow's log, or
// standard error cannot be taken aside, f is just called.
func Hush(f func() error) error {
	if level, ok := os.LookupEnv("TF_CPP_MIN_LOG_LEVEL"); ok && level < "2" {
		return f()
	}
	stderr, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return f()
	}
	defer unix.Close(stderr)
	r, w, err := os.Pipe()
	if err != nil {
		return f()
	}
	defer r.Close()
	if err := unix.Dup3(int(w.Fd()), 2, 0); err != nil {
		w.Close()
		return f()
	}
	w.Close()
	written := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(r)
		written <- all
	}()
	defer func() {
		// Descriptor 2 is the last end of the pipe: taking it back ends the reading.
		if unix.Dup3(stderr, 2, 0) != nil {
			return
		}
		for line := range bytes.Lines(<-written) {
			if !isNoise(line) {
				os.Stderr.Write(line)
			}
		}
	}()
	return f()
}

func isNoise(line []byte) bool {
	for _, begin := range noise {
		if bytes.HasPrefix(line, begin) {
			return true
		}
	}
	return false
}
