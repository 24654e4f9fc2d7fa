// Command predict classifies texts with the newest checkpoint of a run.
//
//	go run ./examples/predict runs/reviews "A gripping film." "Two hours of nothing."
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train"
)

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: predict RUN TEXT...")
	}
	if err := predict(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		log.Fatal("predict: ", err)
	}
}

func predict(ctx context.Context, folder string, texts []string) error {
	env := train.Env{Out: os.Stderr, Log: slog.New(slog.DiscardHandler)}
	run, err := train.OpenRun(ctx, folder, nil, env)
	if err != nil {
		return err
	}
	defer run.Close()
	if _, err := run.Load(ctx, ""); err != nil {
		return err
	}
	tokenizer, err := run.Tokenizer("", nil)
	if err != nil {
		return err
	}
	predictor, err := run.Predictor(tokenizer)
	if err != nil {
		return err
	}
	pairs := make([]text.Pair, len(texts))
	for i, t := range texts {
		pairs[i] = text.Pair{A: t}
	}
	answers, err := predictor.Answer(ctx, pairs...)
	if err != nil {
		return err
	}
	for i, a := range answers {
		fmt.Printf("%s\t%s\n", a.Text(), texts[i])
	}
	return nil
}
