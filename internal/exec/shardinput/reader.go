package shardinput

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Options are the options of a worker.
type Options struct {
	// Dir is the data folder on this machine; "" means the chief's path.
	Dir string
	// Log receives warnings about damaged records; nil means no log.
	Log *slog.Logger
}

// host is the state shared by the operations of a process.
type host struct {
	mu      sync.Mutex
	options Options
	current *reader // nil before the first draw
}

// Lengths of the requests of GorbitDraw and GorbitTake, and the number of stats before those of the
// rows.
const (
	DrawNumbers = 4
	TakeNumbers = 3
	Stats       = 9
)

const (
	// placeNumbers is the length of a replica's place.
	placeNumbers = 2
	// kept is the number of tickets to keep: that of the step, the next one, and one that
	// was drawn again.
	kept = 3
	// opening is how long a draw with ticket 0 waits for the data.
	opening = 500 * time.Millisecond
)

// reader reads a worker's part of the batches.
type reader struct {
	text   []byte // the configuration
	config Config
	opened chan struct{} // closed once set or err is set
	set    *dataset.Dataset
	err    error

	mu      sync.Mutex
	tickets map[int64][]micro
}

// micro is a flat micro-batch, the input of the graph.
type micro struct {
	values map[string][]byte // by dtype
	layout []int64
}

// reader returns the reader for a configuration. It closes a reader for another one.
func (h *host) reader(text []byte) (*reader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.current; r != nil {
		if bytes.Equal(r.text, text) {
			return r, nil
		}
		go r.close()
		h.current = nil
	}
	config, err := parseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("invalid settings from the chief for the local input; run the same release on every machine: %w", err)
	}
	r := &reader{text: bytes.Clone(text), config: config, opened: make(chan struct{}), tickets: make(map[int64][]micro)}
	h.current = r
	options := h.options
	go func() {
		defer close(r.opened)
		defer func() {
			if p := recover(); p != nil {
				r.err = r.named(fmt.Errorf("open the data: %v", p))
			}
		}()
		if err := r.open(options); err != nil {
			r.err = r.named(err)
		}
	}()
	return r, nil
}

func (r *reader) close() {
	<-r.opened
	if r.set != nil {
		r.set.Close()
	}
}

// named adds the worker's name to an error.
func (r *reader) named(err error) error {
	return fmt.Errorf("worker %s: %w", r.config.Data.Workers[r.config.Worker], err)
}

// advice is the end of errors about data that differ from the chief's.
const advice = "with --input local every worker reads its own part of the data; copy the chief's files to the same path on this machine, or set their folder with gorbit worker --data (with TF_CONFIG, gorbit train --data)"

// open opens the data and compares it with the chief's.
func (r *reader) open(o Options) error {
	data := r.config.Data
	dir := data.Dir
	if o.Dir != "" {
		dir = o.Dir
	}
	c := data.Dataset
	c.Files, c.Layout, c.Part, c.Logger = nil, data.Layout, r.config.Part, o.Log
	for _, f := range data.Files {
		path := f.Path
		if !vfs.IsAbs(path) {
			path = vfs.Join(dir, path)
		}
		if _, err := vfs.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("file %s not found; %s", path, advice)
		}
		c.Files = append(c.Files, path)
	}
	set, err := dataset.Open(context.Background(), c)
	if err != nil {
		return err
	}
	for i, own := range set.FileInfos() {
		if err == nil {
			err = sameRecords(own, data.Files[i])
		}
	}
	if own := set.State().Settings; err == nil && own != data.Settings {
		err = fmt.Errorf("the data in %s has the settings %+v; expected the chief's, %+v; run the same release on every machine", vfs.Dir(c.Files[0]), own, data.Settings)
	}
	if err != nil {
		set.Close()
		return err
	}
	r.set = set
	return nil
}

// sameRecords returns an error if a file of this machine has other records than the chief's. If the
// file is damaged, the error says so.
func sameRecords(own, chief dataset.FileInfo) error {
	if own.Records == chief.Records && own.Digest == chief.Digest {
		return nil
	}
	if own.Damaged != chief.Damaged && own.Damaged.Records > 0 {
		return fault.Damagedf("%s has %d records; expected %d, as the chief's file; it is damaged, and %d bytes in %d places are skipped%s; %s",
			own.Path, own.Records, chief.Records, own.Damaged.Bytes, own.Damaged.Records, firstDamage(own.Path), advice)
	}
	if own.Records != chief.Records {
		return fmt.Errorf("%s has %d records; expected %d, as the chief's file; %s", own.Path, own.Records, chief.Records, advice)
	}
	return fmt.Errorf("%s has other records than the chief's file (digest %016x; expected %016x); %s", own.Path, own.Digest, chief.Digest, advice)
}

