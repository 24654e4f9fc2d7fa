package table

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// questionsIn returns "line: id context" of each question of a file, and the error that ended reading.
func questionsIn(t *testing.T, content string) (out []string, err error) {
	t.Helper()
	tab, err := New(strings.NewReader(content), "x.json", Config{Format: SQuAD})
	if err != nil {
		return nil, err
	}
	if err := tab.Select(Column{Name: "id"}, Column{Name: "context", Words: true}, Column{Name: "title", Optional: true}, Column{Name: "answers", Optional: true, Lists: true, Objects: true}); err != nil {
		return nil, err
	}
	cut := tab.NewCutter()
	for {
		text, line, _, err := tab.Next()
		if bad := (*Error)(nil); err != nil && !errors.As(err, &bad) {
			if err == io.EOF {
				return out, nil
			}
			return out, err
		}
		fields, err := cut.Cut(string(text), line)
		if err != nil {
			return out, err
		}
		var texts []string
		for _, f := range fields {
			texts = append(texts, f.Text)
		}
		out = append(out, strings.Join(append(texts, string(rune('0'+line))), " "))
	}
}

func TestSQuAD(t *testing.T) {
	file := `{"version": {"of": [1, 2]},
"data": [{"title": "A", "paragraphs": [
 {"context": "c<1>", "qas": [{"id": "1", "answers": [{"x": 1}]}, {"id": "2", "answers": {"y": []}}]},
 {"qas": [{"id": 3}], "context": "c2"}], "more": 1},
{"paragraphs": []}, {"paragraphs": [{"context": "c3", "qas": []}, {"context": "c4", "qas": [{"id": "4"}]}], "title": "late"}],
"end": null}
`
	got, err := questionsIn(t, file)
	if want := `1 c<1> A [{"x":1}] 3|2 c<1> A {"y":[]} 3|3 c2 A  4|4 c4   5`; err != nil || strings.Join(got, "|") != want {
		t.Errorf("got %s, %v, want %s", strings.Join(got, "|"), err, want)
	}
	if got, err := questionsIn(t, ` [{"id": "1", "context": "c"}]`); err != nil || len(got) != 1 {
		t.Errorf("an array: %q, %v", got, err)
	}
	for content, want := range map[string]string{
		`{"a": 1}`:                              `x.json:1: an object has no "data"; expected the form of SQuAD, or an array of objects`,
		"{\n\"data\": 3}":                       "x.json:2: found 3; expected [",
		`{"data": [3]}`:                         "found 3; expected {",
		`{"data": [{"title": "x"}]}`:            `an object has no "paragraphs"`,
		`{"data": [{"paragraphs": [3]}]}`:       "x.json:1: json: cannot unmarshal number",
		`{"data": [{"paragraphs": [{"qas": [no`: "x.json:1: invalid character",
		`{"data": [{"paragraphs": [`:            "the file ends in the middle of an object",
		`{"data": []} x`:                        "more follows the object; expected nothing",
		`{"data": []}{}`:                        "more follows the object; expected nothing",
		`{"data": [{"paragraphs": [{"context": "c", "qas": [null]}]}]}`: "an element of qas is null; expected an object",
		`3`: `begins with '3'; expected an array of objects`,
	} {
		if _, err := questionsIn(t, content); err == nil || fault.Of(err) != fault.Damaged || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", content, err, want)
		}
	}
}

func FuzzSQuAD(f *testing.F) {
	f.Add([]byte(`{"data": [{"title": "A", "paragraphs": [{"context": "c", "qas": [{"id": "1"}]}]}]}`))
	f.Add([]byte(` [{"id": "1", "context": "c"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := questionsIn(t, string(data)); err != nil && fault.Of(err) != fault.Damaged {
			t.Fatalf("%q: %v", data, err)
		}
	})
}
