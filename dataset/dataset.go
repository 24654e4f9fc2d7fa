package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Dataset draws batches from files of records. Its methods may be called from
// several goroutines.
type Dataset struct {
	cfg      Config
	files    files
	infos    []FileInfo
	settings Settings
	closers  []io.Closer
	free     pool

	division division // under mu

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	closeErr  error

	mu      sync.Mutex    // held by all methods but Close
	state   State         // behind the last batch
	made    *prefetch     // nil while no batch is being made
	err     error         // what ended the batches
	barren  int64         // batches in a row without an example
	pending chan []result // what is waited for
	ready   []result      // made, and not yet returned
}

// Open opens the files of the configuration. Their indexes are read, or built
// where they are missing, which reads a file once. The context bounds Open
// only, and is looked at before each file.
func Open(ctx context.Context, cfg Config) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	paths, err := expand(cfg.Files)
	if err != nil {
		return nil, err
	}

	opened := make([]*tfrecord.IndexedFile, len(paths))
	closeAll := func() {
		for _, f := range opened {
			if f != nil {
				f.Close()
			}
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range paths {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			f, err := tfrecord.OpenIndexed(p, tfrecord.OnCorrupt(cfg.OnCorrupt), tfrecord.Logger(cfg.Logger))
			opened[i] = f
			return err
		})
	}
	if err := g.Wait(); err != nil {
		closeAll()
		return nil, err
	}

	var all files
	hash := sha256.New()
	for i, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			closeAll()
			return nil, err
		}
		fmt.Fprintf(hash, "%q %d %d\n", filepath.Base(p), st.Size(), opened[i].Len())
		all.add(p, opened[i])
	}
	d, err := newDataset(cfg, all, hex.EncodeToString(hash.Sum(nil)[:8]))
	if err != nil {
		closeAll()
		return nil, err
	}
	for _, f := range opened {
		d.closers = append(d.closers, f)
		d.infos = append(d.infos, FileInfo{Path: f.Path(), Records: int64(f.Len()), Digest: f.Digest(), Damaged: f.Skipped()})
	}
	return d, nil
}

// expand returns the files that patterns stand for.
func expand(patterns []string) ([]string, error) {
	var paths []string
	seen := map[string]bool{}
	for _, p := range patterns {
		matches, err := tfrecord.Glob(p)
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			m = filepath.Clean(m)
			if seen[m] {
				return nil, fmt.Errorf("%s: is given twice", m)
			}
			seen[m] = true
			paths = append(paths, m)
		}
	}
	return paths, nil
}

// newDataset returns a Dataset of open files with a valid configuration that
// has its defaults.
func newDataset(cfg Config, f files, hash string) (*Dataset, error) {
	n := f.len()
	switch {
	case n == 0:
		return nil, fmt.Errorf("%s: no records in %d file(s)", f.paths[0], len(f.paths))
	case cfg.DropRemainder && n < int64(cfg.BatchSize):
		return nil, fmt.Errorf("%s: %d records in %d file(s) make no batch of %d, and remainders are dropped", f.paths[0], n, len(f.paths), cfg.BatchSize)
	}
	d := &Dataset{cfg: cfg, files: f, closing: make(chan struct{})}
	d.settings = Settings{
		Files:          hash,
		Records:        n,
		Seed:           cfg.Seed,
		BatchSize:      cfg.BatchSize,
		DropRemainder:  cfg.DropRemainder,
		Shuffle:        cfg.Shuffle,
		Packing:        cfg.Packing,
		RowLength:      cfg.RowLength,
		FixedRowLength: cfg.FixedRowLength,
		Truncate:       cfg.Truncate,
	}
	if cfg.Shuffle == ShuffleBuffer {
		d.settings.Buffer = cfg.Buffer
	}
	d.state = State{Version: stateVersion, Settings: d.settings}
	return d, nil
}

// NumExamples returns the number of records that an epoch draws from, which is
// the number of examples unless some are damaged or fill up a batch.
func (d *Dataset) NumExamples() int64 { return d.settings.Records }

// BatchesPerEpoch returns the number of batches in an epoch.
func (d *Dataset) BatchesPerEpoch() int64 { return d.settings.batches() }

func (s Settings) batches() int64 {
	if s.DropRemainder {
		return s.Records / int64(s.BatchSize)
	}
	return (s.Records + int64(s.BatchSize) - 1) / int64(s.BatchSize)
}

// FileInfo is what a file of records holds.
type FileInfo struct {
	Path    string `json:"path"`
	Records int64  `json:"records"`
	// Digest is a hash of the records, as of tfrecord.IndexedFile.
	Digest uint64 `json:"digest"`
	// Damaged is what the file's index leaves out because it is damaged.
	Damaged tfrecord.Skipped `json:"damaged"`
}

// FileInfos returns what the files hold, by the numbers in RecordIDs.
func (d *Dataset) FileInfos() []FileInfo { return slices.Clone(d.infos) }

// Damaged returns what the indexes leave out because it is damaged. It is no
// part of NumExamples.
func (d *Dataset) Damaged() tfrecord.Skipped {
	var all tfrecord.Skipped
	for _, f := range d.infos {
		all.Records += f.Damaged.Records
		all.Bytes += f.Damaged.Bytes
	}
	return all
}

// Files returns the paths of the files, by the numbers in RecordIDs.
func (d *Dataset) Files() []string { return append([]string(nil), d.files.paths...) }

// Describe names a record, such as "train-00000-of-00002.tfrecord:17".
func (d *Dataset) Describe(id RecordID) string { return describe(d.files.paths, id) }

// Drawn names the records that are drawn for the batch at a position of the dataset.
// It reads none of them.
func (d *Dataset) Drawn(s State) []RecordID {
	draws := newOrder(d.cfg.Shuffle, d.files.len(), d.cfg.Seed, d.cfg.Buffer).draw(nil, s.Epoch, s.Position, s.end())
	ids := make([]RecordID, len(draws))
	for i, n := range draws {
		ids[i] = d.files.find(n)
	}
	return ids
}

// State returns the position behind the batch that Next returned last.
func (d *Dataset) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Restore goes to a position. It reads nothing, so it takes no longer at the
// end of the data than at the beginning. A state of other data or settings is
// a StateError and changes nothing.
func (d *Dataset) Restore(s State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed() {
		return ErrClosed
	}
	if err := s.check(d.settings); err != nil {
		return err
	}
	d.halt()
	d.state, d.err, d.barren = s.normal(), nil, 0
	return nil
}

// Divide has batches divided where they are made, ahead of Next: their Parts are then what
// Batch.Divide makes with the same numbers and the dataset's configuration. It holds from
// the next batch on.
func (d *Dataset) Divide(n, longRows int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.halt()
	d.division = division{n, longRows}
}

// normal returns the one way to write down a position at which no batch of the
// epoch is left.
func (s State) normal() State {
	if s.Position >= s.Settings.batches()*int64(s.Settings.BatchSize) || s.Position == s.Settings.Records {
		s.Epoch++
		s.Position = 0
	}
	return s
}

// Next returns the next batch, or io.EOF at the end of the configured epochs.
// Damaged records that are skipped make their batch smaller; a batch that would
// be empty is passed over, but not one of which a Part is read: that has one token in an
// example of weight 0, as the empty parts of Split. The context bounds the wait only: after it has ended
// Next can be called again. After any other error Next returns the same error
// until Restore.
func (d *Dataset) Next(ctx context.Context) (*Batch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case d.isClosed():
			return nil, ErrClosed
		case d.err != nil:
			return nil, d.err
		case d.made == nil:
			d.made = startPrefetch(&d.cfg, &d.files, &d.free, d.division, d.state)
		}
		r, err := d.wait(ctx)
		if err != nil {
			return nil, err
		}
		if r.err != nil {
			d.halt()
			d.err = r.err
			return nil, r.err
		}

		d.state.Epoch, d.state.Position = r.next.Epoch, r.next.Position
		d.state.Skipped += r.skipped
		if r.skipped > 0 {
			d.cfg.Logger.Warn("damaged records are skipped", "records", r.skipped, "skipped_so_far", d.state.Skipped, "first", r.damage)
		}
		// What a part of a batch lacks, others may have.
		if r.batch.Examples > 0 || d.cfg.Part.Of > 0 {
			d.barren = 0
			r.batch.State = d.state
			for _, p := range r.batch.Parts {
				p.State = d.state
			}
			return r.batch, nil
		}
		if d.barren++; d.barren >= d.BatchesPerEpoch() {
			d.halt()
			d.err = fmt.Errorf("%s: no usable record in a whole epoch of %d", d.files.paths[0], d.settings.Records)
			if r.damage != nil {
				d.err = fmt.Errorf("%w: %w", d.err, r.damage)
			}
		}
	}
}

// wait returns the next result in order.
func (d *Dataset) wait(ctx context.Context) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	if len(d.ready) == 0 {
		if err := d.receive(ctx); err != nil {
			return result{}, err
		}
		if len(d.ready) == 0 {
			return result{err: io.EOF}, nil
		}
	}
	r := d.ready[0]
	d.ready[0] = result{} // its batch belongs to the caller
	d.ready = d.ready[1:]
	return r, nil
}

// receive waits for results. At the end of all there are none.
func (d *Dataset) receive(ctx context.Context) error {
	if d.pending == nil {
		select {
		case p, ok := <-d.made.queue:
			if !ok {
				return nil
			}
			d.pending = p
		case <-ctx.Done():
			return ctx.Err()
		case <-d.closing:
			return ErrClosed
		}
	}
	select {
	case d.ready = <-d.pending:
		d.pending = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return ErrClosed
	}
}

// halt stops making batches.
func (d *Dataset) halt() {
	if d.made != nil {
		d.made.stop()
		d.made, d.pending, d.ready = nil, nil, nil
	}
}

func (d *Dataset) isClosed() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}

// Close ends a waiting Next, stops reading and closes the files.
func (d *Dataset) Close() error {
	d.closeOnce.Do(func() {
		close(d.closing)
		d.mu.Lock()
		made := d.made
		d.made, d.pending, d.ready = nil, nil, nil
		d.mu.Unlock()
		// Waited for without the lock: a Next that comes now returns at once.
		if made != nil {
			made.stop()
		}
		var errs []error
		for _, c := range d.closers {
			errs = append(errs, c.Close())
		}
		d.closeErr = errors.Join(errs...)
	})
	return d.closeErr
}
