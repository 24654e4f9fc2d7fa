package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
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

	sampler *sampler // nil without Config.Sampling

	// For batches of a fixed size: how they are filled, and the room that each record takes, by
	// its number.
	fit      *Fit
	rooms    []uint16
	perEpoch int64 // batches in the first epoch
	cells    int64 // the sum of their sizes

	assembler func() Assembler // a new one for each reader

	division division // under mu

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	closeErr  error

	mu      sync.Mutex    // held by all methods but Close
	state   State         // after the last batch
	made    *prefetch     // nil while no batch is being made
	err     error         // what ended the batches
	barren  int64         // batches in a row without an example
	pending chan []result // the job being waited for
	ready   []result      // made, but not yet returned
}

// Open opens the files of the configuration. It reads their indexes, or builds
// missing ones, which reads the file once. The context applies to Open only, and
// is checked before each file.
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
	sizes := make([]int64, len(paths))
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
			f, err := tfrecord.OpenIndexed(p, tfrecord.OnCorrupt(cfg.OnCorrupt), tfrecord.Logger(cfg.Logger), tfrecord.Until(gctx))
			opened[i] = f
			if err != nil {
				return err
			}
			st, err := vfs.Stat(p)
			if err != nil {
				return err
			}
			sizes[i] = st.Size()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		closeAll()
		return nil, err
	}

	named := tfrecord.RecordsInNames(paths)
	for i, p := range paths {
		n, said := named[p]
		if have := int64(opened[i].Len()); said && have != n && opened[i].Skipped() == (tfrecord.Skipped{}) {
			closeAll()
			return nil, &tfrecord.ShardError{Path: p, Reason: fmt.Sprintf("it has %d records, and its name says %d; write it again", have, n)}
		}
	}

	var all files
	hash := sha256.New()
	for i, p := range paths {
		fmt.Fprintf(hash, "%q %d %d\n", filepath.Base(p), sizes[i], opened[i].Len())
		all.add(p, opened[i])
	}
	d, err := newDataset(ctx, cfg, all, hex.EncodeToString(hash.Sum(nil)[:8]))
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

// expand returns the files that match patterns.
func expand(patterns []string) ([]string, error) {
	var paths []string
	seen := map[string]bool{}
	for _, p := range patterns {
		matches, err := tfrecord.Glob(p)
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			m = vfs.Clean(m)
			if seen[m] {
				return nil, fmt.Errorf("file %s is given twice", m)
			}
			seen[m] = true
			paths = append(paths, m)
		}
	}
	return paths, nil
}

// newDataset returns a Dataset of open files. The configuration must be valid and
// have its defaults set.
func newDataset(ctx context.Context, cfg Config, f files, hash string) (*Dataset, error) {
	f.take(cfg.Take)
	n := f.len()
	fit := cfg.fit()
	switch {
	case n == 0:
		return nil, fmt.Errorf("%s: no records in the %d file(s)", f.paths[0], len(f.paths))
	case cfg.DropRemainder && fit == nil && n < int64(cfg.BatchSize):
		return nil, fmt.Errorf("%s: %d records in %d file(s); expected at least a batch of %d, because remainders are dropped", f.paths[0], n, len(f.paths), cfg.BatchSize)
	}
	layout, err := layoutSettings(cfg.Layout.Settings())
	if err != nil {
		return nil, err
	}
	d := &Dataset{cfg: cfg, files: f, fit: fit, assembler: cfg.Layout.Assemblers(), closing: make(chan struct{})}
	d.settings = Settings{
		Files:         hash,
		Records:       n,
		Seed:          cfg.Seed,
		BatchSize:     cfg.BatchSize,
		DropRemainder: cfg.DropRemainder,
		Shuffle:       cfg.Shuffle,
		Layout:        layout,
	}
	if cfg.Shuffle == ShuffleBuffer {
		d.settings.Buffer = cfg.Buffer
	}
	d.settings.Growth = cfg.Growth.String()
	if cfg.ClassWeights != nil {
		d.settings.ClassWeights = spelled(cfg.ClassWeights.Of)
	}
	if cfg.Sampling != nil {
		d.settings.Sampling = cfg.Sampling.String()
	}
	d.state = State{Version: stateVersion, Settings: d.settings}
	if cfg.Sampling != nil {
		if d.sampler, err = newSampler(ctx, &d.files, cfg); err != nil {
			return nil, err
		}
	}
	if fit == nil {
		return d, nil
	}
	if d.rooms, err = roomsOf(ctx, &d.files, fit, cfg.Logger); err != nil {
		return nil, err
	}
	if d.perEpoch, d.cells, err = d.count(ctx, cfg.Growth.settled(n)); err != nil {
		return nil, err
	}
	if d.perEpoch == 0 {
		return nil, fmt.Errorf("%s: the %d records in %d file(s) do not fill a batch; expected at least one that does, because remainders are dropped", f.paths[0], n, len(f.paths))
	}
	return d, nil
}

