package task

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// window has the logits of a window's tokens, and their characters.
type window struct {
	Start, End []float64
	Places     [][2]int32
	question   int32
	weight     float32
}

// batch lays windows side by side into rows of the given length, each with padding after it.
func batch(windows []window, length int) ([]dataset.Feature, runner.Sums) {
	var sequences, starts, ends, cls, questions []int32
	var weights []float32
	var start, end []float64
	used := length
	for _, w := range windows {
		if used+len(w.Start) > length {
			for ; len(sequences)%length != 0; used++ {
				sequences, starts, ends = append(sequences, 0), append(starts, 0), append(ends, 0)
				start, end = append(start, 99), append(end, 99)
			}
			used = 0
		}
		cls, questions, weights = append(cls, int32(len(sequences))), append(questions, w.question), append(weights, w.weight)
		for i, p := range w.Places {
			sequences, starts, ends = append(sequences, int32(len(cls))), append(starts, p[0]), append(ends, p[1])
			start, end = append(start, w.Start[i]), append(end, w.End[i])
		}
		used += len(w.Start)
	}
	for len(sequences)%length != 0 {
		sequences, starts, ends = append(sequences, 0), append(starts, 0), append(ends, 0)
		start, end = append(start, 99), append(end, 99)
	}
	rows := []int{len(sequences) / length, length}
	return []dataset.Feature{
		{Name: packed.SequenceIDs, Shape: rows, Int32: sequences}, {Name: convert.TokenStarts, Shape: rows, Int32: starts}, {Name: convert.TokenEnds, Shape: rows, Int32: ends},
		{Name: packed.ClsPositions, Shape: []int{len(cls)}, Int32: cls}, {Name: convert.QuestionID, Shape: []int{len(cls)}, Int32: questions},
		{Name: packed.ExampleWeights, Shape: []int{len(cls)}, Float32: weights},
	}, runner.Sums{runner.LossSum: {3}, runner.WeightSum: {2}, StartLogits: start, EndLogits: end}
}

func TestAnswersAgainstGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/qa.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Questions []struct {
			Context string
			Answers []string
			Windows []window
		}
		Threshold float64
		Want      runner.Outputs
	}
	if err := json.Unmarshal(data, &golden); err != nil || len(golden.Questions) == 0 {
		t.Fatalf("%d questions, %v", len(golden.Questions), err)
	}
	var questions []convert.Question
	var windows [2][]window
	for i, q := range golden.Questions {
		questions = append(questions, convert.Question{Context: q.Context, Answers: q.Answers})
		for k, w := range q.Windows {
			w.question, w.weight = int32(i), 1
			windows[k] = append(windows[k], w)
		}
	}
	questions = append(questions, convert.Question{Context: "not evaluated", Answers: []string{"x"}}, convert.Question{Context: "a b", Unknown: true})
	of := newTask(QuestionAnswering, &graphs.Contract{}).WithQuestions(questions, golden.Threshold)
	filler := windows[0][0]
	filler.question, filler.weight = 1, 0
	unknown := windows[0][0]
	unknown.question = int32(len(questions) - 1)
	for _, length := range []int{16, 23, 40} {
		sums := runner.Sums{}
		for _, part := range [][]window{windows[1], append([]window{filler, unknown}, windows[0]...)} {
			features, out := batch(part, length)
			if err := of.Reduce(features, out); err != nil {
				t.Fatal(err)
			}
			if err := sums.Add(out); err != nil {
				t.Fatal(err)
			}
		}
		got, err := of.Measure(sums)
		if err != nil || got["loss"] != 1.5 {
			t.Fatalf("%v, %v", got, err)
		}
		for name, want := range golden.Want {
			if v, ok := got[name]; !ok || !(math.Abs(v-want) < 1e-9) {
				t.Errorf("rows of %d: %s is %v, want %v", length, name, v, want)
			}
			if m := of.Metric(name); m.Directed != (name != "best_f1_threshold") {
				t.Errorf("%s is %v", name, m)
			}
		}
	}
}

// Without impossible questions there is always an answer, and words alone count.
func TestMeasureAsSQuAD11(t *testing.T) {
	w := window{Start: []float64{9, 0, 1, 0}, End: []float64{9, 0, 1, 0}, Places: [][2]int32{{}, {0, 3}, {4, 8}, {}}, weight: 1}
	features, out := batch([]window{w}, 4)
	of := newTask(QuestionAnswering, &graphs.Contract{}).WithQuestions([]convert.Question{{Context: "the Rome", Answers: []string{"the", "rome"}}}, 0)
	if err := of.Reduce(features, out); err != nil {
		t.Fatal(err)
	}
	if got, err := of.Measure(out); err != nil || got.String() != "{'exact_match': 1.0, 'f1': 1.0, 'loss': 1.5}" {
		t.Errorf("%v, %v", got, err)
	}
	// In training nothing is collected; names are known without questions.
	if got, err := of.Measure(runner.Sums{runner.LossSum: {3}, runner.WeightSum: {2}}); err != nil || got.String() != "{'loss': 1.5}" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := newTask(QuestionAnswering, &graphs.Contract{}).Measure(runner.Sums{runner.WeightSum: {2}, StartLogits: {1}}); err != nil || got["f1"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := of.Measure(runner.Sums{runner.WeightSum: {2}, Windows: {1, 0, 0}}); err == nil || !strings.Contains(err.Error(), "a record is of question 1; expected one of the 1 of the split") {
		t.Error(err)
	}
	if err := of.Reduce(features[1:], runner.Sums{}); err == nil || !strings.Contains(err.Error(), "the batch has no feature sequence_ids") {
		t.Error(err)
	}
	if err := of.Reduce(features, runner.Sums{StartLogits: {1}}); err == nil || !strings.Contains(err.Error(), "expected 4, one for each token") {
		t.Error(err)
	}
}

func TestDataOfAnswers(t *testing.T) {
	of := newTask(QuestionAnswering, &graphs.Contract{})
	if got := of.CheckData(&convert.Manifest{Task: "text"}); !strings.HasPrefix(got, "has the answers of task classification; expected those of qa") {
		t.Error(got)
	}
	if got := of.CheckData(&convert.Manifest{Task: "qa"}); got != "" {
		t.Error(got)
	}
	if got := of.CheckSplit("dev", &convert.Split{Records: 3, Answered: 1}); got != "2 of the 3 examples of split dev have no answers" {
		t.Error(got)
	}
	s := &convert.Split{Questions: &convert.Questions{File: convert.File{Records: 2}, Impossible: 2}}
	if _, only := of.OnlyAnswer(nil, s); !only {
		t.Error("all questions are impossible")
	}
	s.Questions.Impossible = 1
	if _, only := of.OnlyAnswer(nil, s); only {
		t.Error("one question has an answer")
	}
}
