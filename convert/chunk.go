package convert

import (
	"context"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// chunkRows is how many rows are handed from goroutine to goroutine at a time, fewer
// where they take chunkBytes.
const (
	chunkRows  = 1024
	chunkBytes = 256 << 10
)

// chunk is some neighbouring rows on their way: read, then worked on, then taken in
// the order read. It is used again for others.
type chunk struct {
	rows  []row
	text  []byte // of the rows, as the file has it
	data  []byte // records made of them
	bytes int64  // of the file, read so far
	err   error  // what ended the reading after these rows
	done  chan struct{}
}

// row is a row of a chunk, then the record made from it.
type row struct {
	end    int // of its text in that of the chunk
	line   int64
	number int64
	bad    *RowError

	label     int64
	record    int // where the record ends in the chunk's data
	length    int // ids of the record
	truncated bool
	newLabel  bool   // bad only for a label that was not guessed
	dev       bool   // goes to the dev split instead
	value     string // the label, where labels are collected
}

// read fills the chunk with the next rows.
func (k *chunk) read(t *table) {
	k.rows, k.text, k.data = k.rows[:0], k.text[:0], k.data[:0]
	for len(k.rows) < chunkRows && len(k.text) < chunkBytes {
		text, line, number, err := t.next()
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
	k.bytes = t.raw.n
}

// each calls what newWorker returns for the rows of a chunk that can be cut into fields,
// on several goroutines, and take for one chunk after the other. The fields are valid
// until the chunk has been taken.
func each(ctx context.Context, t *table, workers int, newWorker func() func(*chunk, *row, []field), take func(*chunk) error) error {
	n := 2*workers + 2
	free, work, ordered := make(chan *chunk, n), make(chan *chunk, n), make(chan *chunk, n)
	for range n {
		free <- &chunk{done: make(chan struct{}, 1)}
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
			do, c := newWorker(), cutter{t: t}
			for k := range work {
				// Nothing changes the text or keeps a part of it until the chunk is used again.
				text, start := unsafe.String(unsafe.SliceData(k.text), len(k.text)), 0
				for i := range k.rows {
					r := &k.rows[i]
					if r.bad == nil {
						fields, err := c.cut(text[start:r.end], r.line)
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
			if err := take(k); err != nil {
				return err
			}
			free <- k
		}
		return nil
	})
	return g.Wait()
}
