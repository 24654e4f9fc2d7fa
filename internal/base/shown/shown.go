// Package shown makes text harmless for a terminal. Labels, names, texts and messages of other machines
// are what others wrote: escape sequences in them would move the cursor, colour or rewrite what is on the
// screen, and marks of direction would show a text in another order than it has.
package shown

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Text returns a text with its control characters, bytes that are not UTF-8, and overrides of the direction
// of writing written out, such as \x1b. Line breaks and tabs stay.
func Text(s string) string {
	out, rest := appendText(nil, []byte(s))
	return string(appendBytes(out, rest))
}

// appendText appends a text as Text returns it. It returns the bytes at the end that begin a character
// whose other bytes may follow.
func appendText(out, p []byte) (_, rest []byte) {
	for len(p) > 0 {
		if !utf8.FullRune(p) {
			return out, p
		}
		r, n := utf8.DecodeRune(p)
		switch {
		case r == utf8.RuneError && n == 1:
			out = appendBytes(out, p[:n])
		case r == '\n' || r == '\t' || !harmful(r):
			out = append(out, p[:n]...)
		case r < ' ':
			out = appendBytes(out, p[:n])
		default: // in the form of JSON, which may be what is shown
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		p = p[n:]
	}
	return out, nil
}

func appendBytes(out, p []byte) []byte {
	for _, b := range p {
		out = fmt.Appendf(out, `\x%02x`, b)
	}
	return out
}

// harmful reports whether a terminal does something else with a character than to show it, or shows what
// follows in another order.
func harmful(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Writer returns a writer that writes text to w as [Text] returns it. It is safe for concurrent use if w is.
func Writer(w io.Writer) io.Writer { return &writer{w: w} }

type writer struct {
	w    io.Writer
	mu   sync.Mutex
	part []byte // of a character that the last write began
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, rest := appendText(make([]byte, 0, len(p)+len(w.part)), slices.Concat(w.part, p))
	w.part = rest
	if _, err := w.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Raw returns the writer that one of [Writer] writes to, for text that the program makes alone; any other
// writer as it is.
func Raw(w io.Writer) io.Writer {
	if of, ok := w.(*writer); ok {
		return of.w
	}
	return w
}

// Data returns the writer for a format that programs read: a file or pipe gets it byte for byte, a terminal
// as text.
func Data(w io.Writer) io.Writer {
	raw := Raw(w)
	if f, ok := raw.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return w
	}
	return raw
}
