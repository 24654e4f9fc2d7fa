package checkpoint

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	tf "github.com/wamuir/graft/tensorflow"
	tfproto "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

const (
	// ObjectGraphKey is the bundle entry that holds the object graph.
	ObjectGraphKey = "_CHECKPOINTABLE_OBJECT_GRAPH"

	bundleVersion = 1 // of the format, as TensorFlow 2.18 writes and reads it
	mostShards    = 99_999
)

// IndexPath returns the name of the index file of the checkpoint at prefix.
func IndexPath(prefix string) string { return prefix + ".index" }

// DataPath returns the name of a data file of the checkpoint at prefix.
func DataPath(prefix string, shard, shards int) string {
	return fmt.Sprintf("%s.data-%05d-of-%05d", prefix, shard, shards)
}

// Option is a setting for reading or writing a bundle.
type Option func(*options)

type options struct {
	intraOp int
}

// WithIntraOpThreads sets the number of threads of TensorFlow's CPU kernels if this
// package starts the first session of the process. The number then holds for all later
// sessions. 0 leaves it to TensorFlow.
func WithIntraOpThreads(n int) Option {
	return func(o *options) { o.intraOp = n }
}

// Bundle is an opened checkpoint. It keeps the parsed index but no open files, and is
// safe for concurrent use.
type Bundle struct {
	prefix  string // of the data files, and of the index unless index says otherwise
	index   string
	shards  int
	order   byteOrder
	entries []Entry
	byName  map[string]int
	slices  []Entry // the parts of tensors that were saved in slices
	opts    options

	graphOnce sync.Once
	graph     *ObjectGraph
	graphErr  error
}

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// OpenBundle reads and checks the index of the checkpoint at prefix. The data files are
// needed only when tensors are read or verified.
func OpenBundle(prefix string, opts ...Option) (*Bundle, error) {
	return openBundle(IndexPath(prefix), prefix, opts...)
}

func openBundle(index, prefix string, opts ...Option) (*Bundle, error) {
	f, err := vfs.Open(index)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open checkpoint: %s is not a file", index)
	}
	b := &Bundle{prefix: prefix, index: index}
	for _, o := range opts {
		o(&b.opts)
	}
	if err := b.parse(f, info.Size()); err != nil {
		return nil, err
	}
	return b, nil
}

// parse fills b from the index in r.
func (b *Bundle) parse(r io.ReaderAt, size int64) error {
	t := &tableReader{r: r, size: size, path: b.index}
	b.byName = map[string]int{}
	header := false
	err := t.each(func(key, value []byte, offset int64) error {
		if !header {
			header = true
			if len(key) != 0 {
				return t.corrupt(offset, "the first entry is %s, not the header", quote(string(key)))
			}
			return b.parseHeader(t, value, offset)
		}
		e, err := b.parseEntry(t, string(key), value, offset)
		if err != nil {
			return err
		}
		if key[0] == 0 {
			e.Name = sliceOwner(e.Name)
			b.slices = append(b.slices, e)
			return nil
		}
		b.byName[e.Name] = len(b.entries)
		b.entries = append(b.entries, e)
		return nil
	})
	if err == nil && !header {
		err = t.corrupt(-1, "the index is empty")
	}
	return err
}

func (b *Bundle) parseHeader(t *tableReader, value []byte, offset int64) error {
	var h tfproto.BundleHeaderProto
	if err := proto.Unmarshal(value, &h); err != nil {
		return t.corrupt(offset, "bad header: %v", err)
	}
	if v := h.GetVersion(); v.GetMinConsumer() > bundleVersion {
		return fmt.Errorf("%s: format version is %d; expected at most %d", t.path, v.GetMinConsumer(), bundleVersion)
	}
	if h.NumShards < 1 || h.NumShards > mostShards {
		return t.corrupt(offset, "bad header: %d data files", h.NumShards)
	}
	b.shards = int(h.NumShards)
	switch h.Endianness {
	case tfproto.BundleHeaderProto_LITTLE:
		b.order = binary.LittleEndian
	case tfproto.BundleHeaderProto_BIG:
		b.order = binary.BigEndian
	default:
		return t.corrupt(offset, "bad header: byte order %d", h.Endianness)
	}
	return nil
}

func (b *Bundle) parseEntry(t *tableReader, name string, value []byte, offset int64) (Entry, error) {
	bad := func(format string, args ...any) (Entry, error) {
		return Entry{}, &CorruptError{Path: t.path, Tensor: name, Offset: offset, Reason: fmt.Sprintf(format, args...)}
	}
	var p tfproto.BundleEntryProto
	if err := proto.Unmarshal(value, &p); err != nil {
		return bad("bad entry: %v", err)
	}
	e := Entry{
		Name: name, DType: tf.DataType(p.Dtype), Slices: len(p.Slices),
		Shard: int(p.ShardId), Offset: p.Offset, Size: p.Size, CRC32C: crc32c.Unmask(p.Crc32C),
	}
	kind := dtype.DType(e.DType)
	if !kind.Known() || kind == dtype.Resource {
		return bad("unknown type %d", p.Dtype)
	}
	if p.Shape.GetUnknownRank() {
		return bad("shape of unknown rank")
	}
	e.Shape = make([]int64, 0, len(p.Shape.GetDim()))
	for _, d := range p.Shape.GetDim() {
		e.Shape = append(e.Shape, d.GetSize())
	}
	n, ok := elements(e.Shape)
	if !ok {
		return bad("bad shape %s", shapeString(e.Shape))
	}
	if e.Slices > 0 {
		e.Shard, e.Offset, e.Size, e.CRC32C = 0, 0, 0, 0
		return e, nil
	}
	switch {
	case e.Shard < 0 || e.Shard >= b.shards:
		return bad("data file %d of %d", e.Shard, b.shards)
	case e.Offset < 0 || e.Size < 0 || e.Offset+e.Size < 0:
		return bad("%d bytes at %d", e.Size, e.Offset)
	case kind.Size() > 0 && e.Size != n*kind.Size():
		return bad("%s takes %d bytes, stored are %d", e.typeString(), n*kind.Size(), e.Size)
	case kind.Size() == 0 && e.Size < n:
		return bad("%s takes at least %d bytes, stored are %d", e.typeString(), n, e.Size)
	}
	return e, nil
}

// sliceOwner returns the tensor's name from the key of one of its slices. The key is in
// TensorFlow's OrderedCode: a zero byte, the name with 00 written as 00 FF and FF as
// FF 00, and 00 01.
func sliceOwner(key string) string {
	name, _, _ := strings.Cut(key[1:], "\x00\x01")
	return strings.NewReplacer("\x00\xff", "\x00", "\xff\x00", "\xff").Replace(name)
}

// Path returns the path of the checkpoint without its endings; it is part of [Source].
func (b *Bundle) Path() string { return b.prefix }

// Entries lists the tensors by their keys, in order; it is part of [Source]. The caller
// must not change it.
func (b *Bundle) Entries() []Entry { return b.entries }

// Names lists the tensors by their paths in the object graph if there is one, and by
// their keys otherwise.
func (b *Bundle) Names() []string {
	names := make([]string, 0, len(b.entries))
	if g, err := b.ObjectGraph(); g != nil && err == nil {
		for _, v := range g.Variables() {
			names = append(names, v.Name)
		}
		return names
	}
	for _, e := range b.entries {
		names = append(names, e.Name)
	}
	return names
}

// roots lists the children of the object graph's root, as prefixes of paths.
func (b *Bundle) roots() []string {
	g, err := b.ObjectGraph()
	if g == nil || err != nil || len(g.nodes) == 0 {
		return nil
	}
	var list []string
	for _, e := range g.nodes[0].order {
		list = append(list, e.name+"/")
	}
	return list
}

// Entry returns the entry with the given key.
func (b *Bundle) Entry(key string) (Entry, bool) {
	i, ok := b.byName[key]
	if !ok {
		return Entry{}, false
	}
	return b.entries[i], true
}

func (b *Bundle) dataPath(shard int) string { return DataPath(b.prefix, shard, b.shards) }

// stored lists the entries in the data files, in file order.
func (b *Bundle) stored() []Entry {
	list := make([]Entry, 0, len(b.entries)+len(b.slices))
	for _, e := range b.entries {
		if e.Slices == 0 {
			list = append(list, e)
		}
	}
	return inFileOrder(append(list, b.slices...))
}

// inFileOrder sorts entries by their positions in the data files.
func inFileOrder(list []Entry) []Entry {
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Offset, b.Offset))
	})
	return list
}

// CheckSizes returns an error if a data file is missing or too short, without reading it.
func (b *Bundle) CheckSizes() error {
	return b.eachStored(b.stored(), func(vfs.File, Entry) error { return nil })
}

// Verify checks the checksums of all tensors. It reads the data files once, in order,
// through a buffer of fixed size, and returns the first damage as a [CorruptError] with
// the file, the tensor and its offset.
func (b *Bundle) Verify(ctx context.Context) error {
	return b.verify(ctx, b.stored())
}

func (b *Bundle) verify(ctx context.Context, list []Entry) error {
	buf := make([]byte, 1<<20)
	return b.eachStored(list, func(f vfs.File, e Entry) error {
		return b.verifyEntry(ctx, f, e, buf)
	})
}

