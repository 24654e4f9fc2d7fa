package table

import (
	"bufio"
	"cmp"
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

// TestManyFields reads rows of too many fields, of which those that can be are skipped.
func TestManyFields(t *testing.T) {
	fields := func(n int) string { return strings.Repeat(",", n-1) + "\n" }
	for format, tt := range map[Format]struct {
		fields int
		skips  bool // whether the row can be skipped
		want   string
	}{
		TSV: {maxFields + 1, true, "x:2: has 1048577 fields; expected at most 1048576"},
		CSV: {mostDelimiters + 1<<16, false, "x:2: a row has more than 4194304 delimiters"},
		"":  {maxFields + 1, true, "x:2: has 1048577 fields; expected at most 1048576"},
	} {
		text := "a,b\n" + fields(tt.fields) + "1,2\n"
		table, err := New(strings.NewReader(text), "x", Config{Format: cmp.Or(format, CSV), Delimiter: ','})
		if err != nil {
			t.Fatal(err)
		}
		row, line, _, err := table.Next()
		if err == nil {
			_, err = table.NewCutter().Cut(string(row), line)
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || errors.As(err, new(*Error)) != tt.skips {
			t.Errorf("%s, %d fields: %v; expected %s", format, tt.fields, err, tt.want)
		}
	}
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }
