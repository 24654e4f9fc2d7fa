package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
)

// sumsKey is the metadata of a safetensors file with the checksums of its tensors: an object of JSON that
// has the CRC-32C of each, in eight hexadecimal digits, by name. The format has no checksums of its own, and
// other readers pass over metadata that they do not know.
const sumsKey = "gorbit.crc32c"

// newSum begins the checksum of a tensor, which is that of its type and shape and of its bytes.
func newSum(kind string, shape []int64) hash.Hash32 {
	h := crc32.New(crc32c.Table)
	fmt.Fprint(h, kind, shape)
	return h
}

func sumText(h hash.Hash32) string { return fmt.Sprintf("%08x", h.Sum32()) }

// sumsOf returns metadata with the checksums of tensors.
func (r *reshaper) sumsOf(tensors []SafeTensor, metadata map[string]string) (map[string]string, error) {
	sums := make(map[string]string, len(tensors))
	for _, t := range tensors {
		value, err := r.apply(t.Value, t.Value.DataType(), t.Transpose)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		kind, _ := safeDType(value.DataType())
		h := newSum(kind, value.Shape())
		if _, err := value.WriteContentsTo(h); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		sums[t.Name] = sumText(h)
	}
	text, err := json.Marshal(sums)
	out := map[string]string{sumsKey: string(text)}
	for key, value := range metadata {
		out[key] = value
	}
	return out, err
}

// readSums takes the checksums out of the metadata. Every tensor must have one, or none.
func (s *Safetensors) readSums() error {
	text, ok := s.metadata[sumsKey]
	if !ok {
		return nil
	}
	delete(s.metadata, sumsKey)
	if err := json.Unmarshal([]byte(text), &s.sums); err != nil || s.sums == nil {
		return fmt.Errorf("%s is no object of checksums", sumsKey)
	}
	for _, e := range s.entries {
		if s.sums[e.Name] == "" {
			return fmt.Errorf("tensor %q has no checksum in %s, which has those of the others; a program that adds tensors must leave that metadata out", e.Name, sumsKey)
		}
	}
	return nil
}

// Summed reports whether the file has checksums, as those have that gorbit writes. Reading a tensor verifies
// its own.
func (s *Safetensors) Summed() bool { return s.sums != nil }

// section returns the bytes of a tensor, and what to call when all of them have been read: it returns a
// *CorruptError if they do not have their checksum.
func (s *Safetensors) section(i int) (io.Reader, func() error) {
	e := s.entries[i]
	section := io.NewSectionReader(s.files[e.Shard], e.Offset, e.Size)
	if s.sums == nil {
		return section, func() error { return nil }
	}
	h := newSum(s.types[i], e.Shape)
	return io.TeeReader(section, h), func() error {
		if got, want := sumText(h), s.sums[e.Name]; got != want {
			return &CorruptError{Path: s.path, Tensor: e.Name, Offset: e.Offset,
				Reason: fmt.Sprintf("checksum is %s; expected %s", got, want)}
		}
		return nil
	}
}

// Verify reads all tensors and returns a *CorruptError for the first that does not have its checksum. It
// reads nothing of a file that has none.
func (s *Safetensors) Verify(ctx context.Context) error {
	if !s.Summed() {
		return nil
	}
	buffer := make([]byte, 1<<20)
	for i, e := range s.entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("verify %s: %w", s.path, err)
		}
		in, check := s.section(i)
		if _, err := io.CopyBuffer(io.Discard, in, buffer); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", s.path, e.Name, err)
		}
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
