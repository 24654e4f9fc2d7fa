package served_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict/served"
)

// Open a model once and reuse it for all texts.
func Example() {
	model, err := served.Open("served/mrpc")
	if err != nil {
		log.Fatal(err)
	}
	predictor, err := model.Predictor(32)
	if err != nil {
		log.Fatal(err)
	}
	answers, err := predictor.Answer(context.Background(), text.Pair{A: "He left early.", B: "He went home."})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answers[0].Text())
}
