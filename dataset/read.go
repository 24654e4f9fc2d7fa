package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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
}

func (f *files) add(path string, s source) {
	f.paths = append(f.paths, path)
	f.sources = append(f.sources, s)
	f.ends = append(f.ends, f.len()+int64(s.Len()))
}

func (f *files) len() int64 {
	if len(f.ends) == 0 {
		return 0
	}
	return f.ends[len(f.ends)-1]
}

// find returns the place of record n.
func (f *files) find(n int64) RecordID {
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

// fields holds the positions of a feature's names among the decoder's names.
type fields struct {
	names []string
	first int
}

// reader makes batches of records. Each goroutine has its own.
type reader struct {
	cfg   *Config
	files *files
	order *order

	decoder                      *tfrecord.Decoder
	values                       tfrecord.Values
	ids, types, mask, label, yes fields

	draws []int64
	drawn []RecordID
	near  [][]int // the drawn records of each file
	buf   []byte
	asm   assembler
}

func newReader(cfg *Config, f *files, free *pool) *reader {
	r := &reader{cfg: cfg, files: f, order: newOrder(cfg.Shuffle, f.len(), cfg.Seed, cfg.Buffer),
		near: make([][]int, len(f.sources)), asm: assembler{cfg: cfg, pool: free}}
	var names []string
	add := func(n []string) fields {
		names = append(names, n...)
		return fields{n, len(names) - len(n)}
	}
	r.ids, r.types, r.mask = add(cfg.Features.InputIDs), add(cfg.Features.TypeIDs), add(cfg.Features.Mask)
	r.label, r.yes = add(cfg.Features.Label), add(cfg.Features.Real)
	r.decoder = tfrecord.NewDecoder(names...)
	return r
}

// read makes the batch of the records drawn at the positions start to end of an
// epoch. If all of them are damaged or only fill up, it has no Examples, and no
// features either unless a Part is read. If the configuration says so, damaged
// records are left out; read returns their number and the error of the first.
func (r *reader) read(epoch, start, end int64) (b *Batch, skipped int64, damage, err error) {
	r.asm.reset()
	r.draws = r.order.draw(r.draws, epoch, start, end)
	r.drawn = r.drawn[:0]
	for _, n := range r.draws {
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
	for _, id := range r.drawn {
		if err := r.add(id); err != nil {
			if r.cfg.OnCorrupt != tfrecord.Skip || !damaged(err) {
				return nil, 0, nil, err
			}
			if skipped++; damage == nil {
				damage = err
			}
		}
	}
	switch {
	case len(r.asm.records) > 0:
		b = r.asm.batch()
	case r.cfg.Part.Of > 0:
		b = r.asm.nothing()
	default:
		return &Batch{Epoch: epoch}, skipped, damage, nil
	}
	b.Epoch, b.files = epoch, r.files.paths
	return b, skipped, damage, nil
}

// damaged reports whether err means that the bytes of a record cannot be decoded.
func damaged(err error) bool {
	var framing *tfrecord.CorruptError
	var example *tfrecord.ExampleError
	return errors.As(err, &framing) || errors.As(err, &example)
}

// add reads one record and appends its example to the assembler.
func (r *reader) add(id RecordID) error {
	data, err := r.files.sources[id.File].Record(int(id.Record), r.buf)
	if err != nil {
		return err
	}
	r.buf = data
	bad := func(feature, reason string) error {
		return &RecordError{File: r.files.paths[id.File], Record: id.Record, Feature: feature, Reason: reason}
	}
	if err := r.decoder.Decode(data, &r.values); err != nil {
		return &RecordError{File: r.files.paths[id.File], Record: id.Record, Reason: "is " + err.Error(), Err: err}
	}

	if name, v, reason := r.numbers(r.yes); reason != "" {
		return bad(name, reason)
	} else if len(v) == 1 && v[0] == 0 {
		return nil
	}

	idsName, ids, reason := r.numbers(r.ids)
	switch {
	case reason != "":
		return bad(idsName, reason)
	case ids == nil:
		return bad(idsName, missing(r.ids, data))
	}
	maskName, mask, reason := r.numbers(r.mask)
	if reason == "" && mask != nil {
		reason = checkMask(mask, len(ids), idsName)
	}
	if reason != "" {
		return bad(maskName, reason)
	}
	if reason := appendTokens(&r.asm, ids, mask, inputIDs); reason != "" {
		return bad(idsName, reason)
	}
	if len(r.types.names) > 0 {
		name, types, reason := r.numbers(r.types)
		switch {
		case reason != "":
		case types == nil:
			reason = missing(r.types, data)
		case len(types) != len(ids):
			reason = reasonLength(len(types), len(ids), idsName)
		default:
			reason = appendTokens(&r.asm, types, mask, typeIDs)
		}
		if reason != "" {
			return bad(name, reason)
		}
	}

	label, labeled := int64(0), false
	if r.cfg.Labels != LabelsNone && len(r.label.names) > 0 {
		name, v, reason := r.numbers(r.label)
		switch {
		case reason != "":
		case v == nil && r.cfg.Labels == LabelsRequired:
			reason = missing(r.label, data)
		case len(v) > 1 || len(v) == 0 && r.cfg.Labels == LabelsRequired:
			reason = fmt.Sprintf("has %d values; expected one label", len(v))
		case len(v) == 1:
			label, labeled = v[0], true
			reason = r.cfg.checkLabel(label)
		}
		if reason != "" {
			return bad(name, reason)
		}
	}
	if reason := r.asm.end(id, int32(label), labeled); reason != "" {
		return bad(idsName, reason)
	}
	return nil
}

// numbers returns the name of the first of a feature's names that the record has, and
// its numbers. If the record has none, it returns the first name and nil. The reason is
// set if the values are not int64.
func (r *reader) numbers(f fields) (name string, v []int64, reason string) {
	for i, name := range f.names {
		switch v := r.values.At(f.first + i); v.Kind {
		case tfrecord.KindNone:
		case tfrecord.KindInt64:
			if v.Int64s == nil {
				return name, none, ""
			}
			return name, v.Int64s, ""
		default:
			return name, nil, fmt.Sprintf("has %v values; expected int64", v.Kind)
		}
	}
	if len(f.names) == 0 {
		return "", nil, ""
	}
	return f.names[0], nil, ""
}

// none is an empty list, as opposed to no list.
var none = []int64{}

// checkMask returns what is wrong with a mask of n tokens, or "".
func checkMask(mask []int64, n int, of string) string {
	if len(mask) != n {
		return reasonLength(len(mask), n, of)
	}
	for i, m := range mask {
		if m != 0 && m != 1 {
			return fmt.Sprintf("has %d at position %d; expected 1 for a token or 0 for padding", m, i)
		}
	}
	return ""
}

// mostListed is the maximum number of features that an error lists.
const mostListed = 20

// missing describes a record that has none of a feature's names, and lists its features.
func missing(f fields, record []byte) string {
	var b strings.Builder
	b.WriteString("is missing")
	if len(f.names) > 1 {
		fmt.Fprintf(&b, " (also tried %s)", strings.Join(f.names[1:], ", "))
	}
	all, err := tfrecord.ParseExample(record)
	switch {
	case err != nil || len(all) == 0:
		b.WriteString("; the record has no features")
	default:
		b.WriteString("; the record has ")
		for i, v := range all[:min(len(all), mostListed)] {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q", v.Name)
		}
		if n := len(all) - mostListed; n > 0 {
			fmt.Fprintf(&b, " and %d more", n)
		}
	}
	return b.String()
}
