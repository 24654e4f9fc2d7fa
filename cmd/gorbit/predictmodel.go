package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/saved"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// modelCallTokens is the most tokens of a call of an exported model, as of a run.
const modelCallTokens = 1024

// predictModel writes the answers of a model that gorbit export wrote.
func (a *question) predictModel(cmd *cobra.Command, folder string, env train.Env) (err error) {
	switch {
	case a.split != "":
		return usagef("--split is given with --model; expected --text or --file: an exported model has no data")
	case a.vocab != "" || a.lowercaseGiven:
		return usagef("--vocab or --lowercase is given with --model; leave it out: an exported model has its own tokenizer")
	case a.generation.Given() != "":
		return usagef("--%s is given with --model; leave it out: it is for models that make texts, which gorbit-predict --model asks", a.generation.Given())
	case !isModel(folder):
		return usagef("--model is %s, which is no model that gorbit export wrote; expected one, or a run with --run", folder)
	}
	ctx := cmd.Context()
	if folder, err = vfs.Localize(ctx, folder, nil); err != nil {
		return err
	}
	model, err := saved.Open(folder, env.AllowOps)
	if err != nil {
		return err
	}
	defer closeQuietly(model, env.Log)
	if model.Tokenizer == nil || model.Maker != nil {
		return usagef("the model %s does not answer texts as an encoder does; expected one that does; gorbit-predict --model asks the others", folder)
	}
	p, err := predict.New(model, predict.Config{Tokenizer: model.Tokenizer, MaxLength: model.MaxLength, DocStride: model.DocStride, Renderer: model.Renderer,
		TopK: a.topK, CallTokens: modelCallTokens, InFlight: model.Lanes, Skip: a.Skip(func(err error) { env.Log.Warn("bad row", "error", err) })})
	if err != nil {
		return err
	}
	columns := a.Columns
	columns.Choices = predict.Chooses(model.Renderer)
	var in predict.Source = &predict.List{Texts: a.Texts, Pairs: a.Pairs}
	if a.File != "" {
		source, closeFile, err := predict.Open(ctx, a.File, cmd.InOrStdin(), columns)
		if err != nil {
			return err
		}
		defer closeFile()
		in = source
	}
	out, write, err := predict.Answers(shown.Data(cmd.OutOrStdout()), a.Out, a.Overwrite, in, predict.Format(a.Format), model.Renderer)
	if err != nil {
		return err
	}
	defer out.Discard()
	if model.Pairs != nil {
		in = predict.CheckPairs(in, *model.Pairs, func(number int, message string) { env.Log.Warn(message, "first", number) })
	}
	done, err := p.Each(ctx, in, write)
	a.tell(env.Log, done, model.MaxLength)
	return out.End(ctx, a.Explain(err))
}

// tell logs what was left out of the texts and of the file.
func (a *question) tell(log *slog.Logger, done predict.Summary, tokens int) {
	if done.Truncated > 0 {
		log.Warn("texts that were too long were cut; their answers use only their beginning", "texts", done.Truncated, "of", done.Answers, "tokens", tokens)
	}
	if a.Skipped > 0 {
		log.Warn("skipped bad rows", "file", a.File, "skipped", a.Skipped)
	}
}
