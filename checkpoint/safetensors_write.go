package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"
)

// SafeTensor is a tensor of a safetensors file to write.
type SafeTensor struct {
	Name  string
	Value *tf.Tensor
	// Transpose stores a matrix with its axes swapped.
	Transpose bool
}

// WriteSafetensors writes the content of a safetensors file: an 8 byte little-endian length, a header
// in JSON, and the tensors in the order of their names, without gaps. Metadata are free-form
// strings, such as "format": "pt"; checksums of the tensors are added to them.
func WriteSafetensors(w io.Writer, tensors []SafeTensor, metadata map[string]string) error {
	var r reshaper
	defer r.close()
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b SafeTensor) int { return cmp.Compare(a.Name, b.Name) })
	metadata, err := r.sumsOf(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	header, err := safetensorsHeader(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	if err := binary.Write(w, binary.LittleEndian, uint64(len(header))); err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		value, err := r.apply(t.Value, t.Value.DataType(), t.Transpose)
		if err == nil {
			_, err = value.WriteContentsTo(w)
		}
		if err != nil {
			return fmt.Errorf("write safetensors: tensor %s: %w", t.Name, err)
		}
	}
	return nil
}

// safetensorsHeader returns the header of a file of sorted tensors, padded with spaces so that the
// tensors begin at a multiple of 8.
func safetensorsHeader(tensors []SafeTensor, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	if len(metadata) > 0 {
		about, err := json.Marshal(metadata)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `"__metadata__":%s`, about)
	}
	at := int64(0)
	for i, t := range tensors {
		if i > 0 && t.Name == tensors[i-1].Name {
			return nil, fmt.Errorf("tensor %s is given twice", t.Name)
		}
		kind, bits := safeDType(t.Value.DataType())
		if kind == "" {
			return nil, fmt.Errorf("tensor %s has dtype %s, which the format lacks", t.Name, DTypeName(t.Value.DataType()))
		}
		shape := append([]int64{}, t.Value.Shape()...)
		n, ok := elements(shape)
		if !ok || t.Transpose && len(shape) != 2 {
			return nil, fmt.Errorf("tensor %s has shape %v; expected a matrix to transpose", t.Name, shape)
		}
		if t.Transpose {
			slices.Reverse(shape)
		}
		end := at + n*bits/8
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, err
		}
		dims, err := json.Marshal(shape)
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, kind, dims, at, end)
		at = end
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > mostHeader {
		return nil, fmt.Errorf("the header has %d bytes; expected at most %d", b.Len(), mostHeader)
	}
	return b.Bytes(), nil
}

// safeDType returns the format's name of a dtype and the bits of an element, or "".
func safeDType(dtype tf.DataType) (string, int64) {
	for name, d := range safeDTypes {
		if d.dtype == dtype && dtype != 0 {
			return name, d.bits
		}
	}
	return "", 0
}
