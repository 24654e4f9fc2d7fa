package table

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

// A line without end is refused as soon as it is too long; where bad rows are skipped, the
// row after one that is too long is read.
func TestEndlessLine(t *testing.T) {
	l := lines{r: bufio.NewReader(endless{}), path: "x"}
	if _, err := l.line(); !errors.As(err, new(*Error)) {
		t.Errorf("error %v, expected a Error", err)
	}

	l = lines{r: bufio.NewReader(io.MultiReader(strings.NewReader("a\n"), io.LimitReader(endless{}, maxLine+1), strings.NewReader("\nb\n"))), path: "x"}
	var got []string
	for {
		line, _, err := l.next()
		if err == io.EOF {
			break
		}
		if row := (*Error)(nil); errors.As(err, &row) {
			got = append(got, "bad")
			if row.Line != 2 {
				t.Errorf("the long line is line %d, expected 2", row.Line)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	if s := strings.Join(got, ","); s != "a,bad,b" {
		t.Errorf("read %s, expected a,bad,b", s)
	}
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }
