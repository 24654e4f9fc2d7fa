package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
)

// lookahead reads the batches of a call from a Source. It keeps those that the call did not use for
// the next one, and an error of the source until the batches before it are used. So the batches and
// errors come at the same steps for any number of batches per call.
type lookahead[P any] struct {
	source    Source[P]
	maxEpochs int64 // see TrainerConfig.MaxEpochs
	kept      []Batch[P]
	err       error // the source's, after the kept batches
}

// take returns the next n batches, or fewer before the end of the data or an error. At the end of the
// data it returns io.EOF, and an ErrStopped if ctx ends while it waits.
func (l *lookahead[P]) take(ctx context.Context, n int) ([]Batch[P], error) {
	for len(l.kept) < n && l.err == nil {
		batch, err := l.source.Next(ctx)
		if err == nil && l.maxEpochs > 0 && batch.Epoch >= l.maxEpochs {
			err = io.EOF
		}
		if err == nil {
			l.kept = append(l.kept, batch)
			continue
		}
		if err = asStop(ctx, err); errors.Is(err, ErrStopped) {
			return nil, err
		}
		l.err = err
	}
	if len(l.kept) == 0 {
		err := l.err
		l.err = nil // The source repeats it, or not.
		return nil, err
	}
	n = min(n, len(l.kept))
	taken := l.kept[:n:n]
	l.kept = l.kept[n:]
	return taken, nil
}

// putBack returns batches that were taken and not used. They are the next ones.
func (l *lookahead[P]) putBack(batches []Batch[P]) {
	if len(batches) > 0 {
		l.kept = append(batches[:len(batches):len(batches)], l.kept...)
	}
}

// seek continues after the batch at a position, see Source.Seek.
func (l *lookahead[P]) seek(position json.RawMessage) error {
	l.kept, l.err = nil, nil
	return l.source.Seek(position)
}
