package jinja

import (
	"strings"
	"testing"
	"time"
)

// Values of JSON are in templates what they are in Python, in their order.
func TestParseJSON(t *testing.T) {
	tmpl, err := Parse("{{ v | tojson }} {{ v.b[1] }} {% for k in v %}{{ k }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseJSON([]byte(`{"b": [true, -7, null], "a": {"z": "x", "y": {}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := tmpl.Render(map[string]any{"v": v}, time.Time{})
	if want := `{"b": [true, -7, null], "a": {"z": "x", "y": {}}} -7 ba`; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestParseJSONRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"1.5": "there is the number 1.5; expected whole numbers", "1e3": "the number 1e3", "9007199254740993": "expected whole numbers of up to 2^53",
		"[1": "EOF", "1 2": "more follows after the value", "": "EOF", strings.Repeat("[", 101): "more than 100 deep",
	} {
		if _, err := ParseJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v; want %q", text, err, want)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": null}], "a": "c"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := ParseJSON(data); err == nil && v.bytes != len(data) {
			t.Errorf("%q: %d bytes", data, v.bytes)
		}
	})
}