// NumExamples returns the number of records in an epoch. It is the number of
// examples unless some records are damaged or only fill up a batch.
func (d *Dataset) NumExamples() int64 { return d.settings.Records }

// Size returns the sum of the room that all records take, such as their tokens, if the size of
// batches is fixed; otherwise it is not known, and 0.
func (d *Dataset) Size() (sum int64) {
	for _, n := range d.rooms {
		sum += int64(n)
	}
	return sum
}

// Cells returns the sum of the sizes of the batches of an epoch, such as their positions, if these sizes
// are fixed; otherwise it is not known, and 0.
func (d *Dataset) Cells() int64 { return d.cells }

// BatchesPerEpoch returns the number of batches in an epoch. With batches of a fixed size, it is the
// number in the first epoch: other epochs may have a few more or less. See Batches. With batches that
// grow, it is that of an epoch after the growth.
func (d *Dataset) BatchesPerEpoch() int64 {
	if d.fit != nil {
		return d.perEpoch
	}
	return d.settings.batches()
}

func (s Settings) batches() int64 {
	if s.DropRemainder {
		return s.Records / int64(s.BatchSize)
	}
	return (s.Records + int64(s.BatchSize) - 1) / int64(s.BatchSize)
}

// FileInfo describes the content of a record file.
type FileInfo struct {
	Path    string `json:"path"`
	Records int64  `json:"records"`
	// Digest is a hash of the records; see tfrecord.IndexedFile.
	Digest uint64 `json:"digest"`
	// Damaged counts the damaged records that the file's index leaves out.
	Damaged tfrecord.Skipped `json:"damaged"`
}

// FileInfos describes the files, indexed by RecordID.File.
func (d *Dataset) FileInfos() []FileInfo { return slices.Clone(d.infos) }

// Damaged counts the damaged records that the indexes leave out. NumExamples does not
// include them.
func (d *Dataset) Damaged() tfrecord.Skipped {
	var all tfrecord.Skipped
	for _, f := range d.infos {
		all.Records += f.Damaged.Records
		all.Bytes += f.Damaged.Bytes
	}
	return all
}

// CheckFirst looks at the first record of every file. It returns a RecordError for the first one that
// is not as the layout expects, so that wrong data are found before anything else is loaded, and logs
// what is assumed of features that records lack. A damaged record is passed over if the configuration
// says so.
func (d *Dataset) CheckFirst() error {
	r := newReader(&d.cfg, &d.files, d.newOrder(), d.assembler())
	for i, s := range d.files.sources {
		if s.Len() == 0 {
			continue
		}
		r.asm.Reset()
		err := r.add(RecordID{File: i}, nil)
		if err != nil && (d.cfg.OnCorrupt != tfrecord.Skip || !damaged(err)) {
			return err
		}
	}
	if a, ok := r.asm.(interface{ Assumed() []string }); ok && d.cfg.Logger != nil {
		for _, what := range a.Assumed() {
			d.cfg.Logger.Info(what, "file", d.files.paths[0])
		}
	}
	return nil
}

// Files returns the paths of the files, indexed by RecordID.File.
func (d *Dataset) Files() []string { return append([]string(nil), d.files.paths...) }

// Describe names a record, such as "train-00000-of-00002.tfrecord:17".
func (d *Dataset) Describe(id RecordID) string { return describe(d.files.paths, id) }

