package convert

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"log/slog"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/internal/data/table"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Columns of questions, unless others are named.
const (
	questionColumn = "question"
	contextColumn  = "context"
	answersColumn  = "answers"
	idColumn       = "id"
	noneColumn     = "is_impossible"
)

// Question is a line of the questions of a split, which are in the order of their numbers in the
// records.
type Question struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	// Context is the text that has the answer. In the file it is left out if it is that of the line
	// before.
	Context string `json:"context,omitempty"`
	// Answers are the true answers; none if the question cannot be answered. Unknown means that it is
	// not said whether it can.
	Answers []string `json:"answers"`
	Unknown bool     `json:"unknown,omitempty"`
}

// Questions describes the questions of a split.
type Questions struct {
	File
	// Impossible is the number of questions that have no answer in their context.
	Impossible int64 `json:"impossible"`
	// Unfit is the number of questions whose answer does not begin and end with words, and Unplaced
	// that of those whose answer is in no window.
	Unfit    int64 `json:"unfit,omitempty"`
	Unplaced int64 `json:"unplaced,omitempty"`
}

// questions is the maker of records for QuestionAnswering: one for each window of a question's context.
type questions struct {
	cfg       *Config
	log       *slog.Logger
	tokenizer *text.Tokenizer
	splits    map[string]*questionsFile
}

// newQuestions returns the maker of records for QuestionAnswering, and describes it in the manifest.
func newQuestions(c *conversion) *questions {
	t := c.cfg.task()
	c.manifest.Columns, c.manifest.DocStride = Columns{Text: t.text, Pair: t.pair, Label: t.label}, c.cfg.DocStride
	return &questions{c.cfg, c.log, c.tokenizer, map[string]*questionsFile{}}
}

// questionRows is how many questions are worked on at a time. They have a context each.
const questionRows = 128

func (q *questions) chunkRows() int { return questionRows }

func (q *questions) columns(in Input) []table.Column {
	t := q.cfg.task()
	return []table.Column{
		{Name: t.text, Words: true, Flag: q.cfg.flagOf("--text-column")},
		{Name: t.pair, Words: true, Flag: q.cfg.flagOf("--pair-column")},
		{Name: t.label, Optional: true, Lists: true, Objects: true, Flag: q.cfg.flagOf("--label-column")},
		{Name: idColumn, Optional: true},
		{Name: noneColumn, Optional: true},
	}
}

// asked is a row: a question with its windows.
type asked struct {
	Question
	windows []qa.Window
	first   []int // of each window: its first and last token of the answer, 0 where there is none
	last    []int
	known   bool // whether it is known what the answer is
	cut     bool // the question
	fits    bool
	placed  bool
}

func (q *questions) worker(f *inputFile) func(*chunk, *row, []table.Field) {
	var last string // context
	var tokens qa.Context
	return func(_ *chunk, r *row, fields []table.Field) {
		context := fields[1].Text
		if context != last || tokens.IDs == nil {
			last, tokens = strings.Clone(context), qa.Tokenize(q.tokenizer, context, math.MaxInt)
		}
		a, reason := q.ask(tokens, fields, f)
		if r.asked = a; reason != "" {
			if id := fields[3].Text; id != "" {
				reason = fmt.Sprintf("question %s: %s", table.Clip(id), reason)
			}
			r.bad = &RowError{f.Path, r.line, reason}
		}
	}
}

