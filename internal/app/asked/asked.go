// Package asked has the flags that say which texts or rows a model answers and where the answers go, for
// gorbit predict and gorbit-predict alike.
package asked

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Flags are the values of the flags.
type Flags struct {
	Texts, Pairs       []string
	File, Format, Out  string
	Columns            predict.Columns
	Overwrite, SkipBad bool
	// Skipped counts the rows that were left out.
	Skipped int
}

// Add adds the flags to a set.
func (a *Flags) Add(f *pflag.FlagSet) {
	f.StringArrayVar(&a.Texts, "text", nil, "text to classify; may be repeated")
	f.StringArrayVar(&a.Pairs, "text-pair", nil, "second `TEXT` of the pair; once for each --text")
	f.StringVar(&a.File, "file", "", "file of texts; - is standard input")
	f.StringVar(&a.Columns.Text, "text-column", "", "column of the text in the file")
	f.StringVar(&a.Columns.Pair, "pair-column", "", "column of the second text of a pair")
	f.StringVar(&a.Columns.ID, "id-column", "", "the only column to keep next to the answers (default: all)")
	f.BoolVar(&a.Columns.NoHeader, "no-header", false, "the file has no header row")
	f.StringVar(&a.Columns.Format, "input-format", "", "format of the file: lines, tsv (no quoting), csv, jsonl, json (an array of objects), parquet, npz or tfrecord (default: by its name)")
	f.StringVar(&a.Columns.Delimiter, "delimiter", "", "`CHARACTER` between the columns of tsv and csv, such as ; or tab (default: a tab, a comma)")
	f.StringVar(&a.Columns.Charset, "encoding", "", "encoding of a file with columns: utf-8, latin-1 or windows-1252 (default: utf-8)")
	f.BoolVar(&a.SkipBad, "skip-bad-rows", false, "leave out the rows of the file that cannot be answered, such as empty texts, and count them")
	f.StringVar(&a.Format, "format", "", "format of the answers: text, tsv, csv or json (default: by the name of --out, else text, or that of a file with columns)")
	f.BoolVar(&a.Columns.EscapeFormulas, "escape-formulas", false, "write a ' in front of cells of tsv and csv that begin with = + - or @ and are no numbers, so that a spreadsheet shows them as text")
	f.StringVar(&a.Out, "out", "", "`FILE` for the answers; may end in .gz or .zst (default: standard output)")
	f.BoolVar(&a.Overwrite, "overwrite", false, "replace the file for the answers")
}

// Validate checks the values together. Its errors are of class fault.Usage.
func (a *Flags) Validate() error {
	switch {
	case len(a.Pairs) > 0 && len(a.Pairs) != len(a.Texts):
		return fault.Usagef("%d --text and %d --text-pair given; expected one --text-pair for each --text, or none", len(a.Texts), len(a.Pairs))
	case a.File == "" && a.SkipBad:
		return fault.Usagef("--skip-bad-rows is given without --file; expected both, or neither")
	case a.Columns.EscapeFormulas && (a.File == "" || predict.IsRecords(a.File)):
		return fault.Usagef("--escape-formulas is given without a table in --file; expected both, or neither: only such answers have cells")
	case a.File == "" && a.Columns != (predict.Columns{}):
		return fault.Usagef("columns, or a format of the input, are given without --file; expected them only with --file")
	case a.Overwrite && a.Out == "":
		return fault.Usagef("--overwrite is given without --out; expected both, or neither")
	}
	if err := a.Columns.Validate(); err != nil {
		return fault.Usagef("%w", err)
	}
	if err := predict.Format(a.Format).Validate(); err != nil {
		return fault.Usagef("--format: %w", err)
	}
	return nil
}

// mostTold is the number of bad rows that are told of, as gorbit convert does.
const mostTold = 10

// Skip returns a function that counts a row which is left out and tells of the first ones; nil if such
// rows end the answers.
func (a *Flags) Skip(tell func(error)) func(error) {
	if !a.SkipBad {
		return nil
	}
	return func(err error) {
		if a.Skipped++; a.Skipped <= mostTold {
			tell(err)
		}
	}
}

// Explain returns the error of answering with what to do about a bad row.
func (a *Flags) Explain(err error) error {
	if bad := (*predict.LineError)(nil); errors.As(err, &bad) && !a.SkipBad {
		return fmt.Errorf("%w; correct the row, or leave such rows out with --skip-bad-rows", err)
	}
	return err
}
