package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/progress"
	"github.com/gorbit-ml/gorbit/internal/app/tokentrain"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

func newTokenizer(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokenizer",
		Short: "Train tokenizers",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenizerTrain(g))
	return cmd
}

func newTokenizerTrain(g *globals) *cobra.Command {
	var c tokentrain.Config
	var out, format, charset string
	cmd := &cobra.Command{
		Use:   "train --type TYPE --vocab-size N --out FOLDER FILE... [flags]",
		Short: "Train a tokenizer on texts",
		Long: `Trains a tokenizer on texts and writes a folder with its tokenizer.json, which the
tokenizers library of Hugging Face reads, too. The same texts and flags give the same
bytes. See docs/guide/tokenizers.md.

Types: unigram (as of T5 and ALBERT), bpe (byte-level byte pair encoding, as of RoBERTa)
and wordpiece (as of BERT). The template says which special tokens there are and where
they go: bert has [CLS] and [SEP], roberta <s> and </s>, t5 only </s>.

FILE is a file with a text on each line, a folder of them, or with --text-column a table:
JSON lines, CSV or TSV. Files may be compressed (.gz, .zst) and in a bucket (gs://).`,
		Example: `  gorbit tokenizer train --type unigram --vocab-size 16000 --out tok wiki.train.tokens
  gorbit tokenizer train --type bpe --vocab-size 32000 --out tok --text-column text texts.jsonl.zst`,
	}
	f := cmd.Flags()
	f.StringVar(&c.Type, "type", "", "type of the tokenizer `"+strings.Join(tokentrain.Types(), "|")+"` (required)")
	f.IntVar(&c.Size, "vocab-size", 0, "tokens `N` of the vocabulary, with the special ones (required)")
	f.StringVar(&c.Template, "template", "", "special tokens, as of the family `"+strings.Join(tokentrain.Templates(), "|")+"` (default: bert for wordpiece, else roberta)")
	f.BoolVar(&c.Cased, "cased", false, "type wordpiece: keep case and accents")
	f.StringVar(&c.Corpus.Column, "text-column", "", "column of the texts (default: a text on each line)")
	f.StringVar(&format, "format", "auto", "format of the files: lines, tsv, csv, jsonl, json or parquet; auto goes by the file name")
	f.StringVar(&charset, "encoding", string(table.UTF8), "utf-8, latin-1 or windows-1252")
	f.StringVar(&out, "out", "", "`FOLDER` to write, which must be empty or not exist (required)")
	f.IntVar(&c.Threads, "workers", 0, "threads `N` that work (0: one per core)")
	help.Group(f, "The tokenizer", "type", "vocab-size", "template", "cased")
	help.Group(f, "The texts", "text-column", "format", "encoding")
	help.Group(f, "Output", "out", "workers")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		c.Corpus.Paths, c.Corpus.Charset = files, table.Charset(charset)
		if format != "auto" {
			c.Corpus.Format = table.Format(format)
		}
		for _, required := range []struct {
			name    string
			missing bool
		}{{"type", c.Type == ""}, {"vocab-size", !f.Changed("vocab-size")}, {"out", out == ""}} {
			if required.missing {
				return usagef("--%s is required; see %s --help", required.name, cmd.CommandPath())
			}
		}
		if err := c.Validate(); err != nil {
			return err
		}
		return trainTokenizer(cmd, g, c, out)
	}
	return cmd
}

// trainTokenizer trains a tokenizer, and prints what was made.
func trainTokenizer(cmd *cobra.Command, g *globals, c tokentrain.Config, out string) error {
	env, err := g.env(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	end := func() {}
	if bar, ok := env.Observer.(*progress.Bar); ok {
		c.Progress = bar.Read
		end = bar.End
	}
	var result *tokentrain.Result
	err = publish(cmd.Context(), out, tokentrain.Name, made.Tokenizer, false, env.Log, func(local string) error {
		result, err = tokentrain.Train(cmd.Context(), c, local, env.Log)
		return err
	})
	end()
	if errors.Is(err, fs.ErrExist) && vfs.Scheme(out) != "" {
		return usagef("%s already has a tokenizer; choose another folder with --out", out)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d texts (%d bytes) with %d different words\nwrote %s: %s, %d tokens, template %s\n",
		result.Texts, result.Bytes, result.Words, vfs.Join(out, tokentrain.Name), c.Type, c.Size, result.Template)
	return err
}
