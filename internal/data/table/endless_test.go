package table

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
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

// TestEndlessRow reads a row of a CSV file whose quotation mark is not closed. Rows cannot be skipped
// any more: it is damage of the file.
func TestEndlessRow(t *testing.T) {
	rows := newCSVRows(io.MultiReader(strings.NewReader("a,b\n1,\"2\n3\"\n\"5"), endless{}), "x.csv", ',')
	_, _, err := rows.next()
	for range 2 {
		_, _, err = rows.next()
	}
	if fault.Of(err) != fault.Damaged || errors.As(err, new(*Error)) || !strings.HasPrefix(err.Error(), "x.csv:4: a row is longer than ") {
		t.Errorf("error %v", err)
	}
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }
