package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	tf "github.com/wamuir/graft/tensorflow"
	shapes "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	types "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	versions "github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	tfproto "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// tableBuilder writes tables of many blocks and with compression, which
// TensorFlow reads but does not write at the sizes of a test.
type tableBuilder struct {
	out     bytes.Buffer
	snappy  bool
	perPart int // entries per block
	restart int // entries per restart point
}

func (b *tableBuilder) block(body []byte) (handle []byte) {
	kind := byte(blockRaw)
	if b.snappy {
		body, kind = snappy.Encode(nil, body), blockSnappy
	}
	handle = binary.AppendUvarint(nil, uint64(b.out.Len()))
	handle = binary.AppendUvarint(handle, uint64(len(body)))
	body = append(bytes.Clone(body), kind)
	body = binary.LittleEndian.AppendUint32(body, crc32c.Mask(crc32.Checksum(body, crc32c.Table)))
	b.out.Write(body)
	return handle
}

// encode makes the body of a block.
func (b *tableBuilder) encode(keys []string, values [][]byte) []byte {
	var out []byte
	var restarts []uint32
	last := ""
	for i, key := range keys {
		shared := 0
		if i%b.restart == 0 {
			restarts = append(restarts, uint32(len(out)))
		} else {
			for shared < min(len(last), len(key)) && last[shared] == key[shared] {
				shared++
			}
		}
		out = binary.AppendUvarint(out, uint64(shared))
		out = binary.AppendUvarint(out, uint64(len(key)-shared))
		out = binary.AppendUvarint(out, uint64(len(values[i])))
		out = append(append(out, key[shared:]...), values[i]...)
		last = key
	}
	if len(restarts) == 0 {
		restarts = []uint32{0}
	}
	for _, r := range append(restarts, uint32(len(restarts))) {
		out = binary.LittleEndian.AppendUint32(out, r)
	}
	return out
}

func (b *tableBuilder) build(keys []string, values [][]byte) []byte {
	var lasts []string
	var handles [][]byte
	for at := 0; at < len(keys); at += b.perPart {
		end := min(at+b.perPart, len(keys))
		handles = append(handles, b.block(b.encode(keys[at:end], values[at:end])))
		lasts = append(lasts, keys[end-1])
	}
	return b.finish(lasts, handles)
}

func (b *tableBuilder) finish(lasts []string, handles [][]byte) []byte {
	footer := b.block(b.encode(nil, nil))
	b.restart = 1
	footer = append(footer, b.block(b.encode(lasts, handles))...)
	footer = append(footer, make([]byte, 40-len(footer))...)
	footer = binary.LittleEndian.AppendUint64(footer, tableMagic)
	b.out.Write(footer)
	return b.out.Bytes()
}