// firstDamage describes the first damage of a file, if it can be found.
func firstDamage(path string) string {
	f, err := tfrecord.OpenIndexed(path)
	if err == nil {
		f.Close()
		return ""
	}
	damage := (*tfrecord.CorruptError)(nil)
	if !errors.As(err, &damage) {
		return ""
	}
	return fmt.Sprintf(", the first at record %d, byte %d: %s", damage.Record, damage.Offset, damage.Reason)
}

// draw implements GorbitDraw.
func (h *host) draw(text []byte, request []int64) (numbers []int64, rows []int32, err error) {
	if len(request) != DrawNumbers {
		return nil, nil, fmt.Errorf("the request has %d numbers; expected %d", len(request), DrawNumbers)
	}
	r, err := h.reader(text)
	if err != nil {
		return nil, nil, err
	}
	ticket := request[0]
	if ticket == 0 {
		numbers = make([]int64, Stats+len(r.config.Rows))
		select {
		case <-r.opened:
			numbers[0] = 1
			return numbers, nil, r.err
		case <-time.After(opening):
			return numbers, nil, nil
		}
	}
	<-r.opened
	if r.err != nil {
		return nil, nil, r.err
	}
	numbers, rows, err = r.draw(ticket, request[1], request[2], request[3])
	if err != nil {
		return nil, nil, r.named(err)
	}
	return numbers, rows, nil
}

// draw reads the part of the batch at a position and keeps it under a ticket.
func (r *reader) draw(ticket, epoch, position, rounds int64) ([]int64, []int32, error) {
	if rounds < 1 || rounds > maxMicro || rounds*int64(r.config.Replicas) > maxMicro {
		return nil, nil, fmt.Errorf("%d rounds of %d micro-batches requested; expected at most %d micro-batches", rounds, r.config.Replicas, maxMicro)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.set.State()
	if at.Epoch != epoch || at.Position != position {
		at.Epoch, at.Position = epoch, position
		if err := r.set.Restore(at); err != nil {
			return nil, nil, err
		}
	}
	batch, err := r.set.Next(context.Background())
	if err != nil {
		return nil, nil, err
	}
	defer batch.Release()
	parts, err := r.config.Data.Layout.Divide(batch, int(rounds)*r.config.Replicas, r.config.LongRows)
	if err != nil {
		return nil, nil, err
	}
	made := make([]micro, len(parts))
	cells := 0
	for i, p := range parts {
		if made[i], err = r.config.lay(p); err != nil {
			return nil, nil, err
		}
		cells += p.Rows
	}
	for t := range r.tickets {
		if t <= ticket-kept {
			delete(r.tickets, t)
		}
	}
	r.tickets[ticket] = made

	numbers := []int64{int64(batch.Examples), int64(batch.Labeled), int64(batch.Truncated), int64(batch.Tokens), int64(cells),
		r.set.State().Skipped - at.Skipped, batch.Pairs, int64(batch.TargetTokens), batch.TargetPairs}
	var rows []int32
	for _, name := range r.config.Rows {
		own := different(parts, name)
		numbers = append(numbers, int64(len(own)))
		rows = append(rows, own...)
	}
	for _, p := range parts {
		numbers = append(numbers, int64(p.Examples))
	}
	return numbers, rows, nil
}

// different returns the distinct values of a feature in some batches, sorted.
func different(parts []*dataset.Batch, feature string) []int32 {
	var all []int32
	for _, p := range parts {
		if f := p.Feature(feature); f != nil {
			all = append(all, f.Int32...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lay flattens the inputs of the graph into memory of their own.
func (c Config) lay(b *dataset.Batch) (micro, error) {
	laid, err := flat.Lay(c.Features, b.Features)
	if err != nil {
		return micro{}, err
	}
	m := micro{make(map[string][]byte), laid.Layout}
	for i, kind := range flat.Kinds(c.Features) {
		m.values[kind.DType] = slices.Concat(laid.Values[i]...)
	}
	return m, nil
}

// take implements GorbitTake.
func (h *host) take(request, place []int64) (micro, error) {
	if len(request) != TakeNumbers || len(place) != placeNumbers {
		return micro{}, fmt.Errorf("the request and place have %d and %d numbers; expected %d and %d", len(request), len(place), TakeNumbers, placeNumbers)
	}
	h.mu.Lock()
	r := h.current
	h.mu.Unlock()
	if r == nil {
		return micro{}, errors.New("no batch has been drawn")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.tickets[request[0]]
	round, rounds, replica, replicas := request[1], request[2], place[0], place[1]
	if round < 0 || round >= rounds || replica < 0 || replica >= replicas || rounds > maxMicro || replicas > maxMicro || int64(len(made)) != rounds*replicas {
		return micro{}, r.named(fmt.Errorf("ticket %d has %d micro-batches, but round %d of %d of replica %d of %d was requested", request[0], len(made), round, rounds, replica, replicas))
	}
	return made[round*replicas+replica], nil
}
