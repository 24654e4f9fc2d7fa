package convert

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// squadRun converts a file of questions, whose characters and words are the vocabulary.
func squadRun(t *testing.T, name, content string, cfg Config) (Config, *Manifest, string) {
	t.Helper()
	dir := write(t, map[string]string{name: content})
	seen := map[string]bool{}
	for _, r := range content {
		if r > ' ' {
			seen[strings.ToLower(string(r))], seen["##"+strings.ToLower(string(r))] = true, true
		}
	}
	for _, w := range strings.Fields("where who rhine lighthouse the long years") {
		seen[w] = true
	}
	vocab := append([]string{text.Pad, text.Unk, text.Cls, text.Sep, text.Mask}, slices.Sorted(maps.Keys(seen))...)
	put(t, filepath.Join(dir, "vocab.txt"), strings.Join(vocab, "\n")+"\n")
	cfg.Task, cfg.Inputs = "qa", []Input{{Dev, name}}
	cfg = in(dir, cfg)
	cfg.Tokenizer = text.Config{Lowercase: true, Accents: text.KeepAccents}
	var log bytes.Buffer
	m, err := Run(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(t.Context(), cfg.Out); err != nil {
		t.Fatal(err)
	}
	return cfg, m, log.String()
}

// answersOf returns, by the ids of questions, the texts that the tokens of the answers stand for, one for
// each window.
func answersOf(t *testing.T, cfg Config, m *Manifest) (map[string][]string, []Question) {
	t.Helper()
	all, err := ReadQuestions(t.Context(), cfg.Out, m, Dev)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	dec := tfrecord.NewDecoder(QuestionID, StartPositions, EndPositions, TokenStarts, TokenEnds, InputIDs, SegmentIDs)
	eachRecord(t, cfg, Dev, func(data []byte) {
		var v tfrecord.Values
		if err := dec.Decode(data, &v); err != nil {
			t.Fatal(err)
		}
		at := func(i int) []int64 { return v.At(i).Int64s }
		if n := len(at(5)); n > cfg.MaxLength && cfg.MaxLength > 0 || len(at(3)) != n || len(at(4)) != n || len(at(6)) != n {
			t.Fatalf("%d ids, %d starts, %d ends and %d segments", n, len(at(3)), len(at(4)), len(at(6)))
		}
		q := all[at(0)[0]]
		answer := "-"
		if len(at(1)) > 0 {
			first, last := at(1)[0], at(2)[0]
			if answer = ""; first > 0 {
				answer = qa.Slice(q.Context, int(at(3)[first]), int(at(4)[last]))
			}
		}
		out[q.ID] = append(out[q.ID], answer)
	})
	return out, all
}

func TestQuestionsOfSQuAD(t *testing.T) {
	content, err := os.ReadFile("testdata/squad.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []int{0, 120} {
		cfg, m, log := squadRun(t, "squad.json", string(content), Config{MaxLength: length, DocStride: 30})
		got, all := answersOf(t, cfg, m)
		if len(all) != 11 || m.Splits[Dev].Questions.Impossible != 3 || m.Splits[Dev].Answered != m.Splits[Dev].Records || strings.Contains(log, "do not fit") {
			t.Errorf("%d questions, %+v, %s", len(all), m.Splits[Dev], log)
		}
		for _, q := range all {
			want := ""
			if len(q.Answers) > 0 {
				want = q.Answers[0]
			}
			found := 0
			for _, a := range got[q.ID] {
				if a != "" && a != want {
					t.Errorf("length %d: %s: the answer is %q, want %q", length, q.ID, a, want)
				}
				if a != "" {
					found++
				}
			}
			if (found > 0) != (want != "") {
				t.Errorf("length %d: %s: %d of %d windows have the answer %q", length, q.ID, found, len(got[q.ID]), want)
			}
		}
		if n := len(got["skerrin-2"]); length == 0 && n < 2 || length > 0 && n < 6 {
			t.Errorf("length %d: a long context has %d windows", length, n)
		}
		if c := all[1].Context; c != all[0].Context || !strings.HasPrefix(c, "“Café Zentral”") {
			t.Errorf("the context is %q", c)
		}
	}
	cfg, m, _ := squadRun(t, "squad.json", string(content), Config{})
	if err := os.WriteFile(filepath.Join(cfg.Out, "dev"+QuestionsSuffix), []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadQuestions(t.Context(), cfg.Out, m, Dev); err == nil || !strings.Contains(err.Error(), "its checksum differs") {
		t.Errorf("other questions: %v", err)
	}
	if _, err := ReadQuestions(t.Context(), cfg.Out, m, Test); err == nil || !strings.Contains(err.Error(), "split test has no questions; convert the data with --task qa") {
		t.Errorf("no questions: %v", err)
	}
}

// The windows and the tokens of the answers are those of Hugging Face's tokenizers and run_qa.py.
func TestWindowsAgainstGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/squad_windows.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Length, Stride int
		Windows        []struct {
			ID         string
			IDs, Types []int64
			Start, End int64
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil || len(golden.Windows) == 0 {
		t.Fatalf("%d windows, %v", len(golden.Windows), err)
	}
	cfg := Config{Task: "qa", Inputs: []Input{{Dev, "testdata/squad.json"}}, Vocab: "testdata/squad_vocab.txt", Tokenizer: text.Uncased(),
		Out: t.TempDir(), MaxLength: golden.Length, DocStride: golden.Stride}
	m := mustRun(t, cfg)
	all, err := ReadQuestions(t.Context(), cfg.Out, m, Dev)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tfrecord.Open(filepath.Join(cfg.Out, m.Splits[Dev].Files[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dec := tfrecord.NewDecoder(QuestionID, InputIDs, SegmentIDs, StartPositions, EndPositions)
	for i, want := range golden.Windows {
		data, err := r.Next()
		if err != nil {
			t.Fatalf("window %d: %v", i, err)
		}
		var v tfrecord.Values
		if err := dec.Decode(data, &v); err != nil {
			t.Fatal(err)
		}
		at := func(i int) []int64 { return v.At(i).Int64s }
		if all[at(0)[0]].ID != want.ID || !slices.Equal(at(1), want.IDs) || !slices.Equal(at(2), want.Types) || at(3)[0] != want.Start || at(4)[0] != want.End {
			t.Errorf("window %d of question %s: ids %v, answer %d to %d; want %v, %d to %d", i, want.ID, at(1), at(3)[0], at(4)[0], want.IDs, want.Start, want.End)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("more windows than %d: %v", len(golden.Windows), err)
	}
}

func TestQuestionsOfJSONLines(t *testing.T) {
	rows := `{"id": "1", "question": "where?", "context": "in the old house", "answers": {"text": ["the old", "old"], "answer_start": [3, 7]}}
{"question": "who?", "context": "in the old house", "answers": {"text": [], "answer_start": []}}
{"id": 3, "question": "half?", "context": "in the old house", "answers": [{"text": "ol", "answer_start": 8}]}
{"id": "4", "question": "all?", "context": "aa bb cc dd ee ff", "answers": {"text": ["bb cc dd ee"], "answer_start": [3]}}
`
	cfg, m, log := squadRun(t, "x.jsonl", rows, Config{MaxLength: 12, DocStride: 4})
	got, all := answersOf(t, cfg, m)
	if all[1].ID != "1" || all[2].ID != "3" || !slices.Equal(all[0].Answers, []string{"the old", "old"}) || all[0].Unknown {
		t.Errorf("questions are %+v", all)
	}
	if !slices.Contains(got["1"], "the old") || !slices.Contains(got["3"], "old") || slices.Max(got["4"]) != "" {
		t.Errorf("answers are %q", got)
	}
	if q := m.Splits[Dev].Questions; q.Unfit != 1 || q.Unplaced != 1 || !strings.Contains(log, "questions=4 within_words=1 in_no_window=1") {
		t.Errorf("%+v: %s", q, log)
	}
	array, err := json.Marshal([]json.RawMessage{json.RawMessage(strings.Split(rows, "\n")[0])})
	if err != nil {
		t.Fatal(err)
	}
	cfg, m, _ = squadRun(t, "x.json", string(array), Config{})
	if got, _ := answersOf(t, cfg, m); !slices.Equal(got["1"], []string{"the old"}) {
		t.Errorf("of an array: %q", got)
	}
}

func TestQuestionsThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct{ row, want string }{
		"elsewhere":   {`{"id":"7","question":"a","context":"a b c d","answers":{"text":["d"],"answer_start":[2]}}`, `x.jsonl:1: question 7: the answer "d" is not at character 2 of the context, but "b"`},
		"beyond":      {`{"question":"a","context":"a b","answers":{"text":["b"],"answer_start":[99]}}`, `the answer "b" is not at character 99 of the context, but ""`},
		"lists":       {`{"question":"a","context":"a b","answers":{"text":["b"],"answer_start":[]}}`, "expected the lists text and answer_start, as long as each other"},
		"no answers":  {`{"question":"a","context":"a b"}`, `has no "answers"`},
		"empty":       {`{"question":"a","context":"a b","answers":[{"text":" ","answer_start":1}]}`, `an answer is " " from character 1`},
		"no context":  {`{"question":"a","context":" ","answers":[]}`, `column "context" has no text`},
		"no question": {`{"question":"","context":"b","answers":[]}`, `column "question" has no text`},
	} {
		dir := write(t, map[string]string{"x.jsonl": c.row + "\n"})
		_, err := Run(t.Context(), in(dir, Config{Task: "qa", Inputs: []Input{{Train, "x.jsonl"}}, Tokenizer: text.Uncased()}), quiet)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	// Without answers, a test split has records without positions.
	dir := write(t, map[string]string{"x.jsonl": `{"question":"a","context":"a b"}` + "\n"})
	cfg := in(dir, Config{Task: "qa", Inputs: []Input{{Test, "x.jsonl"}}, Tokenizer: text.Uncased()})
	m := mustRun(t, cfg)
	if all, err := ReadQuestions(t.Context(), cfg.Out, m, Test); err != nil || len(all) != 1 || !all[0].Unknown || m.Splits[Test].Answered != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	wrong := in(dir, Config{Task: "regression", TextColumn: "a", LabelColumn: "b", DocStride: 3, Inputs: cfg.Inputs})
	if err := wrong.Validate(); err == nil || !strings.Contains(err.Error(), "the stride of windows is given; it is only for task qa") {
		t.Error(err)
	}
}
