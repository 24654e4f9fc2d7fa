package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Blocks of a causal language model are those of group_texts, which run_clm.py has as well, of what the
// tokenizer makes of each document. What cannot be learned from, a last block of one token, is left out.
func TestCausalBlocksOfReference(t *testing.T) {
	golden := readBlocks(t)
	dir := write(t, map[string]string{"x.txt": golden.Text})
	put(t, filepath.Join(dir, "vocab.txt"), joined(golden.Vocab))
	cases := 0
	for _, c := range golden.Cases {
		if c.Blocks != GroupDocuments {
			continue
		}
		cases++
		cfg := in(dir, Config{
			Task: "lm", MaxLength: c.Length, Documents: c.Documents, Overwrite: true,
			Tokenizer: text.Uncased(), Inputs: []Input{{Train, "x.txt"}}, Workers: 2,
		})
		if cfg.Documents == "texts" {
			cfg.Documents = EachText
		}
		mustRun(t, cfg)
		want := slices.DeleteFunc(slices.Clone(c.IDs), func(ids []int32) bool { return len(ids) < 2 })
		if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %d: got %v, expected %v", c.Documents, c.Length, got, want)
		}
	}
	if cases == 0 {
		t.Errorf("%d cases", cases)
	}
}

func joined(lines []string) (out string) {
	for _, line := range lines {
		out += line + "\n"
	}
	return out
}

// A document ends with the tokenizer's end-of-text token where texts do not end with one, begins as its
// texts do, and is cut by itself if it is to be kept.
func TestCausalDocuments(t *testing.T) {
	dir := write(t, map[string]string{"x.txt": "the girl is fast\nit\n"})
	for _, name := range []string{"gpt2.json", "llama3.json"} {
		path := filepath.Join("..", "text", "tokenizerjson", "testdata", name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tokenizer, err := tokenizerjson.Parse(content, path)
		if err != nil {
			t.Fatal(err)
		}
		var documents [][]int32
		for _, line := range []string{"the girl is fast", "it"} {
			var ids []int32
			for _, s := range tokenizer.Template().Single.Before {
				ids = append(ids, s.ID)
			}
			documents = append(documents, append(tokenizer.AppendIDs(ids, line), tokenizer.Roles().Sep))
		}
		const length = 5
		cut := func(ids []int32) (out [][]int32) {
			for part := range slices.Chunk(ids, length) {
				if len(part) > 1 {
					out = append(out, part)
				}
			}
			return out
		}
		for blocks, want := range map[Blocks][][]int32{
			JoinDocuments: cut(slices.Concat(documents...)),
			KeepDocuments: append(cut(documents[0]), cut(documents[1])...),
		} {
			cfg := in(dir, Config{Task: "lm", MaxLength: length, Blocks: blocks, Overwrite: true, Inputs: []Input{{Train, "x.txt"}}})
			cfg.Vocab = path
			mustRun(t, cfg)
			if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, blocks %q: got %v, expected %v", name, blocks, got, want)
			}
		}
		if want := map[string]bool{"gpt2.json": false, "llama3.json": true}[name]; want != (len(tokenizer.Template().Single.Before) > 0) {
			t.Errorf("%s: texts begin with a token: %t", name, !want)
		}
	}
}

