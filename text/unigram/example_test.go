package unigram_test

import (
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text/unigram"
)

func Example() {
	model, err := unigram.New([]unigram.Piece{{Text: "<unk>"}, {Text: "▁un", Score: -3}, {Text: "happy", Score: -4}, {Text: "happ", Score: -5}}, 0, false)
	if err != nil {
		log.Fatal(err)
	}
	word := "▁unhappy!"
	for _, token := range model.Append(nil, word) {
		fmt.Println(token.ID, word[token.Start:token.End])
	}
	// Output:
	// 1 ▁un
	// 2 happy
	// 0 !
}
