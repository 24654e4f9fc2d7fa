package chat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text/chat"
)

// golden has templates by names: refused are those that gorbit is not to know, and of random ones it may refuse
// some.
type golden struct {
	Tokens        map[string]string
	Conversations map[string][]chat.Message
	Templates     []struct {
		Name, Template string
		Cases          map[string]rendering // by the conversation, and whether an answer is to follow
	}
}

// rendering is a text with the spans of it, in characters, that the assistant wrote, or an error.
type rendering struct {
	Text  *string
	Spans [][2]int
	Error string
}

// TestGoldens renders what transformers rendered. GORBIT_CHAT_GOLDENS names other goldens than those beside the
// scripts that make them.
func TestGoldens(t *testing.T) {
	paths := []string{"testdata/goldens.json", "testdata/random.json"}
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
		cases, refused := 0, 0
		for _, of := range g.Templates {
			for name, want := range of.Cases {
				conversation, prompt := strings.CutSuffix(name, ", prompt")
				cases++
				if err := renders(g, of.Template, g.Conversations[conversation], prompt, want); errors.Is(err, errRefused) && of.Name == "random" {
					refused++
				} else if errors.Is(err, errRefused) != (of.Name == "refused") || err != nil && of.Name != "refused" {
					t.Errorf("%s %q, %s: %v", of.Name, of.Template, name, err)
				}
			}
		}
		if cases == 0 || refused > cases/10 {
			t.Errorf("%s: %d of %d cases are refused; expected few", path, refused, cases)
		}
	}
}

// errRefused is of what transformers renders and gorbit does not.
var errRefused = errors.New("refused")

// renders returns how a rendering differs from that of transformers.
func renders(g golden, source string, messages []chat.Message, prompt bool, want rendering) error {
	text := ""
	template, err := chat.New(chat.Format{Template: source, Tokens: g.Tokens})
	if err == nil {
		template.Now = func() time.Time { return time.Date(2025, 3, 7, 9, 5, 4, 0, time.UTC) }
		text, err = template.Render(messages, prompt)
	}
	switch {
	case want.Text == nil && err == nil:
		return fmt.Errorf("got %q; transformers fails: %s", text, want.Error)
	case want.Text == nil:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w; transformers has %q", errRefused, err, *want.Text)
	case text != *want.Text:
		return fmt.Errorf("got %q; transformers has %q", text, *want.Text)
	case prompt || len(want.Spans) == 0:
		return nil
	}
	_, spans, err := template.Answers(messages)
	var got [][2]int
	for _, s := range spans {
		got = append(got, [2]int{utf8.RuneCountInString(text[:s.From]), utf8.RuneCountInString(text[:s.To])})
	}
	if err != nil || !slices.Equal(got, want.Spans) {
		return fmt.Errorf("spans %v, error %w; transformers has %v", got, err, want.Spans)
	}
	return nil
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
