package sentencepiece

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids. Ids without a piece are passed over.
func (m *Model) Decode(ids []int32) string { return m.decode(ids, false) }

// decode is Decode, if specials is set with the names of control symbols.
func (m *Model) decode(ids []int32, specials bool) string {
	var out strings.Builder
	var bytes []byte
	begin, seen := true, false // whether the space at the beginning is expected, and was there
	for _, id := range ids {
		if id < 0 || int(id) >= len(m.proto.pieces) {
			continue
		}
		p := m.proto.pieces[id]
		if p.kind == oneByte {
			bytes = append(bytes, byte(byteOf(p.text)))
			continue
		}
		bytes = decodeBytes(&out, bytes)
		if seen || out.Len() > 0 {
			begin = false
		}
		var s string
		if s, seen = m.decodePiece(p, begin); specials && p.kind == control {
			s = p.text
		}
		out.WriteString(s)
	}
	decodeBytes(&out, bytes)
	if m.denormalizer == nil {
		return out.String()
	}
	var text normalized
	m.denormalizer.apply(&text, out.String())
	return string(text.bytes)
}

// decodePiece returns the text of a piece, and whether the space at the beginning was taken from it.
func (m *Model) decodePiece(p piece, begin bool) (string, bool) {
	switch p.kind {
	case control:
		return "", false
	case unknown:
		return m.proto.unknownSurface, false
	}
	spec, text, seen := m.proto.normalizer, p.text, false
	if begin && (spec.addPrefix || spec.removeExtra) {
		text, seen = strings.CutPrefix(text, space)
		seen = seen && !spec.removeExtra // then all of them are
	}
	return strings.ReplaceAll(text, space, " "), seen
}

// decodeBytes appends the text of bytes, in which what is not valid is U+FFFD, and returns no bytes.
func decodeBytes(out *strings.Builder, bytes []byte) []byte {
	for len(bytes) > 0 {
		r, size := utf8.DecodeRune(bytes)
		out.WriteRune(r)
		bytes = bytes[size:]
	}
	return bytes[:0]
}