// eachStored visits entries, which must be in file order, each with its file. It checks
// that the file is long enough.
func (b *Bundle) eachStored(list []Entry, visit func(vfs.File, Entry) error) error {
	var (
		f    vfs.File
		size int64
	)
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	open := -1
	for _, e := range list {
		path := b.dataPath(e.Shard)
		if e.Shard != open {
			if f != nil {
				f.Close()
			}
			var err error
			if f, err = vfs.Open(path); err != nil {
				return fmt.Errorf("tensor %s of %s: %w", quote(e.Name), b.index, err)
			}
			info, err := f.Stat()
			if err != nil {
				return fmt.Errorf("tensor %s of %s: %w", quote(e.Name), b.index, err)
			}
			open, size = e.Shard, info.Size()
		}
		if e.Offset > size || e.Size > size-e.Offset {
			return &CorruptError{Path: path, Tensor: e.Name, Offset: e.Offset,
				Reason: fmt.Sprintf("the file has %d bytes; expected at least %d", size, e.Offset+e.Size)}
		}
		if err := visit(f, e); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bundle) verifyEntry(ctx context.Context, f vfs.File, e Entry, buf []byte) error {
	section := io.NewSectionReader(f, e.Offset, e.Size)
	sum := &summer{ctx: ctx, buf: buf}
	var err error
	switch e.DType {
	case tf.String:
		_, err = b.readStrings(section, e, sum, nil)
	case tf.DataType(dtype.Variant):
		err = b.verifyVariants(section, e, sum)
	default:
		err = sum.add(section, e.Size)
	}
	if err == nil && sum.crc != e.CRC32C {
		err = fmt.Errorf("checksum is %08x, the index says %08x", sum.crc, e.CRC32C)
	}
	return b.damage(e, err)
}

// damage turns an error about the bytes of e into a CorruptError. Errors of the system
// and of the context stay as they are.
func (b *Bundle) damage(e Entry, err error) error {
	var path *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &path), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: tensor %s: %w", b.dataPath(e.Shard), quote(e.Name), err)
	}
	return &CorruptError{Path: b.dataPath(e.Shard), Tensor: e.Name, Offset: e.Offset, Reason: err.Error()}
}

// summer computes a checksum.
type summer struct {
	ctx context.Context
	crc uint32
	buf []byte
}

func (s *summer) update(p []byte) { s.crc = crc32.Update(s.crc, crc32c.Table, p) }

// add adds n bytes of r to the checksum.
func (s *summer) add(r io.Reader, n int64) error {
	for n > 0 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		p := s.buf[:min(n, int64(len(s.buf)))]
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		s.update(p)
		n -= int64(len(p))
	}
	return nil
}

// readStrings reads a string tensor: a varint length for each element, the masked
// checksum of the lengths (as fixed 32-bit numbers, or 64-bit from 1<<32 on), and the
// bytes of all elements. If out is nil, it only computes the checksum of the bytes.
func (b *Bundle) readStrings(section *io.SectionReader, e Entry, sum *summer, out *[]string) (total int64, err error) {
	n, _ := elements(e.Shape)
	if e.Size == 0 {
		return 0, nil
	}
	r := bufio.NewReader(section)
	var lengths []int64
	for range n {
		v, err := binary.ReadUvarint(r)
		if err != nil {
			return 0, fmt.Errorf("string lengths: %w", err)
		}
		if v > uint64(e.Size-total) {
			return 0, fmt.Errorf("a string of %d bytes in a tensor of %d", v, e.Size)
		}
		total += int64(v)
		if v < 1<<32 {
			sum.update(b.order.AppendUint32(sum.buf[:0], uint32(v)))
		} else {
			sum.update(b.order.AppendUint64(sum.buf[:0], v))
		}
		if out != nil {
			lengths = append(lengths, int64(v))
		}
	}
	var stored [4]byte
	if _, err := io.ReadFull(r, stored[:]); err != nil {
		return 0, fmt.Errorf("checksum of the string lengths: %w", err)
	}
	if want := crc32c.Unmask(b.order.Uint32(stored[:])); want != sum.crc {
		return 0, fmt.Errorf("checksum of the string lengths is %08x; expected %08x", sum.crc, want)
	}
	sum.update(stored[:])
	if at, _ := section.Seek(0, io.SeekCurrent); at-int64(r.Buffered())+total != e.Size {
		return 0, fmt.Errorf("strings have %d bytes in total; expected the tensor's %d", total, e.Size)
	}
	if out == nil {
		return total, sum.add(r, total)
	}
	all := make([]byte, total)
	if _, err := io.ReadFull(r, all); err != nil {
		return 0, err
	}
	sum.update(all)
	for _, l := range lengths {
		*out = append(*out, string(all[:l]))
		all = all[l:]
	}
	return total, nil
}

