package tokenizerjson_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/text/tokenizerjson"
)

func Example() {
	tok, err := tokenizerjson.Load("testdata/roberta.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	e := tok.Encode("the cat <mask>", "", 0)
	fmt.Println(e.IDs)
	fmt.Println(tok.Decode(e.IDs, true))
	// Output:
	// [0 363 224 70 268 420 2]
	// <s>the cat<mask></s>
}
