package convert

import (
	"context"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// chunkRows is how many rows are passed between goroutines at a time, or fewer if they
// have chunkBytes.
const (
	chunkRows  = 1024
	chunkBytes = 256 << 10
)

// chunk is a run of consecutive rows: it is read, then processed, then taken in the order
// of reading, and then reused.
type chunk struct {
	limit  int // number of rows
	rows   []row
	text   []byte // text of the rows, as in the file
	data   []byte // records made from them
	cells  []cell // what the records have, of schemas
	picks  []int32
	values []found
	bytes  int64 // bytes of the file read so far
	err    error // error that ended reading after these rows
	unread error // error of the machine that kept a file of a row from being read
	done   chan struct{}
	ids    []int32 // of the rows: labels or tokens
}

// row is a row of a chunk, then the record made from it.
type row struct {
	end    int // end of its text in the chunk's text
	line   int64
	number int64
	bad    *RowError

	answer    answer
	record    int  // end of the record in the chunk's data
	length    int  // number of ids of the record
	target    int  // number of ids of the target, of Seq2Seq, or of the longest text, of Embed
	cutTarget bool // whether that lost ids to MaxTargetLength
	truncated bool
	newLabel  bool     // bad only because its label was not guessed
	content   uint64   // hash of the record, without labels and ids
	dev       bool     // goes to the dev split instead
	value     []string // the labels, if labels are being collected
	asked     *asked   // of QuestionAnswering
	parts     bool     // a document begins with it, or ends before it, of MaskedLM

	cells, picks int // start of its cells in the chunk's; start and end of its values while they are collected
}

// read fills the chunk with the next rows.
func (k *chunk) read(t *table.Table) {
	k.rows, k.text, k.data, k.ids = k.rows[:0], k.text[:0], k.data[:0], k.ids[:0]
	k.cells, k.picks, k.values, k.unread = k.cells[:0], k.picks[:0], k.values[:0], nil
	for len(k.rows) < k.limit && len(k.text) < chunkBytes {
		text, line, number, err := t.Next()
		var bad *RowError
		if err != nil {
			if bad = asRowError(err); bad == nil {
				k.err = err
				break
			}
		}
		k.text = append(k.text, text...)
		k.rows = append(k.rows, row{end: len(k.text), line: line, number: number, bad: bad})
	}
	k.bytes = t.Bytes()
}

// each calls the function that newWorker returns, on several goroutines, for chunks of rows
// that can be split into fields, and take for one chunk after the other. The fields are
// valid until the chunk has been taken.
func each(ctx context.Context, t *table.Table, workers, rows int, newWorker func() func(*chunk, *row, []table.Field), take func(*chunk) error) error {
	n := 2*workers + 2
	free, work, ordered := make(chan *chunk, n), make(chan *chunk, n), make(chan *chunk, n)
	for range n {
		free <- &chunk{limit: rows, done: make(chan struct{}, 1)}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(work)
		defer close(ordered)
		for {
			select {
			case k := <-free:
				k.read(t)
				end := k.err != nil
				work <- k
				ordered <- k
				if end {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for range workers {
		g.Go(func() error {
			do, c := newWorker(), t.NewCutter()
			for k := range work {
				// Nothing changes the text or keeps a part of it until the chunk is reused.
				text, start := unsafe.String(unsafe.SliceData(k.text), len(k.text)), 0
				for i := range k.rows {
					r := &k.rows[i]
					if r.bad == nil {
						fields, err := c.Cut(text[start:r.end], r.line)
						if err == nil {
							do(k, r, fields)
						} else {
							r.bad = asRowError(err)
						}
					}
					start, r.record = r.end, len(k.data)
				}
				k.done <- struct{}{}
			}
			return nil
		})
	}
	g.Go(func() error {
		for k := range ordered {
			<-k.done
			if k.unread != nil {
				return k.unread
			}
			if err := take(k); err != nil {
				return err
			}
			free <- k
		}
		return nil
	})
	return g.Wait()
}
