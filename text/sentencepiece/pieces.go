package sentencepiece

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Piece is a piece of a model.
type Piece struct {
	Text  string
	Score float32
	// Control says that no text becomes the piece, and UserDefined that it stays whole in any text.
	Control, UserDefined bool
}

// Pieces returns the pieces by id.
func (m *Model) Pieces() []Piece {
	out := make([]Piece, len(m.proto.pieces))
	for i, p := range m.proto.pieces {
		out[i] = Piece{p.text, p.score, p.kind == control, p.kind == userDefined}
	}
	return out
}

// Table returns the table of normalization, a precompiled_charsmap; empty if texts stay as they are.
func (m *Model) Table() []byte { return m.proto.normalizer.table }

// IsUnigram reports whether the model is of the type unigram and without pieces for bytes.
func (m *Model) IsUnigram() bool { return m.proto.kind == typeUnigram && !m.proto.byteFallback }

// IsBPE reports whether the model is of the type bpe.
func (m *Model) IsBPE() bool { return m.proto.kind == typeBPE }

// Looks reports whether data begins as a .model file does, with a piece that has a text.
func Looks(data []byte) bool {
	number, typ, n := protowire.ConsumeTag(data)
	if n < 0 || number != 1 || typ != protowire.BytesType {
		return false
	}
	first, n := protowire.ConsumeBytes(data[n:])
	if n < 0 {
		return false
	}
	p, err := parsePiece(first)
	return err == nil && p.text != "" && utf8.ValidString(p.text)
}
