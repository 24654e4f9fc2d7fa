package text_test

import (
	"fmt"
	"log"

	"github.com/gorbit-ml/gorbit/text"
)

// A pair of texts is encoded as a BERT model takes it, and cut where it is too long.
func Example() {
	vocab, err := text.ParseVocab([]byte("[PAD]\n[UNK]\n[CLS]\n[SEP]\nhe\nleft\n##s\nearly\n"), "vocab.txt")
	if err != nil {
		log.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		log.Fatal(err)
	}
	e := tokenizer.Encode("He left early", "He lefts", 0)
	fmt.Println(vocab.Tokens(e.IDs), e.TypeIDs)
	e = tokenizer.Encode("He left early", "He lefts", 7)
	fmt.Println(vocab.Tokens(e.IDs), e.Truncated)
	// Output:
	// [CLS] he left early [SEP] he left ##s [SEP] [0 0 0 0 0 1 1 1 1]
	// [CLS] he left [SEP] he left [SEP] true
}
