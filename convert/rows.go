package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// layout says how the files of a conversion are laid out.
func (c *Config) layout(format Format, sum hash.Hash) table.Config {
	out := table.Config{Format: tableFormat(format), Charset: table.Charset(c.Charset), Delimiter: c.Delimiter, Sum: sum}
	if c.Format == Auto && (c.free() || c.Schema != "") {
		out.FormatFlag = "--format"
	}
	bare, text := c.task().bare, c.task().text
	switch {
	case c.NoHeader:
		out.Names = table.Numbered
	case bare != nil:
		out.Names = func(first []string) ([]string, bool) {
			if slices.Contains(first, text) {
				return first, false
			}
			return bare, true
		}
	}
	return out
}

// tableFormat returns how the rows of a format are found.
func tableFormat(f Format) table.Format {
	switch f {
	case CoNLL:
		return table.Paragraphs
	case Brown, PlainLines:
		return table.Lines
	}
	return table.Format(f)
}

// openTable opens a file and selects columns. The bytes read are added to sum, which may be nil.
func openTable(ctx context.Context, cfg *Config, path string, columns []table.Column, sum hash.Hash) (*table.Table, error) {
	format, err := cfg.formatOf(path)
	if err != nil {
		return nil, err
	}
	var t *table.Table
	if rows, ok := cfg.folders[path]; ok {
		t, err = table.New(bytes.NewReader(rows), path, cfg.layout(format, sum))
	} else {
		t, err = table.Open(ctx, path, cfg.layout(format, sum))
	}
	if err != nil {
		return nil, inputError(err)
	}
	if err := t.Select(columns...); err != nil {
		t.Close()
		return nil, inputError(err)
	}
	return t, nil
}

// inputError returns an error of package table as one of this package.
func inputError(err error) error {
	if bad := asRowError(err); bad != nil {
		return bad
	}
	return fmt.Errorf("convert: %w", err)
}

// asRowError returns err as a *RowError, or nil if it is another error.
func asRowError(err error) *RowError {
	if bad := (*table.Error)(nil); errors.As(err, &bad) {
		return (*RowError)(bad)
	}
	var bad *RowError
	errors.As(err, &bad)
	return bad
}
