// Package text turns text into the token ids of a BERT vocabulary.
//
// A [Tokenizer] gives the ids that the tokenizers library's BERT pipeline gives
// (BertNormalizer, BertPreTokenizer, WordPiece and the BERT template), id for id:
//
//  1. Special tokens written out in the text, such as [SEP], are taken as those
//     tokens, before anything else looks at the text ([Config.LiteralSpecials]
//     turns that off).
//  2. Cleaning removes control, format and private-use code points and U+FFFD, and
//     makes every white space a plain space.
//  3. Every CJK ideograph becomes a word of its own.
//  4. Accents are stripped: canonical decomposition (NFD), then nonspacing marks
//     are removed. By default this follows the case setting.
//  5. Upper case is lowered, code point by code point (a final sigma is not a
//     special case, and İ keeps its dot where accents are kept).
//  6. White space parts words; each punctuation mark is a word of its own.
//  7. WordPiece: each word is cut into the longest vocabulary entries from the
//     left, those after the first written ##entry. A word that cannot be cut
//     wholly, or that has more than 100 characters, is [UNK].
//
// What each code point is (removed, blank, ideograph, mark, punctuation, its lower
// case, its decomposition) is read from tables that testdata/gen_tables.py takes
// from the library itself, since the library mixes several Unicode versions: its
// categories are those of Unicode 8. So ids do not depend on the Go release.
//
// Text is UTF-8. Each byte that is not part of a valid encoding counts as U+FFFD,
// which cleaning removes.
//
// The algorithm is the one described in Devlin et al., "BERT: Pre-training of Deep
// Bidirectional Transformers for Language Understanding" (2018), and its published
// code; pairs are cut as described at [Tokenizer.Encode].
package text
