package wordpiece_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/text/wordpiece"
)

func ExampleNew() {
	m, err := wordpiece.New(wordpiece.Config{
		Vocab: map[string]int32{"[UNK]": 0, "walk": 1, "##ing": 2, "##s": 3},
		Unk:   "[UNK]", Continuation: "##", MaxChars: 100,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := m.NewSplitter()
	fmt.Println(s.AppendIDs(nil, "walking"), s.AppendIDs(nil, "walked"))
	// Output: [1 2] [0]
}