// reblock rewrites an index with small, compressed blocks.
func reblock(t testing.TB, index []byte, perPart int) []byte {
	t.Helper()
	var keys []string
	var values [][]byte
	r := &tableReader{r: bytes.NewReader(index), size: int64(len(index)), path: "index"}
	if err := r.each(func(key, value []byte, _ int64) error {
		keys, values = append(keys, string(key)), append(values, bytes.Clone(value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b := &tableBuilder{snappy: true, perPart: perPart, restart: 2}
	return b.build(keys, values)
}

func readTable(data []byte) (keys []string, err error) {
	r := &tableReader{r: bytes.NewReader(data), size: int64(len(data)), path: "index"}
	err = r.each(func(key, _ []byte, _ int64) error {
		keys = append(keys, string(key))
		return nil
	})
	return keys, err
}

func TestTableBlocks(t *testing.T) {
	var keys []string
	var values [][]byte
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("key/%04d/tail", i))
		values = append(values, []byte(strings.Repeat("v", i%7)))
	}
	for _, b := range []*tableBuilder{
		{perPart: 1000, restart: 16}, {perPart: 1, restart: 1}, {perPart: 64, restart: 16, snappy: true}, {perPart: 333, restart: 1000},
	} {
		name := fmt.Sprintf("%+v", *b)
		got, err := readTable(b.build(keys, values))
		if err != nil || strings.Join(got, "\n") != strings.Join(keys, "\n") {
			t.Errorf("%s: %d keys, error %v", name, len(got), err)
		}
	}
}

// A table may be well sealed and still lie.
func TestTableHostile(t *testing.T) {
	entry := func(shared, own, value uint64, body string) []byte {
		b := binary.AppendUvarint(nil, shared)
		b = binary.AppendUvarint(b, own)
		b = binary.AppendUvarint(b, value)
		return append(b, body...)
	}
	le32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
		return b
	}
	one := func(body []byte) func(b *tableBuilder) []byte {
		return func(b *tableBuilder) []byte { return b.finish([]string{"z"}, [][]byte{b.block(body)}) }
	}
	handle := func(offset, size uint64) func(b *tableBuilder) []byte {
		return func(b *tableBuilder) []byte {
			return b.finish([]string{"z"}, [][]byte{binary.AppendUvarint(binary.AppendUvarint(nil, offset), size)})
		}
	}
	long := strings.Repeat("n", 1<<20)
	for _, test := range []struct {
		name string
		make func(b *tableBuilder) []byte
		want string
	}{
		{"restarts beyond the block", one(le32(0, 1<<31)), "restart points"},
		{"no restart count", one([]byte{1, 2}), "no restart count"},
		{"shares more than there is", one(append(entry(5, 1, 0, "k"), le32(0, 1)...)), "does not fit"},
		{"key beyond the block", one(append(entry(0, 1<<40, 0, "k"), le32(0, 1)...)), "does not fit"},
		{"value beyond the block", one(append(entry(0, 1, 1<<63, "k"), le32(0, 1)...)), "does not fit"},
		{"varint without end", one(append(bytes.Repeat([]byte{0xff}, 20), le32(0, 1)...)), "entry header"},
		{"keys out of order", one(append(append(entry(0, 1, 0, "b"), entry(0, 1, 0, "a")...), le32(0, 1)...)), "out of order"},
		{"a key twice", one(append(append(entry(0, 1, 0, "b"), entry(1, 0, 0, "")...), le32(0, 1)...)), "out of order"},
		{"block outside the file", handle(1<<40, 10), "does not fit"},
		{"block larger than all", handle(0, 1<<62), "does not fit"},
		{"sum of offset and size overflows", handle(1<<63, 1<<63), "does not fit"},
		{"one block many times", func(b *tableBuilder) []byte {
			h := b.block(b.encode(nil, nil))
			return b.finish([]string{"x", "y"}, [][]byte{h, h})
		}, "overlaps"},
		{"names blown up by sharing", func(b *tableBuilder) []byte {
			body := entry(0, uint64(len(long)), 0, long)
			for range 1 << 12 {
				body = append(body, entry(uint64(len(long)), 1, 0, "x")...)
				long += "x"
			}
			b.snappy = false
			return one(append(body, le32(0, 1)...))(b)
		}, "too long"},
		{"snappy bomb", func(b *tableBuilder) []byte {
			bomb := append(binary.AppendUvarint(nil, 1<<31), 0)
			start := b.out.Len()
			body := append(bytes.Clone(bomb), blockSnappy)
			b.out.Write(binary.LittleEndian.AppendUint32(body, crc32c.Mask(crc32.Checksum(body, crc32c.Table))))
			h := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(start)), uint64(len(bomb)))
			return b.finish([]string{"z"}, [][]byte{h})
		}, "snappy length"},
		{"not snappy", func(b *tableBuilder) []byte {
			body := []byte{40, 0xfc, 0xff, 0xff, 0xff, 0xff, blockSnappy}
			start := b.out.Len()
			b.out.Write(binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32c.Mask(crc32.Checksum(body, crc32c.Table))))
			return b.finish([]string{"z"}, [][]byte{binary.AppendUvarint(binary.AppendUvarint(nil, uint64(start)), uint64(len(body)-1))})
		}, "snappy"},
		{"unknown compression", func(b *tableBuilder) []byte {
			body := []byte{0, 0, 0, 0, 9}
			start := b.out.Len()
			b.out.Write(binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32c.Mask(crc32.Checksum(body, crc32c.Table))))
			return b.finish([]string{"z"}, [][]byte{binary.AppendUvarint(binary.AppendUvarint(nil, uint64(start)), uint64(len(body)-1))})
		}, "compression type 9"},
		{"empty file", func(*tableBuilder) []byte { return nil }, "too few"},
		{"zeros", func(*tableBuilder) []byte { return make([]byte, 4096) }, "magic"},
	} {
		data := test.make(&tableBuilder{snappy: false, perPart: 10, restart: 1})
		_, err := readTable(data)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want a CorruptError with %q", test.name, err, test.want)
		}
	}
}

// header and entry are what a bundle's table holds.
func header(h *tfproto.BundleHeaderProto) []byte {
	data, err := proto.Marshal(h)
	if err != nil {
		panic(err)
	}
	return data
}

func entry(dtype tf.DataType, shape []int64, shard int32, offset, size int64, crc uint32) []byte {
	p := &tfproto.BundleEntryProto{
		Dtype: types.DataType(dtype), ShardId: shard, Offset: offset, Size: size, Crc32C: crc32c.Mask(crc), Shape: &shapes.TensorShapeProto{},
	}
	for _, d := range shape {
		p.Shape.Dim = append(p.Shape.Dim, &shapes.TensorShapeProto_Dim{Size: d})
	}
	data, err := proto.Marshal(p)
	if err != nil {
		panic(err)
	}
	return data
}

// A well-sealed index whose entries lie.
func TestIndexHostile(t *testing.T) {
	good := header(&tfproto.BundleHeaderProto{NumShards: 2})
	ok := entry(tf.Float, []int64{2}, 1, 0, 8, 0)
	unknownRank, err := proto.Marshal(&tfproto.BundleEntryProto{Dtype: types.DataType_DT_FLOAT, Shape: &shapes.TensorShapeProto{UnknownRank: true}, Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name          string
		key           string
		header, entry []byte
		want          string
	}{
		{"good", "x", good, ok, ""},
		{"no header", "x", nil, ok, "not the header"},
		{"header is garbage", "x", []byte{0xff, 0xff}, ok, "bad header"},
		{"no data files", "x", header(&tfproto.BundleHeaderProto{}), ok, "0 data files"},
		{"too many data files", "x", header(&tfproto.BundleHeaderProto{NumShards: 1 << 30}), ok, "data files"},
		{"byte order", "x", header(&tfproto.BundleHeaderProto{NumShards: 1, Endianness: 7}), ok, "byte order 7"},
		{"entry is garbage", "x", good, []byte{0xff, 0xff}, "bad entry"},
		{"no such type", "x", good, entry(77, []int64{2}, 0, 0, 8, 0), "unknown type 77"},
		{"reference type", "x", good, entry(101, []int64{2}, 0, 0, 8, 0), "unknown type 101"},
		{"unknown rank", "x", good, unknownRank, "unknown rank"},
		{"negative dimension", "x", good, entry(tf.Float, []int64{-2, -1}, 0, 0, 8, 0), "bad shape [-2,-1]"},
		{"shape overflows", "x", good, entry(tf.Float, []int64{1 << 40, 1 << 40}, 0, 0, 8, 0), "bad shape"},
		{"size of another shape", "x", good, entry(tf.Float, []int64{3}, 0, 0, 8, 0), "takes 12 bytes, stored are 8"},
		{"fewer bytes than strings", "x", good, entry(tf.String, []int64{30}, 0, 0, 8, 0), "at least 30 bytes"},
		{"data file beyond the last", "x", good, entry(tf.Float, []int64{2}, 2, 0, 8, 0), "data file 2 of 2"},
		{"negative data file", "x", good, entry(tf.Float, []int64{2}, -1, 0, 8, 0), "data file -1"},
		{"negative offset", "x", good, entry(tf.Float, []int64{2}, 0, -8, 8, 0), "8 bytes at -8"},
		{"offset overflows", "x", good, entry(tf.Float, []int64{2}, 0, 1<<63-4, 8, 0), "8 bytes at"},
		{"a slice that lies", "\x00\x01\x04w\x00\x01", good, entry(tf.Float, []int64{3}, 0, 0, 8, 0), "takes 12 bytes"},
	} {
		keys, values := []string{"", test.key}, [][]byte{test.header, test.entry}
		if test.header == nil {
			keys, values = keys[1:], values[1:]
		}
		prefix := filepath.Join(t.TempDir(), "x")
		writeFile(t, IndexPath(prefix), (&tableBuilder{perPart: 1, restart: 1}).build(keys, values))
		_, err := OpenBundle(prefix)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Path != IndexPath(prefix) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want a CorruptError with %q", test.name, err, test.want)
		}
	}
	// A later version of the format is not damage.
	later := header(&tfproto.BundleHeaderProto{NumShards: 1, Version: &versions.VersionDef{Producer: 3, MinConsumer: 2}})
	prefix := filepath.Join(t.TempDir(), "x")
	writeFile(t, IndexPath(prefix), (&tableBuilder{perPart: 1, restart: 1}).build([]string{""}, [][]byte{later}))
	if _, err := OpenBundle(prefix); err == nil || errors.As(err, new(*CorruptError)) || !strings.Contains(err.Error(), "version is 2") {
		t.Errorf("a later version: %v", err)
	}
}