// ClassWeights returns those of the configuration, or nil.
func (d *Dataset) ClassWeights() *ClassWeights { return d.cfg.ClassWeights }

// Drawn returns the ids of the records drawn for the batch at a position, without
// reading them.
func (d *Dataset) Drawn(s State) []RecordID {
	if d.fit != nil {
		return d.idsOf(d.planAt(s).next().draws)
	}
	return d.idsOf(d.newOrder().draw(nil, s.Epoch, s.Position, s.end()))
}

// newOrder returns the order of the records for one goroutine.
func (d *Dataset) newOrder() *order {
	o := newOrder(d.cfg.Shuffle, d.files.len(), d.cfg.Seed, d.cfg.Buffer)
	o.sampler = d.sampler
	return o
}

// Sampling returns that of the configuration, or nil.
func (d *Dataset) Sampling() *Sampling { return d.cfg.Sampling }

// idsOf returns the ids of numbered records.
func (d *Dataset) idsOf(draws []int64) []RecordID {
	ids := make([]RecordID, len(draws))
	for i, n := range draws {
		ids[i] = d.files.find(n)
	}
	return ids
}

// State returns the position after the batch that Next returned last.
func (d *Dataset) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Restore moves to a position. It reads nothing, so the end of the data is reached as
// fast as the beginning. For a state of other data or settings it returns a
// StateError and changes nothing.
func (d *Dataset) Restore(s State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed() {
		return ErrClosed
	}
	if err := s.check(d.settings, d.cfg.Layout.Settings(), d.fit != nil); err != nil {
		return err
	}
	d.halt()
	s.Settings = d.settings // equal, but for the order of the layout's
	switch {
	case d.fit == nil:
		s = s.normal()
	case s.Position == s.Settings.Records && s.Carried == "":
		s.Epoch, s.Position = s.Epoch+1, 0
	}
	d.state, d.err, d.barren = s, nil, 0
	return nil
}

// Divide makes the readers divide batches ahead of Next. The Parts of a batch are then the
// result of the layout's Divide with the same numbers. It takes effect with the next batch.
func (d *Dataset) Divide(n, longRows int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.halt()
	d.division = division{n, longRows}
}

// Ahead makes the readers keep at least n batches ready, for a caller that takes several at once. It
// takes effect with the next batch.
func (d *Dataset) Ahead(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n > d.cfg.Prefetch {
		d.halt()
		d.cfg.Prefetch = n
	}
}

// division holds the arguments of Dataset.Divide; the zero value divides nothing.
type division struct{ parts, longRows int }

// normal returns the canonical form of a position at which the epoch has no more
// batches.
func (s State) normal() State {
	left := s.Settings.Records - s.Position
	if left <= 0 || s.Settings.DropRemainder && left < s.size() {
		s.Epoch++
		s.Position = 0
	}
	return s
}

// Next returns the next batch, or io.EOF at the end of the configured epochs.
// Skipped damaged records make their batch smaller. A batch that would be empty is
// omitted, unless only a Part of it is read: it then has Features
// without Examples, as Assembler.Batch makes them. The context applies to the wait only: after
// it has ended, Next can be called again. After any other error Next returns the same
// error until Restore.
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
			d.made = d.startPrefetch()
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

		d.state.Epoch, d.state.Position, d.state.Carried = r.next.Epoch, r.next.Position, r.next.Carried
		d.state.Skipped += r.skipped
		if r.skipped > 0 {
			d.cfg.Logger.Warn("skipped damaged records", "records", r.skipped, "skipped_so_far", d.state.Skipped, "first", r.damage)
		}
		// An empty part of a batch says nothing about the other parts.
		if r.batch.Examples > 0 || d.cfg.Part.Of > 0 {
			d.barren = 0
			r.batch.State = d.state
			for _, p := range r.batch.Parts {
				p.State = d.state
			}
			return r.batch, nil
		}
		if d.barren++; d.barren >= d.MostBatches() {
			d.halt()
			d.err = fmt.Errorf("%s: no usable record in an epoch of %d records", d.files.paths[0], d.settings.Records)
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

// receive waits for results. There are none at the end of the last epoch.
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

// halt stops the readers.
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
		// Wait without the lock, so that a call of Next returns at once.
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
