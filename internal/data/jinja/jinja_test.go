package jinja

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLimits has templates that would take for ever, all memory or all of the stack.
func TestLimits(t *testing.T) {
	doubled := "{% set n = namespace(a='ab') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}"
	for name, c := range map[string]struct{ template, want string }{
		"loops":      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 4194304 steps"},
		"range":      {"{{ range(100001) | length }}", "range has 100001 numbers; expected at most 100000"},
		"output":     {"{% for i in range(99999) %}" + strings.Repeat("x", 1000) + "{% endfor %}", "more texts than 16 MiB"},
		"doubling":   {doubled, "more texts than 16 MiB"},
		"repeating":  {"{{ 'ab' * 9000000000000000 }}", "more texts than 16 MiB"},
		"replacing":  {"{{ ('a' * 5000000).replace('a', 'b' * 5000) }}", "more texts than 16 MiB"},
		"lists":      {"{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}", "more than 4194304 steps"},
		"recursion":  {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call each other deeper than 50"},
		"brackets":   {"{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}", "nests deeper than 100"},
		"not":        {"{{ " + strings.Repeat("not ", 5000) + "1 }}", "nests deeper than 100"},
		"minus":      {"{{ " + strings.Repeat("-", 5000) + "1 }}", "nests deeper than 100"},
		"blocks":     {strings.Repeat("{% if 1 %}", 5000), "nests deeper than 100"},
		"branches":   {"{% if 0 %}" + strings.Repeat("{% elif 0 %}", 5000), "nests deeper than 100"},
		"operators":  {"{{ 1" + strings.Repeat(" + 1", 5000) + " }}", "more than 100 operators stand in a row"},
		"attributes": {"{{ a" + strings.Repeat(".a", 5000) + " }}", "more than 100 operators stand in a row"},
		"filters":    {"{{ 'a'" + strings.Repeat(" | trim", 5000) + " }}", "more than 100 operators stand in a row"},
		"ifs":        {"{{ 1" + strings.Repeat(" if 1", 5000) + " }}", "more than 100 operators stand in a row"},
		"size":       {strings.Repeat("x", MaxSource+1), "has 1048577 bytes; expected at most 1048576"},
		"encoding":   {"\xff", "is not UTF-8"},
		"number":     {"{{ 9007199254740991 * 3 }}", "is more than 9007199254740992"},
	} {
		parsed, err := Parse(c.template)
		if err == nil {
			_, _, err = parsed.Render(nil, time.Time{})
		}
		if !errors.As(err, new(*Error)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; expected %q", name, err, c.want)
		}
	}
}

// TestRoom has values that are larger than what a template may make by itself.
func TestRoom(t *testing.T) {
	long := strings.Repeat("x", 4<<20)
	parsed, err := Parse("{% for m in messages %}{{ m.content | trim + '\n' }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	messages := []Object{{{"content", long}}, {{"content", long}}, {{"content", long}}}
	got, _, err := parsed.Render(map[string]any{"messages": messages}, time.Time{})
	if want := strings.Repeat(long+"\n", 3); err != nil || got != want {
		t.Errorf("%d bytes, error %v; expected %d", len(got), err, len(want))
	}
}

// TestErrors has the messages that users see.
func TestErrors(t *testing.T) {
	for template, want := range map[string]string{
		"a\n{{ 'b' | sort }}":                    "line 2 of the chat template: the filter sort of a text is not known here",
		"{{ 1 is prime }}":                       "line 1 of the chat template: the test prime is not known here",
		"{{ 'a'.zfill(2) }}":                     "line 1 of the chat template: zfill of a text is not known here",
		"{% include 'secrets' %}":                `line 1 of the chat template: the statement "include" is not known here; expected if, for, set, macro, generation, break or continue`,
		"{{ raise_exception('only ' ~ 1) }}":     "the chat template refuses the conversation: only 1",
		"{{ messages[0].tool_calls.arguments }}": "line 1 of the chat template: messages is undefined and has no items",
		"{% if 1 %}":                             "line 1 of the chat template: the template ends; expected elif or else or endif before it",
		"{{ 1":                                   "line 1 of the chat template: a tag does not end; expected }}",
	} {
		parsed, err := Parse(template)
		if err == nil {
			_, _, err = parsed.Render(nil, time.Time{})
		}
		if fmt.Sprint(err) != want {
			t.Errorf("%q: %v; expected %s", template, err, want)
		}
	}
}

// FuzzRender looks for templates that do anything but render or fail with an *Error.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		"{%- for m in messages %}{{ m['role'] + m.content | trim }}{% endfor %}\n", "{% set n = namespace(a=1) %}{% set n.a = -2 %}{{ n.a // 3 }}",
		"{% macro f(a, b='c') %}{{ a ~ b }}{% endmacro %}{{ f(1)[::-1] }}", "{{ messages | selectattr('role', 'in', ['user']) | map(attribute='content') | join(',') }}",
		"{# c -#} {{ {'a': [1, (2,)]} | tojson }}{% generation %}x{% endgeneration %}", "{{ 'a b'.split(' ', 1)[-1].replace('b', 'c') if 1 < 2 <= 3 else none }}", "{{ strftime_now('%d %b') }}{{ range(9)[2:5:2] | length }}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		parsed, err := Parse(source)
		if err == nil {
			var text string
			var spans []Span
			text, spans, err = parsed.Render(map[string]any{"messages": []Object{{{"role", "user"}, {"content", " \u00dc "}}}, "bos_token": "<s>", "tools": nil}, time.Unix(0, 0).UTC())
			for _, s := range spans {
				if s.From > s.To || s.To > len(text) {
					t.Errorf("span %v of %d bytes", s, len(text))
				}
			}
		}
		if err != nil && !errors.As(err, new(*Error)) {
			t.Error(err)
		}
	})
}
