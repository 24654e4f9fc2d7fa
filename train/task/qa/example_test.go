package qa_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task/qa"
)

func ExampleTask_Measure() {
	questions := []convert.Question{{Question: "Who lives in Rome?", Context: "Ann lives in Rome.", Answers: []string{"Ann"}}}
	of := qa.New(&graphs.Contract{}, nil).WithQuestions(questions, 0)
	// A window of question 0: the score of no answer, and one span, with its score and characters.
	window := []float64{0, -3.5, 1, 7.25, 0, 9}
	out, err := of.Measure(runner.Sums{runner.LossSum: {0.5}, runner.WeightSum: {1}, qa.Windows: window})
	fmt.Println(out, err)
	// Output: {'exact_match': 0.0, 'f1': 0.6666667, 'loss': 0.5} <nil>
}