// ask makes the windows of a question, or returns why that is not possible.
func (q *questions) ask(tokens qa.Context, fields []table.Field, f *inputFile) (*asked, string) {
	t := q.cfg.task()
	a := &asked{Question: Question{ID: strings.Clone(fields[3].Text), Question: strings.Clone(fields[0].Text), Context: strings.Clone(fields[1].Text)}}
	if len(tokens.IDs) == 0 {
		return nil, fmt.Sprintf("column %q has no text", t.pair)
	}
	ids, cut := qa.Question(q.tokenizer, a.Question.Question, q.cfg.MaxLength)
	if a.cut = cut; len(ids) == 0 {
		return nil, fmt.Sprintf("column %q has no text", t.text)
	}
	answers, reason := parseAnswers(fields[2], fields[4])
	a.known = answers != nil
	switch {
	case reason != "":
		return nil, reason
	case !a.known && f.labelled:
		return nil, fmt.Sprintf("has no %q", t.label)
	}
	a.windows = qa.Windows(q.tokenizer, ids, tokens, q.cfg.MaxLength, q.cfg.DocStride)
	a.first, a.last = make([]int, len(a.windows)), make([]int, len(a.windows))
	a.Unknown, a.Answers = !a.known, []string{}
	for _, answer := range answers {
		a.Answers = append(a.Answers, answer.Text)
	}
	if len(answers) == 0 {
		return a, ""
	}
	start, end, ok := answers[0].within(a.Context)
	if !ok {
		return nil, fmt.Sprintf("the answer %q is not at character %d of the context, but %q", table.Clip(answers[0].Text), answers[0].Start, table.Clip(qa.Slice(a.Context, answers[0].Start, answers[0].Start+utf8.RuneCountInString(answers[0].Text))))
	}
	for i, w := range a.windows {
		first, last, fits, ok := w.Place(int32(start), int32(end))
		if !ok {
			continue
		}
		a.placed, a.fits = true, a.fits || fits
		a.first[i], a.last[i] = first, last
	}
	return a, ""
}

// squadAnswer is an answer and its first character in the context.
type squadAnswer struct {
	Text  string `json:"text"`
	Start int    `json:"answer_start"`
}

// parseAnswers returns the answers of a field: a list of objects, or an object of lists. It returns nil
// if there is none, and an empty list for a question that has no answer.
func parseAnswers(f, impossible table.Field) ([]squadAnswer, string) {
	if impossible.OK && impossible.Text == "true" {
		return []squadAnswer{}, ""
	}
	if !f.OK {
		return nil, ""
	}
	answers := []squadAnswer{}
	if strings.HasPrefix(f.Text, "[") {
		if err := json.Unmarshal([]byte(f.Text), &answers); err != nil {
			return nil, fmt.Sprintf("the answers are %s; expected objects with text and answer_start", table.Clip(f.Text))
		}
	} else {
		var lists struct {
			Text  []string `json:"text"`
			Start []int    `json:"answer_start"`
		}
		if err := json.Unmarshal([]byte(f.Text), &lists); err != nil || len(lists.Text) != len(lists.Start) {
			return nil, fmt.Sprintf("the answers are %s; expected the lists text and answer_start, as long as each other", table.Clip(f.Text))
		}
		for i := range lists.Text {
			answers = append(answers, squadAnswer{lists.Text[i], lists.Start[i]})
		}
	}
	for _, a := range answers {
		if strings.TrimSpace(a.Text) == "" || a.Start < 0 {
			return nil, fmt.Sprintf("an answer is %q from character %d; expected a text, from 0 on", table.Clip(a.Text), a.Start)
		}
	}
	return answers, ""
}

// shifts are by how many characters answers of SQuAD may be off.
var shifts = []int{0, -1, 1, -2, 2}

// within returns the characters of an answer, without spaces around it, or ok false if the context does
// not have it there.
func (a squadAnswer) within(context string) (start, end int, ok bool) {
	for _, by := range shifts {
		start = a.Start + by
		end = start + utf8.RuneCountInString(a.Text)
		if start < 0 || qa.Slice(context, start, end) != a.Text {
			continue
		}
		inner := strings.TrimSpace(a.Text)
		start += utf8.RuneCountInString(a.Text[:strings.Index(a.Text, inner)])
		return start, start + utf8.RuneCountInString(inner), true
	}
	return 0, 0, false
}

// count is not called, because rows are no records.
func (q *questions) count(*Split, *chunk, *row) {}

func (q *questions) finish(s *Split) { s.meanLength() }

// join writes the windows of a question.
func (q *questions) join(w *splitWriter, _ *chunk, r *row) error {
	f, err := q.of(w)
	if err != nil {
		return err
	}
	a := r.asked
	number := f.about.Records
	for i, window := range a.windows {
		f.frame = tfrecord.AppendRecord(f.frame[:0], f.recorder.window(w.info.Records, number, window, a.first[i], a.last[i], a.known))
		w.info.Records++
		w.info.addTokens(len(window.IDs), a.cut)
		if a.known {
			w.info.Answered++
		}
		if err := w.add(f.frame); err != nil {
			return err
		}
	}
	switch {
	case !a.known:
	case len(a.Answers) == 0:
		f.about.Impossible++
	case !a.placed:
		f.about.Unplaced++
	case !a.fits:
		f.about.Unfit++
	}
	return f.add(a.Question)
}

