package learn_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text/learn"
)

func Example() {
	var words learn.Counter
	words.Add(map[string]int64{"low": 5, "lower": 2, "newest": 6, "widest": 3})
	merges, err := learn.BPE(context.Background(), words.Words(), learn.Config{Size: 15, Specials: []string{"<unk>"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(merges.Tokens[11:])
	// Output:
	// [es est lo low]
}