// A checkpoint from a machine of the other byte order; TensorFlow is the judge.
func TestBigEndian(t *testing.T) {
	be := binary.BigEndian
	sum := func(data []byte) uint32 { return crc32.Checksum(data, crc32c.Table) }
	numbers := be.AppendUint32(be.AppendUint32(nil, math.Float32bits(1.5)), math.Float32bits(-2))
	lengths := be.AppendUint32(be.AppendUint32(nil, 3), 200)
	check := be.AppendUint32(nil, crc32c.Mask(sum(lengths)))
	body := "one" + strings.Repeat("y", 200)
	text := append(append([]byte{3, 0xc8, 0x01}, check...), body...)
	prefix := filepath.Join(t.TempDir(), "x")
	writeFile(t, DataPath(prefix, 0, 1), append(bytes.Clone(numbers), text...))
	writeFile(t, IndexPath(prefix), (&tableBuilder{perPart: 9, restart: 1}).build([]string{"", "n", "s"}, [][]byte{
		header(&tfproto.BundleHeaderProto{NumShards: 1, Endianness: tfproto.BundleHeaderProto_BIG}),
		entry(tf.Float, []int64{2}, 0, 0, 8, sum(numbers)),
		entry(tf.String, []int64{2}, 0, 8, int64(len(text)), sum(append(append(lengths, check...), body...))),
	}))
	b, err := OpenBundle(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(background); err != nil {
		t.Error(err)
	}
	want := []string{"one", body[3:]}
	if got, err := b.Strings("s"); err != nil || !slices.Equal(got, want) {
		t.Errorf("strings %q, error %v", got, err)
	}
	got, err := b.Read(background)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got["s"].Value().([]string), want) || !slices.Equal(got["n"].Value().([]float32), []float32{1.5, -2}) {
		t.Errorf("TensorFlow reads %v and %v", got["n"].Value(), got["s"].Value())
	}
}

func FuzzIndex(f *testing.F) {
	for _, path := range []string{"graph/ckpt-2", "plain/model.ckpt", "shards/model", "slices/model", "variants/model"} {
		data, err := os.ReadFile("testdata/" + path + ".index")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(reblock(f, data, 2))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &Bundle{prefix: "x", index: "x.index"}
		if err := b.parse(bytes.NewReader(data), int64(len(data))); err != nil {
			return
		}
		for i, e := range b.entries {
			n, ok := elements(e.Shape)
			if !ok || e.Slices == 0 && (e.Size < 0 || e.Offset < 0 || e.Shard >= b.shards || dtype.DType(e.DType).Size()*n > e.Size) {
				t.Errorf("accepted %+v", e)
			}
			if i > 0 && b.entries[i-1].Name >= e.Name {
				t.Errorf("%q comes after %q", e.Name, b.entries[i-1].Name)
			}
		}
	})
}
