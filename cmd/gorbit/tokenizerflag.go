package main

import "github.com/spf13/pflag"

// addTokenizer defines --tokenizer and its other name, --vocab. which says of what it is and what the
// default is.
func addTokenizer(f *pflag.FlagSet, to *string, which string) {
	f.StringVar(to, "tokenizer", "", "tokenizer `PATH`: a tokenizer.json, a .model of SentencePiece, a vocab.txt, a folder with one of them, or a GGUF "+which)
	f.StringVar(to, "vocab", "", "other name of --tokenizer, `PATH` of a vocab.txt or any other tokenizer")
}

// oneTokenizer refuses both names at once.
func oneTokenizer(f *pflag.FlagSet) error {
	if f.Changed("tokenizer") && f.Changed("vocab") {
		return usagef("--tokenizer and --vocab are both given; expected one of them: they mean the same")
	}
	return nil
}
