package convert_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/text"
)

// A file of labelled texts becomes a dataset to train on.
func Example() {
	dir, err := os.MkdirTemp("", "convert")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{
		"vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\ngood\nbad\nfilm\n",
		"train.tsv": "text\tlabel\nA good film\tfresh\nBad\trotten\n",
	} {
		if err := os.WriteFile(path(name), []byte(content), 0o666); err != nil {
			log.Fatal(err)
		}
	}
	m, err := convert.Run(context.Background(), convert.Config{
		Inputs:     []convert.Input{{Split: convert.Train, Path: path("train.tsv")}},
		TextColumn: "text", LabelColumn: "label",
		Vocab: path("vocab.txt"), Tokenizer: text.Uncased(),
		Out: path("data"),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		log.Fatal(err)
	}
	train := m.Splits[convert.Train]
	fmt.Println(m.Labels, train.Records, "records,", train.Tokens, "tokens")
	// Output: [fresh rotten] 2 records, 8 tokens
}
