// Package scores compares texts with what they should have been: BLEU, chrF, ROUGE, exact matches and
// rates of wrong words and characters.
//
// A [Metric] counts what two texts have in common, and makes a score of such counts. Counts of pairs can be
// added: the sum of those of all pairs gives the score of a corpus, those of one pair its own.
//
//	bleu, bleu_intl, bleu_char, bleu_none  0 to 100; sacrebleu's, with its tokenizers 13a, intl, char and none
//	chrf, chrf++                           0 to 100; sacrebleu's
//	rouge1, rouge2, rougeL, rougeLsum      0 to 1; the F-measure of rouge-score. The corpus has the mean
//	rouge1_stem, ...                       the same of stems, as with use_stemmer
//	exact_match                            0 to 1; the share of texts that are equal but for white space around them
//	wer, cer                               0 and more; wrong, missing and added words (characters) by those expected
//
// The numbers are those of the reference software to the last digits of a float64. Two things depend on the
// version of Unicode: what bleu_intl takes for punctuation and symbols is that of the Go release.
package scores
