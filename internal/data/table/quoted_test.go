package table

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Whether the fields of a TSV file are quoted must be said if they look like it, and is never guessed.
func TestQuotedTSV(t *testing.T) {
	read := func(text string, c Config) error {
		c.Format = TSV
		tab, err := New(strings.NewReader(text), "x.tsv", c)
		if err != nil {
			return err
		}
		for cut := tab.NewCutter(); ; {
			row, line, _, err := tab.Next()
			if err == nil {
				_, err = cut.Cut(string(row), line)
			}
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"the header":         {"\"t\"\tl\na\t1\n", "x.tsv: the name of column 1 has quotation marks around it; add --format csv and --delimiter tab if these only enclose it, and --format tsv if they belong to it"},
		"every field":        {"t\tl\n\"a\"\t1\n\n\"b, c\"\t2\n", "x.tsv: every field of column 1 has quotation marks around it"},
		"labels":             {"t\tl\r\na\t\"1\"\r\nb\t\"2\"\r\n", "x.tsv: every field of column 2"},
		"without a last end": {"t\tl\na\t\"1\"", "x.tsv: every field of column 2"},
		"where it must":      {"t\tl\na\t1\n\"b \"\"c\"\"\"\t2\n", "x.tsv:3: field 1 has quotation marks around it, and doubled ones in it; add"},
		"as in GLUE":         {"t\tl\n\"a\"\t1\n\"b\" c\t2\n\"\t3\n\"d \"e\" f\"\t3\n\"\" g \"\"\t1\n", ""},
	} {
		err := read(c.text, Config{FormatFlag: "--format"})
		if (err == nil) != (c.want == "") || err != nil && (!strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, fault.Usage) && !errors.Is(err, fault.Damaged)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := read(c.text, Config{}); err != nil {
			t.Errorf("%s, chosen: %v", name, err)
		}
	}
}
