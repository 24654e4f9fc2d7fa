package sentencepiece_test

import (
	"fmt"
	"log"
	"os"

	"github.com/gorbit-ml/gorbit/text/sentencepiece"
)

func Example() {
	data, err := os.ReadFile("spiece.model")
	if err != nil {
		log.Fatal(err)
	}
	model, err := sentencepiece.Parse(data)
	if err != nil {
		log.Fatal(err)
	}
	text := "The capital of France"
	for _, token := range model.Append(nil, text) {
		fmt.Println(token.ID, model.Piece(token.ID), text[token.Start:token.End])
	}
}
