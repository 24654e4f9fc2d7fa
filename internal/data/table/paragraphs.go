package table

import (
	"bytes"
	"fmt"
)

// docStart begins the lines between documents in the files of CoNLL-2003, which count as empty.
const docStart = "-DOCSTART-"

// lineRows are lines that are one field each, TextField. Lines of white space count as empty.
type lineRows struct{ lines }

func (r *lineRows) next() ([]byte, int64, error) {
	for {
		line, number, err := r.lines.next()
		if err != nil || len(bytes.TrimSpace(line)) > 0 {
			return line, number, err
		}
	}
}

func (r *lineRows) cut(fields []Field, row string, line int64) ([]Field, error) {
	if err := checkUTF8(r.path, line, row); err != nil {
		return nil, err
	}
	return append(fields, Field{Text: row, OK: true}), nil
}

// paragraphRows are runs of lines that are not empty, one field each. A line of the field ends with a
// line feed.
type paragraphRows struct {
	lineRows
	row  []byte
	pend error // the error of the line after the row
	at   int64 // its line
}

func (r *paragraphRows) next() ([]byte, int64, error) {
	if err := r.pend; err != nil {
		r.pend = nil
		return nil, r.at, err
	}
	r.row = r.row[:0]
	var first int64
	for {
		line, err := r.line()
		switch {
		case err != nil && len(r.row) == 0:
			return nil, r.n, err
		case err != nil:
			r.pend, r.at = err, r.n
			return r.row, first, nil
		case len(bytes.TrimSpace(line)) > 0 && !bytes.HasPrefix(line, []byte(docStart)):
		case len(r.row) > 0:
			return r.row, first, nil
		default:
			continue
		}
		if len(r.row) == 0 {
			first = r.n
		}
		r.row = append(append(r.row, line...), '\n')
		if len(r.row) > maxLine {
			return nil, first, &Error{r.path, first, fmt.Sprintf("has more than %d bytes of lines without an empty one between them", maxLine)}
		}
	}
}

// newParagraphRows returns the rows of Paragraphs.
func newParagraphRows(l lines) *paragraphRows { return &paragraphRows{lineRows: lineRows{l}} }

var _ rowReader = (*paragraphRows)(nil)
