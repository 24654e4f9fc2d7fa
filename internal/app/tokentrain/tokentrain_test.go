package tokentrain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

// texts are lines with words of a few parts.
func texts() string {
	parts := []string{"the", "un", "happi", "ness", "cat", "s", "walk", "ing", "ed", "over", "é", "中文"}
	var b strings.Builder
	for i := range 300 {
		for k := range 6 {
			fmt.Fprintf(&b, "%s%s ", parts[(i*7+k*k)%len(parts)], parts[(i*i+k*5)%len(parts)])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// put writes a file, compressed if its name says so.
func put(t *testing.T, path, content string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := stream.Compress(&b, path)
	if err == nil {
		_, err = w.Write([]byte(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o777)
	}
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func train(ctx context.Context, cfg Config, out string) error {
	_, err := Train(ctx, cfg, out, slog.New(slog.DiscardHandler))
	return err
}

// TestTrain trains on the same texts in several forms, on several threads: the bytes are the same, and
// texts come back from their tokens.
func TestTrain(t *testing.T) {
	dir := t.TempDir()
	all := texts()
	var objects, one, two strings.Builder
	for i, line := range strings.SplitAfter(all, "\n") {
		half := []*strings.Builder{&one, &two}[i%2]
		half.WriteString(line)
		if line != "" {
			fmt.Fprintf(&objects, "{\"id\": %d, \"body\": %q}\n", i, strings.TrimSuffix(line, "\n"))
		}
	}
	plain := put(t, filepath.Join(dir, "plain.txt"), all)
	jsonl := put(t, filepath.Join(dir, "objects.jsonl.gz"), objects.String())
	put(t, filepath.Join(dir, "folder", "a.zst"), one.String())
	put(t, filepath.Join(dir, "folder", "deep", "b.tokens"), two.String())
	put(t, filepath.Join(dir, "folder", ".hidden"), "\x00\xff")
	for _, tt := range []struct {
		typ, template string
		size          int
		tokens, back  string
	}{
		{Unigram, "", 45, "<s> ▁the cat s </s>", "thecats"},
		{Unigram, "t5", 45, "▁the cat s </s>", "thecats"},
		{BPE, "roberta", 330, "<s> the cat s </s>", "thecats"},
		{BPE, "bert", 330, "[CLS] the cat s [SEP]", "thecats"},
	} {
		var first []byte
		for i, form := range []Config{
			{Corpus: Corpus{Paths: []string{plain}}, Threads: 1},
			{Corpus: Corpus{Paths: []string{jsonl}, Column: "body"}, Threads: 3},
			{Corpus: Corpus{Paths: []string{filepath.Join(dir, "folder")}}},
		} {
			form.Type, form.Template, form.Size = tt.typ, tt.template, tt.size
			out := filepath.Join(t.TempDir(), "tok")
			if err := train(t.Context(), form, out); err != nil {
				t.Fatalf("%v: %v", tt, err)
			}
			data, err := os.ReadFile(filepath.Join(out, Name))
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = data
			} else if !bytes.Equal(data, first) {
				t.Errorf("%v: form %d of the same texts gives other bytes", tt, i)
			}
		}
		tok, err := tokenizerjson.Parse(first, Name)
		if err != nil {
			t.Fatal(err)
		}
		ids := tok.Encode("thecats", "", 0).IDs
		if got := tok.Vocab().Tokens(ids); got != tt.tokens || tok.Vocab().Size() != tt.size || tok.Decode(ids, false) != tt.back {
			t.Errorf("%v: got %s, %d tokens and %q", tt, got, tok.Vocab().Size(), tok.Decode(ids, false))
		}
	}
}

func TestWrongInput(t *testing.T) {
	dir := t.TempDir()
	plain := put(t, filepath.Join(dir, "plain.txt"), texts())
	full := filepath.Dir(put(t, filepath.Join(dir, "full", "a.txt"), "a"))
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	corpus := func(name, content string) Corpus {
		return Corpus{Paths: []string{put(t, filepath.Join(dir, name), content)}}
	}
	for want, cfg := range map[string]Config{
		"the corpus is empty: there are no words in ":                              {Corpus: corpus("blank.txt", " \n\n")},
		"has a byte 0 in the text; expected text, and not a binary file":           {Corpus: corpus("zero.bin", "text\x00\x01\x02\n")},
		"byte 0xff at position 1 is not UTF-8":                                     {Corpus: corpus("odd.bin", "\xff\xd8\xff\n")},
		"has columns (format csv), and no text column is given":                    {Corpus: corpus("a.csv", "a,b\n1,2\n")},
		"is a folder without files":                                                {Corpus: Corpus{Paths: []string{empty}}},
		"no such file":                                                             {Corpus: Corpus{Paths: []string{filepath.Join(dir, "none")}}},
		`is not empty (it has a.txt); expected one that is empty`:                  {Corpus: Corpus{Paths: []string{plain}}},
		"the corpus gives only ":                                                   {Corpus: Corpus{Paths: []string{plain}}, Size: 10_000},
		"a vocabulary of 10 tokens cannot hold the special tokens and every chara": {Corpus: Corpus{Paths: []string{plain}}, Size: 10},
		`the type is "sentencepiece"; expected one of unigram, bpe, wordpiece`:     {Corpus: Corpus{Paths: []string{plain}}, Type: "sentencepiece"},
		`the template is "gpt"; expected one of bert, roberta, t5`:                 {Corpus: Corpus{Paths: []string{plain}}, Template: "gpt"},
		"type unigram always keeps case and accents":                               {Corpus: Corpus{Paths: []string{plain}}, Cased: true},
		"no files are given":                                                       {},
	} {
		if cfg.Type == "" {
			cfg.Type = Unigram
		}
		if cfg.Size == 0 {
			cfg.Size = 45
		}
		out := filepath.Join(dir, "out")
		if strings.Contains(want, "is not empty") {
			out = full
		}
		err := train(t.Context(), cfg, out)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, expected %s", err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
			t.Errorf("%s: something was written", want)
		}
	}
}

// TestCrashAnywhere crashes a training at every file operation.
func TestCrashAnywhere(t *testing.T) {
	plain := put(t, filepath.Join(t.TempDir(), "plain.txt"), texts())
	crashtest.Survives(t, crashtest.Program{
		Run: func(dir string) error {
			cfg := Config{Type: BPE, Size: 270, Corpus: Corpus{Paths: []string{plain}}, Threads: 1}
			return train(context.Background(), cfg, filepath.Join(dir, "tok"))
		},
		Complete: func(err error) bool {
			return errors.Is(err, fault.Usage) && strings.Contains(err.Error(), "is not empty")
		},
		Phase: func(string) string { return "writing" },
	})
}
