package emulator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// frame is a message as it came, to be passed on. The weights of a model that are fed or
// fetched are not decoded.
type frame struct{ data mem.BufferSlice }

// codec is gRPC's codec for messages and frames.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *frame:
		return v.data, nil
	case proto.Message:
		b, err := proto.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("a value of type %T; expected a message", v)
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *frame:
		data.Ref()
		v.data = data
		return nil
	case proto.Message:
		return proto.Unmarshal(data.Materialize(), v)
	}
	return fmt.Errorf("a value of type %T; expected a message", v)
}

// step is what the emulator reads of a RunStepRequest (master.proto).
type step struct {
	session        string
	fetches, feeds []string
	partial        bool
}

// readStep reads a step and skips its tensors.
func readStep(data mem.BufferSlice) (step, error) {
	var s step
	r := data.Reader()
	defer r.Close()
	for r.Remaining() > 0 {
		field, size, err := readTag(r)
		if err != nil {
			return s, fmt.Errorf("RunStepRequest: %w", err)
		}
		switch field {
		case 1, 3, 4, 6:
			b := make([]byte, size)
			if _, err := io.ReadFull(r, b); err != nil {
				return s, err
			}
			switch field {
			case 1:
				s.session = string(b)
			case 6:
				s.partial = len(b) > 0
			default:
				s.fetches = append(s.fetches, string(b))
			}
		case 2:
			name, err := readName(r, size)
			if err != nil {
				return s, fmt.Errorf("RunStepRequest.feed: %w", err)
			}
			s.feeds = append(s.feeds, name)
		default:
			if _, err := r.Discard(size); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// readName reads the name of a NamedTensorProto of this size and skips the rest.
func readName(r *mem.Reader, size int) (string, error) {
	end := r.Remaining() - size
	name := ""
	for r.Remaining() > end {
		field, size, err := readTag(r)
		if err != nil {
			return "", err
		}
		if size > r.Remaining()-end {
			return "", errShort
		}
		if field != 1 {
			if _, err := r.Discard(size); err != nil {
				return "", err
			}
			continue
		}
		b := make([]byte, size)
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		name = string(b)
	}
	return name, nil
}

var errShort = errors.New("a field is longer than its message")

// readTag reads the number of a field, and the size of what follows it. It consumes fields that
// are numbers, whose size is 0.
func readTag(r *mem.Reader) (protowire.Number, int, error) {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	var size uint64
	switch kind {
	case protowire.VarintType:
		if _, err := binary.ReadUvarint(r); err != nil {
			return 0, 0, err
		}
		return -1, 0, nil
	case protowire.Fixed32Type:
		return -1, 4, checkSize(r, 4)
	case protowire.Fixed64Type:
		return -1, 8, checkSize(r, 8)
	case protowire.BytesType:
		if size, err = binary.ReadUvarint(r); err != nil {
			return 0, 0, err
		}
	default:
		return 0, 0, fmt.Errorf("field %d has the wire type %d; expected a message of master.proto", number, kind)
	}
	return number, int(min(size, 1<<32)), checkSize(r, size)
}

func checkSize(r *mem.Reader, size uint64) error {
	if size > uint64(r.Remaining()) {
		return errShort
	}
	return nil
}
