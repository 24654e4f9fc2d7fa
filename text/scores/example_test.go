package scores_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/text/scores"
)

func Example() {
	bleu, err := scores.Named("bleu")
	if err != nil {
		panic(err)
	}
	var all scores.Counts
	all.Add(bleu.Count("The cat sat on the mat.", "The cat is on the mat."))
	all.Add(bleu.Count("It is raining today.", "It is raining today."))
	fmt.Printf("%.2f\n", bleu.Corpus(all))
	// Output: 69.19
}
