package predict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// Rows reads the rows of a Table as batches of records. It implements BatchReader.
type Rows struct {
	// Table has the rows. A TableWriter writes them with their answers.
	Table *Table
	// Skip, if set, is called with the *LineError of a row that cannot be answered, and the next one
	// follows. Otherwise such a row ends the reading.
	Skip      func(error)
	records   *convert.RowRecords
	assembler dataset.Assembler
	size      int
	ended     bool
}

// OpenRows opens a table whose rows have the values of features in columns, for a model that takes no
// texts. records makes records of rows, and layout makes batches of up to size of them. The name - is
// standard input. The caller calls Close at the end.
func OpenRows(ctx context.Context, path string, stdin io.Reader, c Columns, records *convert.RowRecords, layout dataset.Layout, size int) (*Rows, error) {
	if c.Text != "" || c.Pair != "" {
		return nil, fault.Usagef("the model takes no texts; leave out --text-column and --pair-column")
	}
	if err := layout.Validate(size); err != nil {
		return nil, err
	}
	config, err := c.layout(path)
	if err != nil {
		return nil, err
	}
	var in *table.Table
	if path == "-" {
		in, err = table.New(stream.WithContext(ctx, stdin), "standard input", config)
	} else {
		in, err = table.Open(ctx, path, config)
	}
	if err != nil {
		return nil, lineError(err)
	}
	t := &Table{path: path, in: in, format: config.Format, delimiter: config.Delimiter, names: in.Names(), id: c.ID}
	var columns []table.Column
	for _, column := range records.Columns() {
		columns = append(columns, table.Column{Name: column.Name, Words: column.Words, Lists: column.Lists, Nulls: column.Nulls})
	}
	if err := t.choose(columns, c); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &Rows{Table: t, records: records, assembler: layout.Assemblers()(), size: size}, nil
}

// IsRecords reports whether the name of a file is that of TFRecords.
func IsRecords(path string) bool {
	return strings.HasSuffix(path, ".tfrecord") || strings.HasSuffix(path, ".tfrecords")
}

// Next implements BatchReader.
func (r *Rows) Next(context.Context) (*dataset.Batch, error) {
	r.assembler.Reset()
	n := 0
	for n < r.size && !r.ended {
		err := r.add()
		switch {
		case errors.Is(err, io.EOF):
			r.ended = true
		case err == nil:
			n++
		case !skip(r.Skip, err):
			return nil, err
		}
	}
	if n == 0 {
		return nil, io.EOF
	}
	return r.assembler.Batch(), nil
}

// add adds the next row to the batch.
func (r *Rows) add() error {
	fields, line, err := r.Table.next()
	if err != nil {
		return err
	}
	cells := make([]convert.Cell, len(r.records.Columns()))
	for i := range cells {
		cells[i] = convert.Cell{Text: fields[i].Text, OK: fields[i].OK}
	}
	record, err := r.records.Record(cells)
	switch {
	case fault.OfMachine(err):
		return err
	case err != nil:
		return r.Table.Refuse(err.Error())
	}
	if bad := r.assembler.Add(dataset.RecordID{Record: line}, record); bad != nil {
		return r.Table.Refuse(fmt.Sprintf("feature %s %s", bad.Feature, bad.Reason))
	}
	return nil
}

// Cut returns how many texts were too long and were cut; their answers use only their beginning.
func (r *Rows) Cut() int64 { return r.records.Cut() }

// Close closes the table.
func (r *Rows) Close() error { return r.Table.Close() }
