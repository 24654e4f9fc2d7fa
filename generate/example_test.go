package generate_test

import (
	"context"
	"fmt"

	"github.com/gorbit-ml/gorbit/generate"
)

// next is a model that counts: the likeliest token is the one after the last.
type next struct{ vocab int }

// Compute implements generate.Model. This one needs no cache: it looks at the last token only.
func (m next) Compute(_ context.Context, b *generate.Batch) ([]float32, error) {
	logits := make([]float32, b.Rows*m.vocab)
	for row := range b.Rows {
		last := int(b.InputIDs[row*b.Tokens+int(b.Last[row])])
		logits[row*m.vocab+(last+1)%m.vocab] = 5
	}
	return logits, nil
}

func Example() {
	s, err := generate.New(generate.Limits{VocabSize: 10, MaxLength: 20, Slots: 100, Rows: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	c := generate.Default()
	c.MaxNewTokens, c.EOSTokenIDs = 6, []int32{9}
	for id, prompt := range [][]int32{{1}, {3, 4, 5}} {
		if err := s.Add(generate.Request{ID: uint64(id), Prompt: prompt, Config: c}); err != nil {
			fmt.Println(err)
			return
		}
	}
	err = generate.Run(context.Background(), s, next{10}, func(u generate.Update) error {
		for _, r := range u.Results {
			fmt.Println(u.ID, r.IDs, r.Finish)
		}
		return u.Err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 [6 7 8 9] eos
	// 0 [2 3 4 5 6 7] length
}
