// Package tokenizerjson reads and writes tokenizer.json, the file of a tokenizer of the tokenizers
// library, and makes a [text.Tokenizer] of its parts. A text passes them in this order:
//
//  1. Added tokens that are not normalized become tokens where they are written out.
//  2. The normalizer changes the text: NFC, Lowercase, Replace and others (normalizers.go).
//  3. Added tokens that are normalized become tokens.
//  4. The pre-tokenizer divides the text into words: ByteLevel, Metaspace and others (pretokenizers.go).
//  5. The model, a package of its own, splits words into tokens (model.go).
//  6. The post-processor gives the template of special tokens, and trims spans (processors.go).
//
// Ids, spans and decoded text are those of tokenizers 0.23. A part, or an option of one, that is not
// known is an error that names it. Truncation and padding of the file are not used: each caller has
// lengths of its own.
//
// The library mixes several releases of Unicode. The classes of code points come from tables that were
// read from it, in package internal/data/chars; so does which code points have a decomposition and a
// combining class. What these are comes from golang.org/x/text, which never changes them.
//
// Each byte of a text that is not part of valid UTF-8 counts as U+FFFD.
package tokenizerjson
