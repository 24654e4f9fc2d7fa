package sentencepiece

import (
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// maxPieces is the maximum number of pieces: far above that of real models, and low enough for the
// cells of a trie to be numbered in 32 bits.
const maxPieces = 1 << 24

// kind is the type of a piece.
type kind uint8

const (
	normal      kind = 1
	unknown     kind = 2
	control     kind = 3
	userDefined kind = 4
	unused      kind = 5
	oneByte     kind = 6
)

// piece is a token of a model.
type piece struct {
	text  string
	score float32
	kind  kind
}

// The types of models.
const (
	typeUnigram = 1
	typeBPE     = 2
)

var typeNames = map[uint64]string{typeUnigram: "unigram", typeBPE: "bpe", 3: "word", 4: "char"}

// proto is what a .model file says, as far as it matters for splitting texts.
type proto struct {
	pieces       []piece
	kind         uint64
	byteFallback bool
	// spaceAfter puts the space that is added to a text after it.
	spaceAfter     bool
	unknownSurface string
	bos, eos, pad  string
	trainer        bool // it says how it was trained
	normalizer     normalizerSpec
	denormalizer   normalizerSpec
}

// normalizerSpec says how texts are normalized.
type normalizerSpec struct {
	table                                  []byte
	addPrefix, removeExtra, escape, inFile bool
}

// field is a field of a message: a number, or bytes.
type field struct {
	number protowire.Number
	typ    protowire.Type
	value  uint64
	bytes  []byte
}

// eachField calls do for the fields of a message.
func eachField(data []byte, do func(field) error) error {
	for len(data) > 0 {
		number, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		f := field{number: number, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(data)
			f.value = uint64(v)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, typ, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// parse reads a .model file.
func parse(data []byte) (*proto, error) {
	p := &proto{
		kind: typeUnigram, unknownSurface: " \u2047 ", bos: "<s>", eos: "</s>", pad: "<pad>",
		normalizer: normalizerSpec{addPrefix: true, removeExtra: true, escape: true},
	}
	err := eachField(data, func(f field) error {
		switch {
		case f.number == 1 && f.typ == protowire.BytesType:
			if len(p.pieces) == maxPieces {
				return fmt.Errorf("more than %d pieces", maxPieces)
			}
			one, err := parsePiece(f.bytes)
			p.pieces = append(p.pieces, one)
			return err
		case f.number == 2 && f.typ == protowire.BytesType:
			return p.parseTrainer(f.bytes)
		case f.number == 3 && f.typ == protowire.BytesType:
			return p.normalizer.parse(f.bytes)
		case f.number == 5 && f.typ == protowire.BytesType:
			p.denormalizer = normalizerSpec{addPrefix: true, removeExtra: true, escape: true}
			return p.denormalizer.parse(f.bytes)
		case f.number > 5 && f.number < 200:
			return fmt.Errorf("it has a field %d", f.number)
		}
		return nil
	})
	if err != nil {
		return nil, fault.Usagef("it cannot be read as a SentencePiece model (a protobuf message): %w", err)
	}
	return p, p.check()
}

func parsePiece(data []byte) (piece, error) {
	p := piece{kind: normal}
	err := eachField(data, func(f field) error {
		switch {
		case f.number == 1 && f.typ == protowire.BytesType:
			p.text = string(f.bytes)
		case f.number == 2 && f.typ == protowire.Fixed32Type:
			p.score = math.Float32frombits(uint32(f.value))
		case f.number == 3 && f.typ == protowire.VarintType:
			if f.value < uint64(normal) || f.value > uint64(oneByte) {
				return fmt.Errorf("a piece is of type %d; expected 1 to 6", f.value)
			}
			p.kind = kind(f.value)
		}
		return nil
	})
	return p, err
}

func (p *proto) parseTrainer(data []byte) error {
	p.trainer = true
	return eachField(data, func(f field) error {
		switch {
		case f.typ == protowire.VarintType && f.number == 3:
			p.kind = f.value
		case f.typ == protowire.VarintType && f.number == 24:
			p.spaceAfter = f.value != 0
		case f.typ == protowire.VarintType && f.number == 35:
			p.byteFallback = f.value != 0
		case f.typ == protowire.BytesType && f.number == 44:
			p.unknownSurface = string(f.bytes)
		case f.typ == protowire.BytesType && f.number == 46:
			p.bos = string(f.bytes)
		case f.typ == protowire.BytesType && f.number == 47:
			p.eos = string(f.bytes)
		case f.typ == protowire.BytesType && f.number == 48:
			p.pad = string(f.bytes)
		}
		return nil
	})
}

func (s *normalizerSpec) parse(data []byte) error {
	s.inFile = true
	return eachField(data, func(f field) error {
		switch {
		case f.typ == protowire.BytesType && f.number == 2:
			s.table = f.bytes
		case f.typ == protowire.VarintType && f.number == 3:
			s.addPrefix = f.value != 0
		case f.typ == protowire.VarintType && f.number == 4:
			s.removeExtra = f.value != 0
		case f.typ == protowire.VarintType && f.number == 5:
			s.escape = f.value != 0
		}
		return nil
	})
}

// check returns an error for a model that cannot be used.
func (p *proto) check() error {
	if p.kind != typeUnigram && p.kind != typeBPE {
		name := typeNames[p.kind]
		if name == "" {
			name = fmt.Sprint(p.kind)
		}
		return fault.Usagef("the model is of type %s; expected unigram or bpe", name)
	}
	if len(p.pieces) == 0 {
		return fault.Usagef("it has no pieces; expected a SentencePiece model")
	}
	if !p.trainer || !p.normalizer.inFile { // which trainers write after the pieces
		return fault.Usagef("it ends after %d pieces, without its trainer_spec and normalizer_spec; expected a whole SentencePiece model", len(p.pieces))
	}
	seen := make(map[string]bool, len(p.pieces))
	count := map[kind]int{}
	for i, one := range p.pieces {
		switch {
		case one.text == "" || !utf8.ValidString(one.text):
			return fault.Usagef("piece %d is %q; expected valid UTF-8 that is not empty", i, one.text)
		case seen[one.text]:
			return fault.Usagef("piece %d, %q, is there twice", i, one.text)
		case math.IsNaN(float64(one.score)) || math.IsInf(float64(one.score), 0):
			return fault.Usagef("piece %d, %q, has the score %v; expected a finite number", i, one.text, one.score)
		case one.kind == oneByte && byteOf(one.text) < 0:
			return fault.Usagef("piece %d, %q, is of a byte; expected a name like <0x0A>", i, one.text)
		}
		seen[one.text] = true
		count[one.kind]++
	}
	if count[unknown] != 1 {
		return fault.Usagef("it has %d pieces for what is unknown; expected one", count[unknown])
	}
	if want := map[bool]int{true: 256}[p.byteFallback]; count[oneByte] != want {
		return fault.Usagef("it has %d pieces for bytes; expected %d", count[oneByte], want)
	}
	return nil
}

// byteOf returns the byte that a piece such as <0x0A> stands for, or -1.
func byteOf(text string) int {
	var b int
	if n, err := fmt.Sscanf(text, "<0x%02X>", &b); n == 1 && err == nil && text == bytePiece(byte(b)) {
		return b
	}
	return -1
}

func bytePiece(b byte) string { return fmt.Sprintf("<0x%02X>", b) }
