package unigram_test

import (
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text/unigram"
)

func Example() {
	model, err := unigram.New(unigram.Config{
		Pieces: []unigram.Piece{{Text: "<unk>"}, {Text: "▁un", Score: -3}, {Text: "happy", Score: -4}, {Text: "happ", Score: -5}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, piece := range model.NewSplitter().Append(nil, "▁unhappy!") {
		fmt.Println(piece.ID, model.Tokens()[piece.ID], piece.Len)
	}
	// Output:
	// 1 ▁un 5
	// 2 happy 5
	// 0 <unk> 1
}
