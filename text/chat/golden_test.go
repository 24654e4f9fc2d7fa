package chat_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text/chat"
)

type golden struct {
	Tokens    map[string]string
	Templates []struct {
		Name, Template string
		Cases          map[string]struct {
			Messages []chat.Message
			Prompt   bool
			Text     *string
			Spans    [][2]int // in characters
			Error    string
		}
	}
}

// TestGoldens renders what transformers rendered. GORBIT_CHAT_GOLDENS names other goldens than those beside
// the script that makes both.
func TestGoldens(t *testing.T) {
	paths := []string{"testdata/goldens.json"}
	if other := os.Getenv("GORBIT_CHAT_GOLDENS"); other != "" {
		paths = []string{other}
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var g golden
		if err := json.Unmarshal(data, &g); err != nil {
			t.Fatal(err)
		}
		for _, of := range g.Templates {
			template, err := chat.New(chat.Format{Template: of.Template, Tokens: g.Tokens})
			if err != nil && of.Name != "refused" && of.Cases["turns"].Error == "" {
				t.Errorf("%s %q: %v", of.Name, of.Template, err)
			}
			if err != nil {
				continue
			}
			template.Now = func() time.Time { return time.Date(2025, 3, 7, 9, 5, 4, 0, time.UTC) }
			for name, c := range of.Cases {
				text, err := template.Render(c.Messages, c.Prompt)
				switch {
				case of.Name == "refused" && err == nil:
					t.Errorf("%q gives %q; expected that it is refused", of.Template, text)
				case of.Name == "refused":
				case c.Text == nil && err == nil:
					t.Errorf("%s %q, %s: got %q; transformers fails: %s", of.Name, of.Template, name, text, c.Error)
				case c.Text == nil:
				case err != nil:
					t.Errorf("%s %q, %s: %v", of.Name, of.Template, name, err)
				case text != *c.Text:
					t.Errorf("%s %q, %s:\ngot  %q\nwant %q", of.Name, of.Template, name, text, *c.Text)
				}
				if err == nil && c.Text != nil && !c.Prompt && len(c.Spans) > 0 {
					_, spans, err := template.Answers(c.Messages)
					var got [][2]int
					for _, s := range spans {
						got = append(got, [2]int{utf8.RuneCountInString(text[:s.From]), utf8.RuneCountInString(text[:s.To])})
					}
					if err != nil || !reflect.DeepEqual(got, c.Spans) {
						t.Errorf("%s, %s: spans %v, error %v; transformers has %v", of.Name, name, got, err, c.Spans)
					}
				}
			}
		}
	}
}

// TestAnswers finds what the assistant wrote by what each turn adds.
func TestAnswers(t *testing.T) {
	turns := []chat.Message{{Role: "user", Content: "a"}, {Role: chat.Assistant, Content: "b"}, {Role: "user", Content: "c"}, {Role: chat.Assistant, Content: "d"}}
	const plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
	for name, c := range map[string]struct {
		template, err string
		messages      []chat.Message
		want          []string
	}{
		"turns":     {plain, "", turns, []string{"b;", "d;"}},
		"no prompt": {strings.Split(plain, "{% if")[0], "", turns, []string{"<assistant>b;", "<assistant>d;"}},
		"nothing":   {plain, "", turns[:1], nil},
		"rewrites":  {"{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}{% endfor %}", "the chat template writes message 2 otherwise when others follow", turns, nil},
		"begins":    {"{{ messages[0].role.x }}" + plain, "the messages before message 1, alone: line 1 of the chat template: an item is undefined", turns[1:], nil},
		"marked":    {"{% for m in messages %}{% if loop.last %}!{% endif %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", "", turns, []string{"a", "b", "c", "d"}},
	} {
		template, err := chat.New(chat.Format{Template: c.template})
		if err != nil {
			t.Fatal(err)
		}
		text, spans, err := template.Answers(c.messages)
		var got []string
		for _, s := range spans {
			got = append(got, text[s.From:s.To])
		}
		if !slices.Equal(got, c.want) || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, error %v; expected %q, error %q", name, got, err, c.want, c.err)
		}
	}
}