// of returns the file of a split's questions.
func (q *questions) of(w *splitWriter) (*questionsFile, error) {
	if f := q.splits[w.name]; f != nil {
		return f, nil
	}
	f := &questionsFile{hash: sha256.New()}
	f.about.Name = w.name + QuestionsSuffix
	var err error
	if f.file, err = vfs.Create(filepath.Join(w.out.aside, f.about.Name)); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	f.w = bufio.NewWriterSize(f.file, 1<<16)
	q.splits[w.name] = f
	return f, nil
}

// end completes the file of a split's questions.
func (q *questions) end(w *splitWriter) error {
	f, err := q.of(w)
	if err != nil {
		return err
	}
	if err := f.close(); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	w.info.Questions = &f.about
	if f.about.Unfit+f.about.Unplaced > 0 {
		q.log.Warn("some answers do not fit: those that begin or end within a word count as whole words; those longer than a window, or without tokens, are not trained on",
			"split", w.name, "questions", f.about.Records, "within_words", f.about.Unfit, "in_no_window", f.about.Unplaced)
	}
	return nil
}

// abandon closes the files after an error.
func (q *questions) abandon() {
	for _, f := range q.splits {
		f.file.Close()
	}
}

// QuestionsSuffix is what follows the name of a split in the name of the file of its questions.
const QuestionsSuffix = ".questions.jsonl"

// questionsFile is the file of a split's questions while it is written.
type questionsFile struct {
	about    Questions
	file     vfs.WorkFile
	w        *bufio.Writer
	hash     hash.Hash
	line     bytes.Buffer
	context  string
	recorder recorder
	frame    []byte
}

// add adds a question. One without an id gets its number.
func (f *questionsFile) add(q Question) error {
	if q.ID == "" {
		q.ID = strconv.FormatInt(f.about.Records, 10)
	}
	if context := q.Context; f.about.Records > 0 && context == f.context {
		q.Context = ""
	} else {
		f.context = context
	}
	f.line.Reset()
	e := json.NewEncoder(&f.line)
	e.SetEscapeHTML(false)
	if err := e.Encode(q); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	f.hash.Write(f.line.Bytes())
	f.about.Records++
	f.about.Bytes += int64(f.line.Len())
	if _, err := f.w.Write(f.line.Bytes()); err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	return nil
}

func (f *questionsFile) close() error {
	if err := f.w.Flush(); err != nil {
		return err
	}
	f.about.SHA256 = hex.EncodeToString(f.hash.Sum(nil))
	if err := f.file.Sync(); err != nil {
		return err
	}
	return f.file.Close()
}

// ReadQuestions reads the questions of a split of a dataset in a folder, with their contexts. The error
// is a *ManifestError if the split has none, or if the file is not the one of the manifest.
func ReadQuestions(ctx context.Context, dir string, m *Manifest, split string) ([]Question, error) {
	var about *Questions
	if s := m.Splits[split]; s != nil {
		about = s.Questions
	}
	if about == nil {
		return nil, &ManifestError{vfs.Join(dir, ManifestName), fmt.Sprintf("split %s has no questions; convert the data with --task %s", split, QuestionAnswering)}
	}
	path := vfs.Join(dir, about.Name)
	data, err := vfs.ReadBounded(path, about.Bytes)
	if err != nil {
		return nil, fmt.Errorf("questions: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != about.SHA256 {
		return nil, &ManifestError{path, "is not the file of the manifest; its checksum differs"}
	}
	var out []Question
	for line := range bytes.Lines(data) {
		var q Question
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, &ManifestError{path, fmt.Sprintf("line %d is not a question: %v", len(out)+1, err)}
		}
		if q.Context == "" && len(out) > 0 {
			q.Context = out[len(out)-1].Context
		}
		out = append(out, q)
	}
	return out, ctx.Err()
}
