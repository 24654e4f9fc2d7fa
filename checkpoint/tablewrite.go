package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	shapepb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	verpb "github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	tfproto "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

// Sizes of the tables that are written, as TensorFlow has them.
const (
	blockBytes   = 256 << 10
	restartEvery = 16 // entries of a block
)

// encodeIndex returns the index of a bundle of little-endian data files. Entries must be whole
// tensors.
func encodeIndex(entries []Entry, shards int) ([]byte, error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	header, err := proto.Marshal(&tfproto.BundleHeaderProto{
		NumShards: int32(shards), Version: &verpb.VersionDef{Producer: bundleVersion},
	})
	if err != nil {
		return nil, err
	}
	t := &tableWriter{block: blockBytes}
	t.add("", header)
	for i, e := range entries {
		if i > 0 && e.Name == entries[i-1].Name {
			return nil, fmt.Errorf("two tensors are named %s", quote(e.Name))
		}
		shape := &shapepb.TensorShapeProto{}
		for _, size := range e.Shape {
			shape.Dim = append(shape.Dim, &shapepb.TensorShapeProto_Dim{Size: size})
		}
		value, err := proto.Marshal(&tfproto.BundleEntryProto{
			Dtype: dtpb.DataType(e.DType), Shape: shape, ShardId: int32(e.Shard),
			Offset: e.Offset, Size: e.Size, Crc32C: crc32c.Mask(e.CRC32C),
		})
		if err != nil {
			return nil, err
		}
		t.add(e.Name, value)
	}
	return t.finish(), nil
}

// tableWriter makes a table of uncompressed blocks, for [tableReader] and TensorFlow.
type tableWriter struct {
	block int // size in bytes from which on a block ends

	out   []byte
	data  blockWriter
	index blockWriter
}

// add adds an entry. Keys must rise.
func (t *tableWriter) add(key string, value []byte) {
	t.data.add(key, value, restartEvery)
	if len(t.data.bytes) >= t.block {
		t.flush()
	}
}

// flush ends the current block.
func (t *tableWriter) flush() {
	last := t.data.last
	t.index.add(last, t.seal(&t.data), 1)
}

// seal appends a block to the table, and returns its handle.
func (t *tableWriter) seal(b *blockWriter) []byte {
	content := b.finish()
	handle := binary.AppendUvarint(nil, uint64(len(t.out)))
	handle = binary.AppendUvarint(handle, uint64(len(content)))
	content = append(content, blockRaw)
	t.out = append(t.out, content...)
	t.out = binary.LittleEndian.AppendUint32(t.out, crc32c.Mask(crc32.Checksum(content, crc32c.Table)))
	*b = blockWriter{}
	return handle
}

// finish returns the table.
func (t *tableWriter) finish() []byte {
	if t.data.count > 0 {
		t.flush()
	}
	footer := t.seal(&blockWriter{}) // the metaindex
	footer = append(footer, t.seal(&t.index)...)
	footer = append(footer, make([]byte, tableFooter-8-len(footer))...)
	return append(t.out, binary.LittleEndian.AppendUint64(footer, tableMagic)...)
}

// blockWriter makes a block of prefix-compressed entries.
type blockWriter struct {
	bytes    []byte
	restarts []uint32
	last     string
	count    int
}

// add adds an entry, with a whole key after every so many entries.
func (b *blockWriter) add(key string, value []byte, every int) {
	shared := 0
	if b.count%every == 0 {
		b.restarts = append(b.restarts, uint32(len(b.bytes)))
	} else {
		for shared < min(len(key), len(b.last)) && key[shared] == b.last[shared] {
			shared++
		}
	}
	for _, n := range []int{shared, len(key) - shared, len(value)} {
		b.bytes = binary.AppendUvarint(b.bytes, uint64(n))
	}
	b.bytes = append(append(b.bytes, key[shared:]...), value...)
	b.last = key
	b.count++
}

// finish returns the block without its trailer.
func (b *blockWriter) finish() []byte {
	if b.count == 0 {
		b.restarts = []uint32{0}
	}
	for _, at := range b.restarts {
		b.bytes = binary.LittleEndian.AppendUint32(b.bytes, at)
	}
	return binary.LittleEndian.AppendUint32(b.bytes, uint32(len(b.restarts)))
}
