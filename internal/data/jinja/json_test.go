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

// Numbers that are not whole stay as they are written, and are what they are in Python wherever they are looked at.
func TestParseJSONKeepsNumbers(t *testing.T) {
	for number, want := range map[string]string{
		"1.50": "1.50 number  yes", "-0.0": "-0.0 number  no", "1e-400": "1e-400 number  no", "1E+3": "1E+3 number  yes",
		"9007199254740993": "9007199254740993 number integer yes", "-0": "-0 number integer no", "7": "7 number integer yes",
	} {
		v, err := ParseJSON([]byte(`{"x": ` + number + `}`))
		if err != nil {
			t.Fatal(err)
		}
		for source, want := range map[string]string{
			"{{ v.x }} {{ 'number' if v.x is number }} {{ 'integer' if v.x is integer }} {{ 'yes' if v.x else 'no' }}": want,
			"{{ v | tojson }}{{ [v.x] | tojson }}{{ v.x | string }}{{ v.x ~ '' }}":                                     `{"x": ` + number + "}[" + number + "]" + number + number,
			"{{ v.x is string }}{{ v.x is mapping }}{{ v.x == 'a' }}{{ v.x == none }}{{ v.x in ['a'] }}":               "FalseFalseFalseFalseFalse",
		} {
			tmpl, err := Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := tmpl.Render(map[string]any{"v": v}, time.Time{}); err != nil || got != want {
				t.Errorf("%s: %s gives %q, %v; want %q", number, source, got, err, want)
			}
		}
	}
}

func TestWrittenNumbersAreNotComputedWith(t *testing.T) {
	v, err := ParseJSON([]byte("1.5"))
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"{{ v + 1 }}": "the number 1.5 + a number is not known here", "{{ v > 1 }}": "the number 1.5 and a number have no order",
		"{{ v == 1 }}": "the number 1.5 and a number are compared", "{{ 1 in [v] }}": "the number 1.5 and a number are compared",
		"{{ -v }}": "the number 1.5", "{{ v | length }}": "the number 1.5 has no length", "{{ range(v) }}": "the number 1.5",
		"{{ 'a' * v }}": "the number 1.5 is not known here", "{% for x in v %}{% endfor %}": "the number 1.5 is walked",
	} {
		tmpl, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := tmpl.Render(map[string]any{"v": v}, time.Time{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %q, error %v; want %q", source, got, err, want)
		}
	}
}

func TestParseJSONRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"1.": "EOF", "01": "more follows", "NaN": "invalid character",
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