// Of a text and what follows it, the second part and the end are to be learned.
func TestPrompts(t *testing.T) {
	rows := []string{`{"q":"the girl","a":" is fast"}`, `{"q":"it","a":" is late, so late that she runs"}`}
	dir := write(t, map[string]string{"x.jsonl": joined(rows)})
	path := filepath.Join("..", "text", "tokenizerjson", "testdata", "llama3.json")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := tokenizerjson.Parse(content, path)
	if err != nil {
		t.Fatal(err)
	}
	const length = 14
	cfg := in(dir, Config{Task: "lm", MaxLength: length, TextColumn: "q", PairColumn: "a", Inputs: []Input{{Train, "x.jsonl"}}})
	cfg.Vocab = path
	var wantIDs [][]int32
	var wantWeights [][]float32
	truncated := int64(0)
	for _, texts := range [][2]string{{"the girl", " is fast"}, {"it", " is late, so late that she runs"}} {
		ids := tokenizer.AppendIDs([]int32{tokenizer.Template().Single.Before[0].ID}, texts[0])
		prompt := len(ids)
		ids = append(tokenizer.AppendIDs(ids, texts[1]), tokenizer.Roles().Sep)
		if len(ids) > length {
			ids, truncated = ids[:length], truncated+1
		}
		weights := make([]float32, len(ids))
		for i := prompt; i < len(ids); i++ {
			weights[i] = 1
		}
		wantIDs, wantWeights = append(wantIDs, ids), append(wantWeights, weights)
	}
	m := mustRun(t, cfg)
	if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, wantIDs) {
		t.Errorf("got %v, expected %v", got, wantIDs)
	}
	weights := weightsOf(t, cfg)
	if !reflect.DeepEqual(weights, wantWeights) {
		t.Errorf("weights %v, expected %v", weights, wantWeights)
	}
	if truncated != 1 || m.Splits[Train].Truncated != truncated || m.Pairs() || !reflect.DeepEqual(m.Columns, Columns{Text: "q", Pair: "a"}) {
		t.Errorf("%d truncated, expected %d, of %+v", m.Splits[Train].Truncated, truncated, m.Columns)
	}
	for want, row := range map[string]string{
		`column "a" has no text`:                 `{"q":"it","a":""}`,
		`column "q" has no text`:                 `{"q":"","a":"it"}`,
		"which leaves no place for column \"a\"": `{"q":"the girl is late, so late that she runs","a":"it"}`,
	} {
		put(t, filepath.Join(dir, "x.jsonl"), row+"\n")
		cfg.Overwrite = true
		if _, err := Run(t.Context(), cfg, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}

// weightsOf returns the weights of tokens of the records of Train.
func weightsOf(t *testing.T, cfg Config) (weights [][]float32) {
	t.Helper()
	eachRecord(t, cfg, Train, func(data []byte) {
		features, err := tfrecord.ParseExample(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range features {
			if f.Name == TokenWeights {
				weights = append(weights, f.Floats)
			}
		}
	})
	return weights
}

// chatFolder makes a folder with a tokenizer of the tests and what transformers keeps beside it.
func chatFolder(t *testing.T, tokenizer string, settings map[string]any) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "text", "tokenizerjson", "testdata", tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	beside, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tokenizer.json"), string(content))
	put(t, filepath.Join(dir, "tokenizer_config.json"), string(beside))
	return dir
}

// TestChats has conversations whose tokens, and those that the assistant wrote, are those of transformers, by
// the marks of a template, and without them by what each turn adds.
func TestChats(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "chat.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden []struct {
		Tokenizer, Template string
		Special             map[string]any
		Cases               []struct {
			Messages json.RawMessage
			IDs      []int32
			Learned  []float32
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	marks := regexp.MustCompile(`{% (end)?generation %}`)
	for _, g := range golden {
		for _, template := range []string{g.Template, marks.ReplaceAllString(g.Template, "")} {
			rows, wantIDs, want := "", [][]int32(nil), [][]float32(nil)
			for _, c := range g.Cases {
				var line bytes.Buffer
				if err := json.Compact(&line, c.Messages); err != nil {
					t.Fatal(err)
				}
				rows += fmt.Sprintf("{\"chat\": %s}\n", &line)
				wantIDs, want = append(wantIDs, c.IDs), append(want, c.Learned)
			}
			settings := maps.Clone(g.Special)
			settings["chat_template"] = template
			cfg := in(write(t, map[string]string{"x.jsonl": rows}), Config{Task: "lm", MaxLength: 100, ChatColumn: "chat", Inputs: []Input{{Train, "x.jsonl"}}})
			cfg.Vocab = chatFolder(t, g.Tokenizer, settings)
			m := mustRun(t, cfg)
			if got := idsOf(t, cfg, Train); !reflect.DeepEqual(got, wantIDs) {
				t.Errorf("%s: got %v, expected %v", g.Tokenizer, got, wantIDs)
			}
			if got := weightsOf(t, cfg); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: weights %v, expected %v", g.Tokenizer, got, want)
			}
			if !reflect.DeepEqual(m.Columns, Columns{Chat: "chat"}) || m.Chat == nil || m.Chat.Template != template || m.Chat.Tokens["eos_token"] != g.Special["eos_token"] {
				t.Errorf("%s: the manifest has %+v and the template %+v", g.Tokenizer, m.Columns, m.Chat)
			}
		}
	}
}

// TestChatsAreRefused has rows and templates of which records are not made.
func TestChatsAreRefused(t *testing.T) {
	const plain = "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' + m.content + eos_token }}{% endfor %}"
	const turns = `[{"role": "user", "content": "it is late"}, {"role": "assistant", "content": "it is"}, {"role": "user", "content": "so"}]`
	for _, c := range []struct{ template, messages, want string }{
		{plain, turns, ""},
		{plain, `[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]`, ""},
		{plain, `[{"role": "assistant", "content": "b", "tool_calls": null}]`, ""},
		{plain, `[{"role": "user", "content": "a"}]`, "has no message of the assistant, which is learned"},
		{plain, `[]`, "is []; expected a list of messages"},
		{plain, `"a"`, "is a; expected a list of messages"},
		{plain, `[{"role": "user"}]`, `message 1 has no text "content"; expected an object with the texts role and content, or from and value`},
		{plain, `[{"role": "user", "content": ["a"]}]`, `message 1 has no text "content"`},
		{plain, `[{"role": "user", "content": "a", "name": "me"}]`, "message 1 has name, which is not known here; expected role and content alone"},
		{plain, `[{"from": "tool", "value": "a"}]`, `message 1 is from "tool"; expected human, gpt or system`},
		{plain, `[{"role": "user", "content": "` + strings.Repeat("it is late ", 40) + `"}, {"role": "assistant", "content": "b"}]`, "has no token of an answer among the first 40, the maximum length"},
		{"{{ raise_exception('never') }}", `[{"role": "user", "content": "a"}]`, "the chat template refuses the conversation: never"},
		{"{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}{% endfor %}", `[{"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}]`, "the chat template writes message 1 otherwise when others follow"},
		{"{% include 'x' %}", `[]`, `its chat template is not known here: line 1 of the chat template: the statement "include" is not known here`},
		{"{{ bos_token }}", `[]`, "nothing of bos_token, which its chat template names; expected it in tokenizer_config.json, null for none"},
		{"", `[]`, "has no chat template; expected a folder with a chat_template.jinja or a tokenizer_config.json that has one, or a GGUF (--tokenizer)"},
	} {
		cfg := in(write(t, map[string]string{"x.jsonl": fmt.Sprintf("{\"chat\": %s}\n", c.messages)}), Config{Task: "lm", MaxLength: 40, ChatColumn: "chat", Inputs: []Input{{Train, "x.jsonl"}}})
		cfg.Vocab = chatFolder(t, "smollm.json", map[string]any{"eos_token": "<|im_end|>", "chat_template": c.template})
		_, err := Run(t.Context(), cfg, quiet)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %.80s: %v; expected %q", c.template, c.messages, err, c.want)
		}
	}
}
