package train

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
)

// questions exports BERT for answers to questions, of a vocabulary of the given size.
const questions = `
import sys
from gorbit_export import bert, config, encoded, export, optimizers, qa

out, words = sys.argv[1], int(sys.argv[2])
build = encoded.Build(config.BertConfig(8, 1, 2, 12, vocab_size=words, max_position_embeddings=64))
export.write(qa.QuestionAnswering(build), optimizers.AdamW(), f"{out}/graph")
`

// TestQuestionsStopped stops and continues a run that answers questions: variables, losses and the
// scores of whole questions, whose contexts have several windows, are those of a run that was not
// stopped.
func TestQuestionsStopped(t *testing.T) {
	long(t)
	const testdata = "../convert/testdata"
	data, vocab := t.TempDir(), filepath.Join(testdata, "squad_vocab.txt")
	asked := filepath.Join(testdata, "squad.json")
	m, err := convert.Run(t.Context(), convert.Config{Task: "qa", Inputs: []convert.Input{{Split: convert.Train, Path: asked}, {Split: convert.Dev, Path: asked}},
		Vocab: vocab, Tokenizer: text.Uncased(), MaxLength: 64, DocStride: 16, Out: data, Overwrite: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := params.Defaults()
	p.Graph, p.Data.Dir = filepath.Join(testkit.Made(t, questions, fmt.Sprint(m.Vocab.Size)), "graph"), data
	p.Train.BatchSize, p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval, p.Checkpoint.Interval = 4, 12, 2, 4, 2
	p.Optimizer.LearningRate = 1e-2
	run, _ := stoppedEndsAsAnother(t, p, 3, 8) // 8 ends a loop, whose evaluation is still due
	found := evaluations(t, run)
	if len(found) != 3 {
		t.Fatalf("%d evaluations, expected 3", len(found))
	}
	for _, name := range []string{"f1", "exact_match", "loss"} {
		if _, ok := found[2].Outputs[name]; !ok {
			t.Errorf("no %s among %v", name, found[2].Outputs)
		}
	}
	checkQuestionTexts(t, run, data, m)
}

// checkQuestionTexts evaluates the windows of a run one by one, and wants the texts of the questions
// file.
func checkQuestionTexts(t *testing.T, run, data string, m *convert.Manifest) {
	asked, err := convert.ReadQuestions(t.Context(), data, m, convert.Dev)
	if err != nil {
		t.Fatal(err)
	}
	r := loaded(t, run, quiet())
	windows, answered := int64(0), 0
	if err := r.EvaluateExamples(t.Context(), "", func(row evaluation.Row) error {
		windows++
		if row.Decoded || !slices.ContainsFunc(asked, func(q convert.Question) bool {
			return row.Text == q.Question && row.TextPair != "" && strings.Contains(q.Context, row.TextPair)
		}) {
			t.Errorf("%s is of %q and %q, which are not of the questions file", row.Record, row.Text, row.TextPair)
		}
		label, _ := row.Label.(string)
		found, ok := row.Prediction.(string)
		if !ok || !strings.Contains(row.TextPair, found) || label != "" && !slices.ContainsFunc(asked, func(q convert.Question) bool {
			return q.Question == row.Text && slices.Contains(q.Answers, label)
		}) {
			t.Errorf("%s has the answer %v, and %v is found in %q", row.Record, row.Label, row.Prediction, row.TextPair)
		}
		if label != "" {
			answered++
		}
		return nil
	}); err != nil || windows != m.Splits[convert.Dev].Records || answered == 0 {
		t.Errorf("%d windows, %d with an answer, %v; expected %d", windows, answered, err, m.Splits[convert.Dev].Records)
	}
}
