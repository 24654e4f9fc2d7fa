package predict_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// questioner is a model that classifies every text with a question mark as a question.
type questioner struct{ mark int32 }

// Predict implements predict.Model.
func (q questioner) Predict(_ context.Context, examples []text.Encoding) ([]predict.Result, error) {
	results := make([]predict.Result, len(examples))
	for i, e := range examples {
		results[i] = predict.Result{{Data: []float64{0.9, 0.1}}, {Data: []float64{1, -1}}}
		for _, id := range e.IDs {
			if id == q.mark {
				results[i] = predict.Result{{Data: []float64{0.2, 0.8}}, {Data: []float64{-1, 1}}}
			}
		}
	}
	return results, nil
}

// Any type with a Predict method can be the model: a run, an exported model, or your own.
func Example() {
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\n?\nwhy\nyes\n"), "vocab.txt")
	if err != nil {
		log.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		log.Fatal(err)
	}
	mark, _ := vocab.ID("?")
	p, err := predict.New(questioner{mark}, predict.Config{
		Tokenizer: tokenizer, MaxLength: 16, Renderer: predict.Classifier([]string{"statement", "question"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	answers, err := p.Answer(context.Background(), text.Pair{A: "Why?"}, text.Pair{A: "Yes"})
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range answers {
		fmt.Println(a.Text())
	}
	// Output:
	// question (80.0 %)
	// statement (90.0 %)
}
