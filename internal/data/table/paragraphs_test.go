package table

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestLinesAndParagraphs(t *testing.T) {
	const content = "\ufeffa b\r\n \t\nc\nd\n-DOCSTART- x\n\n\n-DOCSTART-\ne\n"
	for format, want := range map[Format][]string{
		Lines:      {"1 a b", "3 c", "4 d", "5 -DOCSTART- x", "8 -DOCSTART-", "9 e"},
		Paragraphs: {"1 a b\n", "3 c\nd\n", "9 e\n"},
	} {
		tab, err := New(strings.NewReader(content), "x", Config{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		if err := tab.Select(Column{Name: TextField}); err != nil {
			t.Fatal(err)
		}
		var got []string
		cutter := tab.NewCutter()
		for {
			row, line, number, err := tab.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || number != int64(len(got)) {
				t.Fatalf("%s: row %d, %v", format, number, err)
			}
			fields, err := cutter.Cut(string(row), line)
			if err != nil || len(fields) != 1 {
				t.Fatal(fields, err)
			}
			got = append(got, string(rune('0'+line))+" "+fields[0].Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", format, got, want)
		}
	}
	tab, err := New(strings.NewReader("ok\n\xff\n"), "x", Config{Format: Paragraphs})
	if err != nil {
		t.Fatal(err)
	}
	row, line, _, _ := tab.Next()
	if _, err := tab.NewCutter().Cut(string(row), line); err == nil || !strings.Contains(err.Error(), "x:1: byte 0xff") {
		t.Errorf("bytes that are not UTF-8: %v", err)
	}
}
