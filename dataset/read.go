package dataset

import (
	"errors"
	"slices"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// source gives random access to the records of a file. It is safe for concurrent use.
type source interface {
	Len() int
	// Record returns the data of record i, in buf if it is large enough.
	Record(i int, buf []byte) ([]byte, error)
}

// toucher is a source that can load records into the processor's caches, all
// records of a batch at once.
type toucher interface{ Touch(records []int) }

// files are the records of all files, numbered from the first to the last.
type files struct {
	paths   []string
	sources []source
	ends    []int64 // number of records up to the end of a file
	taken   []int64 // the numbers of those that are in the set, ascending; nil for all
}

func (f *files) add(path string, s source) {
	f.paths = append(f.paths, path)
	f.sources = append(f.sources, s)
	f.ends = append(f.ends, f.all()+int64(s.Len()))
}

// len returns the number of records in the set.
func (f *files) len() int64 {
	if f.taken != nil {
		return int64(len(f.taken))
	}
	return f.all()
}

// all returns the number of records in the files.
func (f *files) all() int64 {
	if len(f.ends) == 0 {
		return 0
	}
	return f.ends[len(f.ends)-1]
}

// find returns the place of record n of the set.
func (f *files) find(n int64) RecordID {
	if f.taken != nil {
		n = f.taken[n]
	}
	i, found := slices.BinarySearch(f.ends, n)
	if found {
		i++ // the file ends before record n
	}
	for f.sources[i].Len() == 0 {
		i++
	}
	if i > 0 {
		n -= f.ends[i-1]
	}
	return RecordID{File: i, Record: n}
}

// reader makes batches of records. Each goroutine has its own.
type reader struct {
	cfg   *Config
	files *files
	order *order

	draws []int64
	drawn []RecordID
	near  [][]int // the drawn records of each file
	buf   []byte
	asm   Assembler
}

func newReader(cfg *Config, f *files, o *order, asm Assembler) *reader {
	return &reader{cfg: cfg, files: f, order: o, near: make([][]int, len(f.sources)), asm: asm}
}

// read makes the batch of the records drawn at the positions start to end of an
// epoch. If all of them are damaged or only fill up, it has no Examples. If the configuration says so, damaged
// records are left out; read returns their number and the error of the first.
func (r *reader) read(epoch, start, end int64) (b *Batch, skipped int64, damage, err error) {
	r.draws = r.order.draw(r.draws, epoch, start, end)
	return r.assemble(epoch, r.draws, nil)
}

// readPlanned makes a batch of a fixed size, as read does.
func (r *reader) readPlanned(p plan) (b *Batch, skipped int64, damage, err error) {
	return r.assemble(p.epoch, p.draws, p.places)
}

// assemble makes a batch of the records with the given numbers. places are those of the records in a
// batch of a fixed size, nil otherwise.
func (r *reader) assemble(epoch int64, draws []int64, places []int32) (b *Batch, skipped int64, damage, err error) {
	r.asm.Reset()
	if a, ok := r.asm.(EpochAssembler); ok {
		a.Begin(epoch)
	}
	r.drawn = r.drawn[:0]
	for _, n := range draws {
		id := r.files.find(n)
		r.drawn = append(r.drawn, id)
		r.near[id.File] = append(r.near[id.File], int(id.Record))
	}
	for _, id := range r.drawn {
		if near := r.near[id.File]; len(near) > 0 {
			if s, ok := r.files.sources[id.File].(toucher); ok {
				s.Touch(near)
			}
			r.near[id.File] = near[:0]
		}
	}
	for i, id := range r.drawn {
		var at []int32
		if places != nil {
			at = places[i : i+1]
		}
		if err := r.add(id, at); err != nil {
			if r.cfg.OnCorrupt != tfrecord.Skip || !damaged(err) {
				return nil, 0, nil, err
			}
			if skipped++; damage == nil {
				damage = err
			}
		}
	}
	b = r.asm.Batch()
	b.Epoch, b.files = epoch, r.files.paths
	if r.cfg.ClassWeights != nil {
		if err := r.cfg.ClassWeights.apply(b); err != nil {
			return nil, 0, nil, err
		}
	}
	return b, skipped, damage, nil
}

// damaged reports whether err means that the bytes of a record cannot be decoded.
func damaged(err error) bool {
	var framing *tfrecord.CorruptError
	var example *tfrecord.ExampleError
	return errors.As(err, &framing) || errors.As(err, &example)
}

// add reads one record and adds its example, at a place if there is one.
func (r *reader) add(id RecordID, place []int32) error {
	data, err := r.files.sources[id.File].Record(int(id.Record), r.buf)
	if err != nil {
		return err
	}
	r.buf = data
	var bad *RecordError
	if place == nil {
		bad = r.asm.Add(id, data)
	} else {
		bad = r.asm.(PlacedAssembler).AddAt(place[0], id, data)
	}
	if err := bad; err != nil {
		err.File, err.Record = r.files.paths[id.File], id.Record
		return err
	}
	return nil
}
