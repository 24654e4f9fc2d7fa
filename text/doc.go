// Package text turns text into the token ids of a BERT vocabulary.
//
// A [Tokenizer] returns exactly the ids of the BERT pipeline of the tokenizers library
// (BertNormalizer, BertPreTokenizer, WordPiece and the BERT template):
//
//  1. Special tokens written out in the text, such as [SEP], become those tokens
//     before any other step ([Config.LiteralSpecials] turns this off).
//  2. Cleaning removes control, format and private-use code points and U+FFFD, and
//     replaces all white space by plain spaces.
//  3. Every CJK ideograph becomes a word of its own.
//  4. Accents are stripped: canonical decomposition (NFD), then nonspacing marks
//     are removed. By default this follows the case setting.
//  5. Upper case is lowered, code point by code point (a final sigma is not a
//     special case, and İ keeps its dot if accents are kept).
//  6. White space separates words; each punctuation mark is a word of its own.
//  7. WordPiece: each word is split from the left into the longest vocabulary
//     entries; entries after the first are written ##entry. A word that cannot be
//     split completely, or that has more than 100 characters, is [UNK].
//
// The properties of code points (removed, blank, ideograph, mark, punctuation, lower
// case, decomposition) come from tables that were read from the library itself, in
// package internal/data/chars, because the library mixes several Unicode versions: its
// categories are those of Unicode 8. So ids do not depend on the Go release.
//
// Text is UTF-8. Each byte that is not part of a valid encoding counts as U+FFFD,
// which cleaning removes.
//
// The algorithm is that of Devlin et al., "BERT: Pre-training of Deep Bidirectional
// Transformers for Language Understanding" (2018), and its published code.
// [Tokenizer.Encode] describes how pairs are truncated.
package text