// verifyVariants checks a variant tensor: each element is a varint length, that many
// bytes, and the masked checksum of everything before it, with lengths as 64-bit numbers.
func (b *Bundle) verifyVariants(section *io.SectionReader, e Entry, sum *summer) error {
	n, _ := elements(e.Shape)
	r := bufio.NewReader(section)
	left := e.Size
	for range n {
		v, err := binary.ReadUvarint(r)
		if err != nil {
			return fmt.Errorf("length of a variant: %w", err)
		}
		if v > uint64(left) {
			return fmt.Errorf("a variant of %d bytes in a tensor of %d", v, e.Size)
		}
		left -= int64(v)
		sum.update(b.order.AppendUint64(sum.buf[:0], v))
		if err := sum.add(r, int64(v)); err != nil {
			return err
		}
		var stored [4]byte
		if _, err := io.ReadFull(r, stored[:]); err != nil {
			return fmt.Errorf("checksum of a variant: %w", err)
		}
		if want := crc32c.Unmask(b.order.Uint32(stored[:])); want != sum.crc {
			return fmt.Errorf("checksum of a variant is %08x; expected %08x", sum.crc, want)
		}
		sum.update(stored[:])
	}
	return nil
}

// Strings reads a string tensor without TensorFlow. It is meant for small tensors, such
// as the object graph and the state of a run.
func (b *Bundle) Strings(name string) ([]string, error) {
	key, ok := b.Resolve(name)
	if !ok {
		return nil, &MismatchError{Path: b.prefix, Missing: []string{name}}
	}
	return b.strings(key)
}

func (b *Bundle) strings(key string) ([]string, error) {
	e, ok := b.Entry(key)
	if !ok {
		return nil, &MismatchError{Path: b.prefix, Missing: []string{key}}
	}
	if e.DType != tf.String || e.Slices > 0 {
		return nil, fmt.Errorf("%s: tensor %s; expected an unsliced string tensor", b.prefix, e)
	}
	var out []string
	err := b.eachStored([]Entry{e}, func(f vfs.File, e Entry) error {
		sum := &summer{ctx: context.Background(), buf: make([]byte, 16)}
		_, err := b.readStrings(io.NewSectionReader(f, e.Offset, e.Size), e, sum, &out)
		if err == nil && sum.crc != e.CRC32C {
			err = fmt.Errorf("checksum is %08x, the index says %08x", sum.crc, e.CRC32C)
		}
		return b.damage(e, err)
	})
	return out, err
}

// ObjectGraph returns the checkpoint's object graph, or nil for a checkpoint that has
// only names, such as those of TensorFlow 1.
func (b *Bundle) ObjectGraph() (*ObjectGraph, error) {
	b.graphOnce.Do(func() {
		if _, ok := b.Entry(ObjectGraphKey); !ok {
			return
		}
		s, err := b.strings(ObjectGraphKey)
		if err != nil {
			b.graphErr = err
			return
		}
		if len(s) != 1 {
			b.graphErr = fmt.Errorf("%s: %s has %d strings; expected 1", b.prefix, ObjectGraphKey, len(s))
			return
		}
		if b.graph, err = ParseObjectGraph([]byte(s[0])); err != nil {
			b.graphErr = fmt.Errorf("%s: %w", b.prefix, err)
		}
	})
	return b.graph, b.graphErr
}

// Resolve finds the key of a tensor, given the key itself or a path of the object graph.
// A damaged object graph resolves nothing; [Bundle.ObjectGraph] returns the reason.
func (b *Bundle) Resolve(name string) (key string, ok bool) {
	if _, ok := b.byName[name]; ok {
		return name, true
	}
	g, err := b.ObjectGraph()
	if g == nil || err != nil {
		return "", false
	}
	key, ok = g.Key(name)
	if !ok {
		return "", false
	}
	_, ok = b.byName[key]
	return key, ok
}

// lookup returns the entries of names, or a MismatchError that lists all missing ones.
func (b *Bundle) lookup(names []string) ([]Entry, error) {
	list := make([]Entry, len(names))
	var missing []string
	for i, name := range names {
		key, ok := b.Resolve(name)
		if !ok {
			missing = append(missing, name)
			continue
		}
		list[i] = b.entries[b.byName[key]]
	}
	if missing == nil {
		return list, nil
	}
	if _, err := b.ObjectGraph(); err != nil {
		return nil, err
	}
	return nil, &MismatchError{Path: b.prefix, Missing: missing}
}
